// One mmap of one file, and descriptors as values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/result.h"

namespace fluxon::shm {

// Never 0, 1 or 2: a program that was started with those closed gets them from its first opens, and what it prints would be written
// into our files and sockets. Such a number is exchanged at once for one from 3 up (closed on exec); only for that moment, which no
// call can spare us, another thread may print into it.
class Descriptor {
 public:
  Descriptor() = default;
  // Takes over what a call has returned; below 0, with errno: none.
  explicit Descriptor(int fd) : fd_(0 <= fd && fd <= 2 ? moved(fd) : fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Gives it up to the caller.
  int release() { return std::exchange(fd_, -1); }

 private:
  static int moved(int fd);

  int fd_ = -1;
};

enum class Access { readOnly, readWrite };

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  // Maps the whole of an open file, shared. The descriptor is not kept.
  static Result<MappedFile> map(int fd, Access access, const std::string& what);
  // Opens (no link is followed, nothing but a regular file) and maps.
  static Result<MappedFile> open(const std::string& path, Access access);

  char* data() const { return static_cast<char*>(base_); }
  uint64_t bytes() const { return bytes_; }
  explicit operator bool() const { return base_ != nullptr; }

 private:
  void* base_ = nullptr;
  uint64_t bytes_ = 0;
};

// Why a file or folder could not be made, by errno: noSpace names inodes where none is left, else as systemError().
Error createError(const std::string& what, const std::string& path, int errnoValue);

// Creates `path` anew (an older file of that name is unlinked; its inode lives on in those who map it), `bytes` long, with all
// its space reserved. `progress` is called after each GiB. Too little space is an error here, never a SIGBUS later:
// "segment needs 64 MiB, 16 MiB free in /dev/shm/..."
Result<Descriptor> createFile(const std::string& path, uint64_t bytes, int mode, int group,
                              const std::function<void(uint64_t reserved)>& progress = {});

// Reserves the space of the first `bytes` of an open file, in steps of a GiB, each told to `progress`. noSpace says what is free.
// A file system without fallocate(2) takes zeros instead, which is slower.
enum class Reserved { atOnce, byWriting };
Result<Reserved> reserveSpace(int fd, const std::string& path, uint64_t bytes, const std::function<void(uint64_t reserved)>& progress = {});

Result<Descriptor> openFile(const std::string& path, Access access);

}  // namespace fluxon::shm
