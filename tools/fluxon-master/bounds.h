// Bounds: for each key whose route has ended while the recovery window is open, the put_id below which the master takes no value of the key
// from an inventory (a tombstone): the owner may have sent the inventory before the route ended. When the window closes, no more values of
// an earlier term can come, and Bounds forgets all of them. One thread.
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
  // 0: the key has no bound.
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
