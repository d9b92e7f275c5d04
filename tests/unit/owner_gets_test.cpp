// OwnerCore: gets, holds, commands that the master answers.
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

using rpc::ReclaimResult;
using shm::CommandKind;
using shm::SlotState;

TEST_CASE("owner gets: a value here is answered at once") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  const Answer hit = n.answer(n.get("k"));
  CHECK(hit.code == Code::ok);
  CHECK(hit.offset == 8192);
  CHECK(hit.valueBytes == kLarge);
  CHECK((hit.putId == PutId(7)));
  CHECK(shm::slotOfRef(hit.slotRef) == slot);
  CHECK(hit.node.empty());
}

TEST_CASE("owner gets: each is counted once, where its client asked first: not when it goes on, nor when it was sent here") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.onRef(CommandKind::commit, grant.slotRef);
  const Caller waits = n.get("k");
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(waits).code == Code::ok);
  CHECK(n.core.counters().ringGets == 1);
  for (const GetMode sent : {GetMode{.localOnly = true}, GetMode{.placedHere = true}}) {
    CHECK(n.answer(n.get("k", sent)).code == Code::ok);
    const Caller nowhere = n.get("x", sent);
    if (sent.placedHere) n.refuse(n.take<rpc::GetStart>(), Code::miss);
    CHECK(n.answer(nowhere).code == Code::miss);
  }
  CHECK(n.core.counters().ringGets == 1);
  CHECK(n.core.counters().ringMisses == 0);
}

TEST_CASE("owner gets: another key is asked of the master, and the answer names the node") {
  Node n;
  const Caller elsewhere = n.get("k"), nowhere = n.get("x");
  n.reply(n.take<rpc::GetStart>(), rpc::ReadAt{.bytes = 5, .owner = {"other", "h", "", Incarnation(2)}});
  CHECK(n.answer(elsewhere).node == "other");
  n.refuse(n.take<rpc::GetStart>(), Code::miss);
  CHECK(n.answer(nowhere).code == Code::miss);
}

TEST_CASE("owner gets: a route to this node without a value is a miss") {
  Node n;
  const Caller get = n.get("k");
  n.reply(n.take<rpc::GetStart>(), rpc::ReadAt{.owner = {"n", "h", "", Incarnation(1)}});
  CHECK(n.answer(get).code == Code::miss);
}

// What the master speaks may be wrong: it gives nothing, and is counted.
TEST_CASE("owner: a reply whose answer is none to its request is answered `protocol`, and changes nothing") {
  Node n;
  const Caller get = n.get("k"), stat = n.run(CommandKind::stat, "k"), count = n.run(CommandKind::countPrefix, "k"), put = n.putStart("p");
  n.reply(n.take<rpc::GetStart>(), rpc::PutGranted{.putId = PutId(7), .offset = 8192});
  n.reply(n.take<rpc::StatKey>(), rpc::Done());
  n.reply({n.take<rpc::CountKeys>().id, Code::miss, {}, rpc::KeyCount{3}});  // a refusal brings nothing
  n.reply(n.take<rpc::PutStart>(), rpc::ReadAt{.putId = PutId(7), .owner = {"other", "h", "", Incarnation(2)}});
  for (const Caller& caller : {get, stat, count, put}) CHECK(n.answer(caller).code == Code::protocol);
  CHECK(n.core.counters().refused == 4);
  CHECK(n.core.flights() == 0);
  CHECK(n.core.grants() == 0);
  CHECK(n.core.requestsPending() == 0);
  CHECK(n.allFree());
  CHECK_FALSE(n.core.fenced());
}

TEST_CASE("owner gets: localOnly asks nobody") {
  Node n;
  CHECK(n.answer(n.get("k", {.localOnly = true})).code == Code::miss);
  CHECK(n.host.sent.empty());
}

TEST_CASE("owner gets: a get waits for a put that is being decided, and sees its value") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.onRef(CommandKind::commit, grant.slotRef);
  const Caller get = n.get("k");
  CHECK_FALSE(n.answered(get));
  CHECK(n.sent<rpc::GetStart>() == 0);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(get).offset == 8192);
}

TEST_CASE("owner gets: a get that waited for a refused put asks the master") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.onRef(CommandKind::commit, grant.slotRef);
  const Caller get = n.get("k");
  n.refuse(n.take<rpc::PutDone>(), Code::noLease);
  CHECK_FALSE(n.answered(get));
  n.refuse(n.take<rpc::GetStart>(), Code::miss);
  CHECK(n.answer(get).code == Code::miss);
}

TEST_CASE("owner gets: a get whose route names this node waits for the put whose reply is still under way") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  const Caller get = n.get("k");
  n.onRef(CommandKind::commit, grant.slotRef);
  n.reply(n.take<rpc::GetStart>(), rpc::ReadAt{.owner = {"n", "h", "", Incarnation(1)}});
  CHECK_FALSE(n.answered(get));
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(get).offset == 8192);
}

TEST_CASE("owner gets: a granted put is not waited for") {
  Node n;
  n.granted("k", 7, 8192);
  const Caller get = n.get("k");
  n.refuse(n.take<rpc::GetStart>(), Code::miss);
  CHECK(n.answer(get).code == Code::miss);
}

