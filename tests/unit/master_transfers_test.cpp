// MasterCore: values that move between owners: gets from another host, replicas, puts placed elsewhere, drains.
#include <algorithm>
#include <optional>

#include "master_fixture.h"

namespace fluxon::master {
namespace {

// Owners a, b, c ... each on a host of its own, with a link.
struct Hosts : World {
  using World::World;
  enum class Link { has, none };
  Owner on(const std::string& node, const std::string& host = "", uint64_t segmentBytes = kSegment, Link link = Link::has) {
    rpc::Registration r = registration(node, ++incarnations);
    r.hostId = host.empty() ? node : host;
    if (link == Link::has) r.link = node + ":1";
    r.segmentBytes = segmentBytes;
    return World::join(r);
  }
};

OperationId startFor(Owner& owner, const std::string& key, uint64_t bytes, std::string asker = {}) {
  return owner.ask(rpc::PutStart{{}, key, bytes, {}, {}, 60'000, std::move(asker)});
}
// Who shall have the value of a put that is filled here; empty: this owner.
std::string homeOf(const Owner& owner, OperationId put) {
  const rpc::PutGranted granted = owner.granted(put);
  return granted.home ? granted.home->node : "";
}
size_t replicasOf(Owner& owner, const std::string& key) { return owner.nodesOf(key).size(); }
// The order to bring what a put has filled elsewhere.
rpc::Replicate orderOfPut(const Owner& home) {
  for (const rpc::Replicate& each : home.orders<rpc::Replicate>()) {
    if (each.exported) return each;
  }
  FAIL("no put is to be brought here");
  return {};
}

TEST_CASE("transfers: a get of a value on another host gets a place, and the copy becomes a replica") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k", 5000);
  const OperationId get = b.get("k");
  const Route route = b.route(get);
  CHECK(route.fetch);
  CHECK(route.node == "a");
  CHECK(route.link == "a:1");
  CHECK(route.bytes == 5000);
  CHECK(b.bytes(Use::inFlight) == 8192);
  CHECK(b.copied(b.getDone(get)));
  CHECK(b.bytes(Use::routed) == 8192);
  CHECK(replicasOf(a, "k") == 2);
  CHECK_FALSE(b.route("k").fetch);
  CHECK(w.core.transfers() == 0);
}

TEST_CASE("transfers: the age of the oldest put and of the oldest copy") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k", 5000);
  CHECK(w.core.oldestPut(w.now).ns == 0);
  CHECK(w.core.oldestTransfer(w.now).ns == 0);
  const OperationId get = b.get("k");
  startFor(a, "open", 5000);
  w.pass(milliseconds(400));
  startFor(a, "younger", 5000);
  CHECK(w.core.oldestPut(w.now).ms() == 400);
  CHECK(w.core.oldestTransfer(w.now).ms() == 400);
  b.answer(b.getDone(get));
  CHECK(w.core.oldestTransfer(w.now).ns == 0);
}

TEST_CASE("transfers: an owner of the same host is read in place, unless it cannot be reached there") {
  Hosts w;
  Owner a = w.on("a", "h"), b = w.on("b", "h");
  a.put("k");
  CHECK_FALSE(b.route("k").fetch);
  CHECK(b.route(b.get("k", rpc::NeighbourUse::none)).fetch);
}

TEST_CASE("transfers: what a neighbour of the same host has that takes no client is copied to who asks for that, without a link") {
  Hosts w;
  Owner a = w.on("a", "h", kSegment, Hosts::Link::none), b = w.on("b", "h");
  a.put("k");
  CHECK(b.route(b.get("k", rpc::NeighbourUse::copy)).fetch);
  CHECK(b.code(b.get("k", rpc::NeighbourUse::none)) == Code::unavailable);
}

TEST_CASE("transfers: a failed copy is no replica, and its place comes back by the owner's word") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k");
  const OperationId get = b.get("k");
  CHECK_FALSE(b.copied(b.getDone(get, Code::unavailable)));
  CHECK(replicasOf(a, "k") == 1);
  CHECK(b.bytes(Use::unrouted) == 128);
  CHECK(b.release({b.route(get).offset}) == Code::ok);
  CHECK(b.member->space.freeBytes() == kSegment);
}

TEST_CASE("transfers: what an owner says late of a place that it has given up leaves the later copy of the same version") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k", 5000);
  const OperationId first = b.get("k");
  REQUIRE(b.copied(b.getDone(first)));
  // It is not readable at b, who answers a reclaim before it can say so.
  REQUIRE(w.core.evictTo("b", 0, w.now).ok());
  b.reclaimDone(rpc::ReclaimResult::gone);
  REQUIRE(replicasOf(a, "k") == 1);
  const OperationId second = b.get("k");
  REQUIRE(b.copied(b.getDone(second)));
  const uint64_t old = b.route(first).offset, present = b.route(second).offset;
  REQUIRE(old != present);
  const auto drop = [&](uint64_t offset) { return b.drop("k", b.route(second).putId, offset); };
  CHECK(drop(old) == Code::ok);
  CHECK(b.release({old}) == Code::ok);
  CHECK(replicasOf(a, "k") == 2);
  CHECK(b.bytes(Use::routed) == 8192);
  SUBCASE("an overwrite waits for it") {
    const OperationId put = a.start("k"), done = a.done(put);
    CHECK_FALSE(a.answered(done));
    b.invalidateDone();
    CHECK(a.answered(done));
  }
  SUBCASE("it goes by a word about its own place") {
    CHECK(drop(present) == Code::ok);
    CHECK(replicasOf(a, "k") == 1);
    CHECK(b.release({present}) == Code::ok);
  }
}

