#include "value_io.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/size.h"

namespace fluxon::ctl {
namespace {

constexpr uint64_t kSmallestWithBar = 64 * kMiB;
constexpr size_t kPiece = 4 * kMiB;
constexpr int kMostLinks = 40;  // as the kernel

struct Unlink {
  std::string path;
  ~Unlink() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

}  // namespace

Progress::Progress(uint64_t total) : total_(total), shown_(total > kSmallestWithBar && ::isatty(STDERR_FILENO)) {}
Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::advance(uint64_t bytes) {
  done_ += bytes;
  const Time now = bootTime();
  if (!shown_ || (now - drawn_) < milliseconds(100)) return;
  drawn_ = now;
  constexpr unsigned kWidth = 40;
  const auto filled = static_cast<unsigned>(static_cast<double>(done_) / static_cast<double>(total_) * kWidth);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fprintf(stderr, "\r[%s] %s of %s\x1b[K", bar.c_str(), formatSize(done_).c_str(), formatSize(total_).c_str());
}

Result<Input> Input::open(const std::string& path) {
  Input input;
  const bool isStdin = path.empty() || path == "-";
  input.name_ = isStdin ? "stdin" : path;
  input.file_ = shm::Descriptor(isStdin ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input.file_) return systemError("open " + input.name_, errno);
  struct stat info;
  if (::fstat(input.file_.get(), &info) != 0) return systemError("stat " + input.name_, errno);
  if (S_ISDIR(info.st_mode)) return systemError("read " + input.name_, EISDIR);
  if (S_ISREG(info.st_mode)) {
    const off_t at = ::lseek(input.file_.get(), 0, SEEK_CUR);
    if (at >= 0 && info.st_size > at) input.size_ = static_cast<uint64_t>(info.st_size - at);
  }
  return input;
}

Error Input::fill(std::span<std::byte> place) const {
  Progress progress(place.size());
  while (!place.empty()) {
    const ssize_t n = ::read(file_.get(), place.data(), std::min(place.size(), kPiece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return systemError("read " + name_, errno);
    if (n == 0) return {Code::system, "read " + name_ + ": cut meanwhile, " + std::to_string(place.size()) + " bytes are missing"};
    place = place.subspan(static_cast<size_t>(n));
    progress.advance(static_cast<uint64_t>(n));
  }
  return {};
}

Result<std::string> Input::readAll(uint64_t mostBytes, const std::string& what) const {
  std::string bytes;
  for (size_t used = 0;;) {
    if (used > mostBytes) return Error{Code::tooLarge, name_ + " has more than " + formatSize(mostBytes) + " (" + what + ")"};
    if (bytes.size() - used < 64 * kKiB) bytes.resize(std::max<size_t>(256 * kKiB, std::min(bytes.size() * 2, mostBytes + 128 * kKiB)));
    const ssize_t n = ::read(file_.get(), bytes.data() + used, bytes.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return systemError("read " + name_, errno);
    if (n == 0) {
      bytes.resize(used);
      return bytes;
    }
    used += static_cast<size_t>(n);
  }
}

Error writeAll(int fd, std::span<const std::byte> bytes, const std::string& name) {
  Progress progress(bytes.size());
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kPiece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return systemError("write " + name, errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    progress.advance(static_cast<uint64_t>(n));
  }
  return {};
}

namespace {

// Does the way to the file, from link to link, lead over procfs? What /dev/stdout and its like name is somebody's open file: its place
// is kept. The kind of file system decides, not how the path is written.
bool leadsOverProc(std::filesystem::path path) {
  for (int links = 0; links < kMostLinks; ++links) {
    const shm::Descriptor at(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct statfs fs {};
    if (!at || ::fstatfs(at.get(), &fs) != 0) return false;
    if (fs.f_type == PROC_SUPER_MAGIC) return true;
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) return false;  // no link
    path = path.parent_path() / target;
  }
  return false;
}

Error writeInPlace(const std::string& path, int flags, std::span<const std::byte> bytes) {
  const shm::Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags));
  return file ? writeAll(file.get(), bytes, path) : systemError("open " + path, errno);
}

// Where links lead to in the end, which need not be there.
Result<std::string> endOfLinks(std::filesystem::path path) {
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path.string();
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) return systemError("read the link " + path.string(), error.value());
    path = path.parent_path() / target;
  }
  return systemError("open " + path.string(), ELOOP);
}

}  // namespace

Error replaceFile(const std::string& path, std::span<const std::byte> bytes) {
  struct stat info;
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) return systemError("open " + path, errno);
  if (exists && (!S_ISREG(info.st_mode) || leadsOverProc(path))) return writeInPlace(path, O_APPEND, bytes);
  Result<std::string> end = endOfLinks(path);  // a link stays, what it leads to is replaced, or made
  if (!end) return end.error();
  const std::string target = std::move(end).value();
  std::string temporary = target.substr(0, target.rfind('/') + 1) + ".fluxonctl-XXXXXX";  // the name of `target` may be as long as can be
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  const bool closed = errno == EACCES || errno == EPERM || errno == EROFS;
  if (fd < 0 && exists && closed) return writeInPlace(target, O_TRUNC, bytes);
  if (fd < 0) return systemError("create a file beside " + target, errno);
  Unlink unlink{temporary};
  const shm::Descriptor file(fd);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd, exists ? info.st_mode & 07777 : 0666 & ~mask) != 0) return systemError("chmod " + temporary, errno);
  if (Error error = writeAll(fd, bytes, temporary); !error.ok()) return error;
  // Somebody may have put something there meanwhile.
  if (struct stat now; ::lstat(target.c_str(), &now) == 0 && !S_ISREG(now.st_mode)) return systemError("replace " + target, EEXIST);
  if (::rename(temporary.c_str(), target.c_str()) == 0) {
    unlink.path.clear();
    return {};
  }
  // EBUSY: a mount; EXDEV: a mount of the same file system; EACCES, EPERM: another's file in a folder with the sticky bit.
  if (exists && (errno == EBUSY || errno == EXDEV || errno == EACCES || errno == EPERM)) return writeInPlace(target, O_TRUNC, bytes);
  return systemError("rename " + temporary + " to " + target, errno);
}

}  // namespace fluxon::ctl
