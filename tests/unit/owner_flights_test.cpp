// OwnerCore: copies from other owners, for gets and by order, and values that others come for.
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

using shm::CommandKind;
using shm::SlotState;

const rpc::Peer kFar{"far", "elsewhere", "far:1", Incarnation(9)};

// The answer to a getStart: come for it.
void route(Node& n, const Sent<rpc::GetStart>& get, PutId id, uint64_t offset, uint64_t bytes = 100) {
  n.reply(get, rpc::FetchFrom{.putId = id, .bytes = bytes, .offset = offset, .source = kFar});
}
// A get whose bytes are under way.
struct Flying : Node {
  Flying() {
    route(*this, take<rpc::GetStart>(), PutId(7), 8192);
    REQUIRE(host.fetches.size() == 1);
  }
  void arrive(Error error = {}) {
    const Fetch fetch = std::move(host.fetches.front());
    host.fetches.pop_front();
    core.fetched(fetch.id, error, now);
  }
  Caller first = get("k");
};
void replicate(Node& n, uint64_t order, const std::string& key, PutId id, uint64_t offset, bool exported = false) {
  rpc::Replicate copy{.order = OrderId(order), .key = key, .putId = id, .bytes = 100, .offset = offset, .source = kFar};
  if (exported) copy.exported = {ExportId(id.value)};
  n.order(copy);
}

TEST_CASE("flights: who asked has the value when its bytes are there, others when the master has said so") {
  Flying n;
  CHECK(n.slots(SlotState::granted) == 1);
  CHECK(n.host.fetches.front().peer.node == "far");
  CHECK(n.host.fetches.front().offset == 8192);
  n.arrive();
  CHECK(n.slots(SlotState::pending) == 1);
  const Answer answer = n.answer(n.first);
  CHECK(answer.offset == 8192);
  CHECK(answer.hold);
  CHECK(answer.source == shm::AnswerSource::peer);
  CHECK_FALSE(n.committed("k").has_value());
  const auto done = n.take<rpc::GetDone>();
  CHECK((done.code == Code::ok));
  n.ended(done, PutId(7));
  CHECK(n.committed("k").has_value());
  CHECK(n.core.flights() == 0);
}

TEST_CASE("flights: a copy that is not to be a replica is held by those who waited, and found by nobody") {
  Flying n;
  n.arrive();
  n.ended(n.take<rpc::GetDone>(), PutId(7), false);
  CHECK(n.answer(n.first).hold);
  CHECK_FALSE(n.committed("k"));
  CHECK(n.slots(SlotState::retired) == 1);
  n.pass(seconds(1));
  n.scanAll();
  CHECK(n.slots(SlotState::retired) == 1);
  n.host.held.clear();
  n.pass(seconds(1));
  n.scanAll();
  CHECK(n.allFree());
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
}

TEST_CASE("flights: a value that was handed out before the master has decided stays under its holder when the term ends") {
  Flying n;
  n.arrive();
  CHECK(n.answer(n.first).hold);
  n.rejoin();
  CHECK(n.slots(SlotState::retired) == 1);
  CHECK(n.occupied.size() == 1);
  n.host.held.clear();
  n.pass(seconds(1));
  n.scanAll();
  CHECK(n.allFree());
}

TEST_CASE("flights: gets of the key share one, from the first question on") {
  Node n;
  const Caller first = n.get("k"), second = n.get("k");
  CHECK(n.sent<rpc::GetStart>() == 1);
  route(n, n.take<rpc::GetStart>(), PutId(7), 8192);
  const Caller third = n.get("k");
  CHECK(n.sent<rpc::GetStart>() == 0);
  CHECK(n.host.fetches.size() == 1);
  n.core.fetched(n.host.fetches.front().id, {}, n.now);
  n.ended(n.take<rpc::GetDone>(), PutId(7));
  for (const Caller caller : {first, second, third}) CHECK(n.answer(caller).offset == 8192);
}

