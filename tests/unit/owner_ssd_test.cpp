// OwnerCore: its SSD.
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

using Kind = ssd::MessageKind;
constexpr Incarnation kLife{77};

struct SsdNode : Node {
  explicit SsdNode(uint64_t maxKeys = 64) : Node(maxKeys) { core.ssdAttached(kLife, now), take<rpc::SsdLife>(); }
  // The oldest message of a kind to ssdd that has not been taken.
  ssd::Message told(Kind kind) {
    for (auto it = host.toSsd.begin(); it != host.toSsd.end(); ++it) {
      if (it->kind != kind) continue;
      ssd::Message message = std::move(*it);
      host.toSsd.erase(it);
      return message;
    }
    FAIL("no message of kind ", static_cast<int>(kind));
    return {};
  }
  size_t untaken(Kind kind) const {
    size_t count = 0;
    for (const ssd::Message& message : host.toSsd) count += message.kind == kind;
    return count;
  }
  void says(Kind kind, uint64_t id, Code code = Code::ok) { core.ssd({kind, id, {}, {}, 0, 0, code}, now); }
  Sent<rpc::SsdCommit> persisted(const ssd::Message& persist) {
    says(Kind::persisted, persist.id);
    return take<rpc::SsdCommit>();
  }
  // What becomes of a value that the master wants back.
  rpc::ReclaimResult reclaimed(const std::string& key, PutId putId, uint64_t offset) {
    reclaim(key, putId, offset);
    scanAll();
    return take<rpc::ReclaimDone>().results.at(0);
  }
  void decided(const Sent<rpc::SsdCommit>& commit, std::vector<uint32_t> ignored = {}) { reply(commit, rpc::SsdTaken{std::move(ignored)}); }
  Caller asks(const std::string& key, uint64_t id, uint64_t offset) {
    const Caller caller = get(key);
    reply(take<rpc::GetStart>(), rpc::LoadHere{.putId = PutId(id), .bytes = kLarge, .offset = offset});
    return caller;
  }
  void stage(uint64_t id, const std::string& key, uint64_t putId, uint64_t offset) {
    order(rpc::Stage{
        .order = OrderId(id), .key = key, .putId = PutId(putId), .bytes = kLarge, .to = {exportOf(id), offset}, .timeLeftMs = 1000});
  }
  void unstage(uint64_t id, uint64_t of) { order(rpc::Unstage{OrderId(id), exportOf(of)}); }
  static ExportId exportOf(uint64_t order) { return ExportId(order | rpc::kStagedExport); }
};

TEST_CASE("ssd: a published put is persisted, and what the master takes is decided") {
  SsdNode n;
  n.put("k", 5, 4096);
  const ssd::Message persist = n.told(Kind::persist);
  CHECK(persist.key == "k");
  CHECK((persist.putId == PutId(5)));
  CHECK(persist.offset == 4096);
  CHECK(persist.bytes == kLarge);
  const auto commit = n.persisted(persist);
  REQUIRE(commit.values.size() == 1);
  CHECK((commit.values[0].putId == PutId(5)));
  n.decided(commit);
  const ssd::Message decided = n.told(Kind::decided);
  CHECK(decided.id == persist.id);
  CHECK(decided.code == Code::ok);
  CHECK(n.core.persists() == 0);
}

TEST_CASE("ssd: what the master does not take is dropped") {
  SsdNode n;
  n.put("k", 5, 4096);
  n.decided(n.persisted(n.told(Kind::persist)), {0});
  CHECK(n.told(Kind::decided).code != Code::ok);
}

TEST_CASE("ssd: a value that is being persisted is no victim") {
  SsdNode n;
  n.put("k", 5, 4096);
  const ssd::Message persist = n.told(Kind::persist);
  CHECK(n.reclaimed("k", PutId(5), 4096) == rpc::ReclaimResult::busy);
  const auto commit = n.persisted(persist);
  CHECK(n.reclaimed("k", PutId(5), 4096) == rpc::ReclaimResult::busy);
  n.decided(commit);
  CHECK(n.reclaimed("k", PutId(5), 4096) == rpc::ReclaimResult::ok);
}

