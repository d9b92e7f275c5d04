// Membership: who takes part. It registers owners, judges their leases, fences those that are silent, and forgets what those had that do
// not come again (the life of a member: member.h).
//
//   1. A life that is here ends for another one of its node only when its lease has run out, or when the newcomer has its directory, in
//      which it has ended that lease (or it is the same process). On one host a registration that was sent before that of the life which
//      is here is refused.
//   2. A life that has ended in this term never comes again.
//   3. What a fenced member had stays dormant for its next life. It ends when that has listed what it has, when the member leaves, or after
//      ten minutes: first the record names it no more (record.h), then its replicas leave the routes.
//   4. Changes wait for a member that has ended until its fence is on disk: no next term takes its values then.
// One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/counters.h"
#include "outgoing.h"
#include "record.h"
#include "routes.h"
#include "window.h"

namespace fluxon::master {

#define FLUXON_MASTER_MEMBERSHIP_COUNTERS(X) X(fenced, "fluxon_master_owners_fenced_total", "Incarnations of owners fenced.")
struct MembershipCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_MEMBERSHIP_COUNTERS)
};

class Membership {
 public:
  using Members = std::map<std::string, std::shared_ptr<Member>>;
  struct Events {
    // Nothing is asked of the member any more, and nothing that it asked for goes on.
    std::function<void(Member&, Time)> ended;
    // Changes need not wait for the member any more.
    std::function<void(Member&, Time)> fenceOnDisk;
    // What waits for the member waits for the next life of its node, which has its directory.
    std::function<void(Member&, Member& next)> replaced;
  };
  Membership(Duration lease, Outgoing& out, Record& record, Routes& routes, Window& window, Members& members, Events events)
      : lease_(lease), out_(out), record_(record), routes_(routes), window_(window), members_(members), events_(std::move(events)) {}

  // Joins, or joins again after a lost connection (same incarnation). On ok `member` is set; orders not answered are sent again.
  rpc::Registered add(const rpc::Registration&, Time now, std::shared_ptr<Member>& member);
  void heartbeat(Member&, bool serving, Time now);
  // Its inventory is complete, or it has none.
  void join(Member&);
  // It joins: the next term knows that it may serve.
  void record(Member&);

  void disconnected(Member&);

  // It serves nothing any more: its lease ran out, it was replaced, or it has stopped and keeps its values.
  void fence(Member&, Time now);
  // It has gone for good.
  void leave(Member&, Time now);
  // Fences whose lease has run out at `heard`, and forgets who has been away too long.
  void tick(Member&, Time now, Time heard);
  static Time nextWake(const Member&);

  // The next term is to take nothing of that life any more. For changes that go on without it, and before its routes are forgotten.
  void askFence(Member&);
  // A node that is not there: what it had is gone.
  void removeAbsent(const std::string& node);

  void setSsdLife(Member&, Incarnation);
  // Some member that has joined has an SSD.
  bool anySsd() const { return ssds_ > 0; }

  const Members& all() const { return members_; }
  // nullptr: none of that name has registered.
  Member* find(const std::string& node) const {
    const auto found = members_.find(node);
    return found == members_.end() ? nullptr : found->second.get();
  }
  const MembershipCounters& counters() const { return counters_; }

 private:
  Error refusal(const rpc::Registration&, const Member* known) const;
  void reconnected(Member&, Time sent, Time now);
  void succeed(Member* known, Member& fresh, Time now);
  void admit(Member&, Time now);
  void confirm(Member&, Time now);
  static void prolong(Member&, Time end);
  void registeredInWindow(Member&, Time now);
  void end(Member&, MemberState to, Time now);
  void forget(Member&);
  void forgetBefore(Member&);
  void fenced(Member&, Time now);
  void setRecord(const std::string& node, Incarnation);

  Duration lease_;
  Outgoing& out_;
  Record& record_;
  Routes& routes_;
  Window& window_;
  Members& members_;
  Events events_;
  std::set<Incarnation> ended_;  // in this term
  size_t ssds_ = 0;              // joined members with an SSD
  MembershipCounters counters_;
};

}  // namespace fluxon::master