TEST_CASE("flights: without a flight to share those who waited ask by themselves") {
  Node n;
  const Caller first = n.get("k"), second = n.get("k");
  n.refuse(n.take<rpc::GetStart>(), Code::miss);
  CHECK(n.answer(first).code == Code::miss);
  CHECK_FALSE(n.answered(second));
  n.refuse(n.take<rpc::GetStart>(), Code::miss);
  CHECK(n.answer(second).code == Code::miss);
}

TEST_CASE("flights: one that an invalidation has passed takes nobody on, and its value is not readable") {
  Flying n;
  n.invalidate("k", PutId(9));
  const Caller late = n.get("k");
  CHECK(n.sent<rpc::GetStart>() == 1);
  n.arrive();
  n.ended(n.take<rpc::GetDone>(), PutId(7));  // an answer that the invalidation has overtaken
  CHECK(n.answer(n.first).putId.value == 7);
  CHECK(n.answer(n.first).hold);
  CHECK_FALSE(n.committed("k"));
  CHECK(n.take<rpc::Dropped>().replicas.size() == 1);
  CHECK_FALSE(n.answered(late));
}

TEST_CASE("flights: from the report of its end on nobody joins one") {
  Flying n;
  n.arrive();
  const Caller late = n.get("k");
  n.ended(n.take<rpc::GetDone>(), PutId(7), false);
  CHECK(n.answer(n.first).hold);
  CHECK_FALSE(n.answered(late));
  CHECK(n.sent<rpc::GetStart>() == 1);
}

TEST_CASE("flights: a failed one sends those who waited to ask again, naming who failed, after longer and longer pauses") {
  Flying n;
  for (int attempt = 0; attempt < 20; ++attempt) {
    n.arrive({Code::unavailable, "lost"});
    CHECK((n.take<rpc::GetDone>().code == Code::unavailable));
    CHECK(n.sent<rpc::GetStart>() == 0);
    const Duration pause = n.core.nextWake() - n.now;
    CHECK(pause == milliseconds(std::min(1 << attempt, 128)));
    n.pass(pause);
    const auto again = n.take<rpc::GetStart>();
    CHECK(again.avoid == "far");
    route(n, again, PutId(7 + static_cast<uint64_t>(attempt)), 16384);
  }
  n.arrive();
  n.ended(n.take<rpc::GetDone>(), PutId(26));
  CHECK(n.answer(n.first).offset == 16384);
}

TEST_CASE("flights: a get whose copies fail ends at its deadline with the reason, or with its client") {
  for (const bool gone : {false, true}) {
    Flying n;
    n.now = n.now + seconds(60);
    n.arrive({Code::unavailable, "lost"});
    if (gone) n.core.clientGone(ClientId(1), n.now);
    n.pass(Duration{0});
    CHECK(n.answered(n.first).has_value() == !gone);
    if (!gone) CHECK(n.answer(n.first).payload == "node far: service unavailable: lost");
    CHECK(n.sent<rpc::GetStart>() == 0);
    CHECK(n.core.nextWake() == Time::never());
  }
}

TEST_CASE("flights: a place outside the segment is refused, and one without a slot goes back") {
  Node n;
  const Caller get = n.get("k");
  route(n, n.take<rpc::GetStart>(), PutId(7), kSegmentBytes);
  CHECK((n.take<rpc::GetDone>().code == Code::protocol));
  CHECK(n.host.fetches.empty());
  CHECK(n.answered(get));
}

TEST_CASE("flights: a route that comes after the lease has run out is undone") {
  Node n;
  const Caller get = n.get("k");
  n.pass(seconds(10));
  CHECK(n.answer(get).code == Code::unavailable);
  route(n, n.take<rpc::GetStart>(), PutId(7), 8192);
  CHECK((n.take<rpc::GetDone>().code == Code::unavailable));
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.host.fetches.empty());
}

TEST_CASE("flights: a neighbour that cannot be reached is asked for no more: the value is brought") {
  Node n;
  const Caller get = n.get("k");
  // The fixture's neighbours are on host "h".
  n.reply(n.take<rpc::GetStart>(), rpc::ReadAt{.owner = {"near", "elsewhere", "", Incarnation(2)}});
  CHECK_FALSE(n.answered(get));
  CHECK((n.take<rpc::GetStart>().neighbours == rpc::NeighbourUse::none));
}

