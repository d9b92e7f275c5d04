// MasterCore: what is on the owners' SSDs. Commits, gets from there, staging for other hosts, lives of SSDs, inventories.
#include <random>

#include "master_fixture.h"

namespace fluxon::master {
namespace {

using rpc::ReclaimResult;

constexpr uint64_t kLife = 50;  // of every SSD, unless a test says another

// Owners a, b, c ..., each with a link, on a host of its own, and with an SSD.
struct Ssds : World {
  using World::World;
  rpc::Registration with(const std::string& node, uint64_t incarnation, uint64_t life = kLife, uint64_t adopts = 0) {
    rpc::Registration r = registration(node, incarnation);
    r.hostId = node;
    r.link = node + ":1";
    r.ssdLife = Incarnation(life);
    r.adopts = Incarnation(adopts);
    return r;
  }
  Owner on(const std::string& node, uint64_t life = kLife) { return World::join(with(node, ++incarnations, life)); }
  Owner onHost(const std::string& node, const std::string& host, uint64_t life = kLife) {
    rpc::Registration r = with(node, ++incarnations, life);
    r.hostId = host;
    return World::join(r);
  }
  // Registers, and must be asked for an inventory.
  Owner report(const rpc::Registration& r) {
    std::shared_ptr<Member> member;
    const rpc::Registered result = core.registerOwner(r, now, member);
    if (diskWorks) persisted();
    REQUIRE(result.code == Code::ok);
    REQUIRE(result.inventory);
    return {*this, member};
  }
  // The owner's memory replicas go.
  void evict(Owner& owner) {
    CHECK(core.evictTo(owner.member->node(), 0, now).ok());
    while (!owner.orders<rpc::Reclaim>().empty()) owner.reclaimDone(ReclaimResult::ok);
    CHECK(owner.bytes(Use::routed) == 0);
  }
  // A key is known to an SSD exactly if its route names that SSD.
  bool ssdsAddUp() const {
    size_t onSsds = 0, named = 0;
    core.table().list({}, {}, UINT64_MAX, [&](const KeyEntry& entry) {
      for (const Replica& replica : entry.replicas) named += bool(replica.ssd);
      return true;
    });
    for (const auto& [node, member] : core.members()) {
      for (const auto& [life, keys] : *member->onSsd) onSsds += keys.size();
    }
    return onSsds == named;
  }
};

// Indices of the values that are not taken.
std::vector<uint32_t> ignored(Owner& owner, std::vector<rpc::SsdValue> values) {
  return owner.answer<rpc::SsdTaken>(owner.ask(rpc::SsdCommit{{}, std::move(values)})).ignored;
}
bool commit(Owner& owner, const std::string& key, PutId id, uint64_t bytes = 100) { return ignored(owner, {{key, id, bytes}}).empty(); }
void evicted(Owner& owner, const std::string& key, PutId id) { CHECK(owner.say(rpc::SsdEvicted{{}, {{key, id}}}) == Code::ok); }
void setLife(Owner& owner, uint64_t life) { CHECK(owner.say(rpc::SsdLife{{}, Incarnation(life)}) == Code::ok); }
// Puts a value, and has it on the SSD as well.
PutId putBoth(Owner& owner, const std::string& key, uint64_t bytes = 100) {
  owner.put(key, bytes);
  const PutId id = owner.idOf(key);
  CHECK(commit(owner, key, id, bytes));
  return id;
}
// Of an inventory that is one page: which of its SSD's values must go, by index.
std::vector<uint32_t> refusedSsd(Owner& owner, std::vector<rpc::SsdValue> ssd, std::vector<rpc::MemoryValue> memory = {}) {
  return owner.answer<rpc::InventoryTaken>(owner.ask(rpc::InventoryPage{{}, std::move(memory), std::move(ssd), 1})).refusedSsd;
}
rpc::SsdValue onSsd(const std::string& key, PutId id, uint64_t bytes = 100) { return {key, id, bytes}; }

TEST_CASE("ssd commit: taken of a value that is in the owner's memory, once more too") {
  Ssds w;
  Owner a = w.on("a");
  a.put("k");
  const PutId id = a.idOf("k");
  CHECK(commit(a, "k", id));
  CHECK(commit(a, "k", id));
  CHECK(a.member->ssdReplicas() == 1);
  CHECK(a.nodesOf("k") == std::vector<std::string>{"a"});
  CHECK(w.core.counters().ssdCommits == 2);
  CHECK(w.ssdsAddUp());
}

TEST_CASE("ssd commit: of another version, another length or an unknown key it is not taken, and the answer names its index") {
  Ssds w;
  Owner a = w.on("a");
  a.put("k");
  a.put("l");
  const PutId k = a.idOf("k"), l = a.idOf("l");
  CHECK(ignored(a, {{"k", l, 100}, {"k", k, 99}, {"l", l, 100}, {"none", k, 100}, {"nothing", PutId(), 0}}) ==
        std::vector<uint32_t>{0, 1, 3, 4});
  CHECK(w.core.counters().ssdCommitsIgnored == 4);
  CHECK(a.member->ssdReplicas() == 1);
}

TEST_CASE("ssd commit: not taken during a change, without a replica in the owner's memory, under a key lease, or without an SSD") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b"), none = w.on("none", 0);
  a.put("k");
  const PutId id = a.idOf("k");
  CHECK_FALSE(commit(b, "k", id));
  const OperationId overwrite = b.done(b.start("k"));
  CHECK_FALSE(commit(a, "k", id));
  a.invalidateDone();
  CHECK(b.published(overwrite));
  const KeyLeaseId lease = a.grantLease(60'000);
  a.put("leased", 100, lease);
  CHECK_FALSE(commit(a, "leased", a.idOf("leased")));
  const OperationId get = none.get("k");
  none.getDone(get);
  CHECK_FALSE(commit(none, "k", a.idOf("k")));
  CHECK(w.core.counters().ssdCommitsIgnored == 4);
}

TEST_CASE("ssd commit: one that comes after the value was evicted is not taken") {
  Ssds w;
  Owner a = w.on("a");
  a.put("k");
  const PutId id = a.idOf("k");
  w.evict(a);
  CHECK_FALSE(commit(a, "k", id));
  CHECK(w.core.keys() == 0);
}

TEST_CASE("ssd: an owner that has not joined may say that its SSD is another, and nothing of commits") {
  Ssds w({"a"});
  Owner a = w.report(w.with("a", 5, kLife, 1000));
  setLife(a, 51);
  CHECK((*a.member->ssdLife == Incarnation(51)));
  CHECK(a.say(rpc::SsdCommit{{}, {{"k", PutId(1), 100}}}) == Code::protocol);
}

TEST_CASE("ssd: a route outlives the eviction from memory by its copy on an SSD, and ends with that") {
  Ssds w;
  Owner a = w.on("a");
  const PutId id = putBoth(a, "k");
  w.evict(a);
  CHECK(w.core.keys() == 1);
  CHECK((a.idOf("k") == id));
  evicted(a, "k", PutId(id.value + 1));
  CHECK(w.core.keys() == 1);
  evicted(a, "k", id);
  CHECK(a.route("k").code == Code::miss);
  CHECK(w.core.keys() == 0);
  CHECK(w.core.counters().ssdEvictions == 1);
  CHECK(w.ssdsAddUp());
}

TEST_CASE("ssd: what an SSD gives up stays readable in memory") {
  Ssds w;
  Owner a = w.on("a");
  const PutId id = putBoth(a, "k");
  evicted(a, "k", id);
  CHECK(a.member->ssdReplicas() == 0);
  const Route route = a.route("k");
  CHECK(route.code == Code::ok);
  CHECK_FALSE(route.ssd);
}

TEST_CASE("ssd: a value that is dropped from memory, or gone when it is reclaimed, keeps its route by the SSD") {
  Ssds w;
  Owner a = w.on("a");
  const uint64_t at = a.put("k");
  const PutId k = a.idOf("k"), l = putBoth(a, "l");
  CHECK(commit(a, "k", k));
  CHECK(a.drop("k", k, at) == Code::ok);
  CHECK(w.core.evictTo("a", 0, w.now).ok());
  a.reclaimDone(ReclaimResult::gone);
  CHECK((a.idOf("k") == k));
  CHECK((a.idOf("l") == l));
  CHECK(a.bytes(Use::unrouted) == 256);
}

TEST_CASE("ssd: an overwrite waits for the owner that has the older value on its SSD alone") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  putBoth(a, "k");
  w.evict(a);
  const OperationId overwrite = b.done(b.start("k"));
  CHECK_FALSE(b.answered(overwrite));
  CHECK(a.invalidateDone().size() == 1);
  CHECK(b.published(overwrite));
  CHECK(a.member->ssdReplicas() == 0);
  CHECK(b.nodesOf("k") == std::vector<std::string>{"b"});
  CHECK(w.ssdsAddUp());
}

TEST_CASE("ssd: an owner that has answered an invalidation has nothing on its SSD, while others are waited for") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c");
  const PutId id = putBoth(a, "k");
  b.getDone(b.get("k"));
  CHECK(commit(b, "k", id));
  const OperationId overwrite = c.done(c.start("k"));
  a.invalidateDone();
  CHECK(a.member->ssdReplicas() == 0);
  CHECK(a.bytes(Use::unrouted) == 128);
  CHECK(b.member->ssdReplicas() == 1);
  CHECK_FALSE(c.answered(overwrite));
  b.invalidateDone();
  CHECK(c.published(overwrite));
}

