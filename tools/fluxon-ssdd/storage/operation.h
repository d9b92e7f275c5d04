// Operation: one request on its way through an engine: the bytes moved so far, and the next call to the kernel.
//
// After a short transfer it resumes at the last whole block, as O_DIRECT requires, and moves the bytes of a partial block again. If a call
// gets no farther than the one before, the operation has met the end of the file.
#pragma once

#include "file_engine.h"

namespace fluxon::ssdd {

class Operation {
 public:
  enum class Step { again, done };
  // Retries without progress; after them the device counts as failed.
  static constexpr unsigned kMostRetries = 1000;

  Operation(const Request&, size_t alignment);
  Operation(const Operation&) = delete;

  Direction direction() const { return direction_; }
  FileRef file() const { return file_; }
  uint64_t tag() const { return tag_; }

  // The next call: its offset and buffers. `vectored`: the request came as a list of parts.
  bool vectored() const { return !parts_.empty(); }
  uint64_t offset() const { return offset_ + from_; }
  std::span<const iovec> left() const { return vectored() ? std::span(parts_).subspan(part_) : std::span(&single_, 1); }

  // The call has returned: bytes, or a negative errno.
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