TEST_CASE("flights: a copy by order is made once, and is a replica when the master says so") {
  Node n;
  replicate(n, 5, "k", PutId(7), 8192);
  replicate(n, 5, "k", PutId(7), 8192);
  REQUIRE(n.host.fetches.size() == 1);
  n.core.fetched(n.host.fetches.front().id, {}, n.now);
  const auto done = n.take<rpc::ReplicateDone>();
  CHECK(done.order.value == 5);
  n.ended(done, PutId(7));
  CHECK(n.committed("k").has_value());
}

TEST_CASE("flights: the end of a copy by order is told though requests are held back, a put of another owner may wait for it") {
  Node n(64, true, {.node = "n", .straggles = 4, .stragglers = 1, .ahead = 16});
  for (int i = 0; i < 30; ++i) n.run(CommandKind::stat, "k");
  const size_t sent = n.host.sent.size();
  n.run(CommandKind::stat, "k");
  REQUIRE(n.host.sent.size() == sent);
  replicate(n, 5, "came", PutId(7), 8192, true);
  n.core.fetched(n.host.fetches.front().id, {}, n.now);
  REQUIRE(n.host.sent.size() == sent + 1);
  REQUIRE(n.host.sent.back().is<rpc::ReplicateDone>());
  CHECK(n.host.sent.back().as<rpc::ReplicateDone>()->order.value == 5);
  replicate(n, 6, "failed", PutId(8), 16384);
  n.core.fetched(n.host.fetches.back().id, {Code::unavailable, "x"}, n.now);
  REQUIRE(n.host.sent.size() == sent + 2);
  CHECK(n.host.sent.back().is<rpc::ReplicateDone>());
  n.get("read");  // a copy that only a get here wants waits like any other request
  CHECK(n.host.sent.size() == sent + 2);
}

TEST_CASE("flights: a value that comes home retires what is older here before the master hears that it has come") {
  Node n;
  const uint32_t old = n.put("k", 5, 0);
  replicate(n, 5, "k", PutId(7), 65536, true);
  CHECK((n.directory.state(old) == SlotState::committed));
  n.core.fetched(n.host.fetches.front().id, {}, n.now);
  CHECK((n.directory.state(old) == SlotState::retired));
  const Caller get = n.get("k");
  CHECK_FALSE(n.answered(get));
  n.ended(n.take<rpc::ReplicateDone>(), PutId(7));
  CHECK(n.answer(get).offset == 65536);
}

TEST_CASE("flights: of two values that come home the older one is not readable when the newer one's answer found no lease") {
  Node n;
  replicate(n, 5, "k", PutId(7), 0, true);
  replicate(n, 6, "k", PutId(8), 65536, true);
  for (int i = 0; i < 2; ++i) {
    n.core.fetched(n.host.fetches.front().id, {}, n.now);
    n.host.fetches.pop_front();
  }
  const auto older = n.take<rpc::ReplicateDone>(), newer = n.take<rpc::ReplicateDone>();
  n.pass(seconds(10));
  n.ended(newer, PutId(8));
  n.core.reconnected(seconds(10), n.now);
  n.ended(older, PutId(7));
  CHECK_FALSE(n.committed("k"));
}

TEST_CASE("flights: a copy that lands while a put of ours is undecided is not readable, it may be older") {
  Flying n;
  n.arrive();
  const auto done = n.take<rpc::GetDone>();
  const Answer grant = n.granted("k", 8, 65536);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  n.ended(done, PutId(7));
  CHECK_FALSE(n.committed("k"));
  n.ended(n.take<rpc::PutDone>(), PutId(8));
  CHECK(n.answer(commit).code == Code::ok);
  CHECK((n.directory.putId(*n.committed("k")) == PutId(8)));
}