TEST_CASE("ssd: an overwrite waits for its own owner when that has the older value on its SSD") {
  Ssds w;
  Owner a = w.on("a");
  putBoth(a, "k");
  const OperationId overwrite = a.done(a.start("k"));
  CHECK_FALSE(a.answered(overwrite));
  const std::vector<rpc::Version> told = a.invalidateDone();
  REQUIRE(told.size() == 1);
  CHECK((told[0].putId == a.ended(overwrite).putId));  // everything below the new one, which stays
  CHECK(a.published(overwrite));
  CHECK(a.bytes(Use::routed) == 128);
  CHECK(a.bytes(Use::unrouted) == 128);
  CHECK(a.member->ssdReplicas() == 0);
}

TEST_CASE("ssd: a delete waits for the owner that has the value on its SSD alone") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  putBoth(a, "k");
  w.evict(a);
  const OperationId remove = b.remove("k");
  CHECK_FALSE(b.answered(remove));
  a.invalidateDone();
  CHECK(b.code(remove) == Code::ok);
  CHECK(w.core.keys() == 0);
  CHECK(w.ssdsAddUp());
}

TEST_CASE("ssd: while a change waits the SSD may give the older value up, and is waited for all the same") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  const PutId id = putBoth(a, "k");
  w.evict(a);
  const OperationId overwrite = b.done(b.start("k"));
  evicted(a, "k", id);
  CHECK_FALSE(b.answered(overwrite));
  a.invalidateDone();
  CHECK(b.published(overwrite));
}

