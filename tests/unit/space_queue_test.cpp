// Who waits for space, and which victims are asked, by themselves. Whether a request finds room is up to the test.
#include "space_queue.h"

#include "master_parts.h"

namespace fluxon::master {
namespace {

constexpr Duration kPatience = seconds(5);
const PutId kPut(kTerm, 1);

struct Queue : Base {
  // A request of that size waits at the member.
  void wait(Member& at, Member& who, uint64_t id, uint64_t bytes, uint64_t timeLeftMs = 60'000) {
    rpc::PutStart put;
    put.key = "k" + std::to_string(id);
    put.bytes = bytes;
    space.wait(at, {who, OperationId(id), put, bytes}, timeLeftMs, now);
  }
  // Fills the segment with values of one page each.
  void fill(Member& member) {
    for (uint64_t i = 0; member.space.freeBytes() >= kPageBytes; ++i) value(member.node() + std::to_string(i), kPut, member, kPageBytes);
  }
  void answer(Member& member, uint64_t id, const rpc::Reclaim& reclaim, std::vector<rpc::ReclaimResult> results) {
    space.reclaimDone(member, OperationId(id), {{}, reclaim.order, std::move(results)}, now);
  }
  std::vector<uint64_t> tried;  // requests, in their order
  Member* lacking = nullptr;    // who has no room for those that are tried
  SpaceQueue space{kPatience, out, routes, membership, [this](const Waiting& waiting, Time) {
                     tried.push_back(waiting.id.value);
                     return lacking;
                   }};
};

TEST_CASE("space queue: those who wait are tried in their order, up to the first that still finds no room") {
  Queue w;
  Member& a = w.join("a");
  w.wait(a, a, 1, 100);
  w.wait(a, a, 2, 100);
  CHECK(SpaceQueue::hasLine(a));
  w.lacking = &a;
  w.space.serve(a, w.now);
  CHECK(w.tried == std::vector<uint64_t>{1});
  CHECK(a.shortage.waiting().size() == 2);
  w.lacking = nullptr;
  w.space.serve(a, w.now);
  CHECK(w.tried == std::vector<uint64_t>{1, 1, 2});
  CHECK_FALSE(SpaceQueue::hasLine(a));
}

TEST_CASE("space queue: who lacks room at another member goes on waiting there") {
  Queue w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.wait(a, a, 1, 100);
  w.lacking = &b;
  w.space.serve(a, w.now);
  CHECK(a.shortage.waiting().empty());
  CHECK(b.shortage.waiting().size() == 1);
}

TEST_CASE("space queue: who cannot fit whatever is evicted keeps nobody waiting, and asks nobody to go in vain") {
  Queue w;
  Member& a = w.join("a");
  const KeyLeaseId lease = w.routes.leases().grant(kTerm, seconds(60), w.now);
  w.value("leased", kPut, a, kSegment / 2, lease);
  w.value("free to go", kPut, a, kPageBytes);
  w.wait(a, a, 1, kSegment * 3 / 4);
  CHECK_FALSE(SpaceQueue::hasLine(a));
  CHECK(w.outbox.to<rpc::Reclaim>(a).empty());
  w.wait(a, a, 2, kPageBytes);
  CHECK(SpaceQueue::hasLine(a));
  w.space.serve(a, w.now);
  CHECK(w.tried == std::vector<uint64_t>{2});
}

TEST_CASE("space queue: a request waits for the master's patience, or to its deadline, and is refused then") {
  Queue w;
  Member& a = w.join("a");
  w.lacking = &a;
  w.wait(a, a, 1, 100);
  w.wait(a, a, 2, 100, 1000);
  w.space.tick(a, w.now + seconds(1));
  CHECK(w.outbox.code(a, 2) == Code::noSpace);
  CHECK_FALSE(w.outbox.answered(a, 1));
  w.space.tick(a, w.now + kPatience);
  CHECK(w.outbox.code(a, 1) == Code::noSpace);
  CHECK(w.space.counters().noSpace == 2);
}

TEST_CASE("space queue: victims are asked when somebody waits, an evicted one is free and its route has ended") {
  Queue w;
  Member& a = w.join("a");
  w.fill(a);
  w.lacking = &a;
  w.wait(a, a, 1, 1);
  const rpc::Reclaim order = w.outbox.one<rpc::Reclaim>(a);
  REQUIRE_FALSE(order.replicas.empty());
  CHECK(a.space.bytes(Use::reclaiming) == order.replicas.size() * kPageBytes);
  w.answer(a, 2, order, std::vector(order.replicas.size(), rpc::ReclaimResult::ok));
  CHECK(a.space.freeBytes() == order.replicas.size() * kPageBytes);
  CHECK(w.routes.find(order.replicas.front().key) == nullptr);
  CHECK(w.space.counters().evictions == order.replicas.size());
  w.answer(a, 3, order, std::vector(order.replicas.size(), rpc::ReclaimResult::ok));  // an answer that comes twice
  CHECK(w.space.counters().evictions == order.replicas.size());
}

TEST_CASE("space queue: a victim that is read stays, so does one that the answer leaves out, and one that is gone is not freed") {
  Queue w;
  Member& a = w.join("a");
  w.fill(a);
  w.lacking = &a;
  w.wait(a, a, 1, 2 * kPageBytes);
  const rpc::Reclaim order = w.outbox.one<rpc::Reclaim>(a);
  REQUIRE(order.replicas.size() >= 3);
  w.answer(a, 2, order, {rpc::ReclaimResult::busy, rpc::ReclaimResult::gone});
  CHECK(w.space.counters().evictionsBusy == order.replicas.size() - 1);
  CHECK(w.space.counters().evictions == 0);
  CHECK(a.space.freeBytes() == 0);
  CHECK(a.space.busyValues() == order.replicas.size() - 1);
  CHECK(a.space.bytes(Use::unrouted) == kPageBytes);
  CHECK(w.routes.find(order.replicas[0].key) != nullptr);
  CHECK(w.routes.find(order.replicas[1].key) == nullptr);
}

// Taken for the new value's, the answer would end its route while the owner serves it, and no later change would be told there.
TEST_CASE("space queue: an answer about a value that has left its place says nothing about the same version when it is back there") {
  Queue w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  KeyEntry& entry = w.value("k", kPut, a, kPageBytes);
  const uint64_t offset = entry.replicas.front().offset;
  w.routes.add(entry, inMemory(b, kPageBytes));
  CHECK(w.space.evictTo("a", 0, w.now).ok());
  const rpc::Reclaim first = w.outbox.one<rpc::Reclaim>(a);
  w.routes.lose(entry, a, Medium::memory);
  w.space.release(a, OperationId(1), {{}, {offset}}, w.now);
  const Replica back = inMemory(a, kPageBytes);
  REQUIRE(back.offset == offset);
  w.routes.add(entry, back);
  CHECK(w.space.evictTo("a", 0, w.now).ok());
  const std::vector<rpc::Reclaim> orders = w.outbox.to<rpc::Reclaim>(a);
  REQUIRE(orders.size() == 2);
  w.answer(a, 2, first, {rpc::ReclaimResult::gone});
  CHECK(replicaOf(entry, a, Medium::memory));
  w.answer(a, 3, orders[1], {rpc::ReclaimResult::ok});
  CHECK_FALSE(replicaOf(entry, a, Medium::memory));
  CHECK(a.space.freeBytes() == kSegment);
}

TEST_CASE("space queue: an extent comes back by its owner's word when it is over, and not before") {
  Queue w;
  Member& a = w.join("a");
  const uint64_t live = w.value("k", kPut, a).replicas.front().offset;
  w.space.reserve(a, OperationId(1), {{}, kPageBytes, 2});
  const std::vector<uint64_t> reserved = w.outbox.answer<rpc::Reserved>(a, 1).offsets;
  REQUIRE(reserved.size() == 2);
  w.space.release(a, OperationId(2), {{}, {live, reserved[0]}}, w.now);
  CHECK(w.outbox.code(a, 2) == Code::protocol);
  CHECK(a.space.bytes(Use::routed) == extentBytes(100));
  CHECK(a.space.bytes(Use::reserved) == kPageBytes);
  w.space.release(a, OperationId(3), {{}, {reserved[1]}}, w.now);
  CHECK(w.outbox.code(a, 3) == Code::ok);
  CHECK(a.space.bytes(Use::reserved) == 0);
}

TEST_CASE("space queue: nothing is reserved where somebody waits, nor without an SSD while another member has one") {
  Queue w;
  Member& a = w.join("a");
  w.wait(a, a, 1, 100);
  w.space.reserve(a, OperationId(2), {{}, kPageBytes, 2});
  CHECK(w.outbox.answer<rpc::Reserved>(a, 2).offsets.empty());
  w.space.serve(a, w.now);
  Member& b = w.join("b", 50);
  w.space.reserve(a, OperationId(3), {{}, kPageBytes, 2});
  CHECK(w.outbox.answer<rpc::Reserved>(a, 3).offsets.empty());
  w.space.reserve(b, OperationId(4), {{}, kPageBytes, 2});
  CHECK(w.outbox.answer<rpc::Reserved>(b, 4).offsets.size() == 2);
}

TEST_CASE("space queue: with a member those who wait there are refused, and what it asked for wherever it waits") {
  Queue w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.wait(a, b, 1, 100);
  w.wait(b, a, 2, 100);
  w.wait(b, b, 3, 100);
  w.space.memberEnded(a);
  CHECK(w.outbox.code(b, 1) == Code::unavailable);
  CHECK(w.outbox.code(a, 2) == Code::fenced);
  CHECK_FALSE(w.outbox.answered(b, 3));
  CHECK(a.shortage.waiting().empty());
  CHECK(b.shortage.waiting().size() == 1);
}

TEST_CASE("space queue: an operator's victims go until so much is in use, of one node or of all") {
  Queue w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.fill(a);
  w.fill(b);
  CHECK(w.space.evictTo("c", 0, w.now).code == Code::unavailable);
  CHECK(w.space.evictTo("a", 50, w.now).ok());
  CHECK(a.space.bytes(Use::reclaiming) >= kSegment / 2);
  CHECK(a.space.bytes(Use::reclaiming) < kSegment / 2 + 2 * kPageBytes);
  CHECK(b.space.bytes(Use::reclaiming) == 0);
  CHECK(w.space.evictTo("", 50, w.now).ok());
  CHECK(b.space.bytes(Use::reclaiming) > 0);
}

}  // namespace
}  // namespace fluxon::master
