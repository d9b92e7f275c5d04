// Buffers: a pool of aligned buffers of one device, in a few sizes, bounded in sum. It keeps returned buffers, whose pages are populated,
// for reuse. It registers all but the smallest with the engine, which then need not pin their pages for each request. One thread: that of
// the engine, which outlives the pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "storage/file_engine.h"

namespace fluxon::ssdd {

class Buffers {
 public:
  // Payloads of 4 KiB, 64 KiB, 1 MiB and 4 MiB, each with a header block.
  static constexpr std::array<uint64_t, 4> kSizes = {8 * kKiB, 72 * kKiB, kMiB + 64 * kKiB, 4 * kMiB + 64 * kKiB};

  Buffers(uint64_t mostBytes, uint64_t alignment, FileEngine& engine) : most_(mostBytes), alignment_(alignment), engine_(engine) {
    FLUXON_CHECK(mostBytes >= kSizes.back(), "buffers: bound or alignment");
  }
  ~Buffers() {
    for (size_t kind = 0; kind < kSizes.size(); ++kind) {
      for (char* each : free_[kind]) release(kind, each);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // A buffer of at least so many bytes, with any content. Null: the bound is reached.
  char* take(uint64_t bytes) {
    const size_t kind = kindOf(bytes);
    if (free_[kind].empty() && !allocate(kind)) return nullptr;
    char* const buffer = free_[kind].back();
    free_[kind].pop_back();
    used_ += kSizes[kind];
    return buffer;
  }
  void give(char* buffer, uint64_t bytes) {
    free_[kindOf(bytes)].push_back(buffer);
    used_ -= kSizes[kindOf(bytes)];
  }
  uint64_t usedBytes() const { return used_; }

 private:
  static size_t kindOf(uint64_t bytes) {
    const auto at = std::lower_bound(kSizes.begin(), kSizes.end(), bytes);
    FLUXON_CHECK(at != kSizes.end(), "buffers: too large");
    return static_cast<size_t>(at - kSizes.begin());
  }
  bool allocate(size_t kind) {
    for (size_t other = kSizes.size(); other-- > 0 && held_ + kSizes[kind] > most_;) {
      for (; !free_[other].empty() && held_ + kSizes[kind] > most_; free_[other].pop_back()) {
        release(other, free_[other].back());
      }
    }
    if (held_ + kSizes[kind] > most_) return false;
    auto* const fresh = static_cast<char*>(std::aligned_alloc(alignment_, alignUp(kSizes[kind], alignment_)));
    if (!fresh) return false;
    held_ += kSizes[kind];
    free_[kind].push_back(fresh);
    if (kind > 0) (void)engine_.addMemory({fresh, kSizes[kind]});  // works without
    return true;
  }
  void release(size_t kind, char* buffer) {
    if (kind > 0) engine_.dropMemory({buffer, kSizes[kind]});
    std::free(buffer);
    held_ -= kSizes[kind];
  }

  const uint64_t most_, alignment_;
  FileEngine& engine_;
  uint64_t held_ = 0, used_ = 0;
  std::array<std::vector<char*>, kSizes.size()> free_;
};

}  // namespace fluxon::ssdd
