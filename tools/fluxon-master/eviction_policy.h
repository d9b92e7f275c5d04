// EvictionPolicy: which replica the master gives up next when a pool is full. It owns the eviction order of the replicas of one pool, and a
// bounded memory of keys lately evicted (ghosts).
//
//   insert ──► Fresh ──► Aging ─────┐            touched: at its turn it moves to Reused instead
//      │         └─ passed over ────┤
//      └──────────► Reused ─────────┴► Candidate ── evicted ──► GhostOnce / GhostReused ──► forgotten
//   (its ghost was known)  ▲            │  ▲
//                          │       busy ▼  │ propose            remove: from any live state, leaves no ghost
//                   retry, └─ retryBusy ─ Busy
//
// Invariants
//  1. A replica is in exactly one live state from insert to evicted or remove; bytes() is the sum over live states, Candidate included:
//     the owner frees bytes only when it confirms.
//  2. nextVictim never returns an id that is Candidate or Busy: between two proposals of one id lie a busy and a retry. So a caller that
//     asks on after each busy sees every replica once.
//  3. The replica inserted last is proposed only when no other is left to propose; Busy ones do not count as left.
//  4. There are never more ghosts than live replicas, nor ghosts of more bytes than the capacity. A replica or ghost takes some 65 B with
//     its index.
//  5. Every call but setCapacity is O(1) amortised: a replica is given another turn once per touch it had, kMaxFrequency at most.
//
// Method. The clock is the bytes inserted and touched so far, not time or counts, so values of any size weigh what they occupy. Two numbers
// are learned, none is tuned to a size:
//  - weight: a replica never reused ages `weight` times faster than a reused one. A key that returns after its eviction shows that its side
//    was cut too short. Returns count by the size of their ghost list, so both sides settle where one more byte is worth the same.
//  - retention: the share of Fresh that goes on to Aging. A conversation returns after a think time; in a cache shorter than that, the
//    oldest of Aging are hit most, and keeping a sample longer beats keeping all too briefly. Hits in the older half of Aging lower it,
//    hits in the younger half raise it. The sample is taken in runs, so that the blocks of one prefix share one fate.
// Mean hit ratio in bench/eviction_traces: 0.277 (LRU 0.263, S3-FIFO 0.266, optimum 0.459), 2026-11-29. Plain ARC, 2Q, SIEVE and LRU-2 each
// lose to LRU or S3-FIFO there at some size. Order within a queue is by time alone: a caller that touches a prefix tail first keeps its
// head longest. One thread; no I/O; std only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "slot_index.h"

namespace fluxon::master {

class EvictionPolicy {
 public:
  using Id = uint64_t;  // one replica; unique while present

  // capacityBytes: what the pool may hold. It scales the queues and bounds the ghosts; whether to evict is the caller's decision.
  explicit EvictionPolicy(uint64_t capacityBytes);

  void setCapacity(uint64_t capacityBytes);

  // Admits a replica. keyHash recognises a key that returns after eviction. An id already present is replaced.
  void insert(Id id, uint64_t keyHash, uint64_t sizeBytes);
  // A read of the replica. Unknown ids are ignored; a candidate stays one.
  void touch(Id id);
  // Deleted or overwritten: leaves no ghost. Unknown ids are ignored.
  void remove(Id id);

  // Proposes the replica to give up and makes it a candidate, until evicted, busy or remove. nullopt: nothing is left to propose.
  std::optional<Id> nextVictim();
  // The owner has freed the candidate: its key leaves a ghost. Unknown ids are ignored.
  void evicted(Id id);
  // The owner refuses: the replica is in use, and is set aside. Ignored unless id is a candidate.
  void busy(Id id);
  // What was set aside goes on as just reused, and may be proposed again. The caller bounds how often.
  void retryBusy();
  // The same of this one alone. Ignored unless it was set aside.
  void retry(Id id);
  // Makes this one a candidate out of its turn. False: it is not here, is a candidate already, or is set aside.
  bool propose(Id id);

  enum class Redundancy : uint8_t { OnlyCopy, HasOtherCopy };
  // Another replica or an SSD copy exists: among the next few victims this one is preferred.
  void setRedundancy(Id id, Redundancy redundancy);

  size_t size() const { return liveCount_; }
  uint64_t bytes() const { return liveBytes_; }
  size_t ghosts() const { return ghostIndex_.size(); }

  double weight() const { return weight_; }
  double retention() const { return retention_; }

 private:
  using Slot = uint32_t;
  static constexpr Slot kNone = SlotIndex::kNone;

  // A live replica or a ghost. The list it is in is its state.
  enum class State : uint8_t { Fresh, Aging, Reused, Busy, Candidate, GhostOnce, GhostReused, Free };
  static constexpr size_t kLists = 7;

  struct Node {
    Id id;
    uint64_t keyHash;
    uint64_t stamp;  // clock at the head of its list
    uint64_t sizeBytes;
    Slot newer;
    Slot older;
    State state;
    uint8_t frequency;  // touches not yet spent on a further turn
    bool reused;        // which ghost list it goes to
    Redundancy redundancy;
  };
  static_assert(sizeof(Node) == 48);

  struct List {
    Slot newest = kNone;
    Slot oldest = kNone;
    size_t count = 0;
    uint64_t bytes = 0;
  };

  List& list(State state) { return lists_[static_cast<size_t>(state)]; }
  uint64_t age(Slot slot) const { return clock_ - nodes_[slot].stamp; }
  Slot findLive(Id) const;
  Slot findGhost(uint64_t keyHash) const;
  Slot allocate();
  void release(Slot slot);
  void link(Slot slot, State state);
  void unlink(Slot slot);
  void moveTo(Slot slot, State state);
  void restamp(Slot slot, State state);
  void dropLive(Slot slot);
  void dropGhost(Slot slot);
  void trimGhosts();
  void learnWeight(Slot ghost);
  void learnRetention(Slot hit);
  bool retainNext(uint64_t sizeBytes);
  Slot passedOver();
  Slot oldestWorth();
  Slot preferRedundant(Slot first) const;

  uint64_t capacityBytes_;
  uint64_t clock_ = 0;
  uint64_t liveBytes_ = 0;
  size_t liveCount_ = 0;

  double logWeight_;
  double weight_;
  double retention_ = 1.0;
  double retentionDebt_ = 0.0;
  uint64_t runLeftBytes_ = 0;
  bool runRetained_ = true;

  Slot lastInserted_ = kNone;
  Slot free_ = kNone;
  std::vector<Node> nodes_;
  List lists_[kLists];
  SlotIndex liveIndex_;   // by id
  SlotIndex ghostIndex_;  // by keyHash
};

}  // namespace fluxon::master
