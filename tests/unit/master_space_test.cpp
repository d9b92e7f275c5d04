// MasterCore: space. Puts that wait, eviction in two steps with the owner, releases.
#include <algorithm>
#include <set>

#include "master_fixture.h"

namespace fluxon::master {
namespace {

using rpc::ReclaimResult;

constexpr uint64_t kPages = kSegment / kPageBytes;

// Fills the segment with one-page values "0", "1", ...; gives their offsets. 2 % are kept free by eviction from then on.
std::vector<uint64_t> fill(Owner& owner, uint64_t pages, KeyLeaseId lease = {}) {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < pages; ++i) offsets.push_back(owner.put(std::to_string(i), kPageBytes, lease));
  return offsets;
}

TEST_CASE("master space: victims are asked for before the segment is full") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages - 6);
  CHECK(a.orders<rpc::Reclaim>().empty());
  a.put("one more", kPageBytes);
  const std::vector<rpc::Reclaim> orders = a.orders<rpc::Reclaim>();
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].replicas.size() == 1);
  CHECK(orders[0].replicas[0].key == "0");
  CHECK((orders[0].replicas[0].putId == a.route("0").putId));
}

TEST_CASE("master space: a victim that nobody reads is gone and its space free") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  const uint64_t victims = a.reclaimDone(ReclaimResult::ok).size();
  CHECK(victims > 0);
  CHECK(a.route("0").code == Code::miss);
  CHECK(w.core.keys() == kPages - victims);
  CHECK(a.member->space.freeBytes() == victims * kPageBytes);
  CHECK(w.core.counters().evictions == victims);
}

TEST_CASE("master space: a busy victim stays readable and is asked again only after a pause") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  for (size_t order = 0; order < kPages && !a.orders<rpc::Reclaim>().empty(); ++order) a.reclaimDone(ReclaimResult::busy);
  CHECK(a.orders<rpc::Reclaim>().empty());
  CHECK(a.route("0").code == Code::ok);
  w.pass(milliseconds(100));
  CHECK_FALSE(a.orders<rpc::Reclaim>().empty());
}

TEST_CASE("master space: a victim that its owner has lost already is a miss, and its space comes by release") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  const std::vector<rpc::MemoryReplica> victims = a.reclaimDone(ReclaimResult::gone);
  REQUIRE_FALSE(victims.empty());
  CHECK(a.route(victims[0].key).code == Code::miss);
  CHECK(a.member->space.freeBytes() == 0);
  CHECK(a.release({victims[0].offset}) == Code::ok);
  CHECK(a.member->space.freeBytes() == kPageBytes);
}

TEST_CASE("master space: an answer to a reclaim that is too short frees nothing beyond it") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  const auto order = a.orders<rpc::Reclaim>().at(0);
  REQUIRE(order.replicas.size() >= 1);
  a.reclaimDone(order.order, {});
  CHECK(a.member->space.freeBytes() == 0);
  CHECK(a.route(order.replicas[0].key).code == Code::ok);
}

TEST_CASE("master space: a reclaim is answered once") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  const auto order = a.orders<rpc::Reclaim>().at(0);
  a.reclaimDone(order.order, {ReclaimResult::busy});
  a.reclaimDone(order.order, {ReclaimResult::ok});
  CHECK(w.core.counters().evictions == 0);
  CHECK(a.route(order.replicas[0].key).code == Code::ok);
}

TEST_CASE("master space: a late answer to a reclaim does not touch the next value in the same place") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  const auto old = a.orders<rpc::Reclaim>().at(0);
  const uint64_t place = old.replicas[0].offset;
  // The version is deleted while its owner looks for readers; its release overtakes the answer to the reclaim.
  a.remove(old.replicas[0].key);
  a.invalidateDone();
  CHECK(a.release({place}) == Code::ok);
  REQUIRE(a.put("next", kPageBytes) == place);
  // Everything is a victim now, the new value too.
  a.start("large", kSegment);
  bool asked = false;
  for (const auto& order : a.orders<rpc::Reclaim>()) {
    for (const rpc::MemoryReplica& item : order.replicas) asked |= item.key == "next";
  }
  REQUIRE(asked);
  a.reclaimDone(old.order, {ReclaimResult::gone});
  CHECK(a.route("next").code == Code::ok);
}

