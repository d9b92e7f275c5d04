// OwnerCore: leases, heartbeats, lost connections, and joining anew with what clients still hold or write.
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

using shm::CommandKind;
using shm::SlotState;

TEST_CASE("owner lease: it runs from before the heartbeat was sent") {
  Node n;
  n.now = n.now + seconds(5);
  n.core.heartbeat({}, n.now);
  const auto beat = n.take<rpc::Heartbeat>();
  const Time sent = n.now;
  n.now = n.now + seconds(3);
  n.reply(beat);
  CHECK(n.directory.leaseUntilNs() == (sent + seconds(10)).ns);
  CHECK(n.core.serving(sent + seconds(10) + Duration{-1}));
  CHECK_FALSE(n.core.serving(sent + seconds(10)));
}

TEST_CASE("owner lease: answers to heartbeats that overtake each other never shorten it") {
  Node n;
  n.core.heartbeat({}, n.now);
  const auto first = n.take<rpc::Heartbeat>();
  n.now = n.now + seconds(1);
  n.core.heartbeat({}, n.now);
  n.reply(n.take<rpc::Heartbeat>());
  const int64_t until = n.directory.leaseUntilNs();
  n.reply(first);
  CHECK(n.directory.leaseUntilNs() == until);
}

TEST_CASE("owner lease: a master that does not answer gets no pile of heartbeats") {
  Node n;
  for (int i = 0; i < 10; ++i) n.core.heartbeat({}, n.now);
  CHECK(n.sent<rpc::Heartbeat>() == 4);
  n.reply(n.take<rpc::Heartbeat>());
  n.core.heartbeat({}, n.now);
  CHECK(n.sent<rpc::Heartbeat>() == 4);
}

TEST_CASE("owner lease: a refused heartbeat does not extend it, and says that the owner must join again") {
  Node n;
  const int64_t until = n.directory.leaseUntilNs();
  n.now = n.now + seconds(1);
  n.core.heartbeat({}, n.now);
  n.refuse(n.take<rpc::Heartbeat>(), Code::fenced);
  CHECK(n.directory.leaseUntilNs() == until);
  CHECK(n.core.fenced());
  n.rejoin();
  CHECK_FALSE(n.core.fenced());
}

TEST_CASE("owner lease: who needs the master is told why it is not there") {
  Node n;
  n.core.apart("service unavailable: node n is alive on 192.0.2.7 (pid 4711)");
  n.now = n.now + seconds(11);
  const Answer refused = n.answer(n.get("k"));
  CHECK(refused.code == Code::unavailable);
  CHECK(refused.payload == "no serving lease: service unavailable: node n is alive on 192.0.2.7 (pid 4711)");
  n.core.apart("");
  CHECK(n.answer(n.get("k")).payload == "no serving lease: the master does not answer");
}

TEST_CASE("owner lease: a heartbeat reports what was read, of values that are readable") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  n.core.heartbeat({slot, slot + 1, UINT32_MAX}, n.now);
  CHECK(n.take<rpc::Heartbeat>().touched == std::vector<uint64_t>{8192});
}

TEST_CASE("owner connection: what is not answered is sent again, with its id, and a repeated answer is ignored") {
  Node n;
  const Caller put = n.putStart("k");
  const auto first = n.take<rpc::PutStart>();
  n.run(CommandKind::remove, "x");
  n.host.sent.clear();
  n.core.reconnected(seconds(10), n.now);
  CHECK(n.host.sent.size() == 2);
  CHECK(n.host.sent[0].id == first.id);
  CHECK(n.core.unanswered().lowest == first.id);
  n.started(first, PutId(7), 8192);
  n.started(first, PutId(7), 8192);
  CHECK(n.answer(put).code == Code::ok);
  CHECK(n.core.grants() == 1);
  CHECK(n.core.unanswered().lowest > first.id);
}

