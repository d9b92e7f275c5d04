// MasterCore: puts, deletes, gets and listings of joined owners.
#include <algorithm>

#include "master_fixture.h"

namespace fluxon::master {
namespace {

TEST_CASE("master: a put that is started and done becomes the route of its key") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k", 100);
  CHECK(a.route("k").code == Code::miss);
  const rpc::PutEnded done = a.ended(a.done(put));
  CHECK(done.published);
  CHECK((done.putId == a.granted(put).putId));
  const Route route = a.route("k");
  CHECK(route.code == Code::ok);
  CHECK(route.node == "a");
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
    const PutId id = owner.granted(owner.start("k" + std::to_string(i))).putId;
    CHECK((id > last));
    CHECK(id.term() == 3);
    last = id;
  }
}

TEST_CASE("master: extents of puts under way do not overlap") {
  World w;
  Owner a = w.join("a");
  const uint64_t first = a.granted(a.start("k", kPageBytes)).offset;
  const uint64_t second = a.granted(a.start("k", kPageBytes)).offset;
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
  CHECK((items[0].putId == b.granted(put).putId));
  CHECK(b.published(done));
  CHECK(a.route("k").node == "b");
  CHECK(a.bytes(Use::unrouted) == 128);
}

TEST_CASE("master: an owner that overwrites its own value waits for nobody") {
  World w;
  Owner a = w.join("a");
  const uint64_t old = a.put("k");
  a.put("k", 200);
  CHECK(a.orders<rpc::Invalidate>().empty());
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
  const OperationId get = c.get("k"), stat = c.stat("k"), laterDone = c.done(later), lastGet = a.get("k");
  CHECK_FALSE(c.answered(get));
  CHECK_FALSE(c.answered(stat));
  CHECK_FALSE(c.answered(laterDone));
  a.invalidateDone();
  CHECK(b.answered(done));
  CHECK(c.route(get).node == "b");
  CHECK(c.answer<rpc::KeyStat>(stat).bytes == 200);
  // It started before the other put and is done after it: overwritten, which is a success.
  CHECK(c.code(laterDone) == Code::ok);
  CHECK_FALSE(c.published(laterDone));
  CHECK(a.route(lastGet).bytes == 200);
}

TEST_CASE("master: a put with a smaller id than the route's is a success and is never published") {
  World w;
  Owner a = w.join("a");
  const OperationId slow = a.start("k", 100);
  a.put("k", 200);
  const OperationId done = a.done(slow);
  CHECK(a.code(done) == Code::ok);
  CHECK_FALSE(a.published(done));
  CHECK(a.route("k").bytes == 200);
  CHECK(w.core.counters().putsOverwritten == 1);
  CHECK(a.release({a.granted(slow).offset}) == Code::ok);
}

TEST_CASE("master: a delete is acknowledged after every holder has invalidated, the one who asks too") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId byOther = b.remove("k");
  CHECK_FALSE(b.answered(byOther));
  a.invalidateDone();
  CHECK(b.code(byOther) == Code::ok);
  CHECK(b.route("k").code == Code::miss);
  a.put("own");
  const OperationId byHolder = a.remove("own");
  CHECK_FALSE(a.answered(byHolder));
  a.invalidateDone();
  CHECK(a.code(byHolder) == Code::ok);
  CHECK(w.core.keys() == 0);
}

TEST_CASE("master: a delete of an absent key is a miss") {
  World w;
  Owner a = w.join("a");
  CHECK(a.code(a.remove("k")) == Code::miss);
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
  CHECK(a.code(done) == Code::ok);
  CHECK_FALSE(a.published(done));
  CHECK(a.route("k").code == Code::miss);
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("master: rejectIfExists is refused at the start when the key has a route, or is about to get one") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  CHECK(b.code(b.start("k", 1, kRejectExisting)) == Code::exists);
  a.put("k2");
  b.done(b.start("k2"));
  CHECK(a.code(a.start("k2", 1, kRejectExisting)) == Code::exists);
}

TEST_CASE("master: rejectIfExists is refused at its done when another put came first") {
  World w;
  Owner a = w.join("a");
  const OperationId first = a.start("k", 200), second = a.start("k", 100, kRejectExisting);
  CHECK(a.published(a.done(first)));
  CHECK(a.code(a.done(second)) == Code::exists);
  CHECK(a.route("k").bytes == 200);
  CHECK(a.release({a.granted(second).offset}) == Code::ok);
}

