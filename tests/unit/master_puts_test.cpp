// MasterCore: puts, deletes, gets and listings of joined owners.
#include <algorithm>

#include "master_fixture.h"

namespace fluxon::master {
namespace {

TEST_CASE("master: a put that is started and done becomes the route of its key") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k", 100);
  CHECK(a.answer(a.get("k")).code == Code::miss);
  const rpc::Reply done = a.answer(a.done(put));
  CHECK(done.published);
  CHECK((done.putId == a.answer(put).putId));
  const rpc::Reply route = a.answer(a.get("k"));
  CHECK(route.code == Code::ok);
  CHECK(route.peer.node == "a");
  CHECK(route.bytes == 100);
  CHECK((route.putId == done.putId));
  CHECK(w.core.inFlightPuts() == 0);
  CHECK(a.bytes(Use::routed) == 128);
}

TEST_CASE("master: put ids carry the term and only grow, over keys and owners") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  PutId last;
  for (int i = 0; i < 10; ++i) {
    Owner& owner = i % 2 ? a : b;
    const PutId id = owner.answer(owner.start("k" + std::to_string(i))).putId;
    CHECK((id > last));
    CHECK(id.term() == 3);
    last = id;
  }
}

TEST_CASE("master: extents of puts under way do not overlap") {
  World w;
  Owner a = w.join("a");
  const uint64_t first = a.answer(a.start("k", kPageBytes)).offset;
  const uint64_t second = a.answer(a.start("k", kPageBytes)).offset;
  CHECK(first != second);
  CHECK(a.bytes(Use::inFlight) == 2 * kPageBytes);
}

TEST_CASE("master: an overwrite is acknowledged after the other owner has invalidated, not before") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId put = b.start("k"), done = b.done(put);
  CHECK_FALSE(b.answered(done));
  const std::vector<rpc::Version> items = a.invalidateDone();
  REQUIRE(items.size() == 1);
  CHECK(items[0].key == "k");
  CHECK((items[0].putId == b.answer(put).putId));
  CHECK(b.answer(done).published);
  CHECK(a.answer(a.get("k")).peer.node == "b");
  CHECK(a.bytes(Use::unrouted) == 128);
}

TEST_CASE("master: an owner that overwrites its own value waits for nobody") {
  World w;
  Owner a = w.join("a");
  const uint64_t old = a.put("k");
  a.put("k", 200);
  CHECK(a.orders(rpc::CommandKind::invalidate).empty());
  CHECK(a.bytes(Use::unrouted) == 128);
  CHECK(a.release({old}) == Code::ok);
  CHECK(a.bytes(Use::unrouted) == 0);
}

TEST_CASE("master: gets, stats and puts of a key wait for the change under way and then go in their order") {
  World w;
  Owner a = w.join("a"), b = w.join("b"), c = w.join("c");
  a.put("k", 100);
  const OperationId later = c.start("k", 300);
  const OperationId done = b.done(b.start("k", 200));
  const OperationId get = c.get("k"), stat = c.ask(rpc::RequestKind::stat, "k"), laterDone = c.done(later), lastGet = a.get("k");
  CHECK_FALSE(c.answered(get));
  CHECK_FALSE(c.answered(stat));
  CHECK_FALSE(c.answered(laterDone));
  a.invalidateDone();
  CHECK(b.answered(done));
  CHECK(c.answer(get).peer.node == "b");
  CHECK(c.answer(stat).bytes == 200);
  // It started before the other put and is done after it: overwritten, which is a success.
  CHECK(c.answer(laterDone).code == Code::ok);
  CHECK_FALSE(c.answer(laterDone).published);
  CHECK(a.answer(lastGet).bytes == 200);
}

