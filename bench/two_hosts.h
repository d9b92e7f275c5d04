// Clients of the two owners that scripts/bench has started with a shared memory root each, so that they are owners of two hosts which
// reach each other over the loopback: "near", where values are asked for, and "far".
#pragma once

#include <fluxon/fluxon.hpp>

#include <string>

#include "measure.h"
#include "owner_memory.h"

namespace fluxon::bench {

inline Client hostClient(int argc, char** argv, const std::string& node) {
  const std::string cluster = argument(argc, argv, "--cluster", "default"), root = argument(argc, argv, "--" + node + "-root", "");
  awaitPopulated(root, cluster, node);
  return Client(ConnectOptions{.cluster = cluster, .node = node, .shmRoot = root, .prefault = true});
}

}  // namespace fluxon::bench