TEST_CASE("ssd: a value that is deleted while it is persisted keeps its bytes until the write is over, and is not offered") {
  SsdNode n;
  const uint32_t slot = n.put("k", 5, 4096);
  const ssd::Message persist = n.told(Kind::persist);
  n.invalidate("k", PutId(6));
  n.says(Kind::done, n.told(Kind::invalidate).id);
  n.scanAll();
  n.pass(seconds(2));
  n.scanAll();
  CHECK(n.directory.state(slot) == shm::SlotState::retired);
  n.says(Kind::persisted, persist.id);
  CHECK(n.sent<rpc::SsdCommit>() == 0);
  CHECK(n.told(Kind::decided).code != Code::ok);
  n.scanAll();
  CHECK(n.directory.state(slot) == shm::SlotState::free);
}

TEST_CASE("ssd: a persist that waits for its turn gives way when its memory has been wanted for a second") {
  SsdNode n(512);
  // 128 are told to ssdd at once; the next one waits.
  for (uint64_t i = 0; i < 128; ++i) n.put("k" + std::to_string(i), 10 + i, 4096 * i);
  const size_t told = n.untaken(Kind::persist);
  n.put("last", 500, 4096 * 200);
  CHECK(n.untaken(Kind::persist) == told);
  CHECK(n.reclaimed("last", PutId(500), 4096 * 200) == rpc::ReclaimResult::busy);
  n.pass(seconds(2));
  CHECK(n.reclaimed("last", PutId(500), 4096 * 200) == rpc::ReclaimResult::ok);
}

TEST_CASE("ssd: an invalidation is answered when ssdd has dropped the entry") {
  SsdNode n;
  n.invalidate("k", PutId(9));
  CHECK(n.sent<rpc::InvalidateDone>() == 0);
  const ssd::Message dropped = n.told(Kind::invalidate);
  CHECK(dropped.key == "k");
  CHECK((dropped.putId == PutId(9)));
  n.says(Kind::done, dropped.id);
  CHECK(n.sent<rpc::InvalidateDone>() == 1);
}

TEST_CASE("ssd: what an invalidation retires is not released before it is answered") {
  SsdNode n;
  n.put("k", 5, 4096);
  n.decided(n.persisted(n.told(Kind::persist)));
  n.invalidate("k", PutId(9));
  n.pass(milliseconds(500));
  n.scanAll();
  CHECK(n.sent<rpc::Release>() == 0);
  n.says(Kind::done, n.told(Kind::invalidate).id);
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{4096});
}

TEST_CASE("ssd: an ssdd that does not answer an invalidation is cut off before it is answered") {
  SsdNode n;
  n.invalidate("k", PutId(9));
  n.pass(milliseconds(900));
  CHECK(n.sent<rpc::InvalidateDone>() == 0);
  n.pass(milliseconds(200));
  CHECK(n.host.startedOver);
  CHECK(n.header().ssdLife.load() == 0);
  CHECK_FALSE(bool(n.take<rpc::SsdLife>().life));
  CHECK(n.sent<rpc::InvalidateDone>() == 1);
  CHECK_FALSE(n.core.takesSsd(kLife, false));
  CHECK(n.core.takesSsd(Incarnation(78), true));
}

TEST_CASE("ssd: a get whose value is on the own SSD is answered from a flight") {
  SsdNode n;
  const Caller caller = n.asks("k", 5, 8192);
  REQUIRE(n.host.fetches.size() == 1);
  const Fetch fetch = n.host.fetches.front();
  CHECK(fetch.ssd);
  CHECK(n.directory.writer(0) == 0);
  n.core.fetched(fetch.id, {}, n.now);
  const Answer answer = n.answer(caller);
  CHECK(answer.code == Code::ok);
  CHECK(answer.source == shm::AnswerSource::ssd);
  CHECK(n.take<rpc::GetDone>().code == Code::ok);
  CHECK(n.core.counters().ssdLoads == 1);
}

