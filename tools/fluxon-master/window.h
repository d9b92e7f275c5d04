// Window: the recovery window of a term.
//
//   Each node that the durable record names a life of is expected: that life may be serving under a lease of the last term until
//   `leasesEnd`, and its values are taken if it lists them (inventory.h).
//
//   expected ──registers with that life──► reporting ──complete, and the owner knows what was refused──► over
//      │ ▲                                    │  │
//      │ └───────────────ended────────────────┘  └──no page for a lease and its margin──► given up
//      └──leasesEnd, or a lease and its margin after its last page──► given up ──that is on disk──► over
//   The window ends when no node is expected any more. So a slow node keeps it open as long as its pages come, however long that takes.
//
// Why a change may be acknowledged while the window is open (W1 to W5 are what could go wrong)
//   W1. A node that has not registered serves an older value under a lease of the last term. So nothing is acknowledged before each
//       expected node has registered, or been given up, which is not before leasesEnd. Registering, an owner goes on with its local
//       hits under that lease, but it carries out invalidations from then on.
//   W2. A node that has registered, but not listed the key yet, has an older value and serves it under that lease, or would serve it when
//       its inventory is complete. So a change goes to every expected node as if it had a replica, and waits for its answer: what the
//       owner has retired it does not serve, and neither this nor a later life or term may serve it again.
//   W3. A page that was sent before that names the older value, or one that was made later names the slot that was retired. The page is
//       handled before, during or after the change: before, the change ends the replica; during, the value is refused; after, the route
//       has a put_id of this term, which is above all of earlier ones, or it has ended, and then its bound is the put_id below which
//       nothing of the key is taken (bounds.h).
//   W4. The node ends before it has answered. If it is replaced by a process that has its directory, that one is told instead
//       (Changes::tellInstead): it may be the same process, still serving. Else its lease runs out, not before leasesEnd, and the change
//       goes on when the record on disk names that life no more: a next term takes nothing of it. This term does, if it comes back: it
//       knows all changes since it began.
//   W5. Two terms on: the record names the life that has listed its values and was told of all changes since, or none.
//   What asks whether a key exists is answered when that is known: it is readable, it has a put_id of this term, it was deleted in this
//   term, or the window has ended. Until then a get or stat of it waits, a delete that finds no route does, and a put that rejects an
//   existing key; at most to the deadline of who asked. Counts and listings wait for the end of the window.
// One thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bounds.h"
#include "outgoing.h"
#include "record.h"
#include "routes.h"
#include "window_queue.h"

namespace fluxon::master {

class Window {
 public:
  using Members = std::map<std::string, std::shared_ptr<Member>>;
  struct Events {
    // Requests that may be answered now. Those that still cannot wait again.
    std::function<void(std::vector<Deferred>, Time)> goOn;
    // A member that makes no progress takes part no more.
    std::function<void(Member&, Time)> giveUp;
  };
  Window(Term, Time leasesEnd, Outgoing&, Routes&, Bounds&, Record&, const Members&, Events);

  bool open() const { return !expected_.empty(); }
  // No lease of the last term ends later.
  Time leasesEnd() const { return leasesEnd_; }

  // What cannot be answered while the window is open waits. True: it does.
  bool holds(Member&, const rpc::Request&, Time now);
  // Of those, the ones about a key of which a change has ended.
  std::vector<Deferred> take(const std::string& key) { return held_.take(key); }

  // The values that the registration offers are those of exactly the life that the record names. One that it has followed may have
  // values that were refused when they were listed, and nobody told it otherwise.
  bool offersLastTerm(const rpc::Registration&) const;
  void registered(Member&, Time now);
  // A page of its inventory has come: it is expected until then, at least.
  void listed(const Member&, Time until);
  // Nothing of the last term is to come from the node any more, and nothing of it is served there.
  void over(Member&, Time now);
  void memberEnded(const Member& member) { held_.forget(member); }
  // Expected nodes that have registered: they may all have an older value of any key.
  std::vector<MemberRef> listing() const;

  void tick(Time now, Time heard);
  Time nextWake() const;
  void persisted(uint64_t version, Time now);

 private:
  struct Expected {
    Incarnation life;      // whose values are taken
    Time until;            // it is given up then, unless it lists more
    uint64_t givenUp = 0;  // it is not taken any more, and not waited for when this version is durable
  };
  void advance(Time now);
  bool known(const std::string& key) const;

  Term term_;
  Time leasesEnd_;
  Outgoing& out_;
  Routes& routes_;
  Bounds& bounds_;
  Record& record_;
  const Members& members_;
  Events events_;
  std::map<std::string, Expected> expected_;  // nodes that may have values of the last term, readable or to be listed
  bool acknowledges_ = false;                 // changes are, while it is open
  WindowQueue held_;
};

}  // namespace fluxon::master
