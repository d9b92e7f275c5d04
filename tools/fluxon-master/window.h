// Window: the recovery window of a term.
//
//   The window expects each node of which the durable record names a life: that life may be serving under a lease of the last term until
//   `leasesEnd`, and the master takes its values if it lists them (inventory.h).
//
//   expected ──registers with that life──► reporting ──complete, and the owner knows what was refused──► over
//      │ ▲                                    │  │
//      │ └───────────────ended────────────────┘  └──no page for a lease and its margin──► given up
//      └──leasesEnd, or a lease and its margin after its last page──► given up ──that is on disk──► over
//   The window closes when it expects no node any more. A slow node keeps it open as long as its pages come, however long that takes.
//
// Why the master may acknowledge a change while the window is open. W1 to W5 are what could go wrong:
//   W1. A node that has not registered serves an older value under a lease of the last term. So the master acknowledges nothing before each
//       expected node has registered or been given up, which is not before leasesEnd. An owner that registers goes on with local hits under
//       that lease, but carries out invalidations from then on.
//   W2. A node that has registered but not listed the key yet may serve an older value, now or when its inventory is complete. So a change
//       treats every expected node as if it had a replica, and waits for its answer: the owner does not serve what it has retired, and
//       neither does any later life or term.
//   W3. A page names the older value because the owner sent it earlier, or names the retired slot. The master handles the page before,
//       during or after the change. Before: the change ends the replica. During: the master refuses the value. After: the route has a
//       put_id of this term, above all earlier ones, or it has ended and left a bound below which nothing of the key is taken (bounds.h).
//   W4. The node ends before it has answered. If a process with its directory replaces it, that one is told instead (Changes::tellInstead):
//       it may be the same process, still serving. Otherwise its lease runs out, not before leasesEnd, and the change goes on when the
//       record on disk names that life no more, so that a next term takes nothing of it. This term still may if the node comes back: it
//       knows all changes since it began.
//   W5. Two terms on, the record names a life that has listed its values and was told of all changes since, or none.
//   Requests that depend on whether a key exists wait until the master knows: the key is readable, has a put_id of this term, was deleted
//   in this term, or the window has closed. These are gets, stats, deletes that find no route, and puts that reject an existing key; each
//   waits at most to its caller's deadline. Counts and listings wait for the end of the window.
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
    // Tries requests again that may be answered now; those that still cannot wait again.
    std::function<void(std::vector<Deferred>, Time)> goOn;
    // Ends a member whose inventory makes no progress.
    std::function<void(Member&, Time)> giveUp;
  };
  Window(Term, Time leasesEnd, Outgoing&, Routes&, Bounds&, Record&, const Members&, Events);

  bool open() const { return !expected_.empty(); }
  // The last lease of the last term has run out by then.
  Time leasesEnd() const { return leasesEnd_; }

  // Keeps a request that cannot be answered while the window is open. True: it waits now.
  bool holds(Member&, const rpc::Request&, Time now);
  // A change of the key has ended: takes out the requests about it.
  std::vector<Deferred> take(const std::string& key) { return held_.take(key); }

  // The registration offers the values of exactly the life that the record names. A life that followed that one may have values that the
  // master refused when they were listed, without the life having been told.
  bool offersLastTerm(const rpc::Registration&) const;
  void registered(Member&, Time now);
  // A page of the member's inventory has come: the window expects its node at least until `until`.
  void listed(const Member&, Time until);
  // The node will list no more values of the last term, and serves none of them.
  void over(Member&, Time now);
  void memberEnded(const Member& member) { held_.forget(member); }
  // The expected nodes that have registered: each may have an older value of any key.
  std::vector<MemberRef> listing() const;

  void tick(Time now, Time heard);
  Time nextWake() const;
  void persisted(uint64_t version, Time now);

 private:
  struct Expected {
    Incarnation life;      // whose values the master takes
    Time until;            // given up then, unless it lists more
    uint64_t givenUp = 0;  // given up; the window stops waiting when this version of the record is durable; 0: not given up
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
  bool acknowledges_ = false;                 // changes, while it is open
  WindowQueue held_;
};

}  // namespace fluxon::master
