// Membership: which owners take part. It lets owners join, judges their serving leases, fences silent ones, and forgets the values of those
// that do not come back (the life of a member: member.h).
//
//   1. A new life of a node replaces a living one only when the lease of that one has run out, or when the newcomer has its directory, in
//      which the newcomer has ended that lease (or is the same process). On one host the master refuses a registration that was sent before
//      that of the living one.
//   2. A life that has ended in this term never comes back.
//   3. The replicas of a fenced member stay dormant for its next life. They end when that life has listed its values, when the member
//      leaves, or after ten minutes: first the record stops naming the life (record.h), then the replicas leave the routes.
//   4. A change waits for a member that has ended until its fence is on disk, so that no next term takes its values.
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
    // The member has ended: the parts ask it for nothing more and drop what it asked for.
    std::function<void(Member&, Time)> ended;
    // No change waits for the member any more.
    std::function<void(Member&, Time)> fenceOnDisk;
    // The next life of its node has taken over its directory: what waits for the member waits for that life.
    std::function<void(Member&, Member& next)> replaced;
  };
  Membership(Duration lease, Outgoing& out, Record& record, Routes& routes, Window& window, Members& members, Events events)
      : lease_(lease), out_(out), record_(record), routes_(routes), window_(window), members_(members), events_(std::move(events)) {}

  // An owner joins, or joins again after a lost connection (same incarnation). On ok sets `member` and sends unanswered orders again.
  rpc::Registered add(const rpc::Registration&, Time now, std::shared_ptr<Member>& member);
  void heartbeat(Member&, bool serving, Time now);
  // The member's inventory is complete, or it has no values.
  void join(Member&);
  // The member joins: from now on the record names its life, so that the next term knows that it may serve.
  void record(Member&);

  void disconnected(Member&);

  // The member serves nothing any more: its lease ran out, a new life replaced it, or it has stopped and keeps its values.
  void fence(Member&, Time now);
  // The member has gone for good.
  void leave(Member&, Time now);
  // Fences the member if its lease had run out at `heard`, and forgets it if it has been away too long.
  void tick(Member&, Time now, Time heard);
  static Time nextWake(const Member&);

  // Takes the member's life out of the record, so that the next term takes none of its values: before a change goes on without it, and
  // before its replicas leave the routes.
  void askFence(Member&);
  // An operator drains a node that is absent: its values are gone for good.
  void removeAbsent(const std::string& node);

  void setSsdLife(Member&, Incarnation);
  // At least one joined member has an SSD.
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
