// What the control groups of this process allow, version 1 and 2: a container has less than its host shows. Limits stand in each group
// on the way up from that of the process; the host's own files say nothing of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fluxon {

struct MemoryLimit {
  std::string file;  // that holds it
  uint64_t limitBytes = 0;
  uint64_t usedBytes = 0;  // without what can be dropped at once, the cache of files
  uint64_t swapBytes = 0;  // that pages of the group may be swapped out to

  // Bytes that can be taken before something is killed.
  uint64_t roomBytes() const { return (limitBytes > usedBytes ? limitBytes - usedBytes : 0) + swapBytes; }
  // "/sys/fs/cgroup/x/memory.max allows 40 MiB, 3 MiB in use, 0 B of swap"
  std::string text() const;
};

// Of the limits that of least room; nullopt: there is none, or it cannot be seen. `root` stands before /proc and /sys: for tests.
std::optional<MemoryLimit> memoryLimit(const std::string& root = "");

struct TaskLimit {
  std::string file;  // that holds it
  uint64_t most = 0;
};

// The least number of threads that one of the groups allows (pids.max); nullopt: there is none, or it cannot be seen.
std::optional<TaskLimit> taskLimit(const std::string& root = "");

// Processors that this process may use at once, at least 1: by its affinity and the quota of its groups.
unsigned usableProcessors(const std::string& root = "");

}  // namespace fluxon
