#include "log_file.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

namespace fluxon::ctl {

namespace {

constexpr uint64_t kTailBytes = 4096;

// Who opens a pipe, or writes to one, waits for somebody who reads it.
Error refuseOther(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return {};
  return {Code::denied, path + " is in the way: not a regular file"};
}

}  // namespace

Result<LogFile> LogFile::open(const std::string& path) {
  if (Error error = refuseOther(path); !error.ok()) return error;
  LogFile log;
  log.path_ = path;
  log.fd_ = shm::Descriptor(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log.fd_ || ::fchmod(log.fd(), 0600) != 0) return systemError("open " + path, errno);
  return log;
}

uint64_t LogFile::bytes() const {
  struct stat info;
  return ::fstat(fd(), &info) == 0 && info.st_size > 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

std::string LogFile::tail(uint64_t from) const {
  const uint64_t end = bytes(), begin = std::max(from, end - std::min(end, kTailBytes));
  if (begin >= end) return "";
  std::string text(end - begin, '\0');
  const ssize_t n = ::pread(fd(), text.data(), text.size(), static_cast<off_t>(begin));
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string LogFile::lastLine(uint64_t from) const {
  const std::string text = tail(from);
  return text.substr(text.rfind('\n') + 1);
}

std::string LogFile::lastWarning(uint64_t from) const {
  std::istringstream lines(tail(from));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    // "2026-11-30T10:00:00.000Z fluxon-owner[n0] warning text"
    std::istringstream words(line);
    std::string time, process, level, text;
    words >> time >> process >> level;
    if ((level == "warning" || level == "error") && std::getline(words >> std::ws, text)) found = text;
  }
  return found;
}

Error LogFile::trim(uint64_t limit) const {
  if (bytes() <= limit) return {};
  const std::string older = path_ + ".1";
  if (Error error = refuseOther(older); !error.ok()) return error;
  const shm::Descriptor to(::open(older.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!to || ::fchmod(to.get(), 0600) != 0) return systemError("open " + older, errno);  // a umask may have closed it
  off_t at = 0;
  ssize_t n;
  while ((n = ::sendfile(to.get(), fd(), &at, limit)) > 0 || (n < 0 && errno == EINTR)) {
  }
  // A full disk is no reason to let the log grow on.
  const int error = n < 0 ? errno : 0;
  if (::ftruncate(fd(), 0) != 0) return systemError("cut " + path_, errno);
  return error == 0 ? Error{} : systemError("write " + older, error);
}

Error makeFolders(const std::string& path) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    made /= part;
    if (::mkdir(made.c_str(), 0700) == 0) {
      if (::chmod(made.c_str(), 0700) != 0) return systemError("chmod " + made.string(), errno);
      continue;
    }
    const int error = errno;
    std::error_code ignored;
    if (!std::filesystem::is_directory(made, ignored)) return systemError("create " + made.string(), error);
  }
  return {};
}

}  // namespace fluxon::ctl
