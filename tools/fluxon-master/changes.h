// Changes: a put becomes the route of its key (is published), or a delete ends the route.
//
//   begun ──each member that may have an older value has answered, or is fenced on disk──► finished: the route changes, then answered
//     └──the home of the new value ends──► becomes a delete of the key; the put has failed
//
//   1. The put_id of a route never decreases.
//   2. Before the master acknowledges a put or delete, every other owner with a replica of the key has answered that it retired it, or has
//      been fenced after its lease ran out. So a reader that trusts a serving lease never reads an older value after that.
//   3. Changes of one key never interleave: requests that come meanwhile queue behind the change, in order of arrival.
//   4. An invalidation goes to every member with a replica and to every member with a transfer of the key.
//   5. A put that rejects an existing key succeeds only if the key was absent the whole time since the put began. If another put was
//      published meanwhile, even if it was deleted again, the answer is `exists`, whichever put_id is smaller. So at most one of several
//      such puts in flight together succeeds.
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/counters.h"
#include "invalidations.h"
#include "membership.h"
#include "outgoing.h"
#include "put_ids.h"
#include "routes.h"
#include "window.h"

namespace fluxon::master {

#define FLUXON_MASTER_CHANGE_COUNTERS(X)                                                                                     \
  X(putsPublished, "fluxon_master_puts_published_total", "Puts that became the route of their key.")                         \
  X(putsOverwritten, "fluxon_master_puts_overwritten_total", "Puts that were overwritten or deleted before they were done.") \
  X(removes, "fluxon_master_removes_total", "Deletes.")
struct ChangeCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_CHANGE_COUNTERS)
  uint64_t putsRefusedAtEnd = 0;
};

class Changes {
 public:
  struct Events {
    // The put is over; its extent now belongs to the value that is being published.
    std::function<void(Member&, OperationId put)> putEnded;
    // The put will not be published: its extent comes back. The call may erase the entry of its key.
    std::function<void(Member&, OperationId put)> putGivenUp;
    // Another put or a delete has overtaken the puts of the key that are under way.
    std::function<void(KeyEntry&, Overtaken)> overtaken;
    // The value that a copy has brought to the home of a put is published, or is not wanted.
    std::function<void(Member&home, OrderId copy)> copyTaken, copyUnwanted;
    // Carries on with requests that waited for a change, in order of arrival.
    std::function<void(std::vector<Deferred>, Time)> goOn;
  };
  Changes(PutIds& putIds, Outgoing& out, Routes& routes, Window& window, Membership& membership, Invalidations& invalidations,
          Events events)
      : putIds_(putIds),
        out_(out),
        routes_(routes),
        window_(window),
        membership_(membership),
        invalidations_(invalidations),
        events_(std::move(events)) {}

  // The request waits for the change of the key.
  void defer(KeyEntry&, Member&, rpc::Request);
  // The writer has finished the put. `copy`: another member has just copied the value to itself, its home, and waits for an answer.
  void publish(Member&, OperationId request, Put, Time now, Copied copy = {});
  void remove(Member&, OperationId, const rpc::RemoveKey&, Time now);
  // The key's lease has ended: deletes the key. The Revoke is answered when its last key is gone.
  void endLeased(KeyEntry&, const std::shared_ptr<Revoke>&, Time now);
  void invalidateDone(Member&, OperationId, const rpc::InvalidateDone&, Time now);

  void memberEnded(Member&);
  // The member's fence is on disk: no change waits for the member any more.
  void fenceOnDisk(Member&, Time now);
  // The next life has taken over the member's directory: changes that wait for the member wait for that life instead.
  void tellInstead(Member&, Member& next);
  const ChangeCounters& counters() const { return counters_; }

 private:
  enum class By { request, lease };
  void removeKey(KeyEntry&, By, MemberRef origin, OperationId request, Time now);
  void begin(KeyEntry&, std::unique_ptr<Change>, const Member* except, Time now);
  void finish(KeyEntry&, Time now);
  std::vector<std::string> changing() const;

  PutIds& putIds_;
  Outgoing& out_;
  Routes& routes_;
  Window& window_;
  Membership& membership_;
  Invalidations& invalidations_;
  Events events_;
  std::set<KeyEntry*, ByName> changing_;  // entries with a change
  ChangeCounters counters_;
};

}  // namespace fluxon::master
