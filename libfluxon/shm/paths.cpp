#include "shm/paths.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "shm/directory_writer.h"

namespace fluxon::shm {
namespace {

DIR* openFolder(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC));
  DIR* dir = fd ? ::fdopendir(fd.get()) : nullptr;
  if (dir) fd.release();
  return dir;
}

// "a symbolic link of user 5, not a folder"
std::string describe(const struct stat& info, const char* wanted) {
  const char* kind = S_ISLNK(info.st_mode)    ? "a symbolic link"
                     : S_ISREG(info.st_mode)  ? "a file"
                     : S_ISDIR(info.st_mode)  ? "a folder"
                     : S_ISFIFO(info.st_mode) ? "a fifo"
                     : S_ISSOCK(info.st_mode) ? "a socket"
                                              : "a device";
  return std::string(kind) + " of user " + std::to_string(info.st_uid) + ", not " + wanted;
}

bool everybodyWrites(const struct stat& info) {
  return S_ISDIR(info.st_mode) && (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
}
Error openToAll(const std::string& path) {
  return {Code::denied, path + " can be written by everybody, who could replace what is below it (accepted: mode o-w, or sticky)"};
}

// Of one path, as it is spelled.
Error checkSteps(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string step = path.substr(0, end);
    struct stat info;
    if (::lstat(step.c_str(), &info) != 0) return errno == ENOENT ? Error() : systemError("stat " + step, errno);
    if (info.st_uid != ::geteuid() && info.st_uid != 0) {
      return {Code::denied, step + " belongs to user " + std::to_string(info.st_uid) + ", not to " + std::to_string(::geteuid()) +
                                " or root: who could replace what is below it"};
    }
    if (everybodyWrites(info)) return openToAll(step);
    if (end == std::string::npos) return {};
  }
}

}  // namespace

Result<Paths> Paths::of(const std::string& root, const std::string& cluster) {
  if (!validName(cluster)) {
    return Error{Code::invalidArgument, "cluster name '" + cluster + "' (accepted: 1 to 32 of A-Z a-z 0-9 _ - ., no leading .)"};
  }
  Paths paths{root, cluster};
  if (const char* named = ::secure_getenv("FLUXON_SHM_ROOT"); paths.root.empty() && named) paths.root = named;
  if (paths.root.empty()) {
    paths.root = "/dev/shm/fluxon-" + std::to_string(::geteuid());
    paths.isDefaultRoot = true;
  }
  while (paths.root.size() > 1 && paths.root.back() == '/') paths.root.pop_back();
  if (paths.root[0] != '/') return Error{Code::invalidArgument, "shared memory root '" + paths.root + "' is not an absolute path"};
  if (paths.root.size() > maxRootBytes(cluster.size())) {
    return Error{Code::invalidArgument, "shared memory root '" + paths.root + "' is too long for a socket path (accepted: up to " +
                                            std::to_string(maxRootBytes(cluster.size())) + " bytes)"};
  }
  return paths;
}

