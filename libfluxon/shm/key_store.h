// Room for the bytes of keys in `keys`: size classes of powers of two from 32 B, each with a free list, cut from a rising mark.
// Key bytes stay until their slot is free, so a reader under a hazard may always compare them. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace fluxon::shm {

class KeyStore {
 public:
  explicit KeyStore(uint64_t bytes) : bytes_(bytes) {}

  // Offset of room for `length` bytes (up to 64 KiB). nullopt: full.
  std::optional<uint64_t> take(uint64_t length) {
    const unsigned c = classOf(length);
    if (!free_[c].empty()) {
      const uint64_t offset = free_[c].back();
      free_[c].pop_back();
      return offset;
    }
    const uint64_t size = kSmallest << c;
    if (size > bytes_ - mark_) return std::nullopt;
    mark_ += size;
    return mark_ - size;
  }
  void give(uint64_t offset, uint64_t length) { free_[classOf(length)].push_back(offset); }

 private:
  static constexpr uint64_t kSmallest = 32;
  static constexpr unsigned kClasses = 12;
  static unsigned classOf(uint64_t length) {
    unsigned c = 0;
    while ((kSmallest << c) < length) ++c;
    return c;
  }

  uint64_t bytes_;
  uint64_t mark_ = 0;
  std::vector<uint64_t> free_[kClasses];
};

}  // namespace fluxon::shm
