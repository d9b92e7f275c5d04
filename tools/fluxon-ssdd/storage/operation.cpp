#include "operation.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/check.h"

namespace fluxon::ssdd {

Operation::Operation(const Request& r, size_t alignment)
    : direction_(r.direction),
      file_(r.file),
      tag_(r.tag),
      offset_(r.offset),
      alignment_(alignment),
      single_(r.buffer),
      parts_(r.parts.begin(), r.parts.end()) {
  FLUXON_CHECK(parts_.size() <= IOV_MAX, "a request of too many parts");
  uint64_t bits = offset_;
  for (const iovec& each : left()) {
    bits |= reinterpret_cast<uintptr_t>(each.iov_base) | each.iov_len;
    total_ += each.iov_len;
  }
  FLUXON_CHECK(bits % alignment == 0 && total_ > 0, "a request that is not aligned, or empty");
}

Operation::Step Operation::advance(int64_t result, IoCounters& counters) {
  if (result == -EAGAIN || result == -EINTR) {
    if (++retries_ <= kMostRetries) {
      ++counters.retried;
      return Step::again;
    }
  }
  if (result < 0) {
    error_ = static_cast<int>(-result);
    return Step::done;
  }
  const uint64_t reached = from_ + static_cast<uint64_t>(result);
  FLUXON_CHECK(reached <= total_, "more bytes than asked for");
  if (reached <= reached_) {
    error_ = direction_ == Direction::read ? ENODATA : EIO;
    return Step::done;
  }
  reached_ = reached;
  retries_ = 0;
  if (reached_ == total_) return Step::done;
  ++counters.resumed;
  skip(reached_ / alignment_ * alignment_ - from_);
  return Step::again;
}

void Operation::skip(uint64_t bytes) {
  from_ += bytes;
  while (bytes > 0) {
    iovec& first = vectored() ? parts_[part_] : single_;
    const size_t n = std::min<uint64_t>(bytes, first.iov_len);
    first.iov_base = static_cast<char*>(first.iov_base) + n;
    first.iov_len -= n;
    bytes -= n;
    if (first.iov_len == 0 && vectored()) ++part_;
  }
}

}  // namespace fluxon::ssdd