TEST_CASE("ssd: a get is given up when the fourth SSD does not have what it should") {
  SsdNode n;
  Caller caller = n.asks("k", 5, 8192);
  for (int failures = 1; failures <= 4; ++failures) {
    n.core.fetched(n.host.fetches.back().id, {Code::miss, "gone"}, n.now);
    CHECK(n.take<rpc::GetDone>().code == Code::miss);
    CHECK((n.told(Kind::drop).putId == PutId(5)));
    if (failures == 4) break;
    CHECK_FALSE(n.answered(caller));
    n.pass(milliseconds(50));
    const auto start = n.take<rpc::GetStart>();
    CHECK(start.avoid == "n");
    n.reply(start, rpc::LoadHere{.putId = PutId(5), .bytes = kLarge, .offset = 8192});
  }
  CHECK(n.answer(caller).code == Code::unavailable);
}

TEST_CASE("ssd: what has gone from the SSD is told together, after 10 ms or 256") {
  SsdNode n;
  n.core.ssd({Kind::evicted, 0, "a", PutId(1)}, n.now);
  n.core.ssd({Kind::evicted, 0, "b", PutId(2)}, n.now);
  CHECK(n.sent<rpc::SsdEvicted>() == 0);
  n.pass(milliseconds(10));
  CHECK(n.take<rpc::SsdEvicted>().values.size() == 2);
  for (int i = 0; i < 256; ++i) n.core.ssd({Kind::evicted, 0, "k", PutId(3)}, n.now);
  CHECK(n.take<rpc::SsdEvicted>().values.size() == 256);
}

TEST_CASE("ssd: a master that does not answer is told of 4096 that have gone; the others wait, and nothing else waits for that") {
  SsdNode n;
  constexpr uint64_t kSaid = 20'000;
  for (uint64_t id = 1; id <= kSaid; ++id) n.core.ssd({Kind::evicted, 0, "k", PutId(id)}, n.now);
  n.pass(seconds(1));
  CHECK(n.sent<rpc::SsdEvicted>() == 16);
  n.put("a", kSaid + 1, 4096);
  const ssd::Message persist = n.told(Kind::persist);
  n.decided(n.persisted(persist));
  CHECK(n.told(Kind::decided).code == Code::ok);
  CHECK_FALSE(n.host.startedOver);
  uint64_t next = 1;
  while (n.sent<rpc::SsdEvicted>() > 0) {
    const auto told = n.take<rpc::SsdEvicted>();
    for (const rpc::Version& each : told.values) CHECK((each.putId == PutId(next++)));  // each once, in the order in which they went
    n.reply(told);
    n.pass(milliseconds(10));
  }
  CHECK(next == kSaid + 1);
}

TEST_CASE("ssd: a persist that ends with an error is counted, the master does not hear of it, and its memory is free to go") {
  for (const Code code : {Code::system, Code::noSpace, Code::tooLarge, Code::unavailable}) {
    SsdNode n;
    n.put("k", 5, 4096);
    n.says(Kind::persisted, n.told(Kind::persist).id, code);
    CHECK(n.core.counters().persistsFailed == 1);
    CHECK(n.core.persists() == 0);
    CHECK(n.sent<rpc::SsdCommit>() == 0);
    CHECK(n.reclaimed("k", PutId(5), 4096) == rpc::ReclaimResult::ok);
  }
}

TEST_CASE("ssd: an ssdd that says that it lives may take its time with writes and loads") {
  SsdNode n;
  n.put("a", 5, 4096);
  n.asks("k", 6, 65536);
  for (int second = 0; second < 60; ++second) {
    n.pass(seconds(1));
    n.says(Kind::alive, 0);
  }
  CHECK_FALSE(n.host.startedOver);
  n.pass(seconds(5));
  CHECK(n.host.startedOver);
}