TEST_CASE("puts: one that is published while another of ours is undecided is readable after that one's answer") {
  for (const bool newerWins : {true, false}) {
    CAPTURE(newerWins);
    Node n;
    const Answer first = n.granted("k", 7, 0), second = n.granted("k", newerWins ? 8 : 6, 65536);
    n.onRef(CommandKind::commit, first.slotRef);
    const auto firstDone = n.take<rpc::PutDone>();
    n.onRef(CommandKind::commit, second.slotRef);
    const auto secondDone = n.take<rpc::PutDone>();
    n.ended(firstDone, PutId(7));
    CHECK_FALSE(n.committed("k"));
    n.ended(secondDone, PutId(newerWins ? 8 : 6), newerWins);
    REQUIRE(n.committed("k"));
    CHECK((n.directory.putId(*n.committed("k")) == PutId(newerWins ? 8 : 7)));
  }
}

TEST_CASE("exports: a put for another home is exported at its commit, and its place goes when nobody reads it any more") {
  Node n;
  const Caller start = n.putStart("k");
  n.reply(n.take<rpc::PutStart>(), rpc::PutGranted{.putId = PutId(7), .offset = 8192, .home = kFar});
  const Caller commit = n.onRef(CommandKind::commit, n.answer(start).slotRef);
  CHECK(n.host.exported.count(ExportId(7)) == 1);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(commit).code == Code::ok);
  CHECK(n.host.exported.empty());
  CHECK_FALSE(n.committed("k"));
  CHECK(n.core.exports() == 1);
  CHECK(n.sent<rpc::Release>() == 0);
  const Caller get = n.get("k");
  CHECK_FALSE(n.answered(get));
  n.core.unexported(ExportId(7), n.now);
  CHECK(n.allFree());
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.sent<rpc::GetStart>() == 1);  // the get asks now
}

TEST_CASE("puts: one that asks for replicas is readable at once, and answered when they are made") {
  Node n;
  const Caller start = n.run({.kind = CommandKind::putStart, .replicas = 3, .key = "k", .valueBytes = kLarge});
  n.started(n.take<rpc::PutStart>(), PutId(7), 8192);
  const Answer grant = n.answer(start);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.committed("k").has_value());
  CHECK_FALSE(n.answered(commit));
  const auto spread = n.take<rpc::Spread>();
  CHECK(spread.replicas == 3);
  CHECK(spread.value.putId.value == 7);
  uint64_t copies = 1;
  SUBCASE("made") { n.reply(spread, rpc::SpreadEnded{copies = 2}); }
  SUBCASE("the lease runs out") { n.pass(seconds(10)); }
  CHECK(n.answer(commit).code == Code::ok);
  CHECK(n.answer(commit).valueBytes == copies);
  CHECK(n.answer(commit).putId.value == 7);
}

TEST_CASE("puts: an owner of this host that shall have the value is named to the client") {
  Node n;
  const Caller start = n.putStart("k");
  n.reply(n.take<rpc::PutStart>(), rpc::PutElsewhere{{"near", "h", "", Incarnation(2)}});
  CHECK(n.answer(start).node == "near");
  CHECK(n.core.grants() == 0);
}

// --- terms and lives

TEST_CASE("keep: flights and exports end before anything is occupied, and their places are nobody's") {
  Flying n;
  n.core.keep(n.now);
  CHECK(n.host.cancelled);
  CHECK(n.core.underWay() > 0);
  CHECK(n.answer(n.first).code == Code::unavailable);
  n.arrive({Code::unavailable, "cancelled"});
  n.scanAll();
  CHECK(n.core.underWay() == 0);
  CHECK(n.core.occupied().empty());
  CHECK(n.allFree());
}

TEST_CASE("keep: committed values stay readable under the old lease, puts in the master's hands end") {
  Node n;
  n.put("k", 7, 0);
  const Answer grant = n.granted("l", 8, 65536), held = n.granted("m", 9, 131072);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  n.core.keep(n.now);
  CHECK(n.answer(commit).code == Code::outcomeUnknown);
  CHECK(n.core.serving(n.now));
  CHECK(n.answer(n.get("k")).code == Code::ok);
  CHECK(n.answer(n.get("x")).code == Code::unavailable);
  CHECK_FALSE(n.answered(n.putStart("x")));
  CHECK(n.core.occupied().size() == 1);  // of the grant
  CHECK(n.answer(n.onRef(CommandKind::commit, held.slotRef)).code == Code::termChanged);
}