TEST_CASE("master: of two puts in flight that reject an existing key one is done, in whichever order they end") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  for (const bool laterFirst : {false, true}) {
    const std::string key = laterFirst ? "later" : "earlier";
    const OperationId one = a.start(key, 100, kRejectExisting), two = b.start(key, 200, kRejectExisting);
    const OperationId first = laterFirst ? b.done(two) : a.done(one);
    const OperationId second = laterFirst ? a.done(one) : b.done(two);
    Owner& winner = laterFirst ? b : a;
    Owner& loser = laterFirst ? a : b;
    CHECK(winner.published(first));
    CHECK(loser.code(second) == Code::exists);
    CHECK_FALSE(loser.published(second));
    CHECK(a.route(key).bytes == (laterFirst ? 200 : 100));
    CHECK(loser.release({loser.granted(laterFirst ? one : two).offset}) == Code::ok);
  }
  CHECK(w.core.counters().putsOverwritten == 0);
}

TEST_CASE("master: a put that rejects an existing key is refused when one that came after its start is gone before its done") {
  World w;
  Owner a = w.join("a");
  const OperationId slow = a.start("k", 100, kRejectExisting);
  const OperationId quick = a.start("k", 200, kRejectExisting);
  CHECK(a.published(a.done(quick)));
  a.remove("k");
  a.invalidateDone();
  CHECK(a.code(a.done(slow)) == Code::exists);
  CHECK(a.route("k").code == Code::miss);

  const OperationId patient = a.start("k", 100, kRejectExisting);
  a.put("k", 200);
  CHECK(w.core.evictTo("a", 0, w.now).ok());
  a.reclaimDone(rpc::ReclaimResult::ok);
  CHECK(a.route("k").code == Code::miss);
  CHECK(a.code(a.done(patient)) == Code::exists);
}

TEST_CASE("master: of two puts that reject an existing key and were overtaken by a delete neither is done") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  w.core.leave(*a.member, MasterCore::Content::kept, w.now);  // dormant: no reason to refuse a put at its start
  w.persisted();
  const OperationId one = b.start("k", 100, kRejectExisting), two = b.start("k", 100, kRejectExisting);
  b.remove("k");
  CHECK(b.code(b.done(one)) == Code::exists);
  CHECK(b.code(b.done(two)) == Code::exists);
  const OperationId next = b.start("k", 100, kRejectExisting);
  CHECK(b.published(b.done(next)));
}

TEST_CASE("master: rejectIfExists passes again after a delete") {
  World w;
  Owner a = w.join("a");
  a.put("k");
  a.remove("k");
  a.invalidateDone();
  const OperationId put = a.start("k", 100, kRejectExisting);
  CHECK(a.published(a.done(put)));
}

TEST_CASE("master: rejectIfInFlight is refused while another put of the key runs, until that put's deadline") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.start("k", 100, {}, {}, 1000);
  CHECK(b.code(b.start("k", 1, kRejectInFlight)) == Code::inFlight);
  CHECK(b.code(b.start("other", 1, kRejectInFlight)) == Code::ok);
  w.pass(milliseconds(999));
  CHECK(b.code(b.start("k", 1, kRejectInFlight)) == Code::inFlight);
  w.pass(milliseconds(1));
  CHECK(b.code(b.start("k", 1, kRejectInFlight)) == Code::ok);
}

TEST_CASE("master: the extent of a put past its deadline stays until its owner releases it") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k", 100, {}, {}, 1000);
  w.pass(seconds(5));
  CHECK(a.bytes(Use::inFlight) == 128);
  CHECK(a.published(a.done(put)));
}

TEST_CASE("master: rejectIfInFlight is refused while a publish waits for other owners") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  b.done(b.start("k"));
  CHECK(a.code(a.start("k", 1, kRejectInFlight)) == Code::inFlight);
  a.invalidateDone();
  CHECK(a.code(a.start("k", 1, kRejectInFlight)) == Code::ok);
}

TEST_CASE("master: an aborted put frees its key at once and its extent at the release; its late done is refused") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  const OperationId put = a.start("k");
  CHECK(a.code(a.abort(put)) == Code::ok);
  CHECK(b.code(b.start("k", 1, kRejectInFlight)) == Code::ok);
  CHECK(a.code(a.done(put)) == Code::unavailable);
  CHECK(a.bytes(Use::unrouted) == 128);
  CHECK(a.release({a.granted(put).offset}) == Code::ok);
  CHECK(a.member->space.freeBytes() == kSegment);
}

