// ExtentAllocator: which bytes of one owner's segment are taken. It never touches the segment: all of its memory is the master's own.
//
// Two grains
//  - Pages: an extent of kLargeStep bytes or more is a run of whole pages of 4 KiB. Every page belongs to exactly one run (extent, free run
//    or grain page). Allocation is exact best fit: free runs up to kBinnedPages have a bin per length, longer ones are ordered by length.
//  - Grains: a smaller extent is a run of 64-byte grains in one grain page, which extents of different lengths share. The page with the
//    smallest sufficient gap is taken first, so that thinly filled pages drain. Grain pages are single pages, not slabs with one slot size:
//    any hole gives a page and takes it back, so small extents break up no long runs. The price: a segment of nothing but equal payloads of
//    c grains holds floor(64 / c) of them per page, which is one per page above 2 KiB unless smaller ones fill the rest.
//
// Invariants
//  1. The state follows from the set of used extents alone: two free runs never touch, a grain page holds at least one extent. So an
//     allocator that adopt() rebuilds equals the one that was lost.
//  2. usedBytes() is the sum of the used lengths; freeBytes() is the rest of capacity().
//  3. A request fails exactly if no free run and, below kLargeStep, no gap of a grain page is long enough.
//
// Costs: free and adopt find their neighbours in a bit tree over pages: 2 bits per page of capacity, 3 with small extents (64 or 96 MiB per
// TiB), in memory that is backed only once touched. The rest grows with the number of free runs and grain pages. Every call is O(1), save
// the tree's depth, the growth of a table, and O(log n) among free runs of kBinnedPages or more.
//
// One thread at a time. No clock, no I/O.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/extent.h"

namespace fluxon::master {

class ExtentAllocator {
 public:
  // The capacity is rounded down to whole pages. Throws std::bad_alloc if the page maps (capacity / 16 KiB bytes of address space) cannot
  // be had.
  explicit ExtentAllocator(uint64_t capacityBytes);
  ~ExtentAllocator();
  ExtentAllocator(ExtentAllocator&&) noexcept;
  ExtentAllocator& operator=(ExtentAllocator&&) noexcept;

  // An extent of extentBytes(payloadBytes), or nothing if it does not fit now.
  std::optional<Extent> allocate(uint64_t payloadBytes);

  // Gives back an extent as it was handed out or adopted. Aborts on anything else.
  void free(Extent extent);

  // Marks a given range as used. False, and no change, if it is not one that allocate() could have returned (length, alignment, end) or if
  // any byte of it is used.
  bool adopt(Extent extent);

  uint64_t capacity() const;
  uint64_t freeBytes() const;
  uint64_t usedBytes() const;
  uint64_t largestFree() const;  // largest payload in bytes that would fit now; 0 if none would
  size_t extentCount() const;