TEST_CASE("owner connection: a reply that brings no answer to its request is a refusal, counted, and nothing else changes") {
  Node n;
  const Answer grant = n.granted("p", 7, 8192);
  const Caller put = n.putStart("k"), get = n.get("g"), stat = n.run(CommandKind::stat, "s");
  n.reply(n.take<rpc::PutStart>(), rpc::Done());
  n.reply(n.take<rpc::GetStart>(), rpc::PutGranted{.putId = PutId(7), .offset = 8192});
  n.reply({n.take<rpc::StatKey>().id, Code::miss, {}, rpc::KeyStat()});  // an answer beside a refusal
  for (const Caller caller : {put, get, stat}) CHECK(n.answer(caller).code == Code::protocol);
  CHECK(n.core.counters().refused == 3);
  CHECK(n.core.requestsPending() == 0);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  n.reply(n.take<rpc::PutDone>(), rpc::CopyEnded{PutId(7), true, {}});
  CHECK(n.answer(commit).code == Code::protocol);
  CHECK_FALSE(n.committed("p"));
  const auto release = n.take<rpc::Release>();
  CHECK(release.offsets == std::vector<uint64_t>{8192});
  n.reply(release, rpc::Reserved());
  CHECK(n.core.counters().refused == 5);
  CHECK(n.allFree());
}

TEST_CASE("owner connection: joining again extends the lease and serves on") {
  Node n;
  n.put("k", 7, 8192);
  n.pass(seconds(10));
  CHECK(n.answer(n.get("k")).code == Code::unavailable);
  n.core.reconnected(seconds(10), n.now);
  CHECK(n.answer(n.get("k")).code == Code::ok);
  n.pass(seconds(10));
  const Caller get = n.get("k");
  CHECK(n.answer(get).code == Code::unavailable);
}

TEST_CASE("owner join: before it has joined an owner serves nothing") {
  Node n(64, false);
  CHECK_FALSE(n.core.listening());
  CHECK(n.answer(n.get("k")).code == Code::unavailable);
  CHECK_FALSE(n.answered(n.putStart("k")));
  n.core.tick(n.now);
  n.core.heartbeat({}, n.now);
  CHECK(n.host.sent.empty());
}

TEST_CASE("owner join: a drop ends the lease first, then everything readable goes") {
  Node n;
  n.put("k", 7, 8192);
  n.core.drop(n.now);
  CHECK(n.directory.leaseUntilNs() == 0);
  CHECK_FALSE(n.committed("k"));
  CHECK(n.slots(SlotState::retired) == 1);
  CHECK(n.core.underWay() == 1);
  n.scanAll();
  CHECK(n.allFree());
  CHECK(n.core.occupied().empty());
}

TEST_CASE("owner join: what clients hold is occupied, and released to the new term when they let go") {
  Node n;
  const uint32_t byHazard = n.put("hazard", 7, 0);
  n.put("hold", 8, 65536);
  n.put("free", 9, 131072);
  n.get("hold", {.hold = true});
  n.core.drop(n.now);
  n.scanAll({n.directory.ref(byHazard)});
  const std::vector<Extent> occupied = n.core.occupied();
  REQUIRE(occupied.size() == 2);
  CHECK(occupied[0].length == extentBytes(kLarge));
  n.host.sent.clear();
  n.core.joined(Incarnation(200), seconds(10), n.now, n.now);
  n.host.held.clear();
  n.pass(seconds(1));
  n.scanAll({n.directory.ref(byHazard)});
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{65536});
  n.pass(seconds(1));
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{0});
  CHECK(n.allFree());
}

TEST_CASE("owner join: what becomes free after the inventory was taken is released to the new term") {
  Node n;
  const uint32_t slot = n.put("k", 7, 8192);
  n.core.drop(n.now);
  n.scanAll({n.directory.ref(slot)});
  CHECK(n.core.occupied().size() == 1);
  n.pass(seconds(1));
  n.scanAll();
  CHECK(n.allFree());
  n.core.joined(Incarnation(200), seconds(10), n.now, n.now);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
}

TEST_CASE("owner join: what became free before the inventory is not released again") {
  Node n;
  n.put("k", 7, 8192);
  n.invalidate("k", PutId(9));
  n.rejoin();
  CHECK(n.occupied.empty());
  CHECK(n.sent<rpc::Release>() == 0);
}

TEST_CASE("owner join: a grant of the last term stays with its writer, and its commit says that the term changed") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.rejoin();
  REQUIRE(n.occupied.size() == 1);
  CHECK(n.occupied[0].offset == 8192);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  CHECK(n.answer(commit).code == Code::termChanged);
  CHECK(n.sent<rpc::PutDone>() == 0);
  CHECK(n.sent<rpc::PutAbort>() == 0);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.allFree());
}

TEST_CASE("owner join: a grant of the last term ends with its writer") {
  Node n;
  n.granted("k", 7, 8192);
  n.rejoin();
  n.core.clientGone(ClientId(1), n.now);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.sent<rpc::PutAbort>() == 0);
}

