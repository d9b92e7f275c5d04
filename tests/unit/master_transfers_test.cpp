// MasterCore: values that move between owners: gets from another host, replicas, puts placed elsewhere, drains.
#include <algorithm>
#include <optional>

#include "master_fixture.h"

namespace fluxon::master {
namespace {

using rpc::CommandKind;

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

OperationId getDone(Owner& owner, OperationId get, Code code = Code::ok) {
  rpc::Request request;
  request.kind = rpc::RequestKind::getDone;
  request.put = get;
  request.code = code;
  return owner.ask(request);
}
OperationId copyDone(Owner& owner, OperationId order, Code code = Code::ok) {
  rpc::Request request;
  request.kind = rpc::RequestKind::getDone;
  request.command = order;
  request.code = code;
  return owner.ask(request);
}
OperationId startFor(Owner& owner, const std::string& key, uint64_t bytes, std::string asker = {}) {
  rpc::Request request;
  request.kind = rpc::RequestKind::putStart;
  request.key = key;
  request.bytes = bytes;
  request.after = std::move(asker);
  request.timeLeftMs = 60'000;
  return owner.ask(request);
}
size_t replicasOf(Owner& owner, const std::string& key) { return owner.answer(owner.ask(rpc::RequestKind::stat, key)).nodes.size(); }

TEST_CASE("transfers: a get of a value on another host gets a place, and the copy becomes a replica") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k", 5000);
  const OperationId get = b.get("k");
  const rpc::Reply route = b.answer(get);
  CHECK(route.fetch);
  CHECK(route.peer.node == "a");
  CHECK(route.peer.link == "a:1");
  CHECK(route.bytes == 5000);
  CHECK(b.bytes(Use::inFlight) == 8192);
  CHECK(b.answer(getDone(b, get)).published);
  CHECK(b.bytes(Use::routed) == 8192);
  CHECK(replicasOf(a, "k") == 2);
  CHECK_FALSE(b.answer(b.get("k")).fetch);
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
  b.answer(getDone(b, get));
  CHECK(w.core.oldestTransfer(w.now).ns == 0);
}

TEST_CASE("transfers: an owner of the same host is read in place, unless it cannot be reached there") {
  Hosts w;
  Owner a = w.on("a", "h"), b = w.on("b", "h");
  a.put("k");
  CHECK_FALSE(b.answer(b.get("k")).fetch);
  rpc::Request far;
  far.kind = rpc::RequestKind::getStart;
  far.key = "k";
  far.flags = rpc::kFarOnly;
  CHECK(b.answer(b.ask(far)).fetch);
}

TEST_CASE("transfers: what a neighbour of the same host has that takes no client is copied to who asks for that, without a link") {
  Hosts w;
  Owner a = w.on("a", "h", kSegment, Hosts::Link::none), b = w.on("b", "h");
  a.put("k");
  rpc::Request get;
  get.kind = rpc::RequestKind::getStart;
  get.key = "k";
  get.flags = rpc::kBringHere;
  CHECK(b.answer(b.ask(get)).fetch);
  get.flags = rpc::kFarOnly;
  CHECK(b.answer(b.ask(get)).code == Code::unavailable);
}

TEST_CASE("transfers: a failed copy is no replica, and its place comes back by the owner's word") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k");
  const OperationId get = b.get("k");
  CHECK_FALSE(b.answer(getDone(b, get, Code::unavailable)).published);
  CHECK(replicasOf(a, "k") == 1);
  CHECK(b.bytes(Use::unrouted) == 128);
  CHECK(b.release({b.answer(get).offset}) == Code::ok);
  CHECK(b.member->space.freeBytes() == kSegment);
}