  // Calls visit for each used extent, by ascending offset. visit must not change the allocator.
  void forEachUsed(const std::function<void(Extent)>& visit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The containers that the allocator is made of. They know nothing of extents.
namespace extent_maps {

inline constexpr uint64_t kNoBit = UINT64_MAX;
inline constexpr uint32_t kNil = UINT32_MAX;

constexpr uint64_t bitOf(uint64_t index) { return uint64_t{1} << (index % 64); }
constexpr uint64_t lowBits(uint64_t count) { return count >= 64 ? ~uint64_t{0} : bitOf(count) - 1; }
constexpr uint64_t lowest(uint64_t word) { return static_cast<uint64_t>(std::countr_zero(word)); }
constexpr uint64_t highest(uint64_t word) { return static_cast<uint64_t>(63 - std::countl_zero(word)); }

// Words from calloc: a map of many TiB takes no memory where nothing was ever set.
struct Release {
  void operator()(uint64_t* words) const { std::free(words); }
};
using Words = std::unique_ptr<uint64_t[], Release>;

inline Words zeroWords(uint64_t count) {
  auto* words = static_cast<uint64_t*>(std::calloc(count, sizeof(uint64_t)));
  if (words == nullptr) throw std::bad_alloc();
  return Words(words);
}

class Bits {
 public:
  explicit Bits(uint64_t count) : words_(zeroWords(count / 64 + 1)) {}
  bool test(uint64_t i) const { return (words_[i / 64] & bitOf(i)) != 0; }
  void set(uint64_t i) { words_[i / 64] |= bitOf(i); }
  void clear(uint64_t i) { words_[i / 64] &= ~bitOf(i); }

 private:
  Words words_;
};

// A set of integers below a bound. Bit i of level n + 1 says that word i of level n is not zero.
class BitTree {
 public:
  explicit BitTree(uint64_t count) {
    do {
      count = (count + 63) / 64;
      levels_[depth_++] = zeroWords(count + 1);  // next() may look one word past the end
    } while (count > 1);
  }

  bool test(uint64_t i) const { return (levels_[0][i / 64] & bitOf(i)) != 0; }

  void set(uint64_t i) {
    for (size_t level = 0; level < depth_; ++level, i /= 64) {
      uint64_t& word = levels_[level][i / 64];
      const bool wasEmpty = word == 0;
      word |= bitOf(i);
      if (!wasEmpty) return;
    }
  }

  void clear(uint64_t i) {
    for (size_t level = 0; level < depth_; ++level, i /= 64) {
      uint64_t& word = levels_[level][i / 64];
      word &= ~bitOf(i);
      if (word != 0) return;
    }
  }

  // The first member at or after i, or kNoBit.
  uint64_t next(uint64_t i) const {
    for (size_t level = 0; level < depth_; ++level, i = i / 64 + 1) {
      const uint64_t rest = levels_[level][i / 64] >> (i % 64);
      if (rest == 0) continue;
      i += lowest(rest);
      while (level-- > 0) i = i * 64 + lowest(levels_[level][i]);
      return i;
    }
    return kNoBit;
  }

  // The last member at or before i, or kNoBit.
  uint64_t prev(uint64_t i) const {
    for (size_t level = 0; level < depth_; ++level, i = i / 64 - 1) {
      const uint64_t rest = levels_[level][i / 64] << (63 - i % 64);
      if (rest != 0) {
        i -= 63 - highest(rest);
        while (level-- > 0) i = i * 64 + highest(levels_[level][i]);
        return i;
      }
      if (i < 64) break;
    }
    return kNoBit;
  }

 private:
  static constexpr size_t kMaxDepth = 9;  // 64^9 members and more than 2^52 pages
  std::array<Words, kMaxDepth> levels_;
  size_t depth_ = 0;
};

// Page number to pool index: open addressing, linear probing, at most half full. SlotIndex is smaller, but looks into the pool to compare:
// a call takes up to a half more with it.
class PageIndex {
 public:
  uint32_t find(uint64_t page) const {
    size_t at = home(page);
    while (slots_[at].value != kNil && slots_[at].page != page) at = (at + 1) & mask_;
    return slots_[at].value;
  }

  void insert(uint64_t page, uint32_t value) {
    if (++count_ * 2 > slots_.size()) grow();
    place({page, value});
  }

  // Later members of the probe chain move up, so that no tombstone is ever needed.
  void erase(uint64_t page) {
    size_t hole = home(page);
    while (slots_[hole].page != page || slots_[hole].value == kNil) hole = (hole + 1) & mask_;
    for (size_t at = (hole + 1) & mask_; slots_[at].value != kNil; at = (at + 1) & mask_) {
      if (((at - home(slots_[at].page)) & mask_) < ((at - hole) & mask_)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole].value = kNil;
    --count_;
  }

 private:
  struct Slot {
    uint64_t page = 0;
    uint32_t value = kNil;
  };

  size_t home(uint64_t page) const { return (page * 0x9E3779B97F4A7C15u) >> shift_; }

  void place(Slot slot) {
    size_t at = home(slot.page);
    while (slots_[at].value != kNil) at = (at + 1) & mask_;
    slots_[at] = slot;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    --shift_;
    for (const Slot& slot : old)
      if (slot.value != kNil) place(slot);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  size_t mask_ = 63;
  int shift_ = 58;
  size_t count_ = 0;
};

// Nodes that are found by page and linked into one list per bin. Node needs page, prev and next.
template <typename Node>
class Pool {
 public:
  explicit Pool(size_t bins) : heads_(bins, kNil) {}

  uint32_t head(uint64_t bin) const { return heads_[bin]; }
  uint32_t find(uint64_t page) const { return index_.find(page); }
  Node& operator[](uint32_t id) { return nodes_[id]; }
  const Node& operator[](uint32_t id) const { return nodes_[id]; }

  uint32_t add(const Node& node) {
    uint32_t id = spare_;
    if (id == kNil) {
      if (nodes_.size() == kNil) throw std::length_error("extent allocator: pool is full");
      id = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back(node);
    } else {
      spare_ = nodes_[id].next;
      nodes_[id] = node;
    }
    index_.insert(node.page, id);
    return id;
  }

  void remove(uint32_t id) {
    index_.erase(nodes_[id].page);
    nodes_[id].next = spare_;
    spare_ = id;
  }

  // True if the bin was empty.
  bool link(uint32_t id, uint64_t bin) {
    uint32_t& first = heads_[bin];
    const uint32_t second = first;
    nodes_[id].prev = kNil;
    nodes_[id].next = second;
    first = id;
    if (second == kNil) return true;
    nodes_[second].prev = id;
    return false;
  }

  // True if the bin is now empty.
  bool unlink(uint32_t id, uint64_t bin) {
    const uint32_t before = nodes_[id].prev;
    const uint32_t after = nodes_[id].next;
    if (after != kNil) nodes_[after].prev = before;
    if (before != kNil) {
      nodes_[before].next = after;
      return false;
    }
    heads_[bin] = after;
    return after == kNil;
  }

 private:
  std::vector<uint32_t> heads_;
  std::vector<Node> nodes_;
  PageIndex index_;
  uint32_t spare_ = kNil;  // removed nodes, linked by next
};

}  // namespace extent_maps
}  // namespace fluxon::master