TEST_CASE("transfers: a get whose source failed it is sent to another one while there is one") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c");
  a.put("k");
  const OperationId first = b.get("k");
  b.getDone(first);
  CHECK(c.route(c.get("k", rpc::NeighbourUse::read, "a")).node == "b");
  CHECK(c.route(c.get("k", rpc::NeighbourUse::read, "b")).node == "a");
}

TEST_CASE("transfers: at most two copies of one version are made into replicas at once") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c"), d = w.on("d");
  a.put("k");
  const OperationId first = b.get("k"), second = c.get("k"), third = d.get("k");
  CHECK(d.code(d.getDone(third)) == Code::ok);
  CHECK_FALSE(d.copied(d.getDone(third)));
  CHECK(b.copied(b.getDone(first)));
  CHECK(c.copied(c.getDone(second)));
  CHECK(replicasOf(a, "k") == 3);
}

TEST_CASE("transfers: an overwrite waits for an owner that is bringing the old value, which becomes no replica") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k");
  const OperationId get = b.get("k");
  const OperationId done = a.done(a.start("k"));
  CHECK_FALSE(a.answered(done));
  CHECK(b.invalidateDone().size() == 1);
  CHECK(a.published(done));
  CHECK_FALSE(b.copied(b.getDone(get)));
  CHECK(replicasOf(a, "k") == 1);
}

TEST_CASE("transfers: a copy that is done while its key is being deleted becomes no replica") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k");
  const OperationId get = b.get("k"), remove = a.remove("k");
  CHECK_FALSE(b.copied(b.getDone(get)));
  a.invalidateDone();
  CHECK_FALSE(a.answered(remove));
  b.invalidateDone();
  CHECK(a.code(remove) == Code::ok);
}

TEST_CASE("transfers: a get that finds no room waits, and does not hold up gets that need none") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k", kSegment / 2);
  const KeyLeaseId lease = b.grantLease(60'000);
  const uint64_t offset = b.put("own", kSegment / 2 + kPageBytes, lease);
  const OperationId get = b.get("k");
  CHECK_FALSE(b.answered(get));
  CHECK(b.route("own").code == Code::ok);
  CHECK(b.route("none").code == Code::miss);
  b.remove("own");
  b.invalidateDone();
  CHECK(b.release({offset}) == Code::ok);
  CHECK(b.route(get).fetch);
}