TEST_CASE("ssd: what a device does not write is over: its memory is free to go, and the others have their turns") {
  SsdNode n(512);
  for (uint64_t i = 0; i < 128; ++i) n.put("k" + std::to_string(i), 10 + i, 4096 * i);
  const ssd::Message first = n.told(Kind::persist);
  n.put("next", 500, 4096 * 200);
  const size_t told = n.untaken(Kind::persist);
  n.says(Kind::stalled, first.id);
  CHECK(n.untaken(Kind::persist) == told + 1);
  n.says(Kind::stalled, first.id);  // twice is once
  n.says(Kind::persisted, first.id, Code::unavailable);
  CHECK(n.core.counters().persistsStalled == 1);
  CHECK(n.core.counters().persistsFailed == 1);
  CHECK(n.sent<rpc::SsdCommit>() == 0);
  CHECK(n.reclaimed("k0", PutId(10), 0) == rpc::ReclaimResult::ok);
}

TEST_CASE("ssd: a get does not wait for a device that does nothing; the extent stays until that has answered") {
  SsdNode n;
  const Caller caller = n.asks("k", 5, 8192);
  const uint64_t load = n.host.fetches.back().id;
  n.stage(7, "s", 6, 65536);
  const uint64_t staged = n.host.fetches.back().id;
  n.says(Kind::stalled, load);
  n.says(Kind::stalled, staged);
  CHECK(n.host.failed.count(SsdNode::exportOf(7)) == 1);
  n.pass(milliseconds(5));
  const auto again = n.take<rpc::GetStart>();
  CHECK(again.avoid == "n");
  n.refuse(again, Code::miss);
  CHECK(n.answer(caller).code == Code::miss);
  n.pass(seconds(60));  // nothing is due
  CHECK_FALSE(n.host.startedOver);
  CHECK(n.sent<rpc::Release>() == 0);
  n.core.fetched(load, {Code::unavailable, ""}, n.now);
  CHECK(n.take<rpc::GetDone>().code == Code::unavailable);
}

TEST_CASE("stage: what is loaded is exported as it comes, and its place goes when nobody reads or writes it any more") {
  SsdNode n;
  n.stage(7, "k", 5, 8192);
  CHECK(n.take<rpc::Staged>().code == Code::ok);
  const ExportId id = SsdNode::exportOf(7);
  CHECK(n.host.exported.count(id) == 1);
  const uint64_t load = n.host.fetches.front().id;
  n.core.loading(load, 4096, n.now);
  CHECK(n.host.ready_.at(id) == 4096);
  n.unstage(8, 7);
  n.core.unexported(id, n.now);
  CHECK(n.sent<rpc::Unstaged>() == 0);  // ssdd may still write
  n.core.fetched(load, {}, n.now);
  CHECK((n.take<rpc::Unstaged>().order == OrderId(8)));
  CHECK(n.allFree());
}

TEST_CASE("stage: it ends once where nobody can be reading, so that the end of the export is known at once") {
  for (const bool term : {false, true}) {
    CAPTURE(term);
    SsdNode n;
    n.host.noLink = [&](ExportId id) { n.core.unexported(id, n.now); };
    n.stage(7, "k", 5, 8192);
    n.core.fetched(n.host.fetches.front().id, {}, n.now);
    if (term) {
      n.core.keep(n.now);
    } else {
      n.unstage(8, 7);
      CHECK((n.take<rpc::Unstaged>().order == OrderId(8)));
      CHECK(n.sent<rpc::Unstaged>() == 0);
    }
    CHECK(n.core.exports() == 0);
    CHECK(n.allFree());
  }
}