TEST_CASE("ssd load: an owner gets a place for what is on its own SSD, and the copy becomes a replica beside it") {
  Ssds w;
  Owner a = w.on("a");
  putBoth(a, "k", 5000);
  w.evict(a);
  const OperationId get = a.get("k");
  const Route route = a.route(get);
  CHECK(route.fetch);
  CHECK(route.ssd);
  CHECK(route.node == "a");
  CHECK_FALSE(route.exported);
  CHECK(a.bytes(Use::inFlight) == 8192);
  CHECK(a.copied(a.getDone(get)));
  CHECK(a.bytes(Use::routed) == 8192);
  CHECK(a.member->ssdReplicas() == 1);
  CHECK_FALSE(a.route("k").fetch);
  w.evict(a);
  CHECK(a.route("k").ssd);
}

TEST_CASE("ssd load: one that finds nothing, or something damaged, takes the replica away, and the next get misses") {
  for (const Code code : {Code::miss, Code::corrupt, Code::system}) {
    Ssds w;
    Owner a = w.on("a");
    putBoth(a, "k");
    w.evict(a);
    const OperationId get = a.get("k");
    CHECK_FALSE(a.copied(a.getDone(get, code)));
    CHECK(a.route("k").code == Code::miss);
    CHECK(w.core.keys() == 0);
    CHECK(a.release({a.route(get).offset}) == Code::ok);
    CHECK(w.ssdsAddUp());
  }
}

TEST_CASE("ssd load: one that fails for another reason takes nothing away") {
  for (const Code code : {Code::unavailable, Code::noSpace, Code::timedOut}) {
    Ssds w;
    Owner a = w.on("a");
    putBoth(a, "k");
    w.evict(a);
    a.getDone(a.get("k"), code);
    CHECK(a.route("k").ssd);
  }
}

TEST_CASE("ssd load: one of an earlier version, or of an earlier life, says nothing of what is there now") {
  Ssds w;
  Owner a = w.on("a");
  putBoth(a, "k");
  w.evict(a);
  const OperationId older = a.get("k"), sameLife = a.done(a.start("k"));
  a.invalidateDone();
  CHECK(a.published(sameLife));
  const PutId id = a.idOf("k");
  CHECK(commit(a, "k", id));
  a.getDone(older, Code::miss);
  CHECK(a.member->ssdReplicas() == 1);
  w.evict(a);
  const OperationId load = a.get("k"), second = a.get("k");
  CHECK(a.copied(a.getDone(second)));
  setLife(a, 51);
  CHECK(commit(a, "k", id));
  a.getDone(load, Code::miss);
  CHECK(a.member->ssdReplicas() == 1);
}

TEST_CASE("ssd load: it waits for room like a copy") {
  Ssds w;
  Owner a = w.on("a");
  putBoth(a, "k");
  w.evict(a);
  a.put("large", kSegment);
  const OperationId get = a.get("k");
  CHECK_FALSE(a.answered(get));
  a.reclaimDone(ReclaimResult::ok);
  CHECK(a.route(get).ssd);
}

TEST_CASE("ssd commit: who waits for room does not wait for the pause after busy victims, which may have been busy for being persisted") {
  Ssds w;
  Owner a = w.on("a");
  putBoth(a, "k");
  w.evict(a);
  a.put("large", kSegment);
  const OperationId get = a.get("k");
  while (!a.orders<rpc::Reclaim>().empty()) a.reclaimDone(ReclaimResult::busy);
  CHECK_FALSE(a.answered(get));
  CHECK(commit(a, "large", a.idOf("large"), kSegment));
  a.reclaimDone(ReclaimResult::ok);
  CHECK(a.route(get).ssd);
}

