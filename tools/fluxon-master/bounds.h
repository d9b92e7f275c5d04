// Bounds: while the recovery window is open, the keys whose route has ended: nothing of such a key below its bound is taken from an
// inventory, which may have been sent before. When the window closes nothing of an earlier term comes any more, and they are forgotten.
// One thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/ids.h"

namespace fluxon::master {

class Bounds {
 public:
  enum class State { open, closed };
  explicit Bounds(State state) : state_(state) {}

  void add(std::string_view key, PutId below) {
    if (state_ == State::closed || !below) return;
    PutId& bound = bounds_[std::string(key)];
    bound = std::max(bound, below);
  }
  // 0: none.
  PutId of(const std::string& key) const {
    const auto found = bounds_.find(key);
    return found == bounds_.end() ? PutId() : found->second;
  }
  void close() {
    state_ = State::closed;
    bounds_.clear();
  }

 private:
  State state_;
  std::unordered_map<std::string, PutId> bounds_;
};

}  // namespace fluxon::master