TEST_CASE("master space: a victim that is overwritten meanwhile is freed by its release alone") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  fill(a, kPages);
  const auto order = a.orders<rpc::Reclaim>().at(0);
  b.done(b.start(order.replicas[0].key));
  a.invalidateDone();
  a.reclaimDone(order.order, {ReclaimResult::gone});
  CHECK(a.member->space.freeBytes() == 0);
  CHECK(b.route(order.replicas[0].key).node == "b");
  CHECK(a.release({order.replicas[0].offset}) == Code::ok);
  CHECK(a.member->space.freeBytes() == kPageBytes);
}

TEST_CASE("master space: a touched value outlives those that were not") {
  World w;
  Owner a = w.join("a");
  const std::vector<uint64_t> offsets = fill(a, 100);
  CHECK(a.heartbeat({offsets[0], offsets[1], 12345}) == Code::ok);
  for (uint64_t i = 100; i < kPages; ++i) a.put("more" + std::to_string(i), kPageBytes);
  a.start("x", 20 * kPageBytes);
  for (const rpc::MemoryReplica& victim : a.reclaimDone(ReclaimResult::ok)) {
    CHECK(victim.key != "0");
    CHECK(victim.key != "1");
  }
}

TEST_CASE("master space: a put without space waits and starts when victims have gone") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  const OperationId put = a.start("x", 10 * kPageBytes);
  CHECK_FALSE(a.answered(put));
  for (int i = 0; i < 100 && !a.answered(put); ++i) a.reclaimDone(ReclaimResult::ok);
  CHECK(a.code(put) == Code::ok);
  CHECK(w.bytesAddUp());
}

TEST_CASE("master space: free space in pieces is joined by evicting on") {
  World w;
  Owner a = w.join("a");
  std::vector<uint64_t> offsets = fill(a, kPages);
  const OperationId put = a.start("x", kSegment / 2);
  for (int i = 0; i < 1000 && !a.answered(put); ++i) {
    if (a.orders<rpc::Reclaim>().empty()) w.pass(milliseconds(5));
    a.reclaimDone(ReclaimResult::ok);
  }
  CHECK(a.code(put) == Code::ok);
}

TEST_CASE("master space: waiting puts are served in their order, a small one does not overtake one that may fit") {
  World w;
  Owner a = w.join("a");
  std::vector<OperationId> puts;
  for (uint64_t i = 0; i < kPages; ++i) puts.push_back(a.start(std::to_string(i), kPageBytes));
  const OperationId large = a.start("large", 2 * kPageBytes), small = a.start("small", kPageBytes);
  const auto giveUp = [&](uint64_t i) {
    a.abort(puts[i]);
    CHECK(a.release({a.granted(puts[i]).offset}) == Code::ok);
  };
  giveUp(0);
  CHECK_FALSE(a.answered(large));
  CHECK_FALSE(a.answered(small));
  giveUp(1);
  CHECK(a.answered(large));
  CHECK_FALSE(a.answered(small));
  giveUp(2);
  CHECK(a.answered(small));
}

TEST_CASE("master space: a put that finds no space by its deadline is told the numbers") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages, a.grantLease(60'000));
  const OperationId put = a.start("x", kPageBytes);
  CHECK(w.core.nextWake() <= w.now + seconds(5));
  w.pass(milliseconds(4999), {&a});
  CHECK_FALSE(a.answered(put));
  w.pass(milliseconds(1));
  CHECK(a.code(put) == Code::noSpace);
  CHECK(a.answer(put).detail ==
        "4 KiB wanted, 0 B free (largest piece 0 B) of 1 MiB; 0 values (0 B) are being read and cannot be evicted (fluxonctl pins), "
        "1 MiB leased, 0 B retired, 0 B reserved, 0 B being put; 256 of 100000 keys in use");
  CHECK(w.core.counters().noSpace == 1);
  CHECK(a.member->shortage.waiting().empty());
}

TEST_CASE("master space: a waiting put ends at its caller's deadline when that is nearer") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages, a.grantLease(60'000));
  const OperationId put = a.start("x", kPageBytes, {}, {}, 100);
  w.pass(milliseconds(100));
  CHECK(a.code(put) == Code::noSpace);
}