TEST_CASE("ssd commit: of the victims that were busy the one that has been persisted is asked again, and no other") {
  Ssds w;
  Owner a = w.on("a");
  constexpr int kValues = 16;
  for (int i = 0; i < kValues; ++i) a.put("v" + std::to_string(i), kSegment / kValues);
  const OperationId put = a.start("more", kSegment / kValues);
  while (!a.orders<rpc::Reclaim>().empty()) a.reclaimDone(ReclaimResult::busy);
  CHECK_FALSE(a.answered(put));
  CHECK(commit(a, "v7", a.idOf("v7"), kSegment / kValues));
  REQUIRE(a.orders<rpc::Reclaim>().size() == 1);
  REQUIRE(a.orders<rpc::Reclaim>()[0].replicas.size() == 1);
  CHECK(a.orders<rpc::Reclaim>()[0].replicas[0].key == "v7");
  a.reclaimDone(ReclaimResult::ok);
  CHECK(a.answered(put));
}

TEST_CASE("ssd: memory anywhere comes before an SSD, and the owner's own SSD before those of others") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  putBoth(a, "k");
  const OperationId get = b.get("k");
  b.getDone(get);
  CHECK(commit(b, "k", a.idOf("k")));
  w.evict(a);
  CHECK(a.route("k").node == "b");
  CHECK_FALSE(a.route("k").ssd);
  w.evict(b);
  CHECK(a.route("k").node == "a");
  CHECK(b.route("k").node == "b");
}

TEST_CASE("ssd: a get whose source failed it is sent to an SSD elsewhere rather than there once more") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c");
  putBoth(b, "k");
  const OperationId copy = a.get("k");
  a.getDone(copy);
  w.evict(b);
  CHECK(c.route("k").node == "a");
  c.get("k", rpc::NeighbourUse::read, "a");
  CHECK(b.orders<rpc::Stage>().size() == 1);
}

TEST_CASE("ssd: what is on the SSD of an owner of the same host is brought by that one; far away it is staged") {
  Ssds w;
  Owner a = w.onHost("a", "h"), b = w.onHost("b", "h");
  putBoth(a, "k");
  w.evict(a);
  const Route route = b.route("k");
  CHECK(route.node == "a");
  CHECK(route.ssd);
  CHECK_FALSE(route.fetch);
  CHECK(b.bytes(Use::inFlight) == 0);
  b.get("k", rpc::NeighbourUse::none);
  CHECK(a.orders<rpc::Stage>().size() == 1);
}

// b asks for what a has on its SSD alone.
struct Staged : Ssds {
  Staged() {
    id = putBoth(a, "k", 5000);
    evict(a);
    get = b.get("k");
  }
  rpc::Stage stage() { return a.order<rpc::Stage>(); }
  void staged(Code code = Code::ok) { a.staged(stage().order, code); }
  Owner a = on("a"), b = on("b");
  PutId id;
  OperationId get;
};

TEST_CASE("staging: room at both ends, and the get is answered when the source has staged") {
  Staged w;
  CHECK_FALSE(w.b.answered(w.get));
  CHECK(w.a.bytes(Use::inFlight) == 8192);
  CHECK(w.b.bytes(Use::inFlight) == 8192);
  const rpc::Stage order = w.stage();
  CHECK(order.key == "k");
  CHECK((order.putId == w.id));
  CHECK(order.bytes == 5000);
  w.staged();
  const Route route = w.b.route(w.get);
  CHECK(route.fetch);
  CHECK_FALSE(route.ssd);
  CHECK(route.node == "a");
  CHECK((route.putId == w.id));
  REQUIRE(route.exported);
  CHECK((route.exported->id == order.to.id));
  CHECK((route.exported->id.value >> 63 == 1));
  CHECK(route.exported->offset == order.to.offset);
  CHECK(route.bytes == 5000);
}

TEST_CASE("staging: when the copy is there the source is told, and its answer alone frees the place") {
  for (const Code code : {Code::ok, Code::timedOut}) {
    Staged w;
    const rpc::Stage stage = w.stage();
    w.staged();
    CHECK(w.a.orders<rpc::Unstage>().empty());
    CHECK(w.b.copied(w.b.getDone(w.get, code)) == (code == Code::ok));
    const rpc::Unstage unstage = w.a.order<rpc::Unstage>();
    CHECK((unstage.exportId == stage.to.id));
    CHECK(w.a.release({stage.to.offset}) == Code::protocol);
    CHECK(w.a.bytes(Use::inFlight) == 8192);
    w.a.unstaged(stage.order);  // no answer to that
    CHECK(w.a.bytes(Use::inFlight) == 8192);
    w.a.unstaged(unstage.order);
    w.a.unstaged(unstage.order);
    CHECK(w.a.member->space.freeBytes() == kSegment);
    CHECK(w.bytesAddUp());
    CHECK(w.core.transfers() == 0);
  }
}

TEST_CASE("staging: whatever the target says, it says nothing of the source's SSD") {
  for (const Code code : {Code::miss, Code::corrupt, Code::system, Code::unavailable}) {
    Staged w;
    w.staged();
    w.b.getDone(w.get, code);
    CHECK(w.a.member->ssdReplicas() == 1);
  }
}

TEST_CASE("staging: orders that are not answered are sent again on a new connection") {
  Staged w;
  w.core.disconnected(*w.a.member);
  w.outbox.sent[w.a.member.get()].clear();
  std::shared_ptr<Member> member;
  CHECK(w.core.registerOwner(w.a.member->registration(), w.now, member).code == Code::ok);
  CHECK(w.a.orders<rpc::Stage>().size() == 1);
}