TEST_CASE("master: a put with a smaller id than the route's is a success and is never published") {
  World w;
  Owner a = w.join("a");
  const OperationId slow = a.start("k", 100);
  a.put("k", 200);
  const rpc::Reply done = a.answer(a.done(slow));
  CHECK(done.code == Code::ok);
  CHECK_FALSE(done.published);
  CHECK(a.answer(a.get("k")).bytes == 200);
  CHECK(w.core.counters().putsOverwritten == 1);
  CHECK(a.release({a.answer(slow).offset}) == Code::ok);
}

TEST_CASE("master: a delete is acknowledged after every holder has invalidated, the one who asks too") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId byOther = b.remove("k");
  CHECK_FALSE(b.answered(byOther));
  a.invalidateDone();
  CHECK(b.answer(byOther).code == Code::ok);
  CHECK(b.answer(b.get("k")).code == Code::miss);
  a.put("own");
  const OperationId byHolder = a.remove("own");
  CHECK_FALSE(a.answered(byHolder));
  a.invalidateDone();
  CHECK(a.answer(byHolder).code == Code::ok);
  CHECK(w.core.keys() == 0);
}

TEST_CASE("master: a delete of an absent key is a miss") {
  World w;
  Owner a = w.join("a");
  CHECK(a.answer(a.remove("k")).code == Code::miss);
}

TEST_CASE("master: a put in flight over a delete counts as overwritten") {
  World w;
  Owner a = w.join("a");
  a.put("k");
  const OperationId put = a.start("k");
  a.remove("k");
  const OperationId done = a.done(put);
  CHECK_FALSE(a.answered(done));
  a.invalidateDone();
  CHECK(a.answer(done).code == Code::ok);
  CHECK_FALSE(a.answer(done).published);
  CHECK(a.answer(a.get("k")).code == Code::miss);
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("master: rejectIfExists is refused at the start when the key has a route, or is about to get one") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  CHECK(b.answer(b.start("k", 1, shm::kRejectIfExists)).code == Code::exists);
  a.put("k2");
  b.done(b.start("k2"));
  CHECK(a.answer(a.start("k2", 1, shm::kRejectIfExists)).code == Code::exists);
}

TEST_CASE("master: rejectIfExists is refused at its done when another put came first") {
  World w;
  Owner a = w.join("a");
  const OperationId first = a.start("k", 200), second = a.start("k", 100, shm::kRejectIfExists);
  CHECK(a.answer(a.done(first)).published);
  CHECK(a.answer(a.done(second)).code == Code::exists);
  CHECK(a.answer(a.get("k")).bytes == 200);
  CHECK(a.release({a.answer(second).offset}) == Code::ok);
}

TEST_CASE("master: of two puts in flight that reject an existing key one is done, in whichever order they end") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  for (const bool laterFirst : {false, true}) {
    const std::string key = laterFirst ? "later" : "earlier";
    const OperationId one = a.start(key, 100, shm::kRejectIfExists), two = b.start(key, 200, shm::kRejectIfExists);
    const OperationId first = laterFirst ? b.done(two) : a.done(one);
    const OperationId second = laterFirst ? a.done(one) : b.done(two);
    Owner& winner = laterFirst ? b : a;
    Owner& loser = laterFirst ? a : b;
    CHECK(winner.answer(first).published);
    CHECK(loser.answer(second).code == Code::exists);
    CHECK_FALSE(loser.answer(second).published);
    CHECK(a.answer(a.get(key)).bytes == (laterFirst ? 200 : 100));
    CHECK(loser.release({loser.answer(laterFirst ? one : two).offset}) == Code::ok);
  }
  CHECK(w.core.counters().putsOverwritten == 0);
}

TEST_CASE("master: a put that rejects an existing key is refused when one that came after its start is gone before its done") {
  World w;
  Owner a = w.join("a");
  const OperationId slow = a.start("k", 100, shm::kRejectIfExists);
  const OperationId quick = a.start("k", 200, shm::kRejectIfExists);
  CHECK(a.answer(a.done(quick)).published);
  a.remove("k");
  a.invalidateDone();
  CHECK(a.answer(a.done(slow)).code == Code::exists);
  CHECK(a.answer(a.get("k")).code == Code::miss);

  const OperationId patient = a.start("k", 100, shm::kRejectIfExists);
  a.put("k", 200);
  CHECK(w.core.evictTo("a", 0, w.now).ok());
  a.reclaimDone(rpc::ReclaimResult::ok);
  CHECK(a.answer(a.get("k")).code == Code::miss);
  CHECK(a.answer(a.done(patient)).code == Code::exists);
}

