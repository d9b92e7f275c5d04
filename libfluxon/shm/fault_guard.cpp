#include "shm/fault_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "base/check.h"

namespace fluxon::shm {

struct FaultGuard::Region {
  std::atomic<uintptr_t> base{0};  // 0: guards nothing. Written last, and first when it ends.
  std::atomic<size_t> bytes{0};
  char path[256] = {};  // of a vital one
  std::atomic<bool> taken{false}, broken{false};
  Region* next = nullptr;
};

namespace {

constexpr int kStatus = 71;
constexpr unsigned kLastWordsS = 1;
constexpr const char* kWhat = " was cut short by somebody, or its memory is lost\n";

std::atomic<void*> regions{nullptr};  // FaultGuard::Region
const char* processName = "fluxon";

void say(const char* text) { [[maybe_unused]] const ssize_t said = ::write(2, text, std::strlen(text)); }

}  // namespace

struct FaultGuardHandler {
  using Region = FaultGuard::Region;
  static void onFault(int signal, siginfo_t* info, void*) {
    const int error = errno;
    const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
    // si_code above 0: from the kernel, for this address; not sent by somebody.
    for (auto* region = static_cast<Region*>(regions.load()); region && info->si_code > 0; region = region->next) {
      const uintptr_t base = region->base.load();
      if (base == 0 || at < base || at - base >= region->bytes.load()) continue;
      if (region->path[0] != 0) {
        // Whoever does not read stderr may miss why, and keeps nobody from starting the next life.
        ::signal(SIGALRM, SIG_DFL);
        ::alarm(kLastWordsS);
        for (const char* part : {processName, ": operating system error: ", static_cast<const char*>(region->path), kWhat}) say(part);
        ::_exit(kStatus);
      }
      region->broken.store(true);
      void* const pages = ::mmap(reinterpret_cast<void*>(base), region->bytes.load(), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
      if (pages == MAP_FAILED) break;
      errno = error;
      return;
    }
    // The access comes again, and the signal with it, or it comes from somebody and is sent on.
    ::signal(signal, SIG_DFL);
    if (info->si_code <= 0) ::raise(signal);
  }
};

void FaultGuard::install(const char* process) {
  processName = process;
  struct sigaction action {};
  action.sa_sigaction = FaultGuardHandler::onFault;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  FLUXON_CHECK(::sigaction(SIGBUS, &action, nullptr) == 0, "SIGBUS cannot be handled");
}

FaultGuard::Region* FaultGuard::take(const void* base, size_t bytes, const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto* region = static_cast<Region*>(regions.load());
  while (region && region->taken.load()) region = region->next;
  if (!region) {
    region = new Region;  // never freed: a handler may be reading it
    region->next = static_cast<Region*>(regions.load());
    regions.store(region);
  }
  region->taken.store(true);
  region->broken.store(false);
  std::memset(region->path, 0, sizeof region->path);
  std::memcpy(region->path, path.data(), std::min(path.size(), sizeof region->path - 1));
  region->bytes.store(bytes);
  region->base.store(reinterpret_cast<uintptr_t>(base));
  return region;
}

FaultGuard FaultGuard::losable(const MappedFile& file) { return losable(file.data(), file.bytes()); }

FaultGuard FaultGuard::losable(const void* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(data) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes + page - 1) / page * page;
  FaultGuard guard;
  guard.region_ = take(reinterpret_cast<const void*>(first), end - first, "");
  return guard;
}

FaultGuard FaultGuard::vital(const MappedFile& file, const std::string& path) {
  FaultGuard guard;
  guard.region_ = take(file.data(), file.bytes(), path);
  return guard;
}

FaultGuard::~FaultGuard() {
  if (!region_) return;
  region_->base.store(0);
  region_->taken.store(false);
}

bool FaultGuard::broken() const { return region_ && region_->broken.load(); }

}  // namespace fluxon::shm