TEST_CASE("staging: the end of the source is told to who waits for it, and leaves nothing behind") {
  Staged w;
  w.core.leave(*w.a.member, MasterCore::Content::gone, w.now);
  CHECK(w.b.code(w.get) == Code::unavailable);
  CHECK(w.b.member->space.freeBytes() == kSegment);
  CHECK(w.core.transfers() == 0);
  w.persisted();
  w.work();
  CHECK(w.core.keys() == 0);
}

TEST_CASE("staging: the end of the source under a fetch leaves that to fail by itself") {
  Staged w;
  w.staged();
  w.core.leave(*w.a.member, MasterCore::Content::kept, w.now);
  CHECK(w.core.transfers() == 1);
  CHECK(w.b.code(w.b.getDone(w.get, Code::unavailable)) == Code::ok);
  CHECK(w.b.release({w.b.route(w.get).offset}) == Code::ok);
  CHECK(w.b.member->space.freeBytes() == kSegment);
}

TEST_CASE("staging: the end of who asked ends what is exported for it") {
  Staged w;
  w.staged();
  w.core.leave(*w.b.member, MasterCore::Content::kept, w.now);
  w.a.unstaged(w.a.order<rpc::Unstage>().order);
  CHECK(w.a.member->space.freeBytes() == kSegment);
}

TEST_CASE("staging: when who asked ends first, the source is told after it has answered, and not if it could not") {
  for (const Code code : {Code::ok, Code::noSpace}) {
    Staged w;
    const rpc::Stage stage = w.stage();
    w.core.leave(*w.b.member, MasterCore::Content::kept, w.now);
    CHECK(w.a.orders<rpc::Unstage>().empty());
    CHECK(w.a.bytes(Use::inFlight) == 8192);
    w.a.staged(stage.order, code);
    CHECK(w.a.orders<rpc::Unstage>().size() == (code == Code::ok ? 1 : 0));
    if (code == Code::ok) w.a.unstaged(w.a.order<rpc::Unstage>().order);
    CHECK(w.a.member->space.freeBytes() == kSegment);
  }
}

TEST_CASE("staging: a source that does not have the value any more is none, and a get without another one misses") {
  Staged w;
  w.staged(Code::miss);
  CHECK(w.b.code(w.get) == Code::miss);
  CHECK(w.core.keys() == 0);
  CHECK(w.a.member->space.freeBytes() == kSegment);
  CHECK(w.b.member->space.freeBytes() == kSegment);
  CHECK(w.ssdsAddUp());
}

TEST_CASE("staging: a source that cannot keeps its value, and another one is asked, three in all") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c");
  const PutId id = putBoth(a, "k", 5000);
  b.getDone(b.get("k"));
  CHECK(commit(b, "k", id, 5000));
  w.evict(a);
  w.evict(b);
  const OperationId get = c.get("k");
  std::string last;
  for (int round = 0; round < 3; ++round) {
    CHECK_FALSE(c.answered(get));
    const bool fromA = !a.orders<rpc::Stage>().empty();
    Owner& source = fromA ? a : b;
    CHECK(source.member->node() != last);
    last = source.member->node();
    source.staged(source.order<rpc::Stage>().order, Code::noSpace);
  }
  CHECK(c.code(get) == Code::unavailable);
  CHECK(a.member->ssdReplicas() + b.member->ssdReplicas() == 2);
  CHECK(a.orders<rpc::Stage>().empty());
  CHECK(b.orders<rpc::Stage>().empty());
  CHECK(c.member->space.freeBytes() == kSegment);
  CHECK(w.bytesAddUp());
}

TEST_CASE("staging: an overwrite waits for who asked as well, and an older value is fetched but becomes no replica") {
  Staged w;
  Owner c = w.on("c");
  const OperationId overwrite = c.done(c.start("k"));
  w.a.invalidateDone();
  CHECK_FALSE(c.answered(overwrite));
  w.b.invalidateDone();
  CHECK(c.published(overwrite));
  w.staged();
  CHECK((w.b.route(w.get).putId == w.id));
  CHECK_FALSE(w.b.copied(w.b.getDone(w.get)));
  CHECK(w.a.orders<rpc::Unstage>().size() == 1);
}

TEST_CASE("staging: a get waits for room at the source, and at who asks") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  putBoth(a, "k", 5000);
  w.evict(a);
  a.put("large", kSegment);
  b.put("vast", kSegment);
  const OperationId get = b.get("k");
  CHECK(a.orders<rpc::Stage>().empty());
  CHECK(b.member->shortage.waiting().size() == 1);
  b.reclaimDone(ReclaimResult::ok);
  CHECK(b.member->shortage.waiting().empty());
  CHECK(a.member->shortage.waiting().size() == 1);
  a.reclaimDone(ReclaimResult::ok);
  CHECK(a.orders<rpc::Stage>().size() == 1);
  CHECK_FALSE(b.answered(get));
  CHECK(w.bytesAddUp());
}

