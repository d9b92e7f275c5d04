// Changes: a put becomes the route of its key, a delete ends it.
//
//   begun ──each member that may have an older value has answered, or is fenced on disk──► finished: the route changes, then it is answered
//     └──the home of the new value ends──► a delete of the key, whose put has failed
//
//   1. A route never goes to a smaller put_id.
//   2. Before a put or delete is acknowledged, every other owner with a replica of the key has answered that it retired it, or its lease
//      has run out and it is fenced. So a reader that trusts a serving lease never reads an older value after that.
//   3. Changes of one key never interleave: what comes meanwhile waits behind the change, in its order.
//   4. An invalidation goes to every member with a replica and to every member with a transfer of the key.
//   5. A put that rejects an existing key is done only if the key was absent all the time since it began: another one that became the
//      route meanwhile, or a delete of one that had, makes it `exists`, whichever has the smaller put_id. So of those that are in flight
//      together one at most is done.
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
    // The put is over; its extent is that of the value that is being published.
    std::function<void(Member&, OperationId put)> putEnded;
    // The put will not become the route: its extent comes back. The entry of its key may be gone after it.
    std::function<void(Member&, OperationId put)> putGivenUp;
    // What the puts under way of the key are to know.
    std::function<void(KeyEntry&, Overtaken)> overtaken;
    // What a copy has brought to the home of a put is its value now, or is not wanted.
    std::function<void(Member&home, OrderId copy)> copyTaken, copyUnwanted;
    // Requests that waited for a change, in their order.
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
  // The put is done. `copy`: its value lies at another member, who has just brought it there and waits for an answer.
  void publish(Member&, OperationId request, Put, Time now, Copied copy = {});
  void remove(Member&, OperationId, const rpc::RemoveKey&, Time now);
  // The lease of the key has ended; whoever revoked it is answered when the key has.
  void endLeased(KeyEntry&, const std::shared_ptr<Revoke>&, Time now);
  void invalidateDone(Member&, OperationId, const rpc::InvalidateDone&, Time now);

  void memberEnded(Member&);
  // Nothing need wait for the member any more.
  void fenceOnDisk(Member&, Time now);
  // What waits for a member waits for the one that has its directory now.
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