TEST_CASE("stage: an ssdd that counts bytes that cannot be is cut off, and nobody is told that they are there") {
  for (const uint64_t bytes : {uint64_t{4095}, kLarge + 1, UINT64_MAX}) {
    CAPTURE(bytes);
    SsdNode n;
    n.stage(7, "k", 5, 8192);
    const uint64_t load = n.host.fetches.front().id;
    n.core.loading(load, 4096, n.now);
    n.core.loading(load, bytes, n.now);
    CHECK(n.host.ready_.at(SsdNode::exportOf(7)) == 4096);
    CHECK(n.host.startedOver);
    CHECK_FALSE(bool(n.take<rpc::SsdLife>().life));
    n.core.fetched(load, {Code::unavailable, ""}, n.now);
    CHECK(n.host.failed.count(SsdNode::exportOf(7)) == 1);
  }
}

TEST_CASE("stage: a load that fails fails those who read") {
  SsdNode n;
  n.stage(7, "k", 5, 8192);
  n.core.fetched(n.host.fetches.front().id, {Code::corrupt, ""}, n.now);
  CHECK(n.host.failed.count(SsdNode::exportOf(7)) == 1);
  CHECK((n.told(Kind::drop).putId == PutId(5)));
  CHECK(n.take<rpc::SsdEvicted>().values[0].key == "k");
  CHECK_FALSE(n.allFree());
  n.unstage(8, 7);
  n.core.unexported(SsdNode::exportOf(7), n.now);
  CHECK(n.allFree());
}

TEST_CASE("stage: one that is there when the term ends is read no more when the next begins; its load may go on") {
  SsdNode n;
  n.stage(7, "k", 5, 8192);
  n.core.keep(n.now);
  n.scanAll();
  CHECK(n.core.underWay() > 0);
  n.core.unexported(SsdNode::exportOf(7), n.now);
  CHECK(n.core.underWay() == 0);
  CHECK(n.core.occupied().size() == 1);
  n.core.registered(Incarnation(200), seconds(10), n.now, OwnerCore::Inventory::none, n.now);
  n.host.sent.clear();
  n.core.fetched(n.host.fetches.front().id, {}, n.now);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.sent<rpc::Unstaged>() == 0);
  CHECK(n.allFree());
}

TEST_CASE("stage: a load that outlasts its term is no load of the stage that has its id in the next one") {
  SsdNode n;
  n.stage(7, "k", 5, 8192);
  n.core.keep(n.now);
  n.scanAll();
  n.core.unexported(SsdNode::exportOf(7), n.now);
  n.core.occupied();
  n.core.registered(Incarnation(200), seconds(10), n.now, OwnerCore::Inventory::none, n.now);
  n.host.sent.clear();
  n.stage(7, "j", 6, 65536);
  CHECK(n.take<rpc::Staged>().code == Code::ok);
  REQUIRE(n.host.fetches.size() == 2);
  const uint64_t old = n.host.fetches[0].id, fresh = n.host.fetches[1].id;
  n.core.loading(old, kLarge, n.now);
  CHECK(n.host.ready_.at(SsdNode::exportOf(7)) == 0);
  n.core.fetched(old, {}, n.now);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.host.ready_.at(SsdNode::exportOf(7)) == 0);
  n.core.fetched(fresh, {}, n.now);
  CHECK(n.host.ready_.at(SsdNode::exportOf(7)) == kLarge);
  CHECK(n.core.flights() == 0);
  CHECK(n.core.exports() == 1);
}