TEST_CASE("transfers: a get of an owner without a link says so, and a value too large for the segment too") {
  Hosts w;
  rpc::Registration r = w.registration("a", 1);
  r.hostId = "x";
  Owner a = w.join(r), b = w.on("b"), c = w.on("c", "", kPageBytes);
  a.put("k");
  CHECK(b.route("k").code == Code::unavailable);
  b.put("large", 2 * kPageBytes);
  CHECK(c.route("large").code == Code::tooLarge);
}

TEST_CASE("transfers: the end of the target ends its transfers, that of the source leaves them to fail by themselves") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c");
  a.put("k");
  const OperationId forB = b.get("k"), forC = c.get("k");
  w.core.leave(*b.member, MasterCore::Content::kept, w.now);
  w.persisted();
  CHECK(w.core.transfers() == 1);
  w.core.leave(*a.member, MasterCore::Content::kept, w.now);
  w.persisted();
  // It was through before its source ended: the only copy now, and still the latest value.
  CHECK(c.copied(c.getDone(forC)));
  CHECK(c.route("k").node == "c");
  (void)forB;
}

OperationId spread(Owner& owner, const std::string& key, uint64_t owners) {
  return owner.ask(rpc::Spread{{}, {key, owner.route(key).putId}, owners, 5000});
}

TEST_CASE("replicas: a value that is to be on two owners is brought to another host, and answered when it is there") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b"), near = w.on("near", "a");
  a.put("k");
  const OperationId asked = spread(a, "k", 2);
  CHECK_FALSE(a.answered(asked));
  CHECK(near.orders<rpc::Replicate>().empty());  // another host outlives more
  const auto orders = b.orders<rpc::Replicate>();
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].source.node == "a");
  CHECK(orders[0].timeLeftMs == 5000);
  CHECK_FALSE(orders[0].exported);
  CHECK(b.copied(b.replicateDone(orders[0].order)));
  CHECK(a.answer<rpc::SpreadEnded>(asked).replicas == 2);
  CHECK(replicasOf(a, "k") == 2);
  CHECK(a.answer<rpc::SpreadEnded>(spread(a, "k", 2)).replicas == 2);  // it is
}

TEST_CASE("replicas: with nobody to have them, when a copy fails, or for another version, the answer comes all the same") {
  Hosts w;
  Owner a = w.on("a");
  a.put("k");
  CHECK(a.answer<rpc::SpreadEnded>(spread(a, "k", 3)).replicas == 1);
  Owner b = w.on("b"), c = w.on("c");
  const OperationId failing = spread(a, "k", 3);
  b.replicateDone(b.orders<rpc::Replicate>().at(0).order, Code::unavailable);
  CHECK_FALSE(a.answered(failing));
  w.core.leave(*c.member, MasterCore::Content::gone, w.now);
  CHECK(a.answer<rpc::SpreadEnded>(failing).replicas == 1);
  CHECK(a.answered(a.ask(rpc::Spread{{}, {"k", PutId(1)}, 3})));
}

