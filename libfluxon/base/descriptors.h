// Descriptors are few: connections leave some for the files of the process.
#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace fluxon {

// Is it one of the last that this process may have? The kernel gives the lowest one that is free, so that nearly all others are in use.
inline bool isReserved(int fd) {
  constexpr rlim_t kReserved = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return static_cast<rlim_t>(fd) + std::min(kReserved, limit.rlim_cur / 8) >= limit.rlim_cur;
}

}  // namespace fluxon