TEST_CASE("ssd: a new term does not wait for a disk; what a load may write is in use until it ends") {
  SsdNode n;
  n.put("old", 4, 4096);
  n.told(Kind::persist);
  const Caller caller = n.asks("k", 5, 65536);
  n.core.keep(n.now);
  n.scanAll();
  CHECK(n.answer(caller).code == Code::unavailable);
  CHECK(n.core.underWay() == 0);
  const std::vector<Extent> occupied = n.core.occupied();
  REQUIRE(occupied.size() == 1);
  CHECK(occupied[0].offset == 65536);
  n.core.describeSsd();
  n.core.registered(Incarnation(200), seconds(10), n.now, OwnerCore::Inventory::wanted, n.now);
  n.reply(n.take<rpc::InventoryPage>());
  n.says(Kind::done, n.told(Kind::list).id);
  n.reply(n.take<rpc::InventoryPage>());
  CHECK_FALSE(n.core.reporting());
  // The next term finds it the same way.
  n.core.keep(n.now);
  n.scanAll();
  CHECK(n.core.underWay() == 0);
  CHECK(n.core.occupied().size() == 1);
  n.core.registered(Incarnation(201), seconds(10), n.now, OwnerCore::Inventory::wanted, n.now);
  n.reply(n.take<rpc::InventoryPage>());
  n.says(Kind::done, n.told(Kind::list).id);
  n.reply(n.take<rpc::InventoryPage>());
  n.host.sent.clear();
  n.core.fetched(n.host.fetches.front().id, {Code::unavailable, ""}, n.now);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{65536});
  CHECK(n.slots(shm::SlotState::granted) == 0);
}

TEST_CASE("ssd: an ssdd that is asked for its list and says nothing is cut off, and the list goes on without it") {
  SsdNode n;
  n.core.keep(n.now);
  n.scanAll();
  n.core.occupied();
  n.core.describeSsd();
  n.core.registered(Incarnation(200), seconds(10), n.now, OwnerCore::Inventory::wanted, n.now);
  const ssd::Message list = n.told(Kind::list);
  n.pass(milliseconds(900));
  n.core.ssd({Kind::listed, list.id, "x", PutId(3), 0, 100}, n.now);
  n.pass(milliseconds(900));
  CHECK_FALSE(n.host.startedOver);
  CHECK(n.core.reporting());
  CHECK(n.core.nextWake() <= n.now + milliseconds(100));
  n.pass(milliseconds(200));
  CHECK(n.host.startedOver);
  CHECK_FALSE(bool(n.take<rpc::SsdLife>().life));
  const auto last = n.take<rpc::InventoryPage>();
  CHECK(last.ssd.empty());
  n.reply(last);
  CHECK_FALSE(n.core.reporting());
}

TEST_CASE("ssd: a value that is overwritten while its persist waits for its turn gives its memory back") {
  SsdNode n;
  // As many as are written at once: a quarter of the segment.
  uint64_t id = 10;
  for (; n.untaken(Kind::persist) == id - 10; ++id) n.put("k" + std::to_string(id), id, 24576 * (id - 10));
  const std::string waits = "k" + std::to_string(id - 1);
  const uint64_t offset = 24576 * (id - 11);
  n.put(waits, 500, 24576 * 35);
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{offset});
  CHECK(n.core.counters().persistsGivenUp == 1);
  CHECK(n.core.persists() == id - 10);  // the newer value waits now
}

TEST_CASE("ssd: the progress of a scrub is not taken for that of a load") {
  SsdNode n;
  n.stage(7, "k", 5, 8192);
  const uint64_t load = n.host.fetches.front().id;
  for (int i = 0; i < 20; ++i) {
    n.run(shm::CommandKind::scrub);
    CHECK(n.told(Kind::scrub).id != load);
  }
}

TEST_CASE("ssd: a life that the owner has given up does not come again, empty or not") {
  SsdNode n;
  n.core.ssdGone(n.now);
  CHECK_FALSE(n.core.takesSsd(kLife, false));
  CHECK_FALSE(n.core.takesSsd(kLife, true));
  CHECK(n.core.takesSsd(Incarnation(78), true));
}

TEST_CASE("ssd: values that are dropped take with them what an ssdd has that is not attached yet") {
  Node n(64, false);
  n.header().ssdLife = 9;
  n.core.drop(n.now);
  CHECK_FALSE(n.core.takesSsd(Incarnation(9), false));
  CHECK(n.core.takesSsd(Incarnation(9), true));
}