// A draining owner keeps nothing new: b is the only other one, on another host.
struct Placed : Hosts {
  Placed() {
    a.put("stays", 100, a.grantLease(60'000));
    REQUIRE(core.drain("a", now).ok());
  }
  Owner a = on("a"), b = on("b");
};

TEST_CASE("placed elsewhere: filled here, brought to its home by order, published from there") {
  Placed w;
  const OperationId put = startFor(w.a, "k", 5000);
  const rpc::PutGranted grant = w.a.granted(put);
  CHECK(homeOf(w.a, put) == "b");
  CHECK(w.b.bytes(Use::inFlight) >= 8192);
  const OperationId done = w.a.done(put);
  CHECK_FALSE(w.a.answered(done));
  const rpc::Replicate order = orderOfPut(w.b);
  CHECK(order.key == "k");
  CHECK(order.exported->offset == grant.offset);
  CHECK(w.b.copied(w.b.replicateDone(order.order)));
  CHECK(w.a.published(done));
  CHECK(w.a.route("k").node == "b");
  CHECK(w.a.release({grant.offset}) == Code::ok);
  CHECK(w.bytesAddUp());
}

TEST_CASE("placed elsewhere: however far the ids of its home have run ahead, its copy counts once and is answered each time") {
  Placed w;
  const OperationId put = startFor(w.a, "k", 5000);
  const OperationId done = w.a.done(put);
  const rpc::ReplicateDone ended{{}, orderOfPut(w.b).order};
  const OperationId far(1'000'000), further(1'000'100), furthest(2'000'000);
  w.b.askAs(far, ended);
  CHECK(w.b.copied(far));
  CHECK(w.a.published(done));
  w.b.askAs(far, ended);
  CHECK(w.b.answers(far) == 2);
  CHECK(w.b.copied(far));
  w.b.askAs(far, ended, OperationId(999'000));  // the window has reached it
  CHECK(w.b.answers(far) == 3);
  CHECK(w.b.copied(far));
  w.b.askAs(further, rpc::Heartbeat(), further, {far});
  w.b.askAs(far, ended);
  CHECK(w.b.copied(far));
  w.b.askAs(furthest, ended);  // of a transfer that is over
  CHECK(w.b.code(furthest) == Code::ok);
  CHECK_FALSE(w.b.copied(furthest));
  CHECK(w.core.counters().putsPublished == 2);  // and that of the fixture
}

TEST_CASE("placed elsewhere: when the copy fails or its home ends, the put has failed, and nothing is left of it") {
  for (const bool ends : {false, true}) {
    CAPTURE(ends);
    Placed w;
    const OperationId put = startFor(w.a, "k", 5000), done = w.a.done(put);
    if (ends) {
      w.core.leave(*w.b.member, MasterCore::Content::kept, w.now);
    } else {
      w.b.replicateDone(orderOfPut(w.b).order, Code::unavailable);
    }
    CHECK(w.a.code(done) == Code::unavailable);
    CHECK(w.core.inFlightPuts() == 0);
    CHECK(w.a.release({w.a.granted(put).offset}) == Code::ok);
  }
}

TEST_CASE("placed elsewhere: the end of the one who puts ends the put, not its home") {
  Placed w;
  w.a.done(startFor(w.a, "k", 5000));
  w.core.leave(*w.a.member, MasterCore::Content::kept, w.now);
  w.persisted();
  CHECK_FALSE(w.b.copied(w.b.replicateDone(orderOfPut(w.b).order)));
  CHECK(w.b.route("k").code == Code::miss);
}

TEST_CASE("placed elsewhere: an owner of the same host is named, and its client fills the value there") {
  Hosts w;
  Owner a = w.on("a", "h"), b = w.on("b", "h"), c = w.on("c");
  a.put("stays", 100, a.grantLease(60'000));
  REQUIRE(w.core.drain("a", w.now).ok());
  CHECK(a.answer<rpc::PutElsewhere>(startFor(a, "k", 100)).neighbour.node == "b");
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("side transfer: a value filled at one owner of a host for another one is brought to that one") {
  Hosts w;
  Owner worker = w.on("worker", "h"), asker = w.on("asker", "h"), far = w.on("far");
  const OperationId put = startFor(worker, "k", 5000, "asker");
  CHECK(homeOf(worker, put) == "asker");
  const OperationId done = worker.done(put);
  const auto orders = asker.orders<rpc::Replicate>();
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].exported);
  CHECK(orders[0].source.node == "worker");
  asker.replicateDone(orders[0].order);
  CHECK(worker.published(done));
  CHECK(far.route("k").node == "asker");
  CHECK(worker.code(startFor(worker, "l", 1, "far")) == Code::invalidArgument);
  CHECK(worker.code(startFor(worker, "l", 1, "nobody")) == Code::invalidArgument);
}

TEST_CASE("drain: what nobody else has is brought to others, then the node is told to leave") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  for (int i = 0; i < 20; ++i) a.put("k" + std::to_string(i));
  b.getDone(b.get("k0"));
  REQUIRE(w.core.drain("a", w.now).ok());
  size_t brought = 0;
  for (int round = 0; round < 100 && !a.told<rpc::Leave>(); ++round) {
    const auto orders = b.orders<rpc::Replicate>();
    for (const auto& order : orders) {
      if (b.member->transfers->count(order.order)) brought += b.copied(b.replicateDone(order.order));
    }
    w.pass(milliseconds(50), {&a, &b});
  }
  CHECK(brought == 19);
  CHECK(a.told<rpc::Leave>());
  w.core.leave(*a.member, MasterCore::Content::gone, w.now);
  w.work();
  CHECK(w.durableMembers() == std::set<std::string>{"b"});
  for (int i = 0; i < 20; ++i) CHECK(b.route("k" + std::to_string(i)).node == "b");
}

TEST_CASE("drain: it holds over the lives of the owner until the node has left or it is taken back") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  CHECK(w.core.undrain("a").code == Code::unavailable);
  REQUIRE(w.core.drain("a", w.now).ok());
  w.pass(seconds(20), {&b});
  Owner next = w.on("a");
  CHECK(homeOf(next, startFor(next, "k", 5000)) == "b");
  CHECK(w.core.undrain("a").ok());
  CHECK(homeOf(next, startFor(next, "l", 5000)).empty());
  REQUIRE(w.core.drain("a", w.now).ok());
  w.core.leave(*next.member, MasterCore::Content::gone, w.now);
  CHECK(w.core.undrain("a").code == Code::unavailable);
  Owner last = w.on("a");
  CHECK(homeOf(last, startFor(last, "m", 5000)).empty());
}

TEST_CASE("drain: puts of its clients go on meanwhile and keep it from nothing, and when all is moved none begins any more") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  for (int i = 0; i < 20; ++i) a.put("k" + std::to_string(i), 5000);
  REQUIRE(w.core.drain("a", w.now).ok());
  // Twelve puts are always under way, each on its way to b, which takes them slowly.
  std::vector<OperationId> puts;
  int passed = 0;
  for (int round = 0; round < 100 && !a.told<rpc::Leave>(); ++round) {
    while (puts.size() < 12 && !a.member->finishing()) {
      puts.push_back(startFor(a, "p" + std::to_string(passed++), 5000));
      REQUIRE(a.code(puts.back()) == Code::ok);
      a.done(puts.back());
    }
    bool oneOfAPut = false;
    for (const auto& order : b.orders<rpc::Replicate>()) {
      if (!b.member->transfers->count(order.order)) continue;
      if (order.exported && std::exchange(oneOfAPut, true)) continue;
      b.replicateDone(order.order);
      if (order.exported) {
        const auto ended = std::find_if(puts.begin(), puts.end(), [&](OperationId put) { return !a.member->puts->count(put); });
        a.release({a.granted(*ended).offset});
        puts.erase(ended);
      }
    }
    w.pass(milliseconds(50), {&a, &b});
  }
  CHECK(a.told<rpc::Leave>());
  CHECK(a.code(startFor(a, "late", 5000)) == Code::unavailable);
  CHECK(w.core.undrain("a").ok());
  CHECK(a.code(startFor(a, "again", 5000)) == Code::ok);
}

TEST_CASE("drain: a put past its deadline keeps no node from leaving") {
  Placed w;
  const OperationId slow = startFor(w.a, "slow", 5000);
  CHECK(w.a.code(slow) == Code::ok);
  for (int round = 0; round < 1000 && !w.a.told<rpc::Leave>(); ++round) {
    for (const auto& order : w.b.orders<rpc::Replicate>()) {
      if (w.b.member->transfers->count(order.order)) w.b.replicateDone(order.order);
    }
    w.pass(milliseconds(100), {&w.a, &w.b});
    if (w.now - Time{seconds(1000).ns} < seconds(30)) CHECK_FALSE(w.a.told<rpc::Leave>());
  }
  CHECK(w.a.told<rpc::Leave>());
}

TEST_CASE("drain: a value goes to another node when the best one has only pieces, and room is made where nobody else is") {
  for (const bool third : {false, true}) {
    CAPTURE(third);
    Hosts w;
    Owner a = w.on("a"), b = w.on("b");
    a.put("large", 64 * kPageBytes);
    a.put("small", kPageBytes);
    // b: pages in use and free ones in turn, and not more in use than c.
    std::vector<uint64_t> offsets;
    for (int i = 0; i < 250; ++i) offsets.push_back(b.put("b" + std::to_string(i), kPageBytes));
    for (int i = 0; i < 250; i += 2) {
      b.remove("b" + std::to_string(i));
      b.invalidateDone();
      b.release({offsets[static_cast<size_t>(i)]});
    }
    std::optional<Owner> c;
    if (third) {
      c.emplace(w.on("c"));
      for (int i = 0; i < 130; ++i) c->put("c" + std::to_string(i), kPageBytes);
    }
    w.pass(seconds(70), third ? std::vector<Owner*>{&a, &b, &*c} : std::vector<Owner*>{&a, &b});
    const uint64_t before = w.core.counters().evictions;
    REQUIRE(w.core.drain("a", w.now).ok());
    for (int round = 0; round < 400 && !a.told<rpc::Leave>(); ++round) {
      for (Owner* to : {&b, third ? &*c : &b}) {
        for (const auto& order : to->orders<rpc::Replicate>()) {
          if (to->member->transfers->count(order.order)) to->replicateDone(order.order);
        }
        to->reclaimDone(rpc::ReclaimResult::ok);
      }
      w.pass(milliseconds(50), third ? std::vector<Owner*>{&a, &b, &*c} : std::vector<Owner*>{&a, &b});
    }
    CHECK(a.told<rpc::Leave>());
    CHECK((w.core.counters().evictions > before) == !third);
    Owner& home = third ? *c : b;
    CHECK(home.route("small").code == Code::ok);
    CHECK(home.route("large").node == home.member->node());
  }
}

TEST_CASE("drain: while all nodes are being drained a put is unavailable, and too large only if no segment would hold it") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  REQUIRE(w.core.drain("a", w.now).ok());
  REQUIRE(w.core.drain("b", w.now).ok());
  const rpc::Reply refused = a.answer(startFor(a, "k", 5000));
  CHECK(refused.code == Code::unavailable);
  CHECK(refused.detail == "all nodes are being drained");
  CHECK(a.code(startFor(a, "k", kSegment + 1)) == Code::tooLarge);
}

TEST_CASE("transfers: a delete of what only a transfer still has misses after the target was told, so that no later get joins it") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c");
  a.put("k", 5000);
  const OperationId get = b.get("k");
  CHECK(w.core.evictTo("a", 0, w.now).ok());
  a.reclaimDone(rpc::ReclaimResult::ok);
  const OperationId removed = c.remove("k");
  CHECK_FALSE(c.answered(removed));
  CHECK(b.invalidateDone().size() == 1);
  CHECK(c.code(removed) == Code::miss);
  CHECK_FALSE(b.copied(b.getDone(get)));
}