// Joins with what it has.
void rejoinWith(Node& n, uint64_t incarnation = 300) {
  n.core.keep(n.now);
  n.scanAll();
  n.occupied = n.core.occupied();
  n.host.sent.clear();
  n.core.registered(Incarnation(incarnation), seconds(10), n.now, OwnerCore::Inventory::wanted, n.now);
}

TEST_CASE("inventory: the values are listed, the oldest first; those that are refused go; serving begins with the last answer") {
  Node n;
  n.put("new", 9, 0);
  n.put("old", 7, 65536);
  n.put("refused", 8, 131072);
  n.core.keep(n.now);
  n.directory.setLease(0);
  rejoinWith(n);
  const auto page = n.take<rpc::InventoryPage>();
  REQUIRE(page.memory.size() == 3);
  CHECK(page.memory[0].key == "old");
  CHECK(page.memory[2].key == "new");
  CHECK(page.memory[0].bytes == kLarge);
  CHECK(page.pages == 1);
  CHECK_FALSE(n.core.serving(n.now));
  CHECK(n.core.content().value != 300);
  n.reply(page, rpc::InventoryTaken{.refused = {131072}});
  CHECK(n.core.serving(n.now));
  CHECK(n.core.content().value == 300);
  CHECK(n.committed("old").has_value());
  CHECK_FALSE(n.committed("refused"));
  CHECK(n.take<rpc::Heartbeat>().serving);  // the master may end its window
}

TEST_CASE("inventory: pages end by the bytes of their keys, some are under way at once, and serving begins when all are answered") {
  Node n;
  for (uint64_t i = 0; i < 40; ++i) n.put(std::string(4000, 'k') + std::to_string(i), 7 + i, i * 20'480);
  n.core.keep(n.now);
  n.directory.setLease(0);
  rejoinWith(n);
  REQUIRE(n.sent<rpc::InventoryPage>() == 3);
  const auto first = n.take<rpc::InventoryPage>(), second = n.take<rpc::InventoryPage>(), last = n.take<rpc::InventoryPage>();
  CHECK(first.memory.size() == 17);
  CHECK(first.pages == 0);
  CHECK(last.memory.size() == 6);
  CHECK(last.pages == 3);
  n.reply(last);
  n.reply(first);
  CHECK_FALSE(n.core.serving(n.now));
  n.reply(second, rpc::InventoryTaken{.refused = {second.memory[0].offset}});
  CHECK(n.core.serving(n.now));
  CHECK_FALSE(n.committed(second.memory[0].key));
  CHECK(n.core.counters().adopted == 39);
}

TEST_CASE("inventory: an owner that is fenced while it lists keeps its values, to list them once more") {
  Node n;
  n.put("k", 7, 0);
  rejoinWith(n);
  n.refuse(n.take<rpc::InventoryPage>(), Code::fenced);
  CHECK(n.core.fenced());
  CHECK_FALSE(n.core.contentRefused());
  rejoinWith(n, 301);
  CHECK(n.take<rpc::InventoryPage>().memory.size() == 1);
}

TEST_CASE("inventory: an invalidation before the page leaves its value out, and the extent is listed all the same") {
  Node n;
  n.put("k", 7, 0);
  n.core.keep(n.now);
  rejoinWith(n);
  n.invalidate("k", PutId(9));
  CHECK(n.sent<rpc::InvalidateDone>() == 1);
  n.reply(n.take<rpc::InventoryPage>());
  CHECK_FALSE(n.committed("k"));
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{0});
}

TEST_CASE("inventory: heartbeats before its end say that the owner has not joined") {
  Node n;
  n.put("k", 7, 0);
  rejoinWith(n);
  n.core.heartbeat({}, n.now);
  CHECK_FALSE(n.take<rpc::Heartbeat>().serving);
}