std::vector<std::string> Paths::nodes() const {
  std::vector<std::string> names;
  DIR* dir = openFolder(clusterDir());
  if (!dir) return names;
  while (const dirent* entry = ::readdir(dir)) {
    struct stat info;
    if (validName(entry->d_name) && ::fstatat(::dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode)) {
      names.emplace_back(entry->d_name);
    }
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

Error checkFolder(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT ? Error() : systemError("stat " + path, errno);
  if (!S_ISDIR(info.st_mode)) return {Code::denied, path + " is in the way: " + describe(info, "a folder")};
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return {Code::denied, path + " belongs to user " + std::to_string(info.st_uid) + ", not to " + std::to_string(::geteuid())};
  }
  return {};
}

Result<int> groupOf(const std::string& name) {
  if (name.empty()) return -1;
  const ::group* found = ::getgrnam(name.c_str());
  if (!found) return Error{Code::badConfig, "common.shm_group: no group '" + name + "'"};
  return static_cast<int>(found->gr_gid);
}

namespace {

// Of a folder that is there. Nothing says who has made it and for what, so nothing of it is changed.
Error checkPresent(const std::string& path, int group) {
  // Who makes it at this moment gives it to the group next: a few more looks.
  for (int attempt = 0;; ++attempt) {
    if (Error error = checkFolder(path); !error.ok()) return error;
    struct stat info;
    if (::lstat(path.c_str(), &info) != 0) return systemError("stat " + path, errno);
    if (everybodyWrites(info)) return openToAll(path);
    const bool theirs = group >= 0 && info.st_gid == static_cast<gid_t>(group);
    if (group < 0 || (info.st_mode & (theirs ? S_IXGRP : S_IXOTH)) != 0) return {};
    if (attempt >= 10) {
      const ::group* found = ::getgrgid(static_cast<gid_t>(group));
      const std::string name = found ? found->gr_name : std::to_string(group);
      return {Code::denied, path + " was there and does not let group " + name + " of common.shm_group in (chgrp " + name + " " + path +
                                " && chmod 0750 " + path + ", or remove it while nothing runs there)"};
    }
    ::usleep(5000);
  }
}

}  // namespace

Error makeDirectory(const std::string& path, int group) {
  if (::mkdir(path.c_str(), 0700) != 0) return errno == EEXIST ? checkPresent(path, group) : createError("mkdir", path, errno);
  Error error;
  if (group >= 0 && ::chown(path.c_str(), static_cast<uid_t>(-1), static_cast<gid_t>(group)) != 0) {
    error = systemError("chown " + path, errno);
  } else if (::chmod(path.c_str(), group >= 0 ? 0750 : 0700) != 0) {  // a umask may have closed it
    error = systemError("chmod " + path, errno);
  }
  if (!error.ok()) ::rmdir(path.c_str());
  return error;
}

Error checkWay(const std::string& path) {
  std::error_code none;
  const std::string followed = std::filesystem::weakly_canonical(path, none);
  if (Error error = checkSteps(path); !error.ok() || followed.empty()) return error;
  return checkSteps(followed);
}

Error makeDirectories(const Paths& paths, const std::string& directory, int group) {
  for (const std::string& path : {paths.root, paths.clusterDir(), directory}) {
    if (Error error = makeDirectory(path, group); !error.ok()) return error;
  }
  return {};
}

void unlinkNodeFiles(const Paths& paths, const std::string& node) {
  DIR* dir = openFolder(paths.nodeDir(node));
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == "segment" || name == "directory" || name == "keys" || name == "socket" || name == "ssdd" || name.starts_with("client-"))
      ::unlinkat(::dirfd(dir), entry->d_name, 0);
  }
  ::closedir(dir);
}

namespace {

// Clients may map it for a long time.
void endServing(const std::string& directory) {
  const Result<MappedFile> map = MappedFile::open(directory, Access::readWrite);
  if (!map || map.value().bytes() < sizeof(DirectoryHeader)) return;
  auto& header = *reinterpret_cast<DirectoryHeader*>(map.value().data());
  if (!refuse(header.file, kDirectoryMagic, map.value().bytes())) DirectoryWriter::endServing(header);
}

}  // namespace

Error removeNode(const Paths& paths, const std::string& node) {
  const Result<LockFile> lock = LockFile::acquire(paths.file(node, "lock"), "node " + node);
  if (!lock) return lock.error();
  endServing(paths.file(node, "directory"));
  unlinkNodeFiles(paths, node);
  ::unlink(paths.file(node, "lock").c_str());
  if (::rmdir(paths.nodeDir(node).c_str()) != 0) return systemError("remove " + paths.nodeDir(node), errno);
  return {};
}