TEST_CASE("master space: a waiting put with a near deadline ends in time behind one with a far deadline") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages, a.grantLease(60'000));
  const OperationId patient = a.start("x", kPageBytes), hasty = a.start("y", kPageBytes, {}, {}, 100);
  w.pass(milliseconds(100));
  CHECK(a.answered(hasty));
  CHECK_FALSE(a.answered(patient));
  CHECK(w.core.nextWake() > w.now);
}

TEST_CASE("master space: a waiting put wakes the master again and again, but never for nothing at once") {
  World w;
  Owner a = w.join("a");
  fill(a, kPages);
  a.start("x", kPageBytes);
  for (int i = 0; i < 30; ++i) {
    while (!a.orders<rpc::Reclaim>().empty()) a.reclaimDone(ReclaimResult::busy);
    w.core.tick(w.now, w.now);
    REQUIRE(w.core.nextWake() > w.now);
    REQUIRE(w.core.nextWake() <= w.now + milliseconds(100));
    w.pass(w.core.nextWake() - w.now);
  }
}

// Answers each victim that is asked for: busy if it is held.
size_t answer(Owner& owner, const std::set<std::string>& held) {
  size_t evicted = 0;
  for (const rpc::Reclaim& order : owner.orders<rpc::Reclaim>()) {
    std::vector<ReclaimResult> results;
    for (const rpc::MemoryReplica& item : order.replicas) {
      results.push_back(held.count(item.key) ? ReclaimResult::busy : ReclaimResult::ok);
      evicted += !held.count(item.key);
    }
    owner.reclaimDone(order.order, std::move(results));
  }
  return evicted;
}

TEST_CASE("master space: a put has room at once by the only value that is not held, be it the newest, the oldest or in between") {
  for (const std::string free : {"0", "7", "13"}) {
    CAPTURE(free);
    World w;
    Owner a = w.join("a");
    std::set<std::string> held;
    for (uint64_t i = 0; i < 14; ++i) {
      a.put(std::to_string(i), 18 * kPageBytes);
      if (std::to_string(i) != free) held.insert(std::to_string(i));
    }
    const OperationId put = a.start("x", 18 * kPageBytes);
    CHECK_FALSE(a.answered(put));
    for (int round = 0; round < 20 && !a.orders<rpc::Reclaim>().empty(); ++round) answer(a, held);
    CHECK(a.code(put) == Code::ok);  // and no time has passed
    CHECK(w.core.counters().evictions == 1);
  }
}

TEST_CASE("master space: an eviction ends when each value that is held has been asked once, and takes no later put") {
  World w;
  Owner a = w.join("a");
  a.put("held", kPageBytes);
  for (int i = 0; i < 40; ++i) a.put(std::to_string(i), kPageBytes);
  CHECK(w.core.evictTo("a", 0, w.now).ok());
  for (int round = 0; round < 20 && !a.orders<rpc::Reclaim>().empty(); ++round) answer(a, {"held"});
  CHECK(w.core.keys() == 1);
  CHECK_FALSE(a.member->shortage.evicting());
  for (int i = 0; i < 20; ++i) {
    a.put("later" + std::to_string(i), kPageBytes);
    w.pass(milliseconds(200), {&a});
    CHECK(a.orders<rpc::Reclaim>().empty());
  }
}

TEST_CASE("master space: an eviction under a load of puts ends with as many bytes as were too much when it was asked for") {
  World w;
  Owner a = w.join("a");
  a.put("held", 10 * kPageBytes);
  for (int i = 0; i < 40; ++i) a.put(std::to_string(i), kPageBytes);
  CHECK(w.core.evictTo("a", 0, w.now).ok());
  size_t evicted = 0;
  for (int i = 0; i < 200; ++i) {
    a.put("later" + std::to_string(i), kPageBytes);
    evicted += answer(a, {"held"});
    w.pass(milliseconds(10));
  }
  CHECK(evicted >= 40);
  CHECK(evicted <= 50);
}