TEST_CASE("ssd: a new term lists what is on the SSD after the values in memory") {
  SsdNode n;
  n.put("k", 5, 4096);
  n.told(Kind::persist);
  n.core.keep(n.now);
  n.scanAll();
  n.told(Kind::forget);
  CHECK(n.core.underWay() == 0);
  n.core.occupied();
  CHECK((n.core.describeSsd() == kLife));
  n.header().contentIncarnation = 3;
  CHECK((n.core.content() == Incarnation(3)));
  n.core.registered(Incarnation(200), seconds(10), n.now, OwnerCore::Inventory::wanted, n.now);
  const ssd::Message list = n.told(Kind::list);
  const auto page = n.take<rpc::InventoryPage>();
  CHECK(page.memory.size() == 1);
  CHECK(page.pages == 0);
  n.core.ssd({Kind::listed, list.id, "x", PutId(3), 0, 100}, n.now);
  n.core.ssd({Kind::listed, list.id, "y", PutId(4), 0, 200}, n.now);
  n.says(Kind::done, list.id);
  n.reply(page);
  const auto last = n.take<rpc::InventoryPage>();
  REQUIRE(last.ssd.size() == 2);
  CHECK(last.memory.empty());
  CHECK(last.pages == 2);
  n.reply(last, rpc::InventoryTaken{.refusedSsd = {1}});
  // What the master refuses is gone from the SSD before this life serves.
  CHECK(n.core.reporting());
  const ssd::Message dropped = n.told(Kind::invalidate);
  CHECK(dropped.key == "y");
  CHECK((dropped.putId == PutId(5)));
  n.says(Kind::done, dropped.id);
  CHECK_FALSE(n.core.reporting());
  CHECK(n.core.serving(n.now));
}

// Between terms, with a value in memory.
struct Parted : SsdNode {
  Parted() {
    put("k", 5, 4096);
    core.keep(now);
    scanAll();
  }
  // The next term begins; what ssdd is asked to list.
  uint64_t reports() {
    core.occupied();
    core.registered(Incarnation(200), seconds(10), now, OwnerCore::Inventory::wanted, now);
    reply(take<rpc::InventoryPage>());
    return told(Kind::list).id;
  }
};

TEST_CASE("ssd: a list that does not end is waited for as long as it goes on; then the owner serves without it") {
  Parted n;
  n.says(Kind::done, n.told(Kind::forget).id);
  const uint64_t list = n.reports();
  for (uint64_t i = 1; i < 5; ++i) {
    n.pass(milliseconds(900));
    n.core.ssd({Kind::listed, list, "x" + std::to_string(i), PutId(i), 0, 100}, n.now);
    CHECK_FALSE(n.host.startedOver);
  }
  n.pass(milliseconds(1100));
  CHECK(n.host.startedOver);
  CHECK_FALSE(bool(n.take<rpc::SsdLife>().life));
  while (n.sent<rpc::InventoryPage>() > 0) n.reply(n.take<rpc::InventoryPage>());
  CHECK_FALSE(n.core.reporting());
  CHECK(n.committed("k"));
}

TEST_CASE("ssd: one that lists what cannot be is cut off, and the master does not hear of it") {
  const auto listed = [](std::string key, PutId putId, uint64_t bytes) { return ssd::Message{Kind::listed, 0, key, putId, 0, bytes}; };
  for (ssd::Message message : {listed("", PutId(3), 100), listed("x", PutId(), 100), listed("x", PutId(3), kSegmentBytes + 1),
                               listed("x", PutId(3), UINT64_MAX)}) {
    Parted n;
    n.says(Kind::done, n.told(Kind::forget).id);
    message.id = n.reports();
    n.core.ssd(message, n.now);
    CHECK(n.host.startedOver);
    const auto last = n.take<rpc::InventoryPage>();
    CHECK(last.ssd.empty());
    CHECK(last.pages == 2);
    n.reply(last);
    CHECK_FALSE(n.core.reporting());
    CHECK(n.committed("k"));
  }
}

