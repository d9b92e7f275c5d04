// Room for the bytes of keys in `keys`: buddies, powers of two from 32 B to 64 KiB, so that room of short keys that are gone
// serves long ones. Key bytes stay until their slot is free, so a reader under a hazard may always compare them. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

namespace fluxon::shm {

class KeyStore {
 public:
  explicit KeyStore(uint64_t bytes) {
    uint64_t at = 0;
    for (unsigned c = kClasses; c-- > 0;) {
      for (; bytes - at >= sizeOf(c); at += sizeOf(c)) free_[c].insert(at);
    }
  }

  // Offset of room for `length` bytes (up to 64 KiB). nullopt: full.
  std::optional<uint64_t> take(uint64_t length) {
    const unsigned wanted = classOf(length);
    unsigned c = wanted;
    while (c < kClasses && free_[c].empty()) ++c;
    if (c >= kClasses) return std::nullopt;
    const uint64_t offset = *free_[c].begin();
    free_[c].erase(free_[c].begin());
    while (c > wanted) --c, free_[c].insert(offset + sizeOf(c));
    return offset;
  }
  // Takes the room that a key record names. False: it is not room that take() could have given, or is taken.
  bool claim(uint64_t offset, uint64_t length) {
    const unsigned wanted = classOf(length);
    if (wanted >= kClasses || offset % sizeOf(wanted) != 0) return false;
    unsigned c = wanted;
    while (c < kClasses && !free_[c].count(offset & ~(sizeOf(c) - 1))) ++c;
    if (c >= kClasses) return false;
    free_[c].erase(offset & ~(sizeOf(c) - 1));
    // Halves that the record does not lie in stay free.
    while (c > wanted) {
      --c;
      free_[c].insert((offset & ~(sizeOf(c) - 1)) ^ sizeOf(c));
    }
    return true;
  }
  void give(uint64_t offset, uint64_t length) {
    unsigned c = classOf(length);
    for (; c + 1 < kClasses && free_[c].erase(offset ^ sizeOf(c)) == 1; ++c) offset &= ~sizeOf(c);
    free_[c].insert(offset);
  }

 private:
  static constexpr unsigned kClasses = 12;
  static constexpr uint64_t sizeOf(unsigned c) { return uint64_t{32} << c; }
  static unsigned classOf(uint64_t length) {
    unsigned c = 0;
    while (sizeOf(c) < length) ++c;
    return c;
  }

  std::set<uint64_t> free_[kClasses];  // offsets
};

}  // namespace fluxon::shm