TEST_CASE("inventory: refused as a whole, everything is to be dropped before the next registration") {
  Node n;
  n.put("k", 7, 0);
  rejoinWith(n);
  n.refuse(n.take<rpc::InventoryPage>(), Code::protocol);
  CHECK(n.core.fenced());
  CHECK(n.core.contentRefused());
  n.rejoin();
  CHECK_FALSE(n.core.contentRefused());
  CHECK_FALSE(n.committed("k"));
}

// What the next life makes of the directory of a node.
std::unique_ptr<shm::DirectoryWriter> adoptedOf(const Node& n) {
  shm::DirectoryWriter::Memory memory{&n.header(), nullptr, nullptr, nullptr};
  memory.tags = reinterpret_cast<shm::Word*>(n.directoryPages.data() + memory.header->tagsOffset);
  memory.slots = reinterpret_cast<shm::DirectorySlot*>(n.directoryPages.data() + memory.header->slotsOffset);
  memory.keys = n.keyPages.data() + sizeof(shm::KeysHeader);
  Result<std::unique_ptr<shm::DirectoryWriter>> adopted = shm::DirectoryWriter::adopt(memory, n.shape);
  REQUIRE(adopted.ok());
  return std::move(adopted).value();
}

TEST_CASE("adoption: values that the last life was dropping when it ended go") {
  Node n;
  const uint32_t gone = n.put("gone", 7, 0), value = n.put("value", 8, 65536), victim = n.put("victim", 9, 131072);
  n.reclaim("victim", PutId(9), 131072);
  // The first stores of a drop, and of its retired slots the first.
  n.header().contentIncarnation = 0;
  n.directory.retire(gone);
  const std::unique_ptr<shm::DirectoryWriter> directory = adoptedOf(n);
  HostStub host;
  OwnerCore next({"n"}, *directory, n.segmentPages.data(), kSegmentBytes, host);
  next.adopt({}, n.now);
  for (const uint32_t slot : {gone, value, victim}) CHECK((directory->state(slot) == SlotState::retired));
  next.keep(n.now);
  CHECK_FALSE(bool(next.content()));
  next.joined(Incarnation(900), seconds(10), n.now, n.now);
  CHECK(next.serving(n.now));
}

TEST_CASE("adoption: values and what clients hold or write go on, what the last life had begun ends") {
  Node n;
  const uint32_t value = n.put("value", 7, 0), held = n.put("held", 8, 65536), victim = n.put("victim", 9, 131072);
  n.invalidate("held", PutId(99));
  n.scanAll({n.directory.ref(held)});
  n.reclaim("victim", PutId(9), 131072);
  const Answer living = n.granted("living", 10, 196608, {}, 1), dead = n.granted("dead", 11, 262144, {}, 2);
  const Answer pending = n.granted("pending", 12, 327680, {}, 1);
  n.onRef(CommandKind::commit, pending.slotRef);
  route(n, (n.get("flight"), n.take<rpc::GetStart>()), PutId(13), 393216);

  const std::unique_ptr<shm::DirectoryWriter> adopted = adoptedOf(n);
  shm::DirectoryWriter& directory = *adopted;
  HostStub host;
  OwnerCore next({"n"}, directory, n.segmentPages.data(), kSegmentBytes, host);
  next.adopt({1}, n.now);
  const auto stateOf = [&](uint64_t ref) { return directory.state(shm::slotOfRef(ref)); };
  CHECK((directory.state(value) == SlotState::committed));
  CHECK((directory.state(held) == SlotState::retired));
  CHECK((directory.state(victim) == SlotState::committed));
  CHECK((stateOf(living.slotRef) == SlotState::granted));
  CHECK((stateOf(dead.slotRef) == SlotState::free));
  CHECK((stateOf(pending.slotRef) == SlotState::retired));
  CHECK(next.grants() == 1);
  CHECK(directory.count(SlotState::granted) == 1);
  next.keep(n.now);
  CHECK(next.content().value != 0);
  next.clientGone(ClientId(1), n.now);
  CHECK(directory.count(SlotState::granted) == 0);
}

}  // namespace
}  // namespace fluxon::owner
