// SpaceQueue: room in the members' segments. Requests without space wait in order; victims are asked of the owner, who knows the readers.
//
//   1. An extent is given out once and comes back by its owner's word only (member_space.h).
//   2. Who comes later goes behind those who wait, but for those who cannot fit whatever is evicted: these keep nobody waiting.
//   3. Nothing is evicted in vain: for a value that is larger than all that is not leased, read or retired (MemberSpace::reachable) only
//      those are asked that were being read the last time, since without one of them it cannot fit. It waits until its deadline.
// One thread.
#pragma once

#include <functional>

#include "base/counters.h"
#include "membership.h"
#include "outgoing.h"
#include "routes.h"

namespace fluxon::master {

#define FLUXON_MASTER_SPACE_COUNTERS(X)                                                         \
  X(noSpace, "fluxon_master_puts_nospace_total", "Puts that found no space by their deadline.") \
  X(evictions, "fluxon_master_evictions_total", "Replicas evicted.")                            \
  X(evictionsBusy, "fluxon_master_evictions_busy_total", "Victims that were being read and stayed.")
struct SpaceCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_SPACE_COUNTERS)
};

class SpaceQueue {
 public:
  // Tries a request once more. nullptr: it waits no more, else whose segment has no room.
  using Retry = std::function<Member*(const Waiting&, Time now)>;
  SpaceQueue(Duration patience, Outgoing& out, Routes& routes, const Membership& membership, Retry retry)
      : patience_(patience), out_(out), routes_(routes), membership_(membership), retry_(std::move(retry)) {}

  void reserve(Member&, OperationId, const rpc::Reserve&);
  void release(Member&, OperationId, const rpc::Release&, Time now);
  void reclaimDone(Member&, OperationId, const rpc::ReclaimDone&, Time now);

  // Who comes now goes behind one of those who wait.
  static bool hasLine(const Member&);
  void wait(Member& at, Waiting, uint64_t timeLeftMs, Time now);
  // Something has come free there.
  void serve(Member&, Time now);
  void askVictims(Member&, Time now);
  // A copy to there found no room.
  void wantCopy(Member&, uint64_t size, Time now);
  // Victims go until at most `percent` of the node's segment is in use; empty: of each.
  Error evictTo(const std::string& node, uint64_t percent, Time now);

  void tick(Member&, Time now);
  static Time nextWake(const Member&);
  // Those who wait there, and the member's own requests wherever they wait, are refused.
  void memberEnded(Member&);
  const SpaceCounters& counters() const { return counters_; }

 private:
  struct Lacking {
    uint64_t bytes, extents, ofBusy;
  };
  static Lacking lacking(const Member&);
  static bool mayFit(const Member&, const Waiting&);
  void evictTo(Member&, uint64_t percent, Time now);
  void askReserve(Member&);

  Duration patience_;
  Outgoing& out_;
  Routes& routes_;
  const Membership& membership_;
  Retry retry_;
  SpaceCounters counters_;
};

}  // namespace fluxon::master
