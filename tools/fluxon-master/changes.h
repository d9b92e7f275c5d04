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

#include "invalidations.h"
#include "membership.h"
#include "outgoing.h"
#include "put_ids.h"
#include "routes.h"
#include "window.h"

namespace fluxon::master {

class Puts;
class Transfers;

struct ChangeCounters {
  uint64_t putsPublished = 0, putsOverwritten = 0, putsRefused = 0, removes = 0;
};

class Changes {
 public:
  // Requests that waited for a change, in their order.
  using GoOn = std::function<void(std::vector<Deferred>, Time)>;
  Changes(PutIds& putIds, Outgoing& out, Routes& routes, Window& window, Membership& membership, Invalidations& invalidations, Puts& puts,
          Transfers& transfers, GoOn goOn)
      : putIds_(putIds),
        out_(out),
        routes_(routes),
        window_(window),
        membership_(membership),
        invalidations_(invalidations),
        puts_(puts),
        transfers_(transfers),
        goOn_(std::move(goOn)) {}

  // The request waits for the change of the key.
  void defer(KeyEntry&, Member&, rpc::Request);
  // The put is done. `copy`: its value lies at another member, who has just brought it there and waits for an answer.
  void publish(Member&, OperationId request, OperationId put, Time now, Copied copy = {});
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
  Puts& puts_;
  Transfers& transfers_;
  GoOn goOn_;
  std::set<KeyEntry*, ByName> changing_;  // entries with a change
  ChangeCounters counters_;
};

}  // namespace fluxon::master