namespace {

// Opens a regular file, or makes it, 0600 whatever the umask.
Result<Descriptor> openOrMake(const std::string& path, int flags) {
  const int all = flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  for (;;) {
    Descriptor fd(::open(path.c_str(), all | O_CREAT | O_EXCL, 0600));
    if (fd) {
      if (::fchmod(fd.get(), 0600) == 0) return fd;
      return systemError("chmod " + path, errno);
    }
    if (errno != EEXIST) return createError("open", path, errno);
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      return Error{Code::denied, path + " is in the way: " + describe(info, "a regular file")};
    fd = Descriptor(::open(path.c_str(), all));
    if (fd) return fd;
    if (errno != ENOENT) return systemError("open " + path, errno);
  }
}

}  // namespace

Result<Descriptor> openLocked(const std::string& path, int flags, const std::function<std::string()>& held) {
  // Whoever asks LockFile::taken() has the lock for a moment: a few more tries. The one who had it may have removed the file: then the
  // lock that we got is on a file without a name.
  for (int attempt = 0;; ++attempt) {
    Result<Descriptor> opened = openOrMake(path, flags);
    if (!opened) return opened.error();
    Descriptor fd = std::move(opened).value();
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      struct stat ours, named;
      if (::fstat(fd.get(), &ours) != 0 || ::stat(path.c_str(), &named) != 0 || ours.st_ino != named.st_ino) continue;
      // O_NONBLOCK was for what is no regular file; with it io_uring answers EAGAIN where it would wait.
      if (::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK) != 0) return systemError("fcntl " + path, errno);
      return fd;
    }
    if (errno != EWOULDBLOCK) return systemError("flock " + path, errno);
    if (attempt >= 10) return Error{Code::unavailable, held()};
    ::usleep(5000);
  }
}

Error NamedFiles::add(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return systemError("stat " + path, errno);
  files_.push_back({path, info.st_dev, info.st_ino, info.st_size});
  return {};
}

Error NamedFiles::look() const {
  for (const File& file : files_) {
    struct stat info;
    if (::lstat(file.path.c_str(), &info) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return {Code::system, file.path + " has been removed"};
      continue;  // whether it is there cannot be said
    }
    if (info.st_dev != file.device || info.st_ino != file.inode) return {Code::system, file.path + " has been replaced"};
    if (info.st_size < file.bytes) return {Code::system, file.path + " has been cut short"};
  }
  return {};
}

Result<LockFile> LockFile::acquire(const std::string& path, const std::string& what) {
  Result<Descriptor> fd =
      openLocked(path, O_RDWR, [&] { return what + " is already run by " + whoHolds(path) + " (" + path + " is locked)"; });
  if (!fd) return fd.error();
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd->get(), 0) != 0 || ::pwrite(fd->get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return systemError("write " + path, errno);
  }
  LockFile lock;
  lock.fd_ = std::move(fd).value();
  return lock;
}

bool LockFile::named(const std::string& path) const {
  struct stat ours, found;
  return ::fstat(fd_.get(), &ours) == 0 && ::lstat(path.c_str(), &found) == 0 && ours.st_dev == found.st_dev && ours.st_ino == found.st_ino;
}

LockFile::Taken LockFile::taken(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (fd) return ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK ? Taken::yes : Taken::no;
  if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return Taken::no;
  return holder(path) > 0 ? Taken::yes : Taken::unseen;
}

long LockFile::holder(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return 0;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    long pid = 0;
    unsigned devMajor = 0, devMinor = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*u: FLOCK %*s WRITE %ld %x:%x:%lu", &pid, &devMajor, &devMinor, &inode) != 4) continue;
    if (inode == info.st_ino && makedev(devMajor, devMinor) == info.st_dev) return std::max(0L, pid);
  }
  return 0;
}

std::string LockFile::whoHolds(const std::string& path) {
  const long pid = holder(path);
  return pid > 0 ? "process " + std::to_string(pid) : "a process that cannot be seen from here";
}

}  // namespace fluxon::shm