TEST_CASE("transfers: what an owner says late of a place that it has given up leaves the later copy of the same version") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k", 5000);
  const OperationId first = b.get("k");
  REQUIRE(b.answer(getDone(b, first)).published);
  // It is not readable at b, who answers a reclaim before it can say so.
  REQUIRE(w.core.evictTo("b", 0, w.now).ok());
  b.reclaimDone(rpc::ReclaimResult::gone);
  REQUIRE(replicasOf(a, "k") == 1);
  const OperationId second = b.get("k");
  REQUIRE(b.answer(getDone(b, second)).published);
  const uint64_t old = b.answer(first).offset, present = b.answer(second).offset;
  REQUIRE(old != present);
  const auto drop = [&](uint64_t offset) {
    rpc::Request request;
    request.kind = rpc::RequestKind::dropped;
    request.items = {{"k", b.answer(second).putId, offset}};
    return b.answer(b.ask(request)).code;
  };
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
  getDone(b, first);
  rpc::Request again;
  again.kind = rpc::RequestKind::getStart;
  again.key = "k";
  again.after = "a";
  CHECK(c.answer(c.ask(again)).peer.node == "b");
  again.after = "b";
  CHECK(c.answer(c.ask(again)).peer.node == "a");
}

TEST_CASE("transfers: at most two copies of one version are made into replicas at once") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b"), c = w.on("c"), d = w.on("d");
  a.put("k");
  const OperationId first = b.get("k"), second = c.get("k"), third = d.get("k");
  CHECK(d.answer(getDone(d, third)).code == Code::ok);
  CHECK_FALSE(d.answer(getDone(d, third)).published);
  CHECK(b.answer(getDone(b, first)).published);
  CHECK(c.answer(getDone(c, second)).published);
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
  CHECK(a.answer(done).published);
  CHECK_FALSE(b.answer(getDone(b, get)).published);
  CHECK(replicasOf(a, "k") == 1);
}

TEST_CASE("transfers: a copy that is done while its key is being deleted becomes no replica") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k");
  const OperationId get = b.get("k"), remove = a.remove("k");
  CHECK_FALSE(b.answer(getDone(b, get)).published);
  a.invalidateDone();
  CHECK_FALSE(a.answered(remove));
  b.invalidateDone();
  CHECK(a.answer(remove).code == Code::ok);
}

TEST_CASE("transfers: a get that finds no room waits, and does not hold up gets that need none") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  a.put("k", kSegment / 2);
  const KeyLeaseId lease = b.grantLease(60'000);
  const uint64_t offset = b.put("own", kSegment / 2 + kPageBytes, lease);
  const OperationId get = b.get("k");
  CHECK_FALSE(b.answered(get));
  CHECK(b.answer(b.get("own")).code == Code::ok);
  CHECK(b.answer(b.get("none")).code == Code::miss);
  b.remove("own");
  b.invalidateDone();
  CHECK(b.release({offset}) == Code::ok);
  CHECK(b.answer(get).fetch);
}

TEST_CASE("transfers: a get of an owner without a link says so, and a value too large for the segment too") {
  Hosts w;
  rpc::Registration r = w.registration("a", 1);
  r.hostId = "x";
  Owner a = w.join(r), b = w.on("b"), c = w.on("c", "", kPageBytes);
  a.put("k");
  CHECK(b.answer(b.get("k")).code == Code::unavailable);
  b.put("large", 2 * kPageBytes);
  CHECK(c.answer(c.get("large")).code == Code::tooLarge);
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
  CHECK(c.answer(getDone(c, forC)).published);
  CHECK(c.answer(c.get("k")).peer.node == "c");
  (void)forB;
}

OperationId spread(Owner& owner, const std::string& key, uint64_t owners) {
  rpc::Request request;
  request.kind = rpc::RequestKind::spread;
  request.key = key;
  request.items = {{key, owner.answer(owner.get(key)).putId}};
  request.count = owners;
  request.timeLeftMs = 5000;
  return owner.ask(request);
}