TEST_CASE("master: of two puts that reject an existing key and were overtaken by a delete neither is done") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  w.core.leave(*a.member, MasterCore::Content::kept, w.now);  // dormant: no reason to refuse a put at its start
  w.persisted();
  const OperationId one = b.start("k", 100, shm::kRejectIfExists), two = b.start("k", 100, shm::kRejectIfExists);
  b.remove("k");
  CHECK(b.answer(b.done(one)).code == Code::exists);
  CHECK(b.answer(b.done(two)).code == Code::exists);
  const OperationId next = b.start("k", 100, shm::kRejectIfExists);
  CHECK(b.answer(b.done(next)).published);
}

TEST_CASE("master: rejectIfExists passes again after a delete") {
  World w;
  Owner a = w.join("a");
  a.put("k");
  a.remove("k");
  a.invalidateDone();
  const OperationId put = a.start("k", 100, shm::kRejectIfExists);
  CHECK(a.answer(a.done(put)).published);
}

TEST_CASE("master: rejectIfInFlight is refused while another put of the key runs, until that put's deadline") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.start("k", 100, 0, {}, 1000);
  CHECK(b.answer(b.start("k", 1, shm::kRejectIfInFlight)).code == Code::inFlight);
  CHECK(b.answer(b.start("other", 1, shm::kRejectIfInFlight)).code == Code::ok);
  w.pass(milliseconds(999));
  CHECK(b.answer(b.start("k", 1, shm::kRejectIfInFlight)).code == Code::inFlight);
  w.pass(milliseconds(1));
  CHECK(b.answer(b.start("k", 1, shm::kRejectIfInFlight)).code == Code::ok);
}

TEST_CASE("master: the extent of a put past its deadline stays until its owner releases it") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k", 100, 0, {}, 1000);
  w.pass(seconds(5));
  CHECK(a.bytes(Use::inFlight) == 128);
  CHECK(a.answer(a.done(put)).published);
}

TEST_CASE("master: rejectIfInFlight is refused while a publish waits for other owners") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  b.done(b.start("k"));
  CHECK(a.answer(a.start("k", 1, shm::kRejectIfInFlight)).code == Code::inFlight);
  a.invalidateDone();
  CHECK(a.answer(a.start("k", 1, shm::kRejectIfInFlight)).code == Code::ok);
}

TEST_CASE("master: an aborted put frees its key at once and its extent at the release; its late done is refused") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  const OperationId put = a.start("k");
  CHECK(a.answer(a.abort(put)).code == Code::ok);
  CHECK(b.answer(b.start("k", 1, shm::kRejectIfInFlight)).code == Code::ok);
  CHECK(a.answer(a.done(put)).code == Code::unavailable);
  CHECK(a.bytes(Use::unrouted) == 128);
  CHECK(a.release({a.answer(put).offset}) == Code::ok);
  CHECK(a.member->space.freeBytes() == kSegment);
}

TEST_CASE("master: an abort may be repeated, and one of an unknown put is harmless") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k");
  CHECK(a.answer(a.abort(put)).code == Code::ok);
  CHECK(a.answer(a.abort(put)).code == Code::ok);
  CHECK(a.answer(a.abort(OperationId(999))).code == Code::ok);
  CHECK(w.core.counters().putsAborted == 1);
}

