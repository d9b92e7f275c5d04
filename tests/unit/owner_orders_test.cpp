// OwnerCore: orders of the master, which are begun once and answered when they end.
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

using rpc::ReclaimResult;
using shm::CommandKind;
using shm::SlotState;

TEST_CASE("owner orders: an invalidation retires what is below it, answers, and frees what nobody reads") {
  Node n;
  n.put("k", 7, 8192);
  n.put("other", 8, 65536);
  n.invalidate("k", PutId(8));
  CHECK_FALSE(n.committed("k"));
  CHECK(n.committed("other"));
  CHECK(n.take<rpc::InvalidateDone>().order == OrderId(1));
  CHECK(n.slots(SlotState::retired) == 1);
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.core.retired() == 0);
}

TEST_CASE("owner orders: an invalidation leaves what is not below it") {
  Node n;
  n.put("k", 7, 8192);
  n.invalidate("k", PutId(7));
  CHECK(n.committed("k"));
  CHECK(n.sent<rpc::InvalidateDone>() == 1);
}

TEST_CASE("owner orders: a slot that a hazard names stays until a scan finds none") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  const uint64_t ref = n.directory.ref(slot);
  n.invalidate("k", PutId(8));
  n.scanAll({ref});
  CHECK((n.directory.state(slot) == SlotState::retired));
  CHECK(n.sent<rpc::Release>() == 0);
  CHECK(n.host.scans.empty());
  CHECK(n.core.nextWake() <= n.now + seconds(1));
  n.pass(seconds(1));
  n.scanAll({ref});
  n.pass(seconds(1));
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
}

TEST_CASE("owner orders: a scan that began before a slot was retired says nothing about it") {
  Node n;
  n.put("a", 7, 0);
  const uint32_t late = n.put("b", 8, 65536);
  n.invalidate("a", PutId(9));
  n.invalidate("b", PutId(9));  // the first scan is under way
  REQUIRE(n.host.scans.size() == 1);
  n.scanOne();
  CHECK((n.directory.state(late) == SlotState::retired));
  CHECK(n.host.scans.size() == 1);
  n.scanOne();
  CHECK(n.allFree());
}

TEST_CASE("owner orders: retired slots are scanned every 5 ms while a put waits for space") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  const uint64_t ref = n.directory.ref(slot);
  n.invalidate("k", PutId(8));
  n.scanAll({ref});
  n.putStart("x");
  CHECK(n.core.nextWake() <= n.now + milliseconds(5));
  n.pass(milliseconds(5));
  REQUIRE_FALSE(n.host.scans.empty());
  n.scanAll({ref});
  CHECK(n.core.nextWake() <= n.now + milliseconds(5));
}

TEST_CASE("owner orders: the end of a client starts a scan") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  n.invalidate("k", PutId(8));
  n.scanAll({n.directory.ref(slot)});
  n.core.clientGone(ClientId(3), n.now);
  CHECK(n.host.scans.size() == 1);
}

TEST_CASE("owner orders: a reclaim of a value that nobody reads frees it without a release") {
  Node n;
  n.put("k", 7, 8192);
  n.reclaim("k", PutId(7), 8192);
  CHECK_FALSE(n.committed("k"));
  CHECK(n.sent<rpc::ReclaimDone>() == 0);
  n.scanOne();
  const auto done = n.take<rpc::ReclaimDone>();
  CHECK(done.order == OrderId(1));
  CHECK(done.results == std::vector<ReclaimResult>{ReclaimResult::ok});
  CHECK(n.allFree());
  CHECK(n.sent<rpc::Release>() == 0);
}

TEST_CASE("owner orders: a reclaim answers each of its items") {
  Node n;
  n.put("free", 7, 0);
  const uint32_t held = n.put("held", 8, 65536);
  n.put("newer", 9, 131072);
  const Answer grant = n.granted("pending", 10, 196608);
  n.onRef(CommandKind::commit, grant.slotRef);
  n.order(rpc::Reclaim{OrderId(1),
                       {{"held", PutId(8), 65536},
                        {"absent", PutId(1), 0},
                        {"free", PutId(7), 0},
                        {"newer", PutId(5), 131072},
                        {"pending", PutId(10), 196608}}});
  n.scanOne({n.directory.ref(held)});
  CHECK(n.take<rpc::ReclaimDone>().results ==
        std::vector<ReclaimResult>{ReclaimResult::busy, ReclaimResult::gone, ReclaimResult::ok, ReclaimResult::gone, ReclaimResult::busy});
  CHECK(n.committed("held"));
  CHECK(n.committed("newer"));
}

TEST_CASE("owner orders: a value invalidated while it is being reclaimed is gone, and released once") {
  Node n;
  n.put("k", 7, 8192);
  n.reclaim("k", PutId(7), 8192);
  n.invalidate("k", PutId(8));
  n.scanAll();
  n.scanAll();
  CHECK(n.take<rpc::ReclaimDone>().results == std::vector<ReclaimResult>{ReclaimResult::gone});
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.sent<rpc::Release>() == 0);
}

TEST_CASE("owner orders: a reclaim that comes twice is answered once while it runs") {
  Node n;
  n.put("k", 7, 8192);
  n.order(rpc::Reclaim{OrderId(1), {{"k", PutId(7), 8192}}});
  n.order(rpc::Reclaim{OrderId(1), {{"k", PutId(7), 8192}}});
  n.scanAll();
  CHECK(n.take<rpc::ReclaimDone>().results == std::vector<ReclaimResult>{ReclaimResult::ok});
  CHECK(n.sent<rpc::ReclaimDone>() == 0);
}

// The master has sent the order again over a new connection; the first answer, busy, is what it will count.
TEST_CASE("owner orders: a reclaim that comes again after it was answered frees nothing") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  n.order(rpc::Reclaim{OrderId(1), {{"k", PutId(7), 8192}}});
  n.scanOne({n.directory.ref(slot)});
  const auto done = n.take<rpc::ReclaimDone>();
  n.core.reconnected(seconds(10), n.now);
  n.order(rpc::Reclaim{OrderId(1), {{"k", PutId(7), 8192}}});
  n.scanAll();
  CHECK(n.committed("k") == slot);
  n.reply(done);
  n.order(rpc::Reclaim{OrderId(1), {{"k", PutId(7), 8192}}});
  n.scanAll();
  CHECK(n.committed("k") == slot);
}

TEST_CASE("owner orders: an invalidation that comes twice is answered twice and harms nothing") {
  Node n;
  n.put("k", 7, 8192);
  n.order(rpc::Invalidate{OrderId(1), {{"k", PutId(8)}}});
  n.put("k", 9, 65536);
  n.order(rpc::Invalidate{OrderId(1), {{"k", PutId(8)}}});
  CHECK(n.sent<rpc::InvalidateDone>() == 2);
  CHECK(n.committed("k"));
}

// The extent of the second one would be written although the master may have given it away.
TEST_CASE("owner orders: a copy that comes twice is made once, and again when another term orders it") {
  Node n;
  const rpc::Replicate order{.order = OrderId(1), .key = "k", .putId = PutId(7), .bytes = 100, .offset = 8192, .timeLeftMs = 1000};
  n.order(order);
  n.order(order);
  REQUIRE(n.host.fetches.size() == 1);
  n.core.fetched(n.host.fetches[0].id, {}, n.now);
  n.ended(n.take<rpc::ReplicateDone>(), PutId(7));
  n.order(order);
  CHECK(n.host.fetches.size() == 1);
  n.rejoin();
  n.order(order);
  CHECK(n.host.fetches.size() == 2);
}

}  // namespace
}  // namespace fluxon::owner