TEST_CASE("replicas: a value that is to be on two owners is brought to another host, and answered when it is there") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b"), near = w.on("near", "a");
  a.put("k");
  const OperationId asked = spread(a, "k", 2);
  CHECK_FALSE(a.answered(asked));
  CHECK(near.orders(CommandKind::replicate).empty());  // another host outlives more
  const auto orders = b.orders(CommandKind::replicate);
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].peer.node == "a");
  CHECK(orders[0].timeLeftMs == 5000);
  CHECK_FALSE(orders[0].exportId);
  CHECK(b.answer(copyDone(b, orders[0].command)).published);
  CHECK(a.answer(asked).code == Code::ok);
  CHECK(a.answer(asked).count == 2);
  CHECK(replicasOf(a, "k") == 2);
  CHECK(a.answer(spread(a, "k", 2)).count == 2);  // it is
}

TEST_CASE("replicas: with nobody to have them, when a copy fails, or for another version, the answer comes all the same") {
  Hosts w;
  Owner a = w.on("a");
  a.put("k");
  CHECK(a.answer(spread(a, "k", 3)).count == 1);
  Owner b = w.on("b"), c = w.on("c");
  const OperationId failing = spread(a, "k", 3);
  copyDone(b, b.orders(CommandKind::replicate).at(0).command, Code::unavailable);
  CHECK_FALSE(a.answered(failing));
  w.core.leave(*c.member, MasterCore::Content::gone, w.now);
  CHECK(a.answer(failing).count == 1);
  rpc::Request other;
  other.kind = rpc::RequestKind::spread;
  other.key = "k";
  other.items = {{"k", PutId(1)}};
  other.count = 3;
  CHECK(a.answered(a.ask(other)));
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
  const rpc::Reply grant = w.a.answer(put);
  CHECK(grant.fetch);
  CHECK(grant.peer.node == "b");
  CHECK(w.b.bytes(Use::inFlight) >= 8192);
  const OperationId done = w.a.done(put);
  CHECK_FALSE(w.a.answered(done));
  rpc::MasterMessage order;
  for (const auto& each : w.b.orders(CommandKind::replicate)) {
    if (each.exportId) order = each;
  }
  CHECK(order.items.at(0).key == "k");
  CHECK(order.sourceOffset == grant.offset);
  CHECK(w.b.answer(copyDone(w.b, order.command)).published);
  CHECK(w.a.answer(done).published);
  CHECK(w.a.answer(w.a.get("k")).peer.node == "b");
  CHECK(w.a.release({grant.offset}) == Code::ok);
  CHECK(w.bytesAddUp());
}

TEST_CASE("placed elsewhere: however far the ids of its home have run ahead, its copy counts once and is answered each time") {
  Placed w;
  const OperationId put = startFor(w.a, "k", 5000);
  const OperationId done = w.a.done(put);
  rpc::MasterMessage order;
  for (const auto& each : w.b.orders(CommandKind::replicate)) {
    if (each.exportId) order = each;
  }
  rpc::Request far;
  far.kind = rpc::RequestKind::getDone;
  far.command = order.command;
  far.id = OperationId(1'000'000);
  const auto say = [&](uint64_t lowest) { w.core.handle(*w.b.member, {far}, OperationId(lowest), w.now); };
  say(1);
  CHECK(w.b.answer(far.id).published);
  CHECK(w.a.answer(done).published);
  say(1);
  CHECK(w.b.answers(far.id) == 2);
  CHECK(w.b.answer(far.id).published);
  say(999'000);  // the window has reached it
  CHECK(w.b.answers(far.id) == 3);
  CHECK(w.b.answer(far.id).published);
  rpc::Request beat;
  beat.id = OperationId(1'000'100);
  w.core.handle(*w.b.member, {beat}, beat.id, w.now, {far.id});
  say(1);
  CHECK(w.b.answer(far.id).published);
  far.id = OperationId(2'000'000);  // of a transfer that is over
  say(1);
  CHECK(w.b.answer(far.id).code == Code::ok);
  CHECK_FALSE(w.b.answer(far.id).published);
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
      for (const auto& each : w.b.orders(CommandKind::replicate)) {
        if (each.exportId) copyDone(w.b, each.command, Code::unavailable);
      }
    }
    CHECK(w.a.answer(done).code == Code::unavailable);
    CHECK(w.core.inFlightPuts() == 0);
    CHECK(w.a.release({w.a.answer(put).offset}) == Code::ok);
  }
}

