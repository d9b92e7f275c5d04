#include "base/read_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/size.h"

namespace fluxon {
namespace {

Result<std::string> readAll(int fd, const std::string& path, uint64_t most, Duration patience) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return systemError("stat " + path, errno);
  if (S_ISDIR(info.st_mode)) return systemError("read " + path, EISDIR);
  std::string text;
  for (;;) {
    pollfd input{fd, POLLIN, 0};
    const int ready = ::poll(&input, 1, static_cast<int>(patience.ms()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return systemError("poll " + path, errno);
    if (ready == 0) return Error{Code::system, "read " + path + ": nothing came for " + std::to_string(patience.ms()) + " ms"};
    char buffer[16384];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return systemError("read " + path, errno);
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > most) return Error{Code::system, "read " + path + ": it is longer than " + formatSize(most)};
  }
}

}  // namespace

Result<std::string> readFile(const std::string& path, uint64_t most, Duration patience) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);  // of a pipe without a writer, too
  if (fd < 0) return systemError("open " + path, errno);
  Result<std::string> text = readAll(fd, path, most, patience);
  ::close(fd);
  return text;
}

}  // namespace fluxon
