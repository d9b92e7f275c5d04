// WindowQueue: requests that the master cannot answer yet while the recovery window is open, in order of arrival. A request leaves when it
// may go on (the caller tries it again, and may put it back), when the asker's deadline has passed, or with its member. One thread.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "key_table.h"

namespace fluxon::master {

class WindowQueue {
 public:
  // `key`: take(key) finds the request by it; empty: take() never does. `deadline`: never() keeps the request until it is carried out.
  void add(const std::string& key, Time deadline, Deferred request) {
    const uint64_t number = ++numbers_;
    if (!key.empty()) byKey_[key].insert(number);
    if (deadline != Time::never()) byDeadline_.emplace(deadline, number);
    waiting_.emplace(number, Waiting{key, deadline, std::move(request)});
  }
  std::vector<Deferred> take(const std::string& key) {
    const auto found = byKey_.find(key);
    return found == byKey_.end() ? std::vector<Deferred>() : remove(found->second);
  }
  std::vector<Deferred> expired(Time now) {
    std::set<uint64_t> late;
    for (const auto& [deadline, number] : byDeadline_) {
      if (deadline > now) break;
      late.insert(number);
    }
    return remove(late);
  }
  std::vector<Deferred> takeAll() {
    std::vector<Deferred> all;
    for (auto& [number, waiting] : waiting_) all.push_back(std::move(waiting.request));
    waiting_.clear(), byKey_.clear(), byDeadline_.clear();
    return all;
  }
  void forget(const Member& member) {
    std::set<uint64_t> its;
    for (const auto& [number, waiting] : waiting_) {
      if (waiting.request.member == member) its.insert(number);
    }
    remove(its);
  }
  Time nextDeadline() const { return byDeadline_.empty() ? Time::never() : byDeadline_.begin()->first; }

 private:
  struct Waiting {
    std::string key;
    Time deadline;
    Deferred request;
  };
  std::vector<Deferred> remove(std::set<uint64_t> numbers) {
    std::vector<Deferred> removed;
    for (const uint64_t number : numbers) {
      const auto found = waiting_.find(number);
      Waiting& waiting = found->second;
      const auto its = byKey_.find(waiting.key);
      if (its != byKey_.end() && its->second.erase(number) > 0 && its->second.empty()) byKey_.erase(its);
      byDeadline_.erase({waiting.deadline, number});
      removed.push_back(std::move(waiting.request));
      waiting_.erase(found);
    }
    return removed;
  }

  std::map<uint64_t, Waiting> waiting_;
  std::unordered_map<std::string, std::set<uint64_t>> byKey_;
  std::set<std::pair<Time, uint64_t>> byDeadline_;
  uint64_t numbers_ = 0;
};

}  // namespace fluxon::master