TEST_CASE("master: an abort may be repeated, and one of an unknown put is harmless") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k");
  CHECK(a.code(a.abort(put)) == Code::ok);
  CHECK(a.code(a.abort(put)) == Code::ok);
  CHECK(a.code(a.abort(OperationId(999))) == Code::ok);
  CHECK(w.core.counters().putsAborted == 1);
}

TEST_CASE("master: a repeated request gets the same answer and is not carried out again") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k");
  const rpc::PutGranted first = a.granted(put);
  a.askAgain(put);
  CHECK(a.answers(put) == 2);
  CHECK((a.granted(put).putId == first.putId));
  CHECK(a.granted(put).offset == first.offset);
  CHECK(w.core.inFlightPuts() == 1);
  const OperationId done = a.done(put);
  a.askAgain(done);
  CHECK(a.answers(done) == 2);
  CHECK(a.published(done));
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
  CHECK(b.published(done));
}

TEST_CASE("master: ids run on past a straggler without end, and it is carried out once however often it comes") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId waits = b.done(b.start("k"));
  const OperationId lost(waits.value + 1);  // with its connection: it comes later
  const auto beatAt = [&](uint64_t id, std::vector<OperationId> stragglers, uint64_t lowest) {
    b.askAs(OperationId(id), rpc::Heartbeat(), OperationId(lowest), std::move(stragglers));
    return b.code(OperationId(id));
  };
  for (uint64_t id = 100; id < 1'000'000; id += 100'000) CHECK(beatAt(id, {waits, lost}, id) == Code::ok);
  b.askAgain(waits);
  CHECK_FALSE(b.answered(waits));
  a.invalidateDone();
  CHECK(b.published(waits));
  b.askAgain(waits);
  CHECK(b.answers(waits) == 2);
  CHECK(w.core.counters().putsPublished == 2);
  b.askAs(lost, rpc::StatKey{{}, "k"});  // of an earlier connection: it forgets nothing
  CHECK(b.code(lost) == Code::ok);
  // Answered ones are forgotten, and a late message that still names them brings them back no more.
  CHECK(beatAt(1'000'000, {}, 1'000'000) == Code::ok);
  CHECK(beatAt(1'000'001, {waits}, 1'000'000) == Code::ok);
  b.askAgain(waits);
  CHECK(b.code(waits) == Code::protocol);
  CHECK(w.core.counters().putsPublished == 2);
}

TEST_CASE("master: however far ids have run ahead, heartbeats and answers to orders count") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId done = b.done(b.start("k"));
  const OperationId far(1'000'000), further(1'000'001), furthest(1'000'002);
  a.askAs(far, rpc::InvalidateDone{{}, a.order<rpc::Invalidate>().order});
  CHECK(a.code(far) == Code::ok);
  CHECK(b.published(done));
  w.now = w.now + seconds(5);
  a.askAs(further, rpc::Heartbeat());
  CHECK(*a.member->leaseEnd == leaseEnd(w.core.settings().lease, w.now));
  a.askAs(furthest, rpc::PutStart{{}, "l"});
  CHECK(a.code(furthest) == Code::protocol);
}

TEST_CASE("master: a request below the lowest unanswered one is refused and not carried out") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k");
  a.askAs(OperationId(10), rpc::Heartbeat(), OperationId(10));
  a.askAgain(put);
  CHECK(a.answers(put) == 2);
  CHECK(a.code(put) == Code::protocol);
  CHECK(w.core.inFlightPuts() == 1);
}

TEST_CASE("master: puts with no key, too long a key or too large a value are refused") {
  World w;
  Owner a = w.join("a");
  CHECK(a.code(a.start("")) == Code::invalidKey);
  CHECK(a.code(a.start(std::string(4097, 'k'))) == Code::invalidKey);
  CHECK(a.code(a.start(std::string(4096, 'k'))) == Code::ok);
  CHECK(a.code(a.start("k", kSegment + 1)) == Code::tooLarge);
  CHECK(a.code(a.start("k", UINT64_MAX)) == Code::tooLarge);
  CHECK(w.core.counters().putsStarted == 1);
}

TEST_CASE("master: a value of no bytes is not an absent one") {
  World w;
  Owner a = w.join("a");
  a.put("k", 0);
  CHECK(a.route("k").code == Code::ok);
  CHECK(a.route("k").bytes == 0);
}