TEST_CASE("placed elsewhere: the end of the one who puts ends the put, not its home") {
  Placed w;
  w.a.done(startFor(w.a, "k", 5000));
  w.core.leave(*w.a.member, MasterCore::Content::kept, w.now);
  w.persisted();
  for (const auto& each : w.b.orders(CommandKind::replicate)) {
    if (each.exportId) CHECK_FALSE(w.b.answer(copyDone(w.b, each.command)).published);
  }
  CHECK(w.b.answer(w.b.get("k")).code == Code::miss);
}

TEST_CASE("placed elsewhere: an owner of the same host is named, and its client fills the value there") {
  Hosts w;
  Owner a = w.on("a", "h"), b = w.on("b", "h"), c = w.on("c");
  a.put("stays", 100, a.grantLease(60'000));
  REQUIRE(w.core.drain("a", w.now).ok());
  const rpc::Reply answer = a.answer(startFor(a, "k", 100));
  CHECK(answer.peer.node == "b");
  CHECK_FALSE(answer.fetch);
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("side transfer: a value filled at one owner of a host for another one is brought to that one") {
  Hosts w;
  Owner worker = w.on("worker", "h"), asker = w.on("asker", "h"), far = w.on("far");
  const OperationId put = startFor(worker, "k", 5000, "asker");
  CHECK(worker.answer(put).peer.node == "asker");
  const OperationId done = worker.done(put);
  const auto orders = asker.orders(CommandKind::replicate);
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].exportId);
  CHECK(orders[0].peer.node == "worker");
  copyDone(asker, orders[0].command);
  CHECK(worker.answer(done).published);
  CHECK(far.answer(far.get("k")).peer.node == "asker");
  CHECK(worker.answer(startFor(worker, "l", 1, "far")).code == Code::invalidArgument);
  CHECK(worker.answer(startFor(worker, "l", 1, "nobody")).code == Code::invalidArgument);
}

TEST_CASE("drain: what nobody else has is brought to others, then the node is told to leave") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  for (int i = 0; i < 20; ++i) a.put("k" + std::to_string(i));
  getDone(b, b.get("k0"));
  REQUIRE(w.core.drain("a", w.now).ok());
  size_t brought = 0;
  for (int round = 0; round < 100 && a.orders(CommandKind::leave).empty(); ++round) {
    const auto orders = b.orders(CommandKind::replicate);
    for (const auto& order : orders) {
      if (b.member->transfers.count({true, order.command})) brought += b.answer(copyDone(b, order.command)).published;
    }
    w.pass(milliseconds(50), {&a, &b});
  }
  CHECK(brought == 19);
  CHECK_FALSE(a.orders(CommandKind::leave).empty());
  w.core.leave(*a.member, MasterCore::Content::gone, w.now);
  w.work();
  CHECK(w.durableMembers() == std::set<std::string>{"b"});
  for (int i = 0; i < 20; ++i) CHECK(b.answer(b.get("k" + std::to_string(i))).peer.node == "b");
}

TEST_CASE("drain: it holds over the lives of the owner until the node has left or it is taken back") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  CHECK(w.core.undrain("a").code == Code::unavailable);
  REQUIRE(w.core.drain("a", w.now).ok());
  w.pass(seconds(20), {&b});
  Owner next = w.on("a");
  CHECK(next.answer(startFor(next, "k", 5000)).peer.node == "b");
  CHECK(w.core.undrain("a").ok());
  CHECK(next.answer(startFor(next, "l", 5000)).peer.node.empty());
  REQUIRE(w.core.drain("a", w.now).ok());
  w.core.leave(*next.member, MasterCore::Content::gone, w.now);
  CHECK(w.core.undrain("a").code == Code::unavailable);
  Owner last = w.on("a");
  CHECK(last.answer(startFor(last, "m", 5000)).peer.node.empty());
}

