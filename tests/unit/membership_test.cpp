// Membership by itself: who may join, whose lease is over, and what is forgotten when.
#include "master_parts.h"

namespace fluxon::master {
namespace {

rpc::Registration next(const std::string& node, uint64_t life, uint64_t before) {
  rpc::Registration registration = registrationOf(node, life);
  registration.ends = {Incarnation(before)};
  return registration;
}

TEST_CASE("membership: a life that is here is replaced by a process of its host that has its directory, by no other") {
  Base w;
  Member& a = w.join("a");
  rpc::Registration other = registrationOf("a", 9);
  CHECK(w.tryJoin(other) == Code::unavailable);
  other.ends = {a.incarnation()};
  other.hostId = "another host";
  CHECK(w.tryJoin(other) == Code::unavailable);
  CHECK(a.lives());
  CHECK(w.ended.empty());
  const MemberRef first(a);
  Member& second = w.join(next("a", 9, a.incarnation().value));
  CHECK(*first->state == MemberState::fenced);
  CHECK(w.ended == std::vector<std::string>{"a"});
  CHECK(w.membership.find("a") == &second);
  CHECK(w.membership.counters().fenced == 1);
}

TEST_CASE("membership: a registration that was sent before that of the life which is here is refused") {
  Base w;
  rpc::Registration later = registrationOf("a", 2);
  later.sent = Time{100};
  w.join(later);
  rpc::Registration late = next("a", 1, 2);
  late.sent = Time{99};
  CHECK(w.tryJoin(late) == Code::unavailable);
  late.sent = Time{101};
  CHECK(w.tryJoin(late) == Code::ok);
}

TEST_CASE("membership: a life that has ended never comes again") {
  Base w;
  const MemberRef a(w.join("a"));
  w.membership.fence(*a, w.now);
  CHECK(w.tryJoin(a->registration()) == Code::fenced);
  w.membership.fence(*a, w.now);
  CHECK(w.ended.size() == 1);
  w.join(next("a", 9, 1));
  CHECK(w.tryJoin(a->registration()) == Code::fenced);
}

TEST_CASE("membership: a lease is judged by what has been heard, and a heartbeat prolongs it") {
  Base w;
  Member& a = w.join("a");
  const Time end = *a.leaseEnd;
  CHECK(end == leaseEnd(kLease, w.now));
  CHECK(Membership::nextWake(a) == end);
  w.membership.tick(a, end, end + milliseconds(-1));
  CHECK(a.lives());
  w.membership.heartbeat(a, true, w.now + seconds(1));
  w.membership.tick(a, end, end);
  CHECK(a.lives());
  w.membership.tick(a, end + seconds(1), end + seconds(1));
  CHECK(*a.state == MemberState::fenced);
}

TEST_CASE("membership: what a fenced member had stays ten minutes, and until the record names it no more on disk") {
  Base w;
  Member& a = w.join("a");
  w.onDisk();
  w.value("k", PutId(kTerm, 1), a);
  w.membership.fence(a, w.now);
  CHECK((w.record.lifeOf("a") == a.incarnation()));
  const Time forget = w.now + seconds(600);
  CHECK(Membership::nextWake(a) == forget);
  w.membership.tick(a, forget + milliseconds(-1), forget);
  CHECK((w.record.lifeOf("a") == a.incarnation()));
  w.membership.tick(a, forget, forget);
  CHECK((w.record.lifeOf("a") == Incarnation()));
  CHECK_FALSE(w.routes.sweeping());
  CHECK(w.fencedOnDisk.empty());
  w.onDisk();
  CHECK(w.fencedOnDisk == std::vector<std::string>{"a"});
  w.sweep();
  CHECK(w.routes.table().routes() == 0);
}

TEST_CASE("membership: a change asks once that the next term takes nothing of a member, and is told when that is on disk") {
  Base w;
  Member& a = w.join("a");
  w.onDisk();
  w.membership.fence(a, w.now);
  const uint64_t version = w.record.version();
  w.membership.askFence(a);
  w.membership.askFence(a);
  CHECK(w.record.version() == version + 1);
  CHECK(w.fencedOnDisk.empty());
  w.onDisk();
  CHECK(w.fencedOnDisk.size() == 1);
  CHECK_FALSE(w.routes.sweeping());  // its values may come again in this term
}

TEST_CASE("membership: who leaves is in the record no more, and its routes end when that is on disk") {
  Base w;
  Member& a = w.join("a");
  w.onDisk();
  w.value("k", PutId(kTerm, 1), a);
  w.membership.leave(a, w.now);
  CHECK(*a.state == MemberState::left);
  CHECK(w.ended.size() == 1);
  CHECK_FALSE(w.record.has("a"));
  CHECK_FALSE(w.routes.sweeping());
  w.onDisk();
  w.sweep();
  CHECK(w.routes.table().routes() == 0);
  CHECK(w.membership.counters().fenced == 0);
}

TEST_CASE("membership: the next life revives what the last one had, and what it does not list ends when its inventory is complete") {
  Base w;
  const MemberRef a(w.join("a"));
  w.onDisk();
  w.value("k", PutId(kTerm, 1), *a);
  w.membership.fence(*a, w.now);
  rpc::Registration again = next("a", 9, 1);
  again.adopts = a->incarnation();
  Member& b = w.join(again);
  CHECK(*b.state == MemberState::reporting);
  CHECK(Membership::nextWake(*a) == Time::never());
  w.onDisk();
  CHECK_FALSE(w.routes.sweeping());
  w.membership.join(b);
  w.membership.record(b);
  w.onDisk();
  w.sweep();
  CHECK(*b.state == MemberState::joined);
  CHECK(w.routes.table().routes() == 0);
}

TEST_CASE("membership: in the window what waits for a life waits for the next one of its directory, and its fence is none") {
  Base w({{"a", Incarnation(1)}});
  rpc::Registration first = next("a", 2, 1);
  first.adopts = Incarnation(1);
  const MemberRef a(w.join(first));
  CHECK(*a->state == MemberState::reporting);
  rpc::Registration second = next("a", 3, 1);
  second.ends.push_back(Incarnation(2));
  second.adopts = Incarnation(1);
  w.join(second);
  CHECK(w.replaced == std::vector<std::string>{"a"});
  CHECK(w.ended == std::vector<std::string>{"a"});
  CHECK(*a->fence == Fence::onDisk);
  CHECK((w.record.lifeOf("a") == Incarnation(1)));
}

TEST_CASE("membership: who registers in the window is judged no sooner than the leases of the last term end") {
  Base w({{"a", Incarnation(1)}});
  CHECK(*w.join("b").leaseEnd == w.leasesEnd);
}

TEST_CASE("membership: there is an SSD as long as a member has one that has joined") {
  Base w;
  CHECK_FALSE(w.membership.anySsd());
  Member& a = w.join("a", 50);
  Member& b = w.join("b");
  CHECK(w.membership.anySsd());
  w.membership.setSsdLife(a, Incarnation());
  CHECK_FALSE(w.membership.anySsd());
  w.membership.setSsdLife(b, Incarnation(60));
  w.membership.setSsdLife(b, Incarnation(61));
  CHECK(w.membership.anySsd());
  w.membership.fence(b, w.now);
  CHECK_FALSE(w.membership.anySsd());
}

TEST_CASE("membership: a senseless registration changes nothing") {
  Base w;
  Member& a = w.join("a");
  rpc::Registration bad = next("a", 9, 1);
  bad.occupied = {{0, kPageBytes}, {0, kPageBytes}};
  CHECK(w.tryJoin(bad) == Code::protocol);
  bad = next("a", 0, 1);
  CHECK(w.tryJoin(bad) == Code::protocol);
  CHECK(a.lives());
  CHECK(w.ended.empty());
}

}  // namespace
}  // namespace fluxon::master