TEST_CASE("master: a repeated request gets the same answer and is not carried out again") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k");
  const rpc::Reply first = a.answer(put);
  a.askAgain(put);
  CHECK(a.answers(put) == 2);
  CHECK((a.answer(put).putId == first.putId));
  CHECK(a.answer(put).offset == first.offset);
  CHECK(w.core.inFlightPuts() == 1);
  const OperationId done = a.done(put);
  a.askAgain(done);
  CHECK(a.answers(done) == 2);
  CHECK(a.answer(done).published);
  CHECK(w.core.counters().putsPublished == 1);
}

TEST_CASE("master: a request that still runs is not run twice and is answered once") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId done = b.done(b.start("k"));
  b.askAgain(done);
  CHECK_FALSE(b.answered(done));
  a.invalidateDone();
  CHECK(b.answers(done) == 1);
  CHECK(b.answer(done).published);
}

TEST_CASE("master: ids run on past a straggler without end, and it is carried out once however often it comes") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId waits = b.done(b.start("k"));
  const OperationId lost(waits.value + 1);  // with its connection: it comes later
  rpc::Request beat;
  const auto beatAt = [&](uint64_t id, std::vector<OperationId> stragglers, uint64_t lowest) {
    beat.id = OperationId(id);
    w.core.handle(*b.member, {beat}, OperationId(lowest), w.now, stragglers);
    return b.answer(beat.id).code;
  };
  for (uint64_t id = 100; id < 1'000'000; id += 100'000) CHECK(beatAt(id, {waits, lost}, id) == Code::ok);
  b.askAgain(waits);
  CHECK_FALSE(b.answered(waits));
  a.invalidateDone();
  CHECK(b.answer(waits).published);
  b.askAgain(waits);
  CHECK(b.answers(waits) == 2);
  CHECK(w.core.counters().putsPublished == 2);
  rpc::Request late;
  late.kind = rpc::RequestKind::stat;
  late.key = "k";
  late.id = lost;
  w.core.handle(*b.member, {late}, OperationId(1), w.now);  // of an earlier connection: it forgets nothing
  CHECK(b.answer(lost).code == Code::ok);
  // Answered ones are forgotten, and a late message that still names them brings them back no more.
  CHECK(beatAt(1'000'000, {}, 1'000'000) == Code::ok);
  CHECK(beatAt(1'000'001, {waits}, 1'000'000) == Code::ok);
  b.askAgain(waits);
  CHECK(b.answer(waits).code == Code::protocol);
  CHECK(w.core.counters().putsPublished == 2);
}

TEST_CASE("master: however far ids have run ahead, heartbeats and answers to orders count") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId done = b.done(b.start("k"));
  const auto order = a.orders(rpc::CommandKind::invalidate).at(0);
  rpc::Request far;
  far.kind = rpc::RequestKind::invalidateDone;
  far.command = order.command;
  far.id = OperationId(1'000'000);
  w.core.handle(*a.member, {far}, OperationId(1), w.now);
  CHECK(a.answer(far.id).code == Code::ok);
  CHECK(b.answer(done).published);
  far = {};
  far.id = OperationId(1'000'001);
  w.now = w.now + seconds(5);
  w.core.handle(*a.member, {far}, OperationId(1), w.now);
  CHECK(a.member->leaseEnd == leaseEnd(w.core.settings().lease, w.now));
  far.kind = rpc::RequestKind::putStart;
  far.key = "l";
  far.id = OperationId(1'000'002);
  w.core.handle(*a.member, {far}, OperationId(1), w.now);
  CHECK(a.answer(far.id).code == Code::protocol);
}

TEST_CASE("master: a request below the lowest unanswered one is refused and not carried out") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k");
  rpc::Request beat;
  beat.id = OperationId(10);
  w.core.handle(*a.member, {beat}, OperationId(10), w.now);
  a.askAgain(put);
  CHECK(a.answers(put) == 2);
  CHECK(a.answer(put).code == Code::protocol);
  CHECK(w.core.inFlightPuts() == 1);
}

