// The smaller parts of the master, each by itself: references to members, the durable record, routes, bounds, invalidations.
#include <doctest/doctest.h>

#include <memory>

#include "bounds.h"
#include "invalidations.h"
#include "record.h"
#include "routes.h"

namespace fluxon::master {
namespace {

constexpr uint64_t kSegment = 1 << 20;

struct Sent final : Outbox {
  std::vector<rpc::MasterMessage> messages;
  int persists = 0;
  void send(Member&, rpc::MasterMessage message) override { messages.push_back(std::move(message)); }
  void persist() override { ++persists; }
};

std::shared_ptr<Member> memberOf(const std::string& node, uint64_t life, uint64_t ssdLife = 0) {
  rpc::Registration registration;
  registration.node = node;
  registration.incarnation = Incarnation(life);
  registration.segmentBytes = kSegment;
  registration.maxKeys = 1000;
  registration.ssdLife = Incarnation(ssdLife);
  auto member = std::make_shared<Member>(registration, Time::never());
  member->state = MemberState::joined;
  return member;
}
Replica inMemory(Member& member) { return {member, member.space.allocate(100, Use::inFlight)->offset}; }

TEST_CASE("member reference: the record stays as long as it is named, however often it is copied and moved") {
  std::shared_ptr<Member> member = memberOf("a", 1);
  const std::weak_ptr<Member> seen = member;
  MemberRef one(*member), two = one, three = std::move(one);
  CHECK_FALSE(one);
  CHECK(two == three);
  member.reset();
  CHECK(two->node() == "a");
  two = three;
  two = {};
  CHECK_FALSE(seen.expired());
  three = MemberRef(*three);
  three = {};
  CHECK(seen.expired());
}

TEST_CASE("member reference: a member that has ended is named, but is no living one") {
  const std::shared_ptr<Member> member = memberOf("a", 1);
  const MemberRef named(*member);
  CHECK(named.living() == member.get());
  member->state = MemberState::reporting;
  CHECK(named.living() == member.get());
  for (const MemberState state : {MemberState::fenced, MemberState::left}) {
    member->state = state;
    CHECK(named.living() == nullptr);
    CHECK(named == *member);
  }
  CHECK(MemberRef().living() == nullptr);
}

TEST_CASE("record: what waits for a version goes on when that is on disk, in its order, and not before") {
  Sent outbox;
  Record record(outbox, {{"a", Incarnation(1)}});
  CHECK(record.onDisk());
  std::vector<int> went;
  record.set("a", Incarnation(2));
  record.whenOnDisk([&](Time) { went.push_back(1); });
  record.erase("a");
  CHECK(outbox.persists == 2);
  CHECK_FALSE(record.onDisk());
  record.whenOnDisk([&](Time) { went.push_back(2); });
  record.whenOnDisk([&](Time) { went.push_back(3); });
  record.persisted(record.version() - 1, Time{});
  CHECK(went == std::vector<int>{1});
  record.persisted(record.version(), Time{});
  CHECK(went == std::vector<int>{1, 2, 3});
  CHECK(record.onDisk());
  record.persisted(1, Time{});  // an older write says nothing new
  CHECK(record.persisted() == record.version());
  CHECK_FALSE(record.has("a"));
}

TEST_CASE("bounds: the greatest put_id counts, and none when the window has closed") {
  Bounds bounds(Bounds::State::open);
  bounds.add("k", PutId(7));
  bounds.add("k", PutId(5));
  bounds.add("l", PutId());
  CHECK((bounds.of("k") == PutId(7)));
  CHECK_FALSE(bool(bounds.of("l")));
  bounds.close();
  CHECK_FALSE(bool(bounds.of("k")));
  bounds.add("k", PutId(9));
  CHECK_FALSE(bool(bounds.of("k")));
}

struct Routed {
  Routed() { routes.replace(entry(), PutId(7), 100, {}, inMemory(*a)); }
  KeyEntry& entry() { return routes.at("k"); }
  std::shared_ptr<Member> a = memberOf("a", 1, 50), b = memberOf("b", 2, 60);
  Bounds bounds{Bounds::State::open};
  Routes routes{bounds};
};

TEST_CASE("routes: members know of their replicas as long as these are some") {
  Routed w;
  w.routes.add(w.entry(), inMemory(*w.b));
  w.routes.add(w.entry(), {*w.a, 0, Incarnation(50)});
  CHECK(w.a->space.bytes(Use::routed) == 128);
  CHECK(w.a->ssdReplicas() == 1);
  w.routes.drop(w.entry(), *w.a, Medium::memory);
  CHECK(w.a->space.bytes(Use::unrouted) == 128);
  CHECK(w.entry().replicas.size() == 2);
  w.routes.replace(w.entry(), PutId(8), 50, {}, inMemory(*w.a));
  CHECK(w.b->space.bytes(Use::unrouted) == 128);
  CHECK(w.a->ssdReplicas() == 0);
  CHECK(w.a->onSsd.empty());
}

TEST_CASE("routes: a route ends with its last replica, and its bound stays; not while a change decides") {
  Routed w;
  w.routes.add(w.entry(), {*w.b, 0, Incarnation(60)});
  w.routes.lose(w.entry(), *w.a, Medium::memory);
  CHECK(w.routes.table().routes() == 1);
  w.entry().change = std::make_unique<Change>();
  w.routes.lose(w.entry(), *w.b, Medium::ssd);
  CHECK(w.routes.table().routes() == 1);
  w.entry().change.reset();
  w.routes.lose(w.entry(), *w.b, Medium::ssd);
  CHECK(w.routes.find("k") == nullptr);
  CHECK((w.bounds.of("k") == PutId(7)));
}

TEST_CASE("routes: a key stands with its lease as long as it has its value from it") {
  Routed w;
  const KeyLeaseId lease = w.routes.leases().grant(Term(1), seconds(1), Time{});
  w.routes.replace(w.entry(), PutId(8), 100, lease, inMemory(*w.a));
  CHECK(w.a->space.leasedBytes() == 128);
  CHECK(w.routes.leases().find(lease)->keys.count("k") == 1);
  w.routes.replace(w.entry(), PutId(9), 100, {}, inMemory(*w.a));
  CHECK(w.routes.leases().find(lease)->keys.empty());
  CHECK(w.a->space.leasedBytes() == 0);
}

TEST_CASE("routes: a sweep of earlier SSDs leaves what is in memory and on the present one, one of everything leaves nothing") {
  Routed w;
  w.routes.add(w.entry(), {*w.a, 0, Incarnation(50)});
  w.a->ssdLife = Incarnation(51);
  w.routes.replace(w.routes.at("l"), PutId(8), 100, {}, {*w.a, 0, Incarnation(51)});
  w.routes.sweep(*w.a, Routes::Sweep::earlierSsds);
  while (w.routes.sweeping()) w.routes.sweepSlice();
  CHECK(w.entry().replicas.size() == 1);
  CHECK(w.a->ssdReplicas() == 1);
  CHECK(w.a->onSsd.size() == 1);
  w.routes.sweep(*w.a, Routes::Sweep::everything);
  while (w.routes.sweeping()) w.routes.sweepSlice();
  CHECK(w.routes.table().routes() == 0);
  CHECK(w.a->space.freeBytes() == kSegment);
}

TEST_CASE("invalidations: one batch is under way to a member, of no more than 1024 versions, and what comes meanwhile follows") {
  Sent outbox;
  Outgoing out(outbox);
  Invalidations invalidations(out);
  const std::shared_ptr<Member> a = memberOf("a", 1);
  for (int i = 0; i < 2000; ++i) invalidations.add(*a, {"k" + std::to_string(i), PutId(9)});
  REQUIRE(outbox.messages.size() == 1);
  const auto order = [&] { return std::get<rpc::Invalidate>(outbox.messages.back()); };
  CHECK(order().below.size() == 1);
  CHECK(invalidations.answered(*a, OrderId(99)).empty());
  CHECK(invalidations.answered(*a, order().order).size() == 1);
  invalidations.sendNext(*a);
  CHECK(order().below.size() == 1024);
  CHECK(order().below.front().key == "k1");
  invalidations.sendNext(*a);
  CHECK(outbox.messages.size() == 2);
  CHECK(invalidations.answered(*a, order().order).size() == 1024);
  invalidations.sendNext(*a);
  CHECK(order().below.size() == 2000 - 1025);
  CHECK(order().below.back().key == "k1999");
  CHECK(invalidations.total() == 2000);
}

}  // namespace
}  // namespace fluxon::master