TEST_CASE("staging: one without a link is no source while there is another, and else the get is told") {
  Ssds w;
  rpc::Registration alone = w.with("a", 1);
  alone.link.clear();
  Owner a = w.join(alone), b = w.on("b"), c = w.on("c");
  const PutId id = putBoth(b, "k");
  a.getDone(a.get("k"));
  CHECK(commit(a, "k", id));
  w.evict(a);
  w.evict(b);
  for (int round = 0; round < 4; ++round) c.get("k");
  CHECK(b.orders<rpc::Stage>().size() == 4);
  evicted(b, "k", id);
  CHECK(c.route("k").code == Code::unavailable);
}

TEST_CASE("ssd life: what was there is unreadable at once, and leaves the routes in slices") {
  Ssds w;
  Owner a = w.on("a");
  for (int i = 0; i < 1500; ++i) putBoth(a, "k" + std::to_string(i), 64);
  w.evict(a);
  CHECK(w.core.keys() == 1500);
  setLife(a, 51);
  CHECK(a.route("k7").code == Code::miss);
  CHECK(a.member->ssdReplicas() == 0);
  w.core.work();
  CHECK(w.core.keys() == 1400);
  CHECK(w.ssdsAddUp());
  putBoth(a, "new");
  w.work();
  CHECK(w.core.keys() == 1);
  CHECK(a.member->ssdReplicas() == 1);
  CHECK(w.ssdsAddUp());
}

TEST_CASE("ssd life: what is in memory as well stays, and comes to the new life by a commit") {
  Ssds w;
  Owner a = w.on("a");
  const PutId id = putBoth(a, "k");
  setLife(a, 51);
  CHECK(commit(a, "k", id));
  w.work();
  CHECK(a.member->ssdReplicas() == 1);
  w.evict(a);
  CHECK(a.route("k").ssd);
}

TEST_CASE("ssd life: an SSD that comes to an owner, or goes, counts for where puts go") {
  Ssds w;
  Owner a = w.onHost("a", "h", 0), b = w.onHost("b", "h", 0);
  CHECK_FALSE(a.granted(a.start("k")).home);
  CHECK(a.reserved(a.reserve(100, 1)).size() == 1);
  setLife(b, 60);
  setLife(b, 61);
  CHECK(a.answer<rpc::PutElsewhere>(a.start("l")).neighbour.node == "b");
  CHECK(a.reserved(a.reserve(100, 1)).empty());
  setLife(b, 0);
  CHECK_FALSE(a.granted(a.start("m")).home);
}

TEST_CASE("ssd life: of a fenced owner the same one is dormant, and its next life gets back what nothing has ended since") {
  Ssds w;
  Owner a = w.join(w.with("a", 5)), b = w.on("b");
  const PutId kept = putBoth(a, "kept"), gone = putBoth(a, "gone"), unlisted = putBoth(a, "unlisted");
  CHECK(bool(unlisted));
  w.evict(a);
  w.pass(seconds(11), {&b});
  CHECK(b.route("kept").code == Code::miss);
  CHECK(b.code(b.remove("gone")) == Code::ok);
  Owner again = w.report(w.with("a", 6, kLife, 5));
  CHECK(refusedSsd(again, {onSsd("kept", kept), onSsd("gone", gone)}) == std::vector<uint32_t>{1});
  CHECK(again.route("kept").ssd);
  w.work();
  CHECK(w.core.keys() == 1);
  CHECK(w.core.counters().revived == 1);
  CHECK(w.ssdsAddUp());
}

TEST_CASE("ssd life: another one than before, or none, brings nothing back") {
  for (const uint64_t life : {kLife + 1, uint64_t{0}}) {
    Ssds w;
    Owner a = w.join(w.with("a", 5));
    const PutId id = putBoth(a, "k");
    w.evict(a);
    Owner again = w.report(w.with("a", 6, life, 5));
    CHECK(refusedSsd(again, {onSsd("k", id)}) == std::vector<uint32_t>{0});
    w.work();
    CHECK(w.core.keys() == 0);
  }
}

TEST_CASE("ssd life: an owner that is not asked for what it has is not known to have it") {
  Ssds w;
  Owner a = w.join(w.with("a", 5));
  putBoth(a, "k");
  w.evict(a);
  Owner again = w.join(w.with("a", 6));
  w.work();
  CHECK(w.core.keys() == 0);
  CHECK(again.member->ssdReplicas() == 0);
}

TEST_CASE("ssd inventory: a value that is on the SSD and in memory is taken for both, each by itself") {
  Ssds w;
  Owner a = w.join(w.with("a", 5));
  const uint64_t offset = a.put("k");
  const PutId id = a.idOf("k");
  CHECK(commit(a, "k", id));
  Owner again = w.report(w.with("a", 6, kLife, 5));
  CHECK(refusedSsd(again, {onSsd("k", id), onSsd("k", id)}, {{"k", id, offset, 100}}) == std::vector<uint32_t>{1});
  CHECK(again.bytes(Use::routed) == 128);
  w.evict(again);
  CHECK(again.route("k").ssd);
}

