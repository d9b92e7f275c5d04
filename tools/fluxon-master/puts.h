// Puts: the puts under way, the extents that writers fill, and the choice of each value's home.
//
//   started ──done──► published, overwritten or refused (changes.h)         until then the extent is the writer's
//     │  └──done, its home is another member──► coming ──the copy is there──► published, ...
//     │                                            └──the copy fails, its home ends──► over
//     └──abort, its member ends──► over            the extent comes back by `release`
// One thread.
#pragma once

#include <string>
#include <variant>

#include "base/counters.h"
#include "changes.h"
#include "membership.h"
#include "outgoing.h"
#include "put_ids.h"
#include "routes.h"
#include "space_queue.h"
#include "transfers.h"

namespace fluxon::master {

#define FLUXON_MASTER_PUT_COUNTERS(X)                                                                                   \
  X(putsStarted, "fluxon_master_puts_started_total", "Puts begun.")                                                     \
  X(putsRefused, "fluxon_master_puts_refused_total", "Puts refused: key exists, in flight, no lease, bad size or key.") \
  X(putsAborted, "fluxon_master_puts_aborted_total", "Puts given up by their writer.")                                  \
  X(placedElsewhere, "fluxon_master_puts_elsewhere_total", "Puts whose value went to another owner than the one that was asked.")
struct PutCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_PUT_COUNTERS)
};

class Puts {
 public:
  Puts(PutIds& putIds, Outgoing& out, Routes& routes, const Membership& membership, SpaceQueue& space, Changes& changes,
       Transfers& transfers)
      : putIds_(putIds), out_(out), routes_(routes), membership_(membership), space_(space), changes_(changes), transfers_(transfers) {}

  void start(Member&, OperationId, const rpc::PutStart&, Time now);
  // Retries a put that waits for space. nullptr: the put is answered; otherwise the member whose segment has no room.
  Member* retry(Member&, OperationId, const rpc::PutStart&, Time now);
  void done(Member&, OperationId, const rpc::PutDone&, Time now);
  void reserved(Member&, OperationId, const rpc::PutReserved&, Time now);
  void abort(Member&, OperationId, const rpc::PutAbort&);

  // The put is over; the caller deals with its extent.
  void end(Member&, OperationId put);
  // The put is over, and its extent comes back. The call may erase the entry of its key.
  void abandon(Member&, OperationId put);
  // The copy of the value has reached its home: publishes it.
  void arrived(const OfPut&, const Copied&, Time now);
  // The value could not be copied to that node.
  void cannotArrive(const OfPut&, const std::string& node);
  void memberEnded(Member&);
  // Called when the master ends.
  static void forget(Member& member) { member.puts.own().clear(); }

  // Tells the puts of the key that are under way that another put or a delete has overtaken them.
  static void overtaken(KeyEntry&, Overtaken by);

  uint64_t inFlight() const;
  Duration oldest(Time now) const;
  const PutCounters& counters() const { return counters_; }

 private:
  struct Refusal {
    Code code;
    std::string detail;
  };
  struct Elsewhere {
    Member& neighbour;
  };
  struct Fill {
    Member& home;
  };
  using Plan = std::variant<Refusal, Elsewhere, Fill>;
  Plan decide(Member&, const rpc::PutStart&, Time now) const;
  Plan withoutHome(const rpc::PutStart&, uint64_t size) const;
  Member* carryOut(const Plan&, Member&, OperationId, const rpc::PutStart&, Time now);
  Member* fill(Member&, Member& home, OperationId, const rpc::PutStart&, Time now);
  // Why the master refuses a put of the key; ok: it does not.
  Refusal refusal(const std::string& key, PutMode, KeyLeaseId, Time now) const;

  PutIds& putIds_;
  Outgoing& out_;
  Routes& routes_;
  const Membership& membership_;
  SpaceQueue& space_;
  Changes& changes_;
  Transfers& transfers_;
  PutCounters counters_;
};

}  // namespace fluxon::master
