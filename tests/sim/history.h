// What clients know of a run: when each put and delete began, and when it was acknowledged. A read of a value is stale if another
// put or delete of the key began after that one's end, and ended before the read began. Of puts that reject an existing key and were in
// flight together, each granted before the other was committed, one at most may be acknowledged, whatever is evicted or deleted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace fluxon::sim {

// A key is a number: each cluster has so many of them, of the same names.
constexpr int kKeys = 6;  // shared by all; others only fill
constexpr int kKeysOfCluster = kKeys + 1;
inline size_t clusterOf(int key) { return static_cast<size_t>(key / kKeysOfCluster); }

class History {
 public:
  uint64_t begin(int key, Time now) {
    ops_.push_back({key, now, Time::never(), State::open});
    return ops_.size() - 1;
  }
  // Of a put that rejects an existing key: its writer has its grant; and asks for its commit.
  void granted(uint64_t op, Time now) { exclusive_[op].granted = now; }
  void committing(uint64_t op, Time now) {
    const auto found = exclusive_.find(op);
    if (found != exclusive_.end()) found->second.committing = now;
  }
  void end(uint64_t op, Time now) {
    ops_[op].end = now;
    ops_[op].state = State::done;
    std::vector<Ended>& ended = ended_[ops_[op].key];
    ended.push_back({now, std::max(ops_[op].begin, ended.empty() ? Time{0} : ended.back().latestBegin)});
    if (exclusive_.count(op)) winners_[ops_[op].key].push_back(op);
  }
  // Another put that rejected an existing key, acknowledged though this one, which is too, was in flight with it.
  std::optional<uint64_t> rival(uint64_t op) const {
    const auto found = exclusive_.find(op);
    if (found == exclusive_.end()) return std::nullopt;
    for (const uint64_t other : winners_.at(ops_[op].key)) {
      const Exclusive& o = exclusive_.at(other);
      if (other != op && o.granted < found->second.committing && found->second.granted < o.committing) return other;
    }
    return std::nullopt;
  }
  void aborted(uint64_t op) { ops_[op].state = State::aborted; }
  // The value of a put has been seen under a put_id, or its caller was told that one. False: it, or another one's, was seen otherwise.
  bool named(uint64_t op, PutId putId) {
    return names_.emplace(op, putId).first->second == putId && puts_[clusterOf(ops_.at(op).key)].emplace(putId, op).first->second == op;
  }
  // The put that is known under a put_id in the cluster of the key.
  std::optional<uint64_t> putOf(int key, PutId putId) const {
    const auto& puts = puts_[clusterOf(key)];
    const auto found = puts.find(putId);
    return found == puts.end() ? std::nullopt : std::optional<uint64_t>(found->second);
  }

  size_t size() const { return ops_.size(); }
  int keyOf(uint64_t op) const { return ops_.at(op).key; }
  bool wasAborted(uint64_t op) const { return ops_.at(op).state == State::aborted; }
  bool stale(uint64_t written, Time readBegan) const {
    const Op& w = ops_.at(written);
    const auto ended = ended_.find(w.key);
    if (w.state != State::done || ended == ended_.end()) return false;
    const std::vector<Ended>& all = ended->second;
    const auto after = std::lower_bound(all.begin(), all.end(), readBegan, [](const Ended& e, Time t) { return e.end < t; });
    return after != all.begin() && std::prev(after)->latestBegin > w.end;
  }

 private:
  enum class State : uint8_t { open, done, aborted };
  struct Op {
    int key;
    Time begin, end;
    State state;
  };
  struct Ended {
    Time end, latestBegin;  // latest beginning of all that ended until then
  };
  struct Exclusive {
    Time granted, committing = Time::never();
  };
  std::vector<Op> ops_;
  std::unordered_map<uint64_t, Exclusive> exclusive_;
  std::map<int, std::vector<uint64_t>> winners_;  // of those, the ones that are done
  std::map<int, std::vector<Ended>> ended_;
  std::unordered_map<uint64_t, PutId> names_;
  std::unordered_map<PutId, uint64_t> puts_[2];  // of each cluster
};

}  // namespace fluxon::sim
