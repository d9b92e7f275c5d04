// Clients of the two owners that scripts/bench has started with a shared memory root each, so that they are owners of two hosts which
// reach each other over the loopback: "near", where values are asked for, and "far".
#pragma once

#include <fluxon/fluxon.hpp>

#include <string>

#include "measure.h"
#include "owner_memory.h"

namespace fluxon::bench {

// `segmentBytes`, if asked for: of the data in the owner's segment.
inline Client hostClient(int argc, char** argv, const std::string& node, uint64_t* segmentBytes = nullptr) {
  const std::string cluster = argument(argc, argv, "--cluster", "default"), root = argument(argc, argv, "--" + node + "-root", "");
  const uint64_t bytes = awaitPopulated(root, cluster, node);
  if (segmentBytes) *segmentBytes = bytes;
  return Client(ConnectOptions{.cluster = cluster, .node = node, .shmRoot = root, .prefault = true});
}

}  // namespace fluxon::bench