TEST_CASE("drain: a node that is not there is forgotten, but not while the recovery window is open") {
  World w({"gone", "a"});
  Owner a = w.join("a");
  CHECK(w.core.drain("gone", w.now).code == Code::unavailable);
  CHECK(w.core.recovering());
  w.pass(seconds(20), {&a});
  CHECK_FALSE(w.core.recovering());
  CHECK(w.core.drain("gone", w.now).ok());
  CHECK(w.durableMembers() == std::set<std::string>{"a"});
  CHECK(w.core.drain("gone", w.now).code == Code::unavailable);
}

TEST_CASE("evict: values go until no more than the wished share is in use, as far as nobody reads them") {
  World w;
  Owner a = w.join("a");
  for (int i = 0; i < 100; ++i) a.put("k" + std::to_string(i), kPageBytes);
  CHECK(w.core.evictTo("", 20, w.now).ok());
  for (int round = 0; round < 10 && !a.reclaimDone(rpc::ReclaimResult::ok).empty(); ++round) w.pass(milliseconds(100), {&a});
  CHECK(kSegment - a.member->space.freeBytes() <= kSegment / 100 * 20);
  CHECK(kSegment - a.member->space.freeBytes() >= kSegment / 100 * 15);
  CHECK(w.core.evictTo("nobody", 20, w.now).code == Code::unavailable);
}

}  // namespace
}  // namespace fluxon::master
