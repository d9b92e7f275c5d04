// The bytes of values between files and memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "shm/mapped_file.h"

namespace fluxon::ctl {

// A bar on stderr while a large value moves: only for a terminal and from 64 MiB up. Gone when it is destroyed.
class Progress {
 public:
  explicit Progress(uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance(uint64_t bytes);

 private:
  uint64_t total_;
  uint64_t done_ = 0;
  bool shown_;
  Time drawn_{};
};

// A file to put: regular ones have a size and are read straight into their place.
class Input {
 public:
  // "" or "-": stdin.
  static Result<Input> open(const std::string& path);
  // Bytes from here to the end of a regular file; 0: unknown, read it all.
  uint64_t size() const { return size_; }
  // Exactly place.size() bytes; a file that has shrunk is an error.
  Error fill(std::span<std::byte> place) const;
  // All that is left of it; `tooLarge` once that is more than `mostBytes`, which `what` explains ("node n0 has 64 MiB").
  Result<std::string> readAll(uint64_t mostBytes, const std::string& what) const;

 private:
  shm::Descriptor file_;
  std::string name_;
  uint64_t size_ = 0;
};

Error writeAll(int fd, std::span<const std::byte> bytes, const std::string& name);

// Writes beside `path` and renames: `path` is never half written, and is as it was if anything fails. Written in place are what is no
// regular file (/dev/null, a pipe), what /proc leads to (/dev/stdout, /dev/fd/3: to its end), and, from its beginning on, a file that
// cannot be replaced: one that is a mount of its own, or whose folder takes no new file.
Error replaceFile(const std::string& path, std::span<const std::byte> bytes);

}  // namespace fluxon::ctl