TEST_CASE("master: puts with no key, too long a key or too large a value are refused") {
  World w;
  Owner a = w.join("a");
  CHECK(a.answer(a.start("")).code == Code::invalidKey);
  CHECK(a.answer(a.start(std::string(4097, 'k'))).code == Code::invalidKey);
  CHECK(a.answer(a.start(std::string(4096, 'k'))).code == Code::ok);
  CHECK(a.answer(a.start("k", kSegment + 1)).code == Code::tooLarge);
  CHECK(a.answer(a.start("k", UINT64_MAX)).code == Code::tooLarge);
  CHECK(w.core.counters().putsStarted == 1);
}

TEST_CASE("master: a value of no bytes is not an absent one") {
  World w;
  Owner a = w.join("a");
  a.put("k", 0);
  CHECK(a.answer(a.get("k")).code == Code::ok);
  CHECK(a.answer(a.get("k")).bytes == 0);
}

TEST_CASE("master: an unknown request is answered, not crashed on") {
  World w;
  Owner a = w.join("a");
  CHECK(a.answer(a.ask(static_cast<rpc::RequestKind>(99))).code == Code::protocol);
}

TEST_CASE("master: a reserved extent is published by one request, with a put id given then") {
  World w;
  Owner a = w.join("a");
  const std::vector<uint64_t> offsets = a.answer(a.reserve(100, 3)).offsets;
  REQUIRE(offsets.size() == 3);
  CHECK(a.bytes(Use::reserved) == 3 * 128);
  const PutId before = a.answer(a.start("other")).putId;
  const rpc::Reply done = a.answer(a.putReserved("k", 100, offsets[1]));
  CHECK(done.published);
  CHECK((done.putId > before));
  CHECK(a.bytes(Use::reserved) == 2 * 128);
  CHECK((a.answer(a.get("k")).putId == done.putId));
  CHECK(a.release({offsets[0], offsets[2]}) == Code::ok);
  CHECK(a.bytes(Use::reserved) == 0);
}

TEST_CASE("master: a reserved put behind a change gets its id after it") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  const uint64_t reserved = a.answer(a.reserve(100, 1)).offsets.at(0);
  a.put("k");
  const OperationId other = b.start("k"), otherDone = b.done(other), done = a.putReserved("k", 100, reserved);
  CHECK_FALSE(a.answered(done));
  CHECK(w.core.inFlightPuts() == 1);
  a.invalidateDone();
  CHECK(b.answer(otherDone).published);
  CHECK_FALSE(a.answered(done));
  b.invalidateDone();
  CHECK(a.answer(done).published);
  CHECK((a.answer(done).putId > b.answer(other).putId));
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("master: only a reserved extent of the right size may be put into") {
  World w;
  Owner a = w.join("a");
  const uint64_t reserved = a.answer(a.reserve(100, 1)).offsets.at(0);
  CHECK(a.answer(a.putReserved("k", 100, 64 * 1024)).code == Code::protocol);
  CHECK(a.answer(a.putReserved("k", 1000, reserved)).code == Code::protocol);
  CHECK(a.answer(a.putReserved("k", 100, a.put("other"))).code == Code::protocol);
  CHECK(a.answer(a.putReserved("k", 128, reserved)).published);
  CHECK(a.answer(a.putReserved("k", 128, reserved)).code == Code::protocol);
}

TEST_CASE("master: a refused reserved put leaves its extent to be released") {
  World w;
  Owner a = w.join("a");
  const uint64_t reserved = a.answer(a.reserve(100, 1)).offsets.at(0);
  CHECK(a.answer(a.putReserved("k", 100, reserved, KeyLeaseId(5))).code == Code::noLease);
  CHECK(a.release({reserved}) == Code::ok);
  CHECK(a.member->space.freeBytes() == kSegment);
}