TEST_CASE("ssd: what was never asked is not heard") {
  Parted n;
  const ssd::Message forget = n.told(Kind::forget);
  for (uint64_t id = 0; id < forget.id + 5; ++id) {
    if (id == forget.id) continue;
    for (const Kind kind : {Kind::persisted, Kind::done, Kind::listed}) n.core.ssd({kind, id, "x", PutId(3), 0, 100}, n.now);
  }
  n.says(Kind::done, forget.id);
  n.says(Kind::done, n.reports());
  CHECK(n.take<rpc::InventoryPage>().ssd.empty());
}

TEST_CASE("ssd: a disk that ends no write for four seconds holds memory up no longer") {
  SsdNode n;
  n.put("a", 5, 4096);
  n.put("b", 6, 32768);
  const ssd::Message a = n.told(Kind::persist);
  n.pass(seconds(3));
  n.persisted(a);  // slow is not dead
  n.pass(seconds(3));
  CHECK_FALSE(n.host.startedOver);
  CHECK(n.core.persists() == 2);
  n.pass(seconds(2));
  CHECK(n.host.startedOver);
  CHECK(n.core.persists() == 0);
}

TEST_CASE("ssd: a get waits four seconds for a word of an ssdd that loads; then it asks for another source, and the extent stays") {
  SsdNode n;
  const Caller caller = n.asks("k", 5, 8192);
  const uint64_t load = n.host.fetches.back().id;
  n.stage(7, "s", 6, 65536);
  n.pass(seconds(3));
  n.core.loading(load, 100, n.now);  // slow is not dead
  n.pass(seconds(3));
  CHECK_FALSE(n.host.startedOver);
  CHECK_FALSE(n.host.failed.count(SsdNode::exportOf(7)));
  n.pass(seconds(2));
  CHECK(n.host.startedOver);
  CHECK_FALSE(bool(n.take<rpc::SsdLife>().life));
  CHECK(n.host.failed.count(SsdNode::exportOf(7)) == 1);
  n.pass(milliseconds(5));
  const auto again = n.take<rpc::GetStart>();
  CHECK(again.key == "k");
  CHECK(again.avoid == "n");
  n.refuse(again, Code::miss);
  CHECK(n.answer(caller).code == Code::miss);
  n.core.fetched(load, {Code::unavailable, ""}, n.now);
  CHECK(n.take<rpc::GetDone>().code == Code::unavailable);
  n.pass(seconds(10));  // nothing more is due
}

TEST_CASE("ssd: values that are dropped as a whole take the SSD with them") {
  SsdNode n;
  n.core.drop(n.now);
  CHECK(n.host.startedOver);
  CHECK(n.header().ssdLife.load() == 0);
  CHECK((n.core.ssdLife() == Incarnation()));
}

TEST_CASE("ssd: one that is not empty is taken only before the master is told what is here, and only that of the last life") {
  Node n(64, false);
  n.header().ssdLife = 9;
  CHECK(n.core.takesSsd(Incarnation(9), false));
  CHECK_FALSE(n.core.takesSsd(Incarnation(8), false));
  n.core.keep(n.now);
  n.core.occupied();
  n.core.describeSsd();
  CHECK_FALSE(n.core.takesSsd(Incarnation(9), false));
  CHECK(n.core.takesSsd(Incarnation(9), true));
}

TEST_CASE("ssd: extents that an ssdd of the last life may be writing stay in use until it is calm") {
  Node n(64, false);
  REQUIRE(n.directory.grant("k", keyHash("k"), 4096, 100, kSsdWriter.value, OperationId(4)));
  n.core.adopt({kSsdWriter.value}, n.now);
  n.core.keep(n.now);
  n.scanAll();
  CHECK(n.core.occupied().size() == 1);
  n.core.clientGone(kSsdWriter, n.now);
  CHECK(n.core.occupied().empty());
}

}  // namespace
}  // namespace fluxon::owner
