// The segment of a running owner, as a benchmark looks at it before it begins.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "shm/mapped_file.h"
#include "shm/paths.h"
#include "shm/segment_format.h"

namespace fluxon::bench {

// Blocks until the owner has touched its whole segment, and returns the bytes of data in it; ends the process if that takes longer than
// a minute. `root` empty: the default.
inline uint64_t awaitPopulated(const std::string& root, const std::string& cluster, const std::string& node) {
  Result<shm::Paths> paths = shm::Paths::of(root, cluster);
  if (paths) {
    Result<shm::MappedFile> map = shm::MappedFile::open(paths->file(node, "segment"), shm::Access::readOnly);
    if (map) {
      const auto& header = *reinterpret_cast<const shm::SegmentHeader*>(map->data());
      for (int ms = 0; ms < 60'000; ++ms) {
        if (header.populatedBytes.load(std::memory_order_acquire) >= header.dataBytes) return header.dataBytes;
        ::usleep(1000);
      }
    }
  }
  std::fprintf(stderr, "the segment of node %s does not get populated\n", node.c_str());
  std::exit(75);
}

}  // namespace fluxon::bench
