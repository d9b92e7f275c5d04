// Retirement and Publications: how values leave memory, and how pending ones become readable.
#include "owner_parts.h"

namespace fluxon::owner {
namespace {

using shm::SlotState;
using Outcome = Publications::Outcome;
using Origin = Publications::Origin;

TEST_CASE("retirement: a slot is free after a scan that was begun when it was retired, and its release is told once") {
  Parts p;
  const uint32_t first = p.committed("a", 1, 0), second = p.committed("b", 2, 4096);
  p.retirement.retire(first);
  p.retirement.tick(p.now);
  p.retirement.retire(second);
  p.scan();
  CHECK(p.state(first) == SlotState::free);
  CHECK(p.state(second) == SlotState::retired);
  p.scan(true);
  CHECK(p.state(second) == SlotState::retired);
  p.persisting = true;
  p.now = p.now + seconds(1);
  p.scan();
  CHECK(p.state(second) == SlotState::retired);
  p.persisting = false;
  p.now = p.now + seconds(1);
  p.scan();
  CHECK(p.state(second) == SlotState::free);
  for (int i = 0; i < 2; ++i) p.retirement.tell();
  REQUIRE(p.host.sent.size() == 1);
  CHECK(p.host.sent[0].as<rpc::Release>()->offsets == std::vector<uint64_t>{0, 4096});
}

TEST_CASE("retirement: the master hears that a replica is given up before it hears that its extent is free") {
  Parts p;
  const uint32_t slot = p.committed("a", 1, 0);
  p.retirement.dropped(std::vector<uint32_t>{slot});
  p.retirement.retire(slot);
  p.scan();
  p.retirement.tell();
  REQUIRE(p.host.sent.size() == 2);
  CHECK(p.host.sent[0].as<rpc::Dropped>()->replicas.at(0).key == "a");
  CHECK(p.host.sent[1].is<rpc::Release>());
}

TEST_CASE("retirement: a reclaim answers for each victim, wakes its key, and takes none that is persisted or another version") {
  Parts p;
  const uint32_t slot = p.committed("a", 1, 0);
  p.controls.wait("a", {ClientId(1), 0}, {.key = "a"});
  p.retirement.reclaim({OrderId(5), {{"a", PutId(2), 0}, {"a", PutId(1), 64}}}, p.now);
  CHECK(p.state(slot) == SlotState::committed);
  CHECK(p.retirement.reclaims(OrderId(5)));
  p.persisting = true;
  p.retirement.reclaim({OrderId(6), {{"a", PutId(1), 0}}}, p.now);
  CHECK(p.state(slot) == SlotState::committed);
  p.persisting = false;
  p.retirement.reclaim({OrderId(7), {{"a", PutId(1), 0}}}, p.now);
  CHECK(p.state(slot) == SlotState::reclaiming);
  using Result = rpc::ReclaimResult;
  for (const std::vector<Result>& results : {std::vector<Result>{Result::gone, Result::gone}, {Result::busy}, {Result::ok}}) {
    p.scan();
    CHECK(p.host.sent.back().as<rpc::ReclaimDone>()->results == results);
  }
  CHECK(p.state(slot) == SlotState::free);
  CHECK(p.woken == std::vector<std::string>{"a"});
  p.retirement.tell();
  CHECK(p.host.sent.size() == 3);  // no release
}

TEST_CASE("publications: a published value waits while another put of its key is undecided; then the newest is readable") {
  for (const bool newerWins : {true, false}) {
    CAPTURE(newerWins);
    Parts p;
    p.controls.open("k");
    const uint32_t first = p.pending("k", 0), second = p.pending("k", 4096);
    p.publications.submitted(first, {});
    p.publications.submitted(second, {});
    p.publications.decided(first, Outcome::published);
    p.controls.raise("k", PutId(7));
    CHECK(p.publications.publish(first, PutId(7), {}, Origin::put, p.now) == Publications::Becomes::waits);
    p.publications.publishWaiting("k", p.now);
    CHECK(p.state(first) == SlotState::pending);
    p.publications.decided(second, newerWins ? Outcome::published : Outcome::other);
    if (newerWins) {
      p.controls.raise("k", PutId(8));
      CHECK(p.publications.publish(second, PutId(8), {}, Origin::put, p.now) == Publications::Becomes::readable);
    }
    p.publications.publishWaiting("k", p.now);
    CHECK(p.state(first) == (newerWins ? SlotState::retired : SlotState::committed));
    CHECK(p.state(second) == (newerWins ? SlotState::committed : SlotState::pending));
    p.controls.close("k", p.now);
  }
}

TEST_CASE("publications: what a submit has retired waits for its readers, and is given up if the put did not become the route") {
  for (const Outcome outcome : {Outcome::published, Outcome::other}) {
    Parts p;
    const uint32_t old = p.committed("k", 1, 0), slot = p.pending("k", 4096);
    p.publications.submitted(slot, p.retirement.retireOlder(slot, PutId(2)));
    CHECK(p.state(old) == SlotState::retired);
    CHECK(p.retirement.retired() == 0);  // the master names it
    CHECK(p.publications.decided(slot, outcome) == (outcome == Outcome::other));
    CHECK_FALSE(p.publications.decided(slot, outcome));
    CHECK(p.retirement.retired() == 1);
    p.retirement.tell();
    CHECK(p.host.sent.size() == (outcome == Outcome::other ? 1 : 0));
  }
}

TEST_CASE("publications: a value that waited past the lease is given up, and its holders keep it") {
  Parts p;
  p.controls.open("k");
  const uint32_t slot = p.pending("k", 0), other = p.pending("k", 4096);
  p.publications.submitted(other, {});
  p.controls.raise("k", PutId(7));
  CHECK(p.publications.publish(slot, PutId(7), {}, Origin::copy, p.now) == Publications::Becomes::waits);
  p.publications.decided(other, Outcome::other);
  p.publications.publishWaiting("k", p.now + seconds(10));
  CHECK(p.state(slot) == SlotState::retired);
  p.retirement.tell();
  CHECK(p.host.sent.back().as<rpc::Dropped>()->replicas.at(0).putId.value == 7);
  p.controls.close("k", p.now);
}

}  // namespace
}  // namespace fluxon::owner