TEST_CASE("new term: what is on an SSD alone is taken, the highest put_id of a key, and an older one goes") {
  Ssds w({"a", "b", "c"});
  const PutId older(Term(2), 7), later(Term(2), 8);
  Owner a = w.report(w.with("a", 5, kLife, 1000)), b = w.report(w.with("b", 6, kLife, 1000)), c = w.report(w.with("c", 7, kLife, 1000));
  CHECK(refusedSsd(a, {onSsd("k", older)}).empty());
  CHECK(refusedSsd(b, {onSsd("k", later), onSsd("l", later, 64)}).empty());
  CHECK(refusedSsd(c, {onSsd("k", older), onSsd("l", later, 65)}) == std::vector<uint32_t>{0, 1});
  CHECK(a.invalidateDone().size() == 1);
  CHECK(a.member->ssdReplicas() == 0);
  CHECK(b.route("k").ssd);
  CHECK((b.route("k").putId == later));
  CHECK(w.ssdsAddUp());
}

TEST_CASE("new term: an SSD's values are refused from an owner that has named none") {
  Ssds w({"a"});
  Owner a = w.report(w.with("a", 5, 0, 1000));
  CHECK(refusedSsd(a, {onSsd("k", PutId(Term(2), 7))}) == std::vector<uint32_t>{0});
  CHECK(w.core.counters().inventoryRefused == 1);
}

TEST_CASE("ssd: a fenced owner's SSD is waited for until no next term would take its values") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  putBoth(a, "k");
  w.evict(a);
  w.pass(seconds(11), {&b});
  w.diskWorks = false;
  const OperationId overwrite = b.done(b.start("k"));
  CHECK_FALSE(b.answered(overwrite));
  w.persisted();
  CHECK(b.published(overwrite));
  CHECK(w.ssdsAddUp());
}

TEST_CASE("ssd: an owner that leaves takes along what is on its SSD, a slice at a time") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  for (int i = 0; i < 1500; ++i) putBoth(a, "k" + std::to_string(i), 64);
  w.evict(a);
  w.core.leave(*a.member, MasterCore::Content::gone, w.now);
  w.persisted();
  CHECK(b.route("k7").code == Code::miss);
  w.core.work();
  CHECK(w.core.keys() == 1400);
  w.work();
  CHECK(w.core.keys() == 0);
}

TEST_CASE("ssd: a drain leaves what is on the SSD alone, and moves nothing that another SSD has") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  putBoth(a, "only");
  w.evict(a);
  const PutId id = putBoth(a, "both");
  b.getDone(b.get("both"));
  CHECK(commit(b, "both", id));
  w.evict(b);
  CHECK(w.core.drain("a", w.now).ok());
  CHECK(b.orders<rpc::Replicate>().empty());
  CHECK((a.member->drain->state == Drain::toldToLeave));
}

TEST_CASE("ssd: a value that is on an SSD as well is the first of the next victims") {
  Ssds w;
  Owner a = w.on("a");
  constexpr uint64_t kPages = kSegment / kPageBytes;
  for (uint64_t i = 0; i < kPages - 6; ++i) a.put(std::to_string(i), kPageBytes);
  const PutId id = a.idOf("3"), other = a.idOf("2");
  CHECK(commit(a, "3", id, kPageBytes));
  CHECK(commit(a, "2", other, kPageBytes));
  evicted(a, "2", other);  // it is the only copy again
  a.put("one more", kPageBytes);
  const rpc::Reclaim order = a.order<rpc::Reclaim>();
  REQUIRE(order.replicas.size() == 1);
  CHECK(order.replicas[0].key == "3");
}

TEST_CASE("ssd: copies are counted and made of what is in memory") {
  Ssds w;
  Owner a = w.on("a"), b = w.on("b");
  const PutId id = putBoth(a, "k");
  b.getDone(b.get("k"));
  CHECK(commit(b, "k", id));
  w.evict(b);
  a.ask(rpc::Spread{{}, {"k", id}, 2});
  CHECK(b.orders<rpc::Replicate>().size() == 1);
}

// An owner that says anything about its SSD, its orders and its segment, and about keys of its own. What others have is not its to end.
class Nonsense {
 public:
  Nonsense(Ssds& world, uint64_t seed) : world_(world), random_(seed) {}

  void say(Owner& by) { by.ask(anything()); }
  uint64_t below(uint64_t end) { return random_() % end; }

