// FaultGuard: what becomes of a SIGBUS in the memory of a mapped file that others can write to, and so can cut short or punch holes into:
//   losable  the access goes on, in zeroed pages of this process that lie where the whole mapping was. broken() says so from then on.
//   vital    the process ends with one line that names the file and status 71 (operating system error).
// Without a guard it ends the process by the signal, as ever.
//
// The table of what is guarded only grows, its places are taken again; it is read by a signal handler in whatever thread has faulted.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "shm/mapped_file.h"

namespace fluxon::shm {

class FaultGuard {
 public:
  // Before the first guard; `process` begins the line of a vital one.
  static void install(const char* process);

  FaultGuard() = default;
  FaultGuard(FaultGuard&& other) noexcept : region_(std::exchange(other.region_, nullptr)) {}
  FaultGuard& operator=(FaultGuard&& other) noexcept {
    std::swap(region_, other.region_);
    return *this;
  }
  ~FaultGuard();

  // The guard must end before the mapping does.
  static FaultGuard losable(const MappedFile&);
  static FaultGuard vital(const MappedFile&, const std::string& path);
  // The whole pages that hold these bytes, of a mapping that is given up if it breaks.
  static FaultGuard losable(const void* data, size_t bytes);

  bool broken() const;

 private:
  struct Region;
  friend struct FaultGuardHandler;
  static Region* take(const void* base, size_t bytes, const std::string& path);

  Region* region_ = nullptr;
};

}  // namespace fluxon::shm