TEST_CASE("owner gets: a get waits for a reclaim and sees the value that stays") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  n.reclaim("k", PutId(7), 8192);
  const Caller get = n.get("k");
  CHECK_FALSE(n.answered(get));
  n.scanOne({n.directory.ref(slot)});
  CHECK(n.answer(get).code == Code::ok);
  CHECK(n.take<rpc::ReclaimDone>().results == std::vector<ReclaimResult>{ReclaimResult::busy});
}

TEST_CASE("owner gets: a get that waited for a reclaim asks the master when the value goes") {
  Node n;
  n.put("k", 7, 8192);
  n.reclaim("k", PutId(7), 8192);
  const Caller get = n.get("k");
  n.scanOne();
  n.refuse(n.take<rpc::GetStart>(), Code::miss);
  CHECK(n.answer(get).code == Code::miss);
}

TEST_CASE("owner gets: a get that waits for a reclaim goes on when the value is invalidated meanwhile") {
  Node n;
  n.put("k", 7, 8192);
  n.reclaim("k", PutId(7), 8192);
  const Caller get = n.get("k");
  n.invalidate("k", PutId(9));
  n.scanAll();
  n.refuse(n.take<rpc::GetStart>(), Code::miss);
  CHECK(n.answer(get).code == Code::miss);
}

TEST_CASE("owner gets: gets that wait end with the lease") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.onRef(CommandKind::commit, grant.slotRef);
  const Caller get = n.get("k");
  n.pass(seconds(10));
  CHECK(n.answer(get).code == Code::unavailable);
}

TEST_CASE("owner gets: callers are told of a lapsed lease even if a late heartbeat answer is what shows it") {
  Node n;
  n.core.heartbeat({}, n.now);
  const Caller get = n.get("k");
  n.now = n.now + seconds(11);
  n.reply(n.take<rpc::Heartbeat>());
  n.core.tick(n.now);
  CHECK(n.answer(get).code == Code::unavailable);
}

TEST_CASE("owner gets: the gets of a client that has ended are forgotten") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192, {}, 1);
  n.onRef(CommandKind::commit, grant.slotRef);
  const Caller get = n.get("k", {}, 2);
  n.core.clientGone(ClientId(2), n.now);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK_FALSE(n.answered(get));
}

TEST_CASE("owner gets: exists is answered here when the value is here, else by the master") {
  Node n;
  n.put("k", 7, 8192);
  CHECK(n.answer(n.run(CommandKind::exists, "k")).code == Code::ok);
  const Caller other = n.run(CommandKind::exists, "x");
  n.refuse(n.take<rpc::StatKey>(), Code::miss);
  CHECK(n.answer(other).code == Code::miss);
}

TEST_CASE("owner gets: an unknown command is answered") {
  Node n;
  CHECK(n.answer(n.run(static_cast<CommandKind>(99))).code == Code::protocol);
}

TEST_CASE("owner gets: a listing answer takes as many records as the payload area") {
  Node n;
  const Caller caller = n.run({.kind = CommandKind::list, .key = "p", .extra = "p1", .valueBytes = 17});
  const auto list = n.take<rpc::ListKeys>();
  CHECK(list.prefix == "p");
  CHECK(list.after == "p1");
  CHECK(list.limit == 17);
  n.reply(list, rpc::KeyPage{std::vector<rpc::ListedKey>(10, {std::string(1001, 'k'), 5, PutId(3)})});
  const std::string payload = n.answer(caller).payload;
  CHECK(payload.size() == 7 * (sizeof(shm::ListEntry) + 1008));
  shm::ListEntry head;
  std::memcpy(&head, payload.data(), sizeof head);
  CHECK(head.keyBytes == 1001);
  CHECK(head.valueBytes == 5);
}

// --- holds

TEST_CASE("owner holds: a held word keeps the extent over an overwrite until it is cleared") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  const Answer hit = n.answer(n.get("k", {.hold = true}));
  CHECK(hit.hold);
  n.invalidate("k", PutId(9));
  CHECK((n.directory.state(slot) == SlotState::retired));
  n.scanAll();
  CHECK((n.directory.state(slot) == SlotState::retired));
  CHECK(n.sent<rpc::Release>() == 0);
  n.host.held.clear();
  n.pass(seconds(1));
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.allFree());
}

TEST_CASE("owner holds: a victim that a held word names is busy") {
  Node n;
  n.put("k", 7, 8192);
  n.get("k", {.hold = true});
  n.reclaim("k", PutId(7), 8192);
  n.scanAll();
  CHECK(n.take<rpc::ReclaimDone>().results == std::vector<ReclaimResult>{ReclaimResult::busy});
  n.host.held.clear();
  n.reclaim("k", PutId(7), 8192);
  n.scanAll();
  CHECK(n.take<rpc::ReclaimDone>().results == std::vector<ReclaimResult>{ReclaimResult::ok});
}

TEST_CASE("owner holds: without kHold no word is asked for") {
  Node n;
  n.put("k", 7, 8192);
  CHECK_FALSE(n.answer(n.get("k")).hold);
}

// --- invalidations and scans

}  // namespace
}  // namespace fluxon::owner
