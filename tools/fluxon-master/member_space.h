// MemberSpace: what the master knows of one owner's segment. Which extents are in use, as what, and which replicas may go.
//
// Life of an extent, seen by the master:
//
//   free ──► inFlight ──► routed ◄──► reclaiming ──► free         (reclaim answered `ok`: the owner saw no reader)
//     │         │            │            │
//     ├► reserved┘           └────► unrouted ◄┘ ────► free         (the owner's word `release`)
//     └───────────────────────────────►┘
//   state       who owns the bytes
//   inFlight    the writer of a put that has begun and not ended, or the owner that brings a copy there; or what is staged there from
//               its SSD for another host, until `unstaged`
//   reserved    the owner, ahead of puts
//   routed      readers; the route of its key names it
//   reclaiming  as routed, while the owner is asked whether anyone reads it
//   unrouted    whoever still reads or writes it: overwritten, deleted, aborted, or held by clients over a rejoin
//
// Invariants
//   1. An extent becomes free only by its owner's word: `release`, `ok` of a reclaim, `unstaged` or a `staged` with an error, or a new
//      registration. No clock frees.
//      (An owner that is fenced has no free extents; its next life says what is in use.)
//   2. The policy knows exactly the routed extents without a key lease; those being reclaimed are its candidates.
//      Those that answered busy when they were asked last are known as such (`busy`) until they are asked again, or they or
//      what made them busy ends.
//   3. The bytes by use add up to what the allocator counts as used.
// One thread. No clock: times are handed in.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/extent.h"
#include "base/ids.h"
#include "eviction_policy.h"
#include "extent_allocator.h"

namespace fluxon::master {

struct KeyEntry;

enum class Use : uint8_t { inFlight, reserved, routed, reclaiming, unrouted };
constexpr size_t kUses = 5;

class MemberSpace {
 public:
  struct Record {
    Extent extent;
    Use use = Use::inFlight;
    KeyEntry* key = nullptr;  // routed, reclaiming
    bool leased = false;
    bool busy = false;
  };

  // At most `maxExtents` are in use at once: the owner's directory has places for that many.
  MemberSpace(uint64_t segmentBytes, uint64_t maxExtents) : allocator_(segmentBytes), policy_(segmentBytes), maxExtents_(maxExtents) {}

  // Marks an extent that its owner reports as used. False, and no change, if it overlaps another or is not one.
  bool adopt(Extent extent, Use use);

  // So many more extents are to be adopted.
  void expect(uint64_t extents) { records_.reserve(records_.size() + extents); }

  std::optional<Extent> allocate(uint64_t payloadBytes, Use use);
  Record* find(uint64_t offset);
  // inFlight, reserved → routed. A leased one is no victim.
  void route(uint64_t offset, KeyEntry* key, uint64_t keyHash, bool leased);
  // routed, reclaiming, inFlight → unrouted.
  void unroute(uint64_t offset);
  void use(uint64_t offset, Use to);  // reserved ↔ inFlight
  // Any → free, by the owner's word, or of an extent that its owner has not heard of yet.
  void free(uint64_t offset);
  // Any → free: some extent of an owner that has ended, nothing if there is none left.
  std::optional<Record> takeRecord();

  void touch(uint64_t offset) { policy_.touch(offset); }
  // The value is elsewhere as well, or here alone: a hint for the choice of victims.
  void redundant(uint64_t offset, bool elsewhere) {
    policy_.setRedundancy(offset, elsewhere ? EvictionPolicy::Redundancy::HasOtherCopy : EvictionPolicy::Redundancy::OnlyCopy);
  }

  // Takes victims (routed → reclaiming) until what is free and what is being reclaimed reach `bytes` and `extents`. At most `limit`
  // at once.
  std::vector<uint64_t> takeVictims(uint64_t bytes, uint64_t extents, size_t limit);
  // As victims those that answered busy the last time, until their sum is `bytes`; none twice before retryBusy().
  std::vector<uint64_t> takeBusy(uint64_t bytes, size_t limit);
  void reclaimBusy(uint64_t offset);  // reclaiming → routed; no victim before retryBusy()
  void reclaimed(uint64_t offset);    // reclaiming → free
  void retryBusy() { policy_.retryBusy(); }
  void retry(uint64_t offset);  // this one alone, if it was busy: what made it so is over

  uint64_t capacity() const { return allocator_.capacity(); }
  uint64_t freeBytes() const { return allocator_.freeBytes(); }
  uint64_t largestFree() const { return allocator_.largestFree(); }
  uint64_t maxExtents() const { return maxExtents_; }
  uint64_t bytes(Use use) const { return bytes_[static_cast<size_t>(use)]; }
  uint64_t leasedBytes() const { return leasedBytes_; }
  size_t replicas() const { return replicas_; }
  // What answered busy when it was asked last.
  uint64_t busyBytes() const { return busyBytes_; }
  size_t busyValues() const { return busy_.size(); }
  // A value of more bytes finds no room whatever is evicted: the rest is under key leases, was read when it was asked last, or is retired.
  uint64_t reachable() const { return capacity() - leasedBytes_ - busyBytes_ - bytes(Use::unrouted); }
  // What is kept ahead of puts, free here or reserved at the owner: the smaller of 2 % and 64 MiB.
  uint64_t reserveAhead() const;
  // The part of it that is to be free here. A quarter always is: what is reserved has sizes of its own.
  uint64_t freeAhead() const;
  // Why so many bytes found no room.
  std::string describe(uint64_t wanted) const;

  // Every extent in use, in no order.
  const std::unordered_map<uint64_t, Record>& records() const { return records_; }

 private:
  void account(Record& record, Use to);
  void forgetBusy(Record& record);

  ExtentAllocator allocator_;
  EvictionPolicy policy_;
  uint64_t maxExtents_;
  uint64_t reclaiming_ = 0;                       // extents being reclaimed
  std::unordered_map<uint64_t, Record> records_;  // by offset
  uint64_t bytes_[kUses] = {};
  uint64_t leasedBytes_ = 0;
  std::set<uint64_t> busy_;  // by offset
  uint64_t busyBytes_ = 0;
  size_t replicas_ = 0;
};

}  // namespace fluxon::master