TEST_CASE("owner join: a grant out of the reserve of the last term does not return to the reserve") {
  Node n;
  n.putStart("warm", 1000);
  n.reply(n.take<rpc::Reserve>(), rpc::Reserved{{4096}});
  const Answer grant = n.answer(n.putStart("k", 1000));
  n.rejoin();
  CHECK(n.core.reserveBytes() == 0);
  REQUIRE(n.occupied.size() == 1);
  n.onRef(CommandKind::abort, grant.slotRef);
  CHECK(n.core.reserveBytes() == 0);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{4096});
}

TEST_CASE("owner join: a pending put of the last term is dropped and its outcome unknown") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  const auto done = n.take<rpc::PutDone>();
  n.rejoin();
  CHECK(n.answer(commit).code == Code::outcomeUnknown);
  CHECK(n.occupied.empty());
  CHECK(n.allFree());
  n.ended(done, PutId(7));  // late
  CHECK_FALSE(n.committed("k"));
}

TEST_CASE("owner join: gets that wait are answered, scans of before are ignored, a value being reclaimed goes") {
  Node n;
  n.put("k", 7, 8192);
  n.reclaim("k", PutId(7), 8192);
  const Caller get = n.get("k");
  n.core.drop(n.now);
  CHECK(n.answer(get).code == Code::unavailable);
  REQUIRE(n.host.scans.size() == 2);
  n.scanOne();
  CHECK(n.slots(SlotState::retired) == 1);
  n.scanOne();
  CHECK(n.allFree());
  CHECK(n.sent<rpc::ReclaimDone>() == 0);
}

TEST_CASE("owner join: request ids begin anew") {
  Node n;
  n.putStart("k");
  n.rejoin();
  CHECK(n.core.requestsPending() == 0);
  n.putStart("k");
  CHECK(n.take<rpc::PutStart>().id == OperationId(1));
}

TEST_CASE("owner join: readers see another serving incarnation") {
  Node n;
  const auto* header = reinterpret_cast<const shm::DirectoryHeader*>(n.directoryPages.data());
  const uint64_t before = header->servingIncarnation.load();
  n.core.drop(n.now);
  CHECK(header->servingIncarnation.load() == 0);
  n.scanAll();
  n.core.occupied();
  n.core.joined(Incarnation(300), seconds(10), n.now, n.now);
  CHECK(header->servingIncarnation.load() == 300);
  CHECK(before != 300);
}

TEST_CASE("owner: a request that waits does not keep later ones from being sent, and too many such ones hold the next back") {
  Node n(64, true, {.node = "n", .straggles = 4, .stragglers = 2, .ahead = 16});
  n.host.sent.clear();
  const auto look = [&](const std::string& key) {
    n.run(shm::CommandKind::stat, key);
    return n.host.sent.back();
  };
  const auto answer = [&](const rpc::Request& request) { n.reply({request.id, Code::miss, {}, {}}); };
  // Two wait, all others are answered: without end.
  const rpc::Request one = look("one"), two = look("two");
  for (int i = 0; i < 100; ++i) {
    const size_t before = n.host.sent.size();
    const rpc::Request next = look("k");
    REQUIRE(n.host.sent.size() == before + 1);
    answer(next);
  }
  CHECK(n.core.unanswered().stragglers == std::vector<OperationId>{one.id, two.id});
  CHECK(n.core.unanswered().lowest.value > two.id.value + 90);
  // A third one is one too many.
  const rpc::Request three = look("three");
  size_t sent = 0;
  for (int i = 0; i < 50; ++i) {
    const size_t before = n.host.sent.size();
    const rpc::Request next = look("l");
    if (n.host.sent.size() == before) continue;
    ++sent;
    answer(next);
  }
  CHECK(sent >= 14);
  CHECK(sent <= 16);
  // The lease goes on, and what is held back leaves when one of the three has its answer.
  const size_t before = n.host.sent.size();
  n.core.heartbeat({}, n.now);
  CHECK(n.host.sent.size() == before + 1);
  answer(one);
  CHECK(n.host.sent.size() > before + 2);
  while (n.core.requestsPending() > 1) {
    const size_t count = n.host.sent.size();
    for (size_t i = 0; i < count; ++i) answer(n.host.sent[i]);
  }
  CHECK(n.core.requestsPending() <= 1);
}

}  // namespace
}  // namespace fluxon::owner