TEST_CASE("master: a reserved extent is published by one request, with a put id given then") {
  World w;
  Owner a = w.join("a");
  const std::vector<uint64_t> offsets = a.reserved(a.reserve(100, 3));
  REQUIRE(offsets.size() == 3);
  CHECK(a.bytes(Use::reserved) == 3 * 128);
  const PutId before = a.granted(a.start("other")).putId;
  const rpc::PutEnded done = a.ended(a.putReserved("k", 100, offsets[1]));
  CHECK(done.published);
  CHECK((done.putId > before));
  CHECK(a.bytes(Use::reserved) == 2 * 128);
  CHECK((a.route("k").putId == done.putId));
  CHECK(a.release({offsets[0], offsets[2]}) == Code::ok);
  CHECK(a.bytes(Use::reserved) == 0);
}

TEST_CASE("master: a reserved put behind a change gets its id after it") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  const uint64_t reserved = a.reserved(a.reserve(100, 1)).at(0);
  a.put("k");
  const OperationId other = b.start("k"), otherDone = b.done(other), done = a.putReserved("k", 100, reserved);
  CHECK_FALSE(a.answered(done));
  CHECK(w.core.inFlightPuts() == 1);
  a.invalidateDone();
  CHECK(b.published(otherDone));
  CHECK_FALSE(a.answered(done));
  b.invalidateDone();
  CHECK(a.published(done));
  CHECK((a.ended(done).putId > b.granted(other).putId));
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("master: only a reserved extent of the right size may be put into") {
  World w;
  Owner a = w.join("a");
  const uint64_t reserved = a.reserved(a.reserve(100, 1)).at(0);
  CHECK(a.code(a.putReserved("k", 100, 64 * 1024)) == Code::protocol);
  CHECK(a.code(a.putReserved("k", 1000, reserved)) == Code::protocol);
  CHECK(a.code(a.putReserved("k", 100, a.put("other"))) == Code::protocol);
  CHECK(a.published(a.putReserved("k", 128, reserved)));
  CHECK(a.code(a.putReserved("k", 128, reserved)) == Code::protocol);
}

TEST_CASE("master: a refused reserved put leaves its extent to be released") {
  World w;
  Owner a = w.join("a");
  const uint64_t reserved = a.reserved(a.reserve(100, 1)).at(0);
  CHECK(a.code(a.putReserved("k", 100, reserved, KeyLeaseId(5))) == Code::noLease);
  CHECK(a.release({reserved}) == Code::ok);
  CHECK(a.member->space.freeBytes() == kSegment);
}

TEST_CASE("master: a listing comes in byte order, by prefix, in pages") {
  World w;
  Owner a = w.join("a");
  for (const char* key : {"b", "a/2", "a/1", "a/3", "a", "a/\xff"}) a.put(key);
  const auto page = [&](const std::string& prefix, const std::string& after, uint64_t limit) {
    return a.listed(a.list(prefix, after, limit));
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
  const OperationId count = a.count("p"), none = a.count("x");
  CHECK_FALSE(a.answered(count));
  w.core.work();
  CHECK_FALSE(a.answered(count));
  w.work();
  CHECK(a.counted(count) == 2500);
  CHECK(a.counted(none) == 0);
}

TEST_CASE("master: stat names the nodes of a key") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k", 100);
  const auto stat = b.answer<rpc::KeyStat>(b.stat("k"));
  CHECK(stat.nodes == std::vector<std::string>{"a"});
  CHECK(stat.bytes == 100);
  CHECK(b.code(b.stat("x")) == Code::miss);
}

TEST_CASE("master: a replica that its owner gives up is a miss") {
  World w;
  Owner a = w.join("a");
  const uint64_t offset = a.put("k");
  CHECK(a.say(rpc::Dropped{{}, {{"k", a.route("k").putId, offset}, {"k", PutId(1), 0}, {"absent", PutId(2), 0}}}) == Code::ok);
  CHECK(a.route("k").code == Code::miss);
  CHECK(a.release({offset}) == Code::ok);
}

TEST_CASE("master: an owner that gives up an older version leaves the newer one") {
  World w;
  Owner a = w.join("a");
  const uint64_t offset = a.put("k");
  const PutId old = a.route("k").putId;
  a.put("k", 200);
  a.drop("k", old, offset);
  CHECK(a.route("k").bytes == 200);
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
  CHECK(a.release({old, a.granted(aborted).offset}) == Code::ok);
  CHECK(b.release({b.granted(put).offset}) == Code::ok);
  CHECK(w.core.inFlightPuts() == 0);
  CHECK(w.core.keys() == 0);
  for (Owner* owner : {&a, &b}) {
    CHECK(owner->member->space.freeBytes() == kSegment);
    CHECK(owner->member->space.replicas() == 0);
    CHECK(owner->member->orders->empty());
  }
  CHECK(w.bytesAddUp());
}

}  // namespace
}  // namespace fluxon::master
