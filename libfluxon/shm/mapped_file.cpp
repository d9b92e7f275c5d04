#include "shm/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/size.h"

namespace fluxon::shm {

int Descriptor::moved(int fd) {
  const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  const int error = errno;
  ::close(fd);
  errno = error;
  return above;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

MappedFile::~MappedFile() {
  if (base_) ::munmap(base_, bytes_);
}

Result<MappedFile> MappedFile::map(int fd, Access access, const std::string& what) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return systemError("stat " + what, errno);
  if (info.st_size <= 0) return Error{Code::corrupt, what + " is empty"};
  MappedFile file;
  file.bytes_ = static_cast<uint64_t>(info.st_size);
  const int protection = access == Access::readOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* base = ::mmap(nullptr, file.bytes_, protection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return systemError("map " + what, errno);
  file.base_ = base;
  return file;
}

Result<Descriptor> openFile(const std::string& path, Access access) {
  Descriptor fd(::open(path.c_str(), (access == Access::readOnly ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return systemError("open " + path, errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return systemError("stat " + path, errno);
  if (!S_ISREG(info.st_mode)) return Error{Code::corrupt, path + " is not a regular file"};
  return fd;
}

Result<MappedFile> MappedFile::open(const std::string& path, Access access) {
  Result<Descriptor> fd = openFile(path, access);
  if (!fd) return fd.error();
  return map(fd->get(), access, path);
}

Error createError(const std::string& what, const std::string& path, int errnoValue) {
  struct statvfs fs;
  if (errnoValue != ENOSPC || ::statvfs(path.substr(0, path.rfind('/')).c_str(), &fs) != 0 || fs.f_files == 0 || fs.f_ffree > 0) {
    return systemError(what + " " + path, errnoValue);
  }
  return {Code::noSpace,
          path + " needs an inode, and none of the " + std::to_string(fs.f_files) + " of its file system is free (nr_inodes)"};
}

namespace {

// Where a file system has no way to reserve space without writing. Addresses, offsets and lengths are such that direct I/O takes them.
// glibc's emulation writes single bytes, which direct I/O refuses. 0 or errno.
int writeZeros(int fd, uint64_t from, uint64_t bytes) {
  constexpr uint64_t kPiece = uint64_t{4} << 20, kAligned = uint64_t{64} << 10;
  const std::unique_ptr<void, decltype(&std::free)> zeros(std::aligned_alloc(kAligned, kPiece), &std::free);
  if (!zeros) return ENOMEM;
  std::memset(zeros.get(), 0, kPiece);
  for (uint64_t at = from; at < from + bytes;) {
    const ssize_t n = ::pwrite(fd, zeros.get(), std::min(kPiece, from + bytes - at), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    at += static_cast<uint64_t>(n);
  }
  return 0;
}

Error tooSmall(int fd, const std::string& path, uint64_t bytes) {
  struct statvfs fs = {};
  ::fstatvfs(fd, &fs);
  return {Code::noSpace, path + " needs " + formatSize(bytes) + ", " + formatSize(uint64_t{fs.f_bavail} * fs.f_bsize) + " free"};
}

}  // namespace

Result<Reserved> reserveSpace(int fd, const std::string& path, uint64_t bytes, const std::function<void(uint64_t)>& progress) {
  bool writes = false;
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t step = std::min(bytes - at, kGiB);
    int error = writes ? writeZeros(fd, at, step) : ::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(step)) == 0 ? 0 : errno;
    if (error == EINTR) continue;
    if (!writes && (error == EOPNOTSUPP || error == ENOSYS)) {
      writes = true;
      continue;
    }
    if (error == ENOSPC) return tooSmall(fd, path, bytes);
    if (error != 0) return systemError("reserve " + formatSize(bytes) + " for " + path, error);
    at += step;
    if (progress) progress(at);
  }
  return writes ? Reserved::byWriting : Reserved::atOnce;
}

Result<Descriptor> createFile(const std::string& path, uint64_t bytes, int mode, int group, const std::function<void(uint64_t)>& progress) {
  // The older file goes only for one that can be expected to fit.
  struct stat older;
  const Descriptor folder(::open(path.substr(0, path.rfind('/') + 1).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct statvfs before;
  if (folder && ::stat(path.c_str(), &older) == 0 && ::fstatvfs(folder.get(), &before) == 0 &&
      uint64_t{before.f_bavail} * before.f_bsize + static_cast<uint64_t>(older.st_blocks) * 512 < bytes) {
    return tooSmall(folder.get(), path, bytes);
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return systemError("remove " + path, errno);
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return createError("create", path, errno);
  struct statvfs fs;
  const bool fits = ::fstatvfs(fd.get(), &fs) != 0 || uint64_t{fs.f_bavail} * fs.f_bsize >= bytes;
  const Result<Reserved> reserved = fits ? reserveSpace(fd.get(), path, bytes, progress) : tooSmall(fd.get(), path, bytes);
  if (Error error = reserved ? Error{} : reserved.error(); !error.ok()) {
    ::unlink(path.c_str());
    if (error.code == Code::noSpace) error.detail += " (memory of a replaced file stays until its readers end)";
    return error;
  }
  if (group >= 0 && ::fchown(fd.get(), static_cast<uid_t>(-1), static_cast<gid_t>(group)) != 0) return systemError("chown " + path, errno);
  if (::fchmod(fd.get(), static_cast<mode_t>(mode)) != 0) return systemError("chmod " + path, errno);
  return fd;
}

}  // namespace fluxon::shm