TEST_CASE("master space: a put that cannot fit evicts nothing, keeps nobody waiting and is told why; when it may fit it evicts") {
  World w;
  Owner a = w.join("a");
  const KeyLeaseId lease = a.grantLease(3'600'000);
  std::vector<uint64_t> leased;
  for (int i = 0; i < 32; ++i) leased.push_back(a.put("leased" + std::to_string(i), kPageBytes, lease));
  for (int i = 0; i < 200; ++i) a.put(std::to_string(i), kPageBytes);
  const OperationId large = a.start("large", kSegment - 31 * kPageBytes);
  for (int i = 0; i < 10; ++i) {
    w.pass(milliseconds(100), {&a});
    CHECK(a.code(a.start("small" + std::to_string(i), kPageBytes)) == Code::ok);
    CHECK_FALSE(a.reserved(a.reserve(64, 1)).empty());
  }
  CHECK(a.orders<rpc::Reclaim>().empty());
  w.pass(seconds(5), {&a});
  CHECK(a.code(large) == Code::noSpace);
  CHECK(a.answer(large).detail.find("128 KiB leased") != std::string::npos);

  const OperationId next = a.start("large", kSegment - 31 * kPageBytes);
  CHECK(a.orders<rpc::Reclaim>().empty());
  a.ask(rpc::LeaseRevoke{{}, lease});
  while (!a.invalidateDone().empty()) {
  }
  CHECK(a.orders<rpc::Reclaim>().empty());  // retired, and maybe still read
  CHECK(a.release(leased) == Code::ok);
  CHECK_FALSE(a.orders<rpc::Reclaim>().empty());
  CHECK_FALSE(a.answered(next));
}

TEST_CASE("master space: for a put that cannot fit beside what is read only that is asked again, and evicted when nobody reads it") {
  World w;
  Owner a = w.join("a");
  a.put("held", 64 * kPageBytes);
  for (int i = 0; i < 150; ++i) a.put(std::to_string(i), kPageBytes);
  // Someone has met the reader.
  CHECK(w.core.evictTo("a", 80, w.now).ok());
  while (!a.orders<rpc::Reclaim>().empty()) answer(a, {"held"});
  REQUIRE(a.member->space.busyBytes() == 64 * kPageBytes);
  const uint64_t keys = w.core.keys();
  const OperationId large = a.start("large", kSegment - 40 * kPageBytes);
  for (int round = 0; round < 20; ++round) {
    w.pass(milliseconds(100), {&a});
    answer(a, {"held"});
  }
  CHECK(w.core.keys() == keys);
  CHECK(w.core.counters().evictionsBusy > 5);
  for (int round = 0; round < 200 && !a.answered(large); ++round) {
    w.pass(milliseconds(10), {&a});
    answer(a, {});
  }
  CHECK(a.code(large) == Code::ok);
}

