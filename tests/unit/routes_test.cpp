// Routes by themselves.
#include "master_parts.h"

namespace fluxon::master {
namespace {

struct Routed {
  explicit Routed(uint64_t ssdLife = 50) : a(memberOf("a", 1, ssdLife)) { routes.replace(entry(), PutId(7), 100, {}, inMemory(*a)); }
  KeyEntry& entry() { return routes.at("k"); }
  std::shared_ptr<Member> a, b = memberOf("b", 2, 60);
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
  CHECK(w.a->onSsd->empty());
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
  Routed w(51);
  w.routes.add(w.entry(), {*w.a, 0, Incarnation(50)});
  w.routes.replace(w.routes.at("l"), PutId(8), 100, {}, {*w.a, 0, Incarnation(51)});
  w.routes.sweep(*w.a, Routes::Sweep::earlierSsds);
  while (w.routes.sweeping()) w.routes.sweepSlice();
  CHECK(w.entry().replicas.size() == 1);
  CHECK(w.a->ssdReplicas() == 1);
  CHECK(w.a->onSsd->size() == 1);
  w.routes.sweep(*w.a, Routes::Sweep::everything);
  while (w.routes.sweeping()) w.routes.sweepSlice();
  CHECK(w.routes.table().routes() == 0);
  CHECK(w.a->space.freeBytes() == kSegment);
}

}  // namespace
}  // namespace fluxon::master