TEST_CASE("master: a listing comes in byte order, by prefix, in pages") {
  World w;
  Owner a = w.join("a");
  for (const char* key : {"b", "a/2", "a/1", "a/3", "a", "a/\xff"}) a.put(key);
  const auto page = [&](const std::string& prefix, const std::string& after, uint64_t limit) {
    rpc::Request request;
    request.kind = rpc::RequestKind::list;
    request.key = prefix;
    request.after = after;
    request.count = limit;
    std::vector<std::string> keys;
    for (const rpc::ListedKey& entry : a.answer(a.ask(request)).entries) keys.push_back(entry.key);
    return keys;
  };
  CHECK(page("a/", "", 0) == std::vector<std::string>{"a/1", "a/2", "a/3", "a/\xff"});
  CHECK(page("a/", "", 2) == std::vector<std::string>{"a/1", "a/2"});
  CHECK(page("a/", "a/2", 2) == std::vector<std::string>{"a/3", "a/\xff"});
  CHECK(page("a/", "a/\xff", 2).empty());
  CHECK(page("", "a/3", 10) == std::vector<std::string>{"a/\xff", "b"});
}

TEST_CASE("master: a count goes in slices and counts every key once") {
  World w;
  Owner a = w.join("a");
  for (int i = 0; i < 2500; ++i) a.put("p" + std::to_string(i), 1);
  a.put("q", 1);
  const OperationId count = a.ask(rpc::RequestKind::countPrefix, "p"), none = a.ask(rpc::RequestKind::countPrefix, "x");
  CHECK_FALSE(a.answered(count));
  w.core.work();
  CHECK_FALSE(a.answered(count));
  w.work();
  CHECK(a.answer(count).count == 2500);
  CHECK(a.answer(none).count == 0);
}

TEST_CASE("master: stat names the nodes of a key") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k", 100);
  const rpc::Reply stat = b.answer(b.ask(rpc::RequestKind::stat, "k"));
  CHECK(stat.nodes == std::vector<std::string>{"a"});
  CHECK(stat.bytes == 100);
  CHECK(b.answer(b.ask(rpc::RequestKind::stat, "x")).code == Code::miss);
}

TEST_CASE("master: a replica that its owner gives up is a miss") {
  World w;
  Owner a = w.join("a");
  const uint64_t offset = a.put("k");
  rpc::Request drop;
  drop.kind = rpc::RequestKind::dropped;
  drop.items = {{"k", a.answer(a.get("k")).putId, offset}, {"k", PutId(1), 0}, {"absent", PutId(2), 0}};
  CHECK(a.answer(a.ask(drop)).code == Code::ok);
  CHECK(a.answer(a.get("k")).code == Code::miss);
  CHECK(a.release({offset}) == Code::ok);
}

TEST_CASE("master: an owner that gives up an older version leaves the newer one") {
  World w;
  Owner a = w.join("a");
  const uint64_t offset = a.put("k");
  const PutId old = a.answer(a.get("k")).putId;
  a.put("k", 200);
  rpc::Request drop;
  drop.kind = rpc::RequestKind::dropped;
  drop.items = {{"k", old, offset}};
  a.ask(drop);
  CHECK(a.answer(a.get("k")).bytes == 200);
}

TEST_CASE("master: after puts, deletes, aborts and releases every gauge is back at zero") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  const OperationId aborted = a.start("k1");
  const uint64_t old = a.put("k2");
  const OperationId put = b.start("k2"), done = b.done(put);
  a.invalidateDone();
  CHECK(b.answered(done));
  a.abort(aborted);
  b.remove("k2");
  b.invalidateDone();
  CHECK(a.release({old, a.answer(aborted).offset}) == Code::ok);
  CHECK(b.release({b.answer(put).offset}) == Code::ok);
  CHECK(w.core.inFlightPuts() == 0);
  CHECK(w.core.keys() == 0);
  for (Owner* owner : {&a, &b}) {
    CHECK(owner->member->space.freeBytes() == kSegment);
    CHECK(owner->member->space.replicas() == 0);
    CHECK(owner->member->orders.empty());
  }
  CHECK(w.bytesAddUp());
}

}  // namespace
}  // namespace fluxon::master
