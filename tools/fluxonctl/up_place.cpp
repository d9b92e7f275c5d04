#include "up_place.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "output.h"
#include "processes.h"
#include "supervisor.h"

namespace fluxon::ctl {
namespace {

// `up` makes anew within a second what was removed, and has no socket for a moment when it begins and when it ends.
constexpr Duration kSocketComes = seconds(3);
constexpr unsigned kLookAgainUs = 20'000;

std::string folderOf(const shm::Paths& paths) { return paths.clusterDir() + "/.up"; }
std::string lockOf(const shm::Paths& paths) { return folderOf(paths) + "/lock"; }
std::string socketOf(const shm::Paths& paths) { return folderOf(paths) + "/socket"; }

std::optional<SocketId> idOf(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return std::nullopt;
  return SocketId{info.st_dev, info.st_ino, int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

sockaddr_un addressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);  // short enough: Paths::of()
  return address;
}

// Sends the request. The socket that has it; nullopt: nobody listens there.
Result<std::optional<SocketId>> ask(const std::string& path) {
  const shm::Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return systemError("socket", errno);
  const sockaddr_un address = addressOf(path);
  const std::optional<SocketId> asked = idOf(path);
  const ssize_t n =
      ::sendto(socket.get(), kStopMessage.data(), kStopMessage.size(), 0, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (n > 0 || errno == EAGAIN) return asked;  // EAGAIN: it has been asked before, and does not look
  if (errno != ENOENT && errno != ECONNREFUSED) return systemError("send to " + path, errno);
  return std::optional<SocketId>();
}

}  // namespace

Result<UpPlace> UpPlace::take(const shm::Paths& paths, int group) {
  UpPlace place(paths, group);
  if (Error error = place.lock(); !error.ok()) return error;
  if (Error error = place.listen(); !error.ok()) return error;
  return place;
}

UpPlace::~UpPlace() {
  if (socket_ && idOf(socketOf(paths_)) == socketName_) ::unlink(socketOf(paths_).c_str());
}

Error UpPlace::lock() {
  if (Error error = shm::makeDirectories(paths_, paths_.clusterDir(), group_); !error.ok()) return error;
  if (Error error = shm::makeDirectory(folderOf(paths_), -1); !error.ok()) return error;
  Result<shm::LockFile> lock = shm::LockFile::acquire(lockOf(paths_), "cluster " + paths_.cluster);
  if (!lock) return lock.error();
  lock_ = std::move(lock).value();
  return {};
}

// Only who has the lock makes the socket.
Error UpPlace::listen() {
  const std::string path = socketOf(paths_);
  ::unlink(path.c_str());
  shm::Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return systemError("socket", errno);
  const sockaddr_un address = addressOf(path);
  const mode_t mask = ::umask(0177);
  const bool bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int error = errno;
  ::umask(mask);
  if (!bound) return systemError("bind " + path, error);
  socketName_ = idOf(path);
  replaced_ = std::exchange(socket_, std::move(socket));
  return {};
}

std::string UpPlace::renew() {
  const bool locked = lock_.named(lockOf(paths_)), listens = idOf(socketOf(paths_)) == socketName_;
  if (locked && listens) return said_.clear(), "";
  const std::string gone = (locked ? socketOf(paths_) : lockOf(paths_)) + " has been removed or replaced";
  Error error = locked ? Error{} : lock();
  if (error.ok()) error = listen();
  const std::string line = gone + (error.ok() ? ": it is made anew" : ", and cannot be made anew yet: " + error.message());
  return line == said_ ? "" : said_ = line;
}

Result<bool> stopUp(const shm::Paths& paths, Duration patience) {
  const std::string lock = lockOf(paths), path = socketOf(paths), cluster = "cluster " + paths.cluster;
  const Time begun = bootTime();
  std::optional<SocketId> asked;
  for (bool any = false;; any = true) {
    switch (shm::LockFile::taken(lock)) {
      case shm::LockFile::Taken::no: return any;
      case shm::LockFile::Taken::unseen:
        return Error{Code::denied, lock + " cannot be seen from here, so whether fluxonctl up runs " + cluster +
                                       " is not known (accepted: the user who runs it)"};
      case shm::LockFile::Taken::yes: break;
    }
    if (!asked) {
      Result<std::optional<SocketId>> answer = ask(path);
      if (!answer) return answer.error();
      asked = answer.value();
    } else if (const std::optional<SocketId> now = idOf(path); now && now != asked) {
      return true;  // that is another one
    }
    const Duration waited = bootTime() - begun;
    if (!asked && waited >= std::min(kSocketComes, patience)) {
      return Error{Code::unavailable,
                   shm::LockFile::whoHolds(lock) + " runs " + cluster + ", but nobody listens at " + path + ": stop it with SIGTERM"};
    }
    if (waited >= patience) return Error{Code::timedOut, shm::LockFile::whoHolds(lock) + " still runs " + cluster};
    ::usleep(kLookAgainUs);
  }
}

std::string lostUp(const shm::Paths& paths) {
  const std::string path = socketOf(paths);
  for (const uint64_t inode : socketsBoundTo(path)) {
    const uint64_t pid = socketHolder(inode);
    const std::string process = "process " + std::to_string(pid) + " (" + quoted(commandOf(pid)) + ")";
    return (pid == 0 ? "a process that cannot be seen from here" : process) + " runs cluster " + paths.cluster +
           ", but its lock is not at " + lockOf(paths) + " (removed, or in another mount namespace): stop it with SIGTERM";
  }
  return "";
}

}  // namespace fluxon::ctl
