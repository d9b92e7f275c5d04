// RefusedJoins: the log lines about owners that may not join and ask again every second. It reports the first refusal of a node on a host,
// then their number every ten minutes, and their end. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace fluxon::master {

class RefusedJoins {
 public:
  // `from`: for people. Returns the line for the log, or "".
  std::string refused(const std::string& node, const std::string& hostId, const std::string& from, const std::string& why, Time now) {
    ++total_;
    const auto key = std::pair(node, hostId);
    if (asking_.size() >= kMostAsking && asking_.count(key) == 0) return "";
    Asking& asking = asking_[key];
    asking.last = now;
    ++asking.refusals;
    if (asking.why == why && now < asking.sayAgain) return "";
    const bool changed = asking.why != why;
    asking.from = from;
    asking.why = why;
    asking.sayAgain = now + kSayAgain;
    return "node " + node + " on " + from + " may not join: " + why + (changed ? "" : times(asking));
  }
  // Returns lines about owners that have joined or have stopped asking. Call it now and then.
  std::vector<std::string> ended(Time now) {
    std::vector<std::string> lines;
    std::erase_if(asking_, [&](const auto& each) {
      const auto& [key, asking] = each;
      if (now - asking.last < kEnded) return false;
      lines.push_back("node " + key.first + " on " + asking.from + " does not ask to join any more" + times(asking));
      return true;
    });
    return lines;
  }
  uint64_t total() const { return total_; }

 private:
  static constexpr Duration kSayAgain = seconds(600), kEnded = seconds(30);
  static constexpr size_t kMostAsking = 256;
  struct Asking {
    std::string from, why;
    uint64_t refusals = 0;
    Time last{0}, sayAgain{0};
  };
  static std::string times(const Asking& asking) { return " (" + std::to_string(asking.refusals) + " refusals so far)"; }

  std::map<std::pair<std::string, std::string>, Asking> asking_;  // by node and host
  uint64_t total_ = 0;
};

}  // namespace fluxon::master
