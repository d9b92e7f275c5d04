// Reserve: extents that the master has handed over ahead of puts (preallocation), by size, so that a plain put needs no answer of the
// master before its bytes move. Sizes in use get a reserve; it goes back when they are not, or when the master is short of space.
//
// Life of a reserved extent:  asked ──► ready ──take──► in a put (granted, pending, committed: the slot's states)
//                                         ▲                 │ abort
//                                         └─────────────────┘
// Bytes ready and asked for stay within a budget. One thread; times are handed in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace fluxon::owner {

class Reserve {
 public:
  explicit Reserve(uint64_t budgetBytes) : budget_(budgetBytes) {}

  struct Want {
    uint64_t extentBytes;
    uint64_t count;
  };

  std::optional<uint64_t> take(uint64_t extentBytes, Time now) {
    if (extentBytes > budget_ / 2) return std::nullopt;
    Class& c = classes_[extentBytes];
    c.used = now;
    c.refused = false;
    touched_.push_back(extentBytes);
    if (c.ready.empty()) {
      ++c.shortages;
      return std::nullopt;
    }
    const uint64_t offset = c.ready.back();
    c.ready.pop_back();
    bytes_ -= extentBytes;
    return offset;
  }
  void give(uint64_t extentBytes, uint64_t offset) {
    classes_[extentBytes].ready.push_back(offset);
    bytes_ += extentBytes;
  }

  // What to ask the master for now: each class that has run low, more for one that has run dry since. Looks only at classes that were used
  // or answered since the last call: any other has not run lower, and asks for what there was no room for when it is used again.
  std::vector<Want> refill() {
    std::vector<Want> wants;
    for (const uint64_t size : std::exchange(touched_, {})) {
      const auto found = classes_.find(size);
      if (found == classes_.end()) continue;
      Class& c = found->second;
      if (c.asked || c.refused || c.ready.size() * 2 > c.level) continue;
      if (c.shortages > 0 && c.level < kMaxLevel) c.level *= 2;
      c.shortages = 0;
      const uint64_t room = budget_ > bytes_ + asked_ ? (budget_ - bytes_ - asked_) / size : 0;
      const uint64_t count = std::min<uint64_t>(room, c.level - c.ready.size());
      if (count == 0) continue;
      c.asked = count;
      asked_ += count * size;
      wants.push_back({size, count});
    }
    return wants;
  }
  void answered(uint64_t extentBytes, const std::vector<uint64_t>& offsets) {
    Class& c = classes_[extentBytes];
    asked_ -= c.asked * extentBytes;
    c.refused = offsets.size() < c.asked;
    c.asked = 0;
    touched_.push_back(extentBytes);
    for (const uint64_t offset : offsets) give(extentBytes, offset);
  }
  // Extents of classes not used since `before`: they go back.
  std::vector<uint64_t> idleSince(Time before) {
    std::vector<uint64_t> offsets;
    for (auto it = classes_.begin(); it != classes_.end();) {
      Class& c = it->second;
      if (c.used < before) {
        offsets.insert(offsets.end(), c.ready.begin(), c.ready.end());
        bytes_ -= c.ready.size() * it->first;
        c.ready.clear();
      }
      if (c.used < before && c.asked == 0) {
        it = classes_.erase(it);
      } else {
        ++it;
      }
    }
    return offsets;
  }
  // The master of another term knows nothing of them: they are free.
  void forget() {
    classes_.clear();
    touched_.clear();
    bytes_ = asked_ = 0;
  }
  uint64_t bytes() const { return bytes_; }
  bool empty() const { return classes_.empty(); }

 private:
  static constexpr uint64_t kMaxLevel = 128;
  struct Class {
    std::vector<uint64_t> ready;
    uint64_t level = 8;
    uint64_t asked = 0;
    uint64_t shortages = 0;
    bool refused = false;  // the master had less than was asked for: not asked again before the next put of this size
    Time used{0};
  };
  std::map<uint64_t, Class> classes_;
  std::vector<uint64_t> touched_;  // classes to be looked at by refill(), some of them twice
  uint64_t budget_;
  uint64_t bytes_ = 0;
  uint64_t asked_ = 0;
};

}  // namespace fluxon::owner
