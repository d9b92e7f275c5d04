// The hazard words of one client in one owner's client file, and the in-process count of holders behind each word.
//
// Invariants
//   1. A word that is not 0 names a (slot, generation) which at least one holder of this process may be reading.
//   2. count_[i] > 0 exactly while word i is not 0; both change under the lock of their shard.
//   3. highWater of a shard is raised (seq_cst) before a word beyond it is published, and never lowered: an owner that reads
//      the mark after its exchange and misses a raise is before that reader's check of the slot word, which then fails.
// Holders of one slot share one word within a shard; threads are spread over the shards, so threads that hit the same key do
// not write the same line. A slot may live only in the 8 words behind its home in each shard; when those of the thread's own
// shard are taken by other slots the next shards are tried. All taken: no hazard, and the owner gives a held word.
// Any thread; a shard's lock is held for some 10 ns and never across a call.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/client_format.h"

namespace fluxon::shm {

#ifdef FLUXON_MUTATE_WEAK_HAZARD
constexpr bool kWeakHazard = true;  // for the test that shows that the exchange matters
#else
constexpr bool kWeakHazard = false;
#endif

class HazardTable {
 public:
  struct Ref {
    uint32_t index = UINT32_MAX;  // shard * kHazardsPerShard + word
    uint64_t slotRef = 0;         // that the word names
    bool valid() const { return index != UINT32_MAX; }
  };

  // A slot's word lies within kWindow words from its home, around the end of the shard.
  static constexpr uint32_t kWindow = 8;
  static constexpr uint32_t homeOf(uint64_t slotRef) {
    static_assert(kHazardsPerShard == 512, "home takes the top 9 bits");
    return static_cast<uint32_t>((slotRef * 0x9E3779B97F4A7C15ull) >> 55);
  }

  explicit HazardTable(HazardShard* shards) : shards_(shards) {}
  HazardTable(const HazardTable&) = delete;
  HazardTable& operator=(const HazardTable&) = delete;

  // One more holder of `slotRef`. Publishes it by a seq_cst exchange if this process has none in the chosen word.
  Ref hold(unsigned thread, uint64_t slotRef) {
    for (uint32_t n = 0; n < kHazardShards; ++n) {
      const uint32_t shard = (thread + n) % kHazardShards;
      const Ref ref = holdIn(shard, slotRef);
      if (ref.valid()) return ref;
    }
    return {};
  }

  // The holder ends; the last one clears the word (release: its reads come before). A word that does not name its slot any more stays as
  // it is: who ends one holder twice ends nobody's of another value.
  void drop(Ref ref) {
    const uint32_t shard = ref.index / kHazardsPerShard % kHazardShards, word = ref.index % kHazardsPerShard;
    Side& side = sides_[shard];
    Locked lock(side.busy);
    if (side.count[word] == 0 || shards_[shard].words[word].load(std::memory_order_relaxed) != ref.slotRef) return;
    --side.live;
    if (--side.count[word] == 0) shards_[shard].words[word].store(0, std::memory_order_release);
  }

  // Holders now. Once drop() has returned, or is past its unlocking, it touches the table no more.
  uint64_t holders() {
    uint64_t sum = 0;
    for (Side& side : sides_) {
      Locked lock(side.busy);
      sum += side.live;
    }
    return sum;
  }

 private:
  struct Locked {
    explicit Locked(std::atomic<bool>& busy) : busy_(busy) {
      while (busy_.exchange(true, std::memory_order_acquire)) {
        while (busy_.load(std::memory_order_relaxed)) __builtin_ia32_pause();
      }
    }
    ~Locked() { busy_.store(false, std::memory_order_release); }
    std::atomic<bool>& busy_;
  };

  struct alignas(64) Side {
    std::atomic<bool> busy{false};
    uint64_t live = 0;  // sum of count
    uint32_t count[kHazardsPerShard] = {};
  };

  Ref holdIn(uint32_t shard, uint64_t slotRef) {
    HazardShard& shared = shards_[shard];
    Side& side = sides_[shard];
    const uint32_t home = homeOf(slotRef);
    Locked lock(side.busy);
    uint32_t free = UINT32_MAX;
    for (uint32_t i = 0; i < kWindow; ++i) {
      const uint32_t word = (home + i) % kHazardsPerShard;
      if (side.count[word] == 0) {
        if (free == UINT32_MAX) free = word;
      } else if (shared.words[word].load(std::memory_order_relaxed) == slotRef) {
        ++side.live;
        ++side.count[word];
        return {shard * kHazardsPerShard + word, slotRef};
      }
    }
    if (free == UINT32_MAX) return {};
    ++side.live;
    side.count[free] = 1;
    if (shared.highWater.load(std::memory_order_relaxed) <= free) shared.highWater.store(free + 1, std::memory_order_seq_cst);
    if (kWeakHazard) {
      shared.words[free].store(slotRef, std::memory_order_release);
    } else {
      shared.words[free].exchange(slotRef, std::memory_order_seq_cst);
    }
    return {shard * kHazardsPerShard + free, slotRef};
  }

  HazardShard* shards_;
  Side sides_[kHazardShards];
};

}  // namespace fluxon::shm
