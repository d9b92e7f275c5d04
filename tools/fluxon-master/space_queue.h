// SpaceQueue: space in the members' segments. Requests without space wait in order (admission queue). The master proposes victims to the
// owner, who knows the readers and answers which of them it gives up.
//
//   1. The master gives out an extent once; only its owner's word returns it (member_space.h).
//   2. A new request queues behind those that wait, except those that cannot fit whatever is evicted: they hold nobody up.
//   3. The master evicts nothing in vain. A value larger than all that is not leased, read or retired (MemberSpace::reachable) fits only if
//      a value that was being read at the last reclaim goes, so for it the master asks for those alone. It waits until its deadline.
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
  // Retries a request. nullptr: it waits no more; otherwise the member whose segment has no room.
  using Retry = std::function<Member*(const Waiting&, Time now)>;
  SpaceQueue(Duration patience, Outgoing& out, Routes& routes, const Membership& membership, Retry retry)
      : patience_(patience), out_(out), routes_(routes), membership_(membership), retry_(std::move(retry)) {}

  void reserve(Member&, OperationId, const rpc::Reserve&);
  void release(Member&, OperationId, const rpc::Release&, Time now);
  void reclaimDone(Member&, OperationId, const rpc::ReclaimDone&, Time now);

  // A new request must queue behind one that waits.
  static bool hasLine(const Member&);
  void wait(Member& at, Waiting, uint64_t timeLeftMs, Time now);
  // Space has come free at the member: retries the requests that wait for it.
  void serve(Member&, Time now);
  void askVictims(Member&, Time now);
  // A copy to the member found no room: evicts for it.
  void wantCopy(Member&, uint64_t size, Time now);
  // Evicts until at most `percent` of the node's segment is in use; empty: of each node's.
  Error evictTo(const std::string& node, uint64_t percent, Time now);

  void tick(Member&, Time now);
  static Time nextWake(const Member&);
  // Refuses the requests that wait for space there, and the member's own requests wherever they wait.
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
