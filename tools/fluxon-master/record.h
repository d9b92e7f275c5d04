// Record: the part of the membership that must survive this process, and the actions that wait until it is on disk (write-ahead).
//
// The record names, per node, the life whose values the next term may take. It is on disk before the master says anything that relies on
// it:
//   - it stops naming a life before the master acknowledges a put or delete that the fenced owner has not been told of, before the life's
//     dormant routes are forgotten, and before the recovery window ends without the node;
//   - it names a new life before that life may serve.
// While the window is open, a node whose values are refused may still serve under a lease of the last term. Its record then names kNobody,
// so that a next term waits for it. (Rejected: a list of fenced lives. An owner can sit out a whole term; that term never knows its life,
// fences nothing, and the next term would take the owner's old values.)
// One thread.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "outgoing.h"

namespace fluxon::master {

// A life that nobody has.
constexpr Incarnation kNobody{UINT64_MAX};

// What must survive this process.
struct Durable {
  uint64_t version = 0;
  // Node → the life whose values the next term takes. 0: none, and it serves nothing; kNobody: none, but it may serve.
  std::map<std::string, Incarnation> members;
};

class Record {
 public:
  Record(Outbox& outbox, std::map<std::string, Incarnation> members) : outbox_(outbox) { durable_.members = std::move(members); }

  const Durable& durable() const { return durable_; }
  uint64_t version() const { return durable_.version; }
  uint64_t persisted() const { return persisted_; }  // the version that is on disk
  bool has(const std::string& node) const { return durable_.members.count(node) > 0; }
  Incarnation lifeOf(const std::string& node) const {
    const auto found = durable_.members.find(node);
    return found == durable_.members.end() ? Incarnation() : found->second;
  }
  // Both return the version of the record that contains the change.
  uint64_t set(const std::string& node, Incarnation life) {
    durable_.members[node] = life;
    return changed();
  }
  uint64_t erase(const std::string& node) {
    durable_.members.erase(node);
    return changed();
  }

  // whenOnDisk() calls `then` when the record as it is now is on disk; onDisk(): it is there already.
  using Then = std::function<void(Time now)>;
  bool onDisk() const { return durable_.version <= persisted_; }
  void whenOnDisk(Then then) { waiting_.push_back({durable_.version, std::move(then)}); }
  // durable() as it was at that version is on disk.
  void persisted(uint64_t version, Time now) {
    persisted_ = std::max(persisted_, version);
    std::deque<Waiting> reached;
    for (; !waiting_.empty() && waiting_.front().version <= version; waiting_.pop_front()) reached.push_back(std::move(waiting_.front()));
    for (const Waiting& each : reached) each.then(now);
  }

 private:
  struct Waiting {
    uint64_t version;
    Then then;
  };
  uint64_t changed() {
    ++durable_.version;
    outbox_.persist();
    return durable_.version;
  }

  Outbox& outbox_;
  Durable durable_;
  uint64_t persisted_ = 0;
  std::deque<Waiting> waiting_;  // by version
};

}  // namespace fluxon::master
