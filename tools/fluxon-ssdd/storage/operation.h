// One request on its way through an engine: what has been moved, and what is to be asked of the kernel next.
//
// A transfer that was cut short goes on from the last whole block, as O_DIRECT wants it: bytes of a block that came in part are
// moved again. One that gets no farther than the one before it has met the end of the file.
#pragma once

#include "file_engine.h"

namespace fluxon::ssdd {

class Operation {
 public:
  enum class Step { again, done };
  // Without a byte in between; the device is then taken to have failed.
  static constexpr unsigned kMostRetries = 1000;

  Operation(const Request&, size_t alignment);
  Operation(const Operation&) = delete;

  Direction direction() const { return direction_; }
  FileRef file() const { return file_; }
  uint64_t tag() const { return tag_; }

  // The next call: at this offset, into or from these. `vectored` is how the request came.
  bool vectored() const { return !parts_.empty(); }
  uint64_t offset() const { return offset_ + from_; }
  std::span<const iovec> left() const { return vectored() ? std::span(parts_).subspan(part_) : std::span(&single_, 1); }

  // What the call returned: bytes, or a negative errno.
  Step advance(int64_t result, IoCounters&);
  Completion completion() const { return {tag_, reached_, error_}; }

 private:
  void skip(uint64_t bytes);

  Direction direction_;
  FileRef file_;
  uint64_t tag_;
  uint64_t offset_;
  size_t alignment_;
  iovec single_;
  std::vector<iovec> parts_;
  size_t part_ = 0;
  uint64_t total_ = 0;
  uint64_t from_ = 0;     // where the next call begins: whole blocks
  uint64_t reached_ = 0;  // bytes moved, from the first on
  unsigned retries_ = 0;
  int error_ = 0;
};

}  // namespace fluxon::ssdd
