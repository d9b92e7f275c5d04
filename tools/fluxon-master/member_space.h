// MemberSpace: the master's view of one owner's segment: which extents are in use, as what, and which replicas may be evicted.
//
// Life of an extent, as the master sees it:
//
//   free ──► inFlight ──► routed ◄──► reclaiming ──► free         (reclaim answered `ok`: the owner saw no reader)
//     │         │            │            │
//     ├► reserved┘           └────► unrouted ◄┘ ────► free         (the owner's word `release`)
//     └───────────────────────────────►┘
//   state       who owns the bytes
//   inFlight    the writer of a put under way, or the owner that brings a copy there, or the owner that stages a value there from its SSD
//               for another host, until `unstaged`
//   reserved    the owner, ahead of puts
//   routed      readers; the route of its key names it
//   reclaiming  readers, as routed; the master has asked the owner whether anyone reads it
//   unrouted    whoever still reads or writes it: the value was overwritten, deleted or aborted, or clients hold it over a rejoin
//
// Invariants
//   1. An extent becomes free only by its owner's word: `release`, `ok` of a reclaim, `unstaged`, a `staged` with an error, or a new
//      registration. No timeout frees an extent. (A fenced owner has no free extents; its next life says what is in use.)
//   2. The policy knows exactly the routed extents without a key lease; those being reclaimed are its candidates. An extent whose last
//      reclaim was answered `busy` counts as busy until the master asks again, or until the extent or what made it busy ends.
//   3. The bytes by use add up to what the allocator counts as used.
// One thread. No clock: callers pass times in.
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
    OrderId asked;            // the latest order to reclaim what lies here
    bool leased = false;
    bool busy = false;
  };

  // At most `maxExtents` are in use at once: the owner's directory has that many slots.
  MemberSpace(uint64_t segmentBytes, uint64_t maxExtents) : allocator_(segmentBytes), policy_(segmentBytes), maxExtents_(maxExtents) {}

  // Marks an extent that its owner reports as used. False, and no change, if it overlaps another or is not one.
  bool adopt(Extent extent, Use use);

  // Makes room for the records of so many more extents.
  void expect(uint64_t extents) { records_.reserve(records_.size() + extents); }

  std::optional<Extent> allocate(uint64_t payloadBytes, Use use);
  Record* find(uint64_t offset);
  // inFlight, reserved → routed. An extent with a key lease is never a victim.
  void route(uint64_t offset, KeyEntry* key, uint64_t keyHash, bool leased);
  // routed, reclaiming, inFlight → unrouted.
  void unroute(uint64_t offset);
  void use(uint64_t offset, Use to);  // reserved ↔ inFlight
  // Any → free: the owner has said so, or it has not been told of the extent yet.
  void free(uint64_t offset);
  // Any → free: some extent of an owner that has ended; nothing if none is left.
  std::optional<Record> takeRecord();

  void touch(uint64_t offset) { policy_.touch(offset); }
  // Whether the value has another replica elsewhere: a hint for the choice of victims.
  void redundant(uint64_t offset, bool elsewhere) {
    policy_.setRedundancy(offset, elsewhere ? EvictionPolicy::Redundancy::HasOtherCopy : EvictionPolicy::Redundancy::OnlyCopy);
  }

  // Takes victims (routed → reclaiming) until what is free and what is being reclaimed reach `bytes` and `extents`. At most `limit`
  // at once.
  std::vector<uint64_t> takeVictims(uint64_t bytes, uint64_t extents, size_t limit);
  // Takes as victims extents that were busy the last time, until their sum is `bytes`; none twice before retryBusy().
  std::vector<uint64_t> takeBusy(uint64_t bytes, size_t limit);
  void reclaimBusy(uint64_t offset);  // reclaiming → routed; no victim before retryBusy()
  void reclaimed(uint64_t offset);    // reclaiming → free
  void retryBusy() { policy_.retryBusy(); }
  void retry(uint64_t offset);  // this one alone, if it was busy: what made it busy is over

  uint64_t capacity() const { return allocator_.capacity(); }
  uint64_t freeBytes() const { return allocator_.freeBytes(); }
  uint64_t largestFree() const { return allocator_.largestFree(); }
  uint64_t maxExtents() const { return maxExtents_; }
  uint64_t bytes(Use use) const { return bytes_[static_cast<size_t>(use)]; }
  uint64_t leasedBytes() const { return leasedBytes_; }
  size_t replicas() const { return replicas_; }
  // Extents whose last reclaim was answered `busy`.
  uint64_t busyBytes() const { return busyBytes_; }
  size_t busyValues() const { return busy_.size(); }
  // Eviction cannot make room for more bytes than this: the rest is under key leases, was busy at the last reclaim, or is retired.
  uint64_t reachable() const { return capacity() - leasedBytes_ - busyBytes_ - bytes(Use::unrouted); }
  // Bytes to keep ready for puts, free here or reserved at the owner: the smaller of 2 % and 64 MiB.
  uint64_t reserveAhead() const;
  // The part of it to keep free here: at least a quarter, because reserved extents have fixed sizes.
  uint64_t freeAhead() const;
  // Why so many bytes found no room.
  std::string describe(uint64_t wanted) const;

  // Every extent in use, in no particular order.
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
