// Where a value is read or brought from, by itself.
#include "gets.h"

#include "master_parts.h"

namespace fluxon::master {
namespace {

const PutId kPut(kTerm, 1);

struct Asking : Base {
  // Copies that are under way would keep both of their members, as in ~MasterCore().
  ~Asking() {
    for (const auto& [node, member] : members) transfers.forget(*member);
  }
  rpc::GetStart of(const std::string& key, rpc::NeighbourUse neighbours = rpc::NeighbourUse::read, std::string avoid = {}) {
    rpc::GetStart get;
    get.key = key;
    get.neighbours = neighbours;
    get.avoid = std::move(avoid);
    get.timeLeftMs = 1000;
    return get;
  }
  uint64_t get(Member& asker, const rpc::GetStart& request) {
    gets.start(asker, OperationId(++requests), request, now);
    return requests;
  }
  Member& joinAt(const std::string& node, const std::string& host, uint64_t ssdLife = 0) {
    rpc::Registration registration = registrationOf(node, ++lives, ssdLife);
    registration.hostId = host;
    return join(registration);
  }
  uint64_t requests = 0;
  std::vector<OperationId> deferred;
  PutIds putIds{kTerm};
  Invalidations invalidations{out};
  Changes changes{putIds,
                  out,
                  routes,
                  window,
                  membership,
                  invalidations,
                  {{}, {}, [](KeyEntry&, Overtaken) {}, {}, {}, [](std::vector<Deferred>, Time) {}}};
  SpaceQueue space{seconds(5), out, routes, membership, [this](const Waiting& waiting, Time at) {
                     return gets.retry(*waiting.member, waiting.id, std::get<rpc::GetStart>(waiting.request), Gets::Rank::first,
                                       waiting.stagings, at);
                   }};
  SsdReplicas ssds{out, routes, membership, space};
  Transfers transfers{out,
                      routes,
                      membership,
                      space,
                      {{}, {}, {}, [this](Member& at, const StagedAt& stage) { staging.notWanted(at, stage); }, {}, [](Member&, Time) {}}};
  Staging staging{out, space, transfers, ssds, [](const StagedGet&, Time) {}};
  Gets gets{out, routes, space, changes, transfers, staging};
};

TEST_CASE("gets: a value is read where it is by its owner and by a neighbour, and fetched by another host") {
  Asking w;
  Member& a = w.joinAt("a", "one");
  Member& b = w.joinAt("b", "one");
  Member& c = w.joinAt("c", "two");
  w.value("k", kPut, a);
  CHECK(w.outbox.answer<rpc::ReadAt>(a, w.get(a, w.of("k"))).owner.node == "a");
  CHECK(w.outbox.answer<rpc::ReadAt>(b, w.get(b, w.of("k"))).owner.node == "a");
  CHECK(w.outbox.answer<rpc::FetchFrom>(c, w.get(c, w.of("k"))).source.node == "a");
  CHECK(w.outbox.answer<rpc::FetchFrom>(b, w.get(b, w.of("k", rpc::NeighbourUse::copy))).source.node == "a");
  CHECK(w.gets.counters().gets == 4);
  CHECK(w.gets.counters().fetches == 2);
}

TEST_CASE("gets: what nobody can read is a miss") {
  Asking w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.value("k", kPut, b);
  w.membership.fence(b, w.now);
  CHECK(w.outbox.code(a, w.get(a, w.of("k"))) == Code::miss);
  CHECK(w.outbox.code(a, w.get(a, w.of("none"))) == Code::miss);
  CHECK(w.gets.counters().getMisses == 2);
}

TEST_CASE("gets: memory comes before an SSD, and a source that just failed after all others") {
  Asking w;
  Member& a = w.join("a");
  Member& b = w.join("b", 50);
  Member& c = w.join("c");
  KeyEntry& entry = w.value("k", kPut, c);
  w.routes.add(entry, onSsd(b));
  for (int i = 0; i < 4; ++i) CHECK(w.outbox.answer<rpc::FetchFrom>(a, w.get(a, w.of("k"))).source.node == "c");
  w.get(a, w.of("k", {}, "c"));
  CHECK(w.outbox.to<rpc::Stage>(b).size() == 1);
}

TEST_CASE("gets: a value on one's own SSD is loaded, on another host's it is staged, and both are counted as loads") {
  Asking w;
  Member& a = w.join("a", 50);
  Member& b = w.join("b");
  w.routes.replace(w.routes.at("k"), kPut, 100, {}, onSsd(a));
  CHECK((w.outbox.answer<rpc::LoadHere>(a, w.get(a, w.of("k"))).putId == kPut));
  const uint64_t staged = w.get(b, w.of("k"));
  CHECK_FALSE(w.outbox.answered(b, staged));
  CHECK(w.outbox.one<rpc::Stage>(a).key == "k");
  CHECK(w.gets.counters().ssdLoads == 2);
  CHECK(w.gets.counters().fetches == 1);
}

TEST_CASE("gets: two copies of a version at once are to become replicas, more readers get temporary ones") {
  Asking w;
  Member& a = w.join("a");
  KeyEntry& entry = w.value("k", kPut, a);
  for (const char* node : {"b", "c", "d"}) {
    Member& member = w.join(node);
    w.get(member, w.of("k"));
  }
  CHECK(entry.transfers.size() == 3);
  CHECK(Transfers::durable(entry) == 2);
}

TEST_CASE("gets: a get that finds no room waits, behind those who came before it, and goes on when there is some") {
  Asking w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.value("k", kPut, a, kPageBytes);
  std::vector<uint64_t> mine;
  while (const std::optional<Extent> extent = b.space.allocate(kPageBytes, Use::unrouted)) mine.push_back(extent->offset);
  // What fills the segment is retired, and could never be evicted: nobody has to wait behind such a one.
  const uint64_t first = w.get(b, w.of("k"));
  CHECK_FALSE(w.outbox.answered(b, first));
  CHECK(b.shortage.waiting().size() == 1);
  w.space.release(b, OperationId(1000), {{}, {mine.back()}}, w.now);
  CHECK(w.outbox.answer<rpc::FetchFrom>(b, first).offset == mine.back());
}

TEST_CASE("gets: a value larger than the segment, and one to which there is no way, are refused with the reason") {
  Asking w;
  rpc::Registration large = registrationOf("a", 70);
  large.segmentBytes = 2 * kSegment;
  Member& a = w.join(large);
  rpc::Registration alone = registrationOf("c", 71);
  alone.link.clear();
  Member& c = w.join(alone);
  Member& b = w.join("b");
  w.value("large", kPut, a, kSegment + 1);
  CHECK(w.outbox.code(b, w.get(b, w.of("large"))) == Code::tooLarge);
  w.value("alone", kPut, c);
  CHECK(w.outbox.code(b, w.get(b, w.of("alone"))) == Code::unavailable);
}

TEST_CASE("gets: a get of a key with a change waits for the change") {
  Asking w;
  Member& a = w.join("a");
  KeyEntry& entry = w.value("k", kPut, a);
  entry.change = std::make_unique<Change>();
  const uint64_t get = w.get(a, w.of("k"));
  CHECK_FALSE(w.outbox.answered(a, get));
  REQUIRE(entry.deferred.size() == 1);
  CHECK(entry.deferred[0].request.id == OperationId(get));
}

TEST_CASE("gets: what is staged needs room at its source as well, and waits there") {
  Asking w;
  Member& a = w.join("a", 50);
  Member& b = w.join("b");
  w.routes.replace(w.routes.at("k"), kPut, kPageBytes, {}, onSsd(a));
  while (a.space.allocate(kPageBytes, Use::unrouted)) continue;
  w.get(b, w.of("k"));
  CHECK(a.shortage.waiting().size() == 1);
  CHECK(b.space.freeBytes() == kSegment);
}

}  // namespace
}  // namespace fluxon::master