TEST_CASE("drain: puts of its clients go on meanwhile and keep it from nothing, and when all is moved none begins any more") {
  Hosts w;
  Owner a = w.on("a"), b = w.on("b");
  for (int i = 0; i < 20; ++i) a.put("k" + std::to_string(i), 5000);
  REQUIRE(w.core.drain("a", w.now).ok());
  // Twelve puts are always under way, each on its way to b, which takes them slowly.
  std::vector<OperationId> puts;
  int passed = 0;
  for (int round = 0; round < 100 && a.orders(CommandKind::leave).empty(); ++round) {
    while (puts.size() < 12 && !a.member->finishing) {
      puts.push_back(startFor(a, "p" + std::to_string(passed++), 5000));
      REQUIRE(a.answer(puts.back()).code == Code::ok);
      a.done(puts.back());
    }
    bool oneOfAPut = false;
    for (const auto& order : b.orders(CommandKind::replicate)) {
      if (!b.member->transfers.count({true, order.command})) continue;
      if (order.exportId && std::exchange(oneOfAPut, true)) continue;
      copyDone(b, order.command);
      if (order.exportId) {
        const auto ended = std::find_if(puts.begin(), puts.end(), [&](OperationId put) { return !a.member->puts.count(put); });
        a.release({a.answer(*ended).offset});
        puts.erase(ended);
      }
    }
    w.pass(milliseconds(50), {&a, &b});
  }
  CHECK_FALSE(a.orders(CommandKind::leave).empty());
  CHECK(a.answer(startFor(a, "late", 5000)).code == Code::unavailable);
  CHECK(w.core.undrain("a").ok());
  CHECK(a.answer(startFor(a, "again", 5000)).code == Code::ok);
}

TEST_CASE("drain: a put past its deadline keeps no node from leaving") {
  Placed w;
  const OperationId slow = startFor(w.a, "slow", 5000);
  CHECK(w.a.answer(slow).code == Code::ok);
  for (int round = 0; round < 1000 && w.a.orders(CommandKind::leave).empty(); ++round) {
    for (const auto& order : w.b.orders(CommandKind::replicate)) {
      if (w.b.member->transfers.count({true, order.command})) copyDone(w.b, order.command);
    }
    w.pass(milliseconds(100), {&w.a, &w.b});
    if (w.now - Time{seconds(1000).ns} < seconds(30)) CHECK(w.a.orders(CommandKind::leave).empty());
  }
  CHECK_FALSE(w.a.orders(CommandKind::leave).empty());
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
    for (int round = 0; round < 400 && a.orders(CommandKind::leave).empty(); ++round) {
      for (Owner* to : {&b, third ? &*c : &b}) {
        for (const auto& order : to->orders(CommandKind::replicate)) {
          if (to->member->transfers.count({true, order.command})) copyDone(*to, order.command);
        }
        to->reclaimDone(rpc::ReclaimResult::ok);
      }
      w.pass(milliseconds(50), third ? std::vector<Owner*>{&a, &b, &*c} : std::vector<Owner*>{&a, &b});
    }
    CHECK_FALSE(a.orders(CommandKind::leave).empty());
    CHECK((w.core.counters().evictions > before) == !third);
    Owner& home = third ? *c : b;
    CHECK(home.answer(home.get("small")).code == Code::ok);
    CHECK(home.answer(home.get("large")).peer.node == home.member->node());
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
  CHECK(a.answer(startFor(a, "k", kSegment + 1)).code == Code::tooLarge);
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
  CHECK(c.answer(removed).code == Code::miss);
  CHECK_FALSE(b.answer(getDone(b, get)).published);
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
