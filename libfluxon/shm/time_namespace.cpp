#include "shm/time_namespace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace fluxon::shm {

Error sameClock(const std::string& whose, Time before, Time theirs, Time after) {
  if (theirs >= before && theirs <= after) return {};
  const Duration off = theirs > after ? theirs - after : before - theirs;
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(off.ns) * 1e-9);
  return {Code::protocol, "CLOCK_BOOTTIME of " + whose + " is " + text + " s " + (theirs > after ? "ahead of" : "behind") +
                              " ours: it is in another time namespace, and its leases cannot be judged here"};
}

int64_t bootTimeOffsetNs() {
  const int fd = ::open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[256] = {};
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  // "monotonic           0         0\nboottime            0         0\n"
  const char* line = n > 0 ? std::strstr(text, "boottime") : nullptr;
  long long seconds = 0, ns = 0;
  if (!line || std::sscanf(line, "boottime %lld %lld", &seconds, &ns) != 2) return 0;
  return int64_t{seconds} * 1'000'000'000 + ns;
}

}  // namespace fluxon::shm