TEST_CASE("master space: leased values are never victims") {
  World w;
  Owner a = w.join("a");
  const KeyLeaseId lease = a.grantLease(60'000);
  for (uint64_t i = 0; i < kPages; ++i) a.put(std::to_string(i), kPageBytes, i % 2 ? lease : KeyLeaseId());
  CHECK(a.member->space.leasedBytes() == kSegment / 2);
  a.start("x", kSegment / 2);  // in pieces of a page each it never fits
  size_t victims = 0;
  for (int i = 0; i < 100; ++i) {
    for (const rpc::MemoryReplica& victim : a.reclaimDone(ReclaimResult::ok)) {
      ++victims;
      CHECK(std::stoull(victim.key) % 2 == 0);
    }
  }
  CHECK(victims == kPages / 2);
}

TEST_CASE("master space: nothing is reserved while a put waits, and never more than there is") {
  World w;
  Owner a = w.join("a");
  CHECK(a.reserved(a.reserve(kPageBytes, 1000)).size() == 256);
  CHECK(a.reserved(a.reserve(kPageBytes, 1)).empty());
  a.start("x", kPageBytes);
  const std::vector<uint64_t> none;
  CHECK(a.reserved(a.reserve(64, 1)) == none);
}

TEST_CASE("master space: a reserve is asked back when a put of another owner waits and no victim is left, and makes room for it") {
  World w;
  Owner a = w.join("a");
  rpc::Registration other = w.registration("b", 50);
  other.segmentBytes = kPageBytes;
  Owner b = w.join(other);
  const std::vector<uint64_t> reserved = a.reserved(a.reserve(kPageBytes, 200));
  a.put("old", 40 * kPageBytes);
  const OperationId put = a.ask(rpc::PutStart{{}, "k", 100 * kPageBytes, {}, {}, 60'000, "b"});
  CHECK_FALSE(a.told<rpc::Shrink>());  // a victim is being asked for
  a.reclaimDone(ReclaimResult::ok);
  w.pass(milliseconds(100));
  CHECK(a.told<rpc::Shrink>());
  CHECK_FALSE(a.answered(put));
  CHECK(a.release(reserved) == Code::ok);
  CHECK(a.code(put) == Code::ok);
}

TEST_CASE("master space: an eviction asks a reserve back that keeps more in use than it may") {
  World w;
  Owner a = w.join("a");
  a.reserve(kPageBytes, 64);
  CHECK(w.core.evictTo("a", 50, w.now).ok());
  CHECK_FALSE(a.told<rpc::Shrink>());
  CHECK(w.core.evictTo("a", 0, w.now).ok());
  CHECK(a.told<rpc::Shrink>());
}

TEST_CASE("master space: a release of what is not over is refused and frees nothing") {
  World w;
  Owner a = w.join("a");
  const OperationId put = a.start("k");
  CHECK(a.release({a.granted(put).offset}) == Code::protocol);
  CHECK(a.release({4096 * 7}) == Code::protocol);
  CHECK(a.release({UINT64_MAX}) == Code::protocol);
  CHECK(a.published(a.done(put)));
  CHECK(a.route("k").code == Code::ok);
  CHECK(a.bytes(Use::routed) == 128);
}

TEST_CASE("master space: a bad item of a release does not keep the others in use") {
  World w;
  Owner a = w.join("a");
  const std::vector<uint64_t> reserved = a.reserved(a.reserve(100, 2));
  CHECK(a.release({reserved[0], UINT64_MAX, reserved[1]}) == Code::protocol);
  CHECK(a.bytes(Use::reserved) == 0);
}

TEST_CASE("master space: an extent cannot be released twice") {
  World w;
  Owner a = w.join("a");
  const std::vector<uint64_t> reserved = a.reserved(a.reserve(100, 1));
  CHECK(a.release({reserved[0], reserved[0]}) == Code::protocol);
  CHECK(w.bytesAddUp());
}

// The owner retires its older value before it asks to publish, and nobody may read it when its release is sent. If another
// owner's put is being published just then, the older value still has the route.
TEST_CASE("master space: an older value released while another owner's put waits for its invalidation is free afterwards") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  const uint64_t old = a.put("k");
  const PutId oldId = a.route("k").putId;
  const OperationId mine = a.start("k");
  const OperationId theirs = b.done(b.start("k"));
  const OperationId done = a.done(mine);
  a.drop("k", oldId, old);
  a.release({old});
  a.invalidateDone();
  CHECK(b.published(theirs));
  CHECK(a.code(done) == Code::ok);
  a.release({a.granted(mine).offset});
  CHECK(a.member->space.freeBytes() == kSegment);
}

TEST_CASE("master space: an owner whose max_keys values are in use gets room by eviction, not an error") {
  World w;
  rpc::Registration r = w.registration("a", 9);
  r.maxKeys = 16;
  Owner a = w.join(r);
  for (int i = 0; i < 16; ++i) a.put(std::to_string(i), 64);
  a.start("x", 64);
  CHECK_FALSE(a.orders<rpc::Reclaim>().empty());
}

TEST_CASE("member space: bytes move between uses and come back") {
  MemberSpace space(kSegment, 1000);
  const uint64_t offset = space.allocate(100, Use::inFlight)->offset;
  KeyEntry entry;
  space.route(offset, &entry, 1, false);
  CHECK(space.bytes(Use::routed) == 128);
  CHECK(space.replicas() == 1);
  CHECK(space.takeVictims(kSegment, 0, 10) == std::vector<uint64_t>{offset});
  CHECK(space.bytes(Use::reclaiming) == 128);
  CHECK(space.takeVictims(kSegment, 0, 10).empty());
  space.reclaimBusy(offset);
  CHECK(space.bytes(Use::routed) == 128);
  space.unroute(offset);
  CHECK(space.replicas() == 0);
  CHECK(space.bytes(Use::unrouted) == 128);
  CHECK(space.takeVictims(kSegment, 0, 10).empty());
  space.free(offset);
  CHECK(space.freeBytes() == kSegment);
}

TEST_CASE("member space: no more victims are taken than asked for") {
  MemberSpace space(kSegment, 1000);
  KeyEntry entry;
  for (uint64_t i = 0; i < kPages; ++i) space.route(space.allocate(kPageBytes, Use::inFlight)->offset, &entry, i, false);
  CHECK(space.takeVictims(5 * kPageBytes, 0, 100).size() == 5);
  CHECK(space.takeVictims(5 * kPageBytes, 0, 100).empty());
  CHECK(space.takeVictims(kSegment, 0, 7).size() == 7);
}

TEST_CASE("member space: no more extents are in use than the directory has places for, and victims make room") {
  MemberSpace space(kSegment, 3);
  KeyEntry entry;
  for (uint64_t i = 0; i < 3; ++i) space.route(space.allocate(64, Use::inFlight)->offset, &entry, i, false);
  CHECK_FALSE(space.allocate(64, Use::inFlight));
  const std::vector<uint64_t> victims = space.takeVictims(0, 2, 10);
  CHECK(victims.size() == 2);
  CHECK(space.takeVictims(0, 2, 10).empty());
  space.reclaimed(victims[0]);
  CHECK(space.allocate(64, Use::inFlight));
  space.reclaimBusy(victims[1]);
  CHECK(space.takeVictims(0, 1, 10).size() == 1);
  CHECK(space.takeVictims(0, 2, 10).empty());
  space.retryBusy();
  CHECK(space.takeVictims(0, 2, 10) == std::vector<uint64_t>{victims[1]});
}

TEST_CASE("member space: the reserve ahead is the smaller of 2 % and 64 MiB") {
  CHECK(MemberSpace(kSegment, 1000).reserveAhead() == kSegment / 50);
  CHECK(MemberSpace(uint64_t{64} << 30, 1000).reserveAhead() == uint64_t{64} << 20);
}

TEST_CASE("member space: what is reserved counts as kept ahead, but a quarter is always free") {
  MemberSpace space(kSegment, 1000);
  CHECK(space.freeAhead() == space.reserveAhead());
  space.allocate(kPageBytes, Use::reserved);
  CHECK(space.freeAhead() == space.reserveAhead() - kPageBytes);
  for (int i = 0; i < 8; ++i) space.allocate(kPageBytes, Use::reserved);
  CHECK(space.freeAhead() == space.reserveAhead() / 4);
}

TEST_CASE("member space: what answered busy is known until it is asked again or its route ends") {
  MemberSpace space(kSegment, 1000);
  KeyEntry entry;
  for (uint64_t i = 0; i < 4; ++i) space.route(space.allocate(kPageBytes, Use::inFlight)->offset, &entry, i, false);
  const std::vector<uint64_t> victims = space.takeVictims(kSegment, 0, 10);
  REQUIRE(victims.size() == 4);
  for (const uint64_t victim : victims) space.reclaimBusy(victim);
  CHECK(space.busyBytes() == 4 * kPageBytes);
  CHECK(space.reachable() == kSegment - 4 * kPageBytes);
  CHECK(space.takeBusy(kSegment, 10).empty());
  space.retryBusy();
  CHECK(space.busyValues() == 4);
  CHECK(space.takeBusy(2 * kPageBytes, 10).size() == 2);
  CHECK(space.takeBusy(kSegment, 10).size() == 2);
  space.reclaimed(victims[0]);
  space.unroute(victims[1]);
  CHECK(space.busyBytes() == 2 * kPageBytes);
  CHECK(space.reachable() == kSegment - 3 * kPageBytes);
}

TEST_CASE("member space: leased bytes end with the replica") {
  MemberSpace space(kSegment, 1000);
  KeyEntry entry;
  const uint64_t offset = space.allocate(100, Use::reserved)->offset;
  space.route(offset, &entry, 1, true);
  CHECK(space.leasedBytes() == 128);
  CHECK(space.takeVictims(kSegment, 0, 10).empty());
  space.unroute(offset);
  CHECK(space.leasedBytes() == 0);
}

}  // namespace
}  // namespace fluxon::master