 private:
  rpc::Request::Body anything() {
    switch (below(21)) {
      case 0: return rpc::SsdLife{{}, Incarnation(number())};
      case 1: return rpc::SsdCommit{{}, some<rpc::SsdValue>([&] { return rpc::SsdValue{key(), putId(), awkward(100'000)}; })};
      case 2: return rpc::SsdEvicted{{}, some<rpc::Version>([&] { return rpc::Version{key(), putId()}; })};
      case 3: return rpc::Staged{{}, order(), code()};
      case 4: return rpc::Unstaged{{}, order()};
      case 5: return rpc::GetStart{{}, key(), static_cast<rpc::NeighbourUse>(below(3)), {}, awkward(2000)};
      case 6: return rpc::GetDone{{}, request(), code()};
      case 7: return rpc::ReplicateDone{{}, order(), code()};
      case 8: return rpc::Release{{}, some<uint64_t>([&] { return offset(); })};
      case 9: return rpc::Dropped{{}, some<rpc::MemoryReplica>([&] { return rpc::MemoryReplica{key(), putId(), offset()}; })};
      case 10: return rpc::ReclaimDone{{}, order(), some<ReclaimResult>([&] { return static_cast<ReclaimResult>(below(3)); })};
      case 11: return rpc::InvalidateDone{{}, order()};
      case 12:
        return rpc::InventoryPage{{},
                                  some<rpc::MemoryValue>([&] {
                                    return rpc::MemoryValue{key(), putId(), offset(), awkward(100'000), {}};
                                  }),
                                  some<rpc::SsdValue>([&] {
                                    return rpc::SsdValue{key(), putId(), awkward(100'000)};
                                  }),
                                  number()};
      case 13: return rpc::PutStart{{}, own(), awkward(100'000), {}, {}, awkward(2000), {}};
      case 14: return rpc::PutDone{{}, request()};
      case 15: return rpc::PutAbort{{}, request()};
      case 16: return rpc::PutReserved{{}, own(), awkward(100'000), offset(), {}, {}};
      case 17: return rpc::Reserve{{}, awkward(100'000), number()};
      case 18: return rpc::RemoveKey{{}, own(), awkward(2000)};
      case 19: return rpc::Heartbeat{{}, below(2) != 0, some<uint64_t>([&] { return offset(); })};
      default: return rpc::Spread{{}, {key(), putId()}, number(), awkward(2000)};
    }
  }
  template <class T, class Make>
  std::vector<T> some(Make make) {
    std::vector<T> all;
    for (uint64_t n = below(4); n > 0; --n) all.push_back(make());
    return all;
  }
  OrderId order() { return OrderId(awkward(100)); }
  OperationId request() { return OperationId(awkward(200)); }
  uint64_t number() { return below(3) ? below(3) : awkward(kLife + 3); }
  Code code() { return below(2) ? Code::ok : codeFromWire(static_cast<uint16_t>(below(40))); }
  std::string own() { return "own" + std::to_string(below(5)); }
  uint64_t awkward(uint64_t usual) { return below(8) ? below(usual) : below(2) ? random_() : UINT64_MAX - below(5000); }
  uint64_t offset() { return below(8) ? below(kSegment / kPageBytes) * kPageBytes : awkward(kSegment); }
  std::string key() {
    if (below(16) == 0) return std::string(below(2) ? 0 : kMaxKeyBytes + 1, 'x');
    return (below(2) ? "there" : "own") + std::to_string(below(5));
  }
  PutId putId() {
    if (below(4) == 0) return PutId(awkward(100));
    const KeyEntry* const entry = const_cast<KeyTable&>(world_.core.table()).find("there" + std::to_string(below(5)));
    return entry ? entry->putId : PutId(Term(2), below(20));
  }

  Ssds& world_;
  std::mt19937_64 random_;
};

TEST_CASE("ssd: an owner that says nonsense about its SSD, its orders and its inventory harms nobody else") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Ssds w({"b"});
    Owner a = w.on("a");
    Nonsense nonsense(w, seed);
    // In the recovery window, with what it says that it had in the last term.
    for (int lives = 0; lives < 5; ++lives) {
      std::shared_ptr<Member> member;
      w.core.registerOwner(w.with("b", ++w.incarnations, kLife, lives == 0 ? 1000 : nonsense.below(3)), w.now, member);
      w.persisted();
      if (!member) continue;
      Owner b(w, member);
      for (int i = 0; i < 20; ++i) nonsense.say(b);
      CHECK(w.bytesAddUp());
    }
    w.pass(seconds(30), {&a});
    w.work();
    for (int i = 0; i < 5; ++i) {
      const std::string key = "there" + std::to_string(i);
      a.put(key);
      if (i % 2) CHECK(commit(a, key, a.idOf(key)));
    }
    Owner b = w.on("b"), near = w.onHost("c", "a");
    for (int i = 0; i < 400; ++i) {
      CAPTURE(i);
      nonsense.say(nonsense.below(3) ? b : near);
      if (i % 7 == 0) a.get("own" + std::to_string(nonsense.below(5)));
      if (i % 5 == 0) a.invalidateDone();
      if (i % 50 == 0) w.pass(milliseconds(200), {&a, &b, &near}), w.work();
      CHECK(w.bytesAddUp());
      CHECK(w.ssdsAddUp());
    }
    for (int i = 0; i < 5; ++i) CHECK(a.code(a.stat("there" + std::to_string(i))) == Code::ok);
  }
}

TEST_CASE("ssd: an exists check sees a value that is on an SSD alone") {
  Ssds w;
  Owner a = w.on("a");
  putBoth(a, "k");
  w.evict(a);
  CHECK(a.code(a.start("k", 100, kRejectExisting)) == Code::exists);
}

}  // namespace
}  // namespace fluxon::master
