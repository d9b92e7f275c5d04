// OwnerCore: puts, from the grant to the commit, and what undoes them at each step.
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

using shm::CommandKind;
using shm::SlotState;

TEST_CASE("owner puts: a grant is in the directory before its address leaves, and nobody finds it") {
  Node n;
  const Caller caller = n.putStart("k");
  CHECK(n.directory.count(SlotState::granted) == 0);
  const auto start = n.take<rpc::PutStart>();
  CHECK(start.key == "k");
  CHECK(start.bytes == kLarge);
  CHECK(start.timeLeftMs > 59'000);
  n.started(start, PutId(7), 8192);
  const Answer grant = n.answer(caller);
  CHECK(grant.offset == 8192);
  CHECK(grant.valueBytes == kLarge);
  const uint32_t slot = shm::slotOfRef(grant.slotRef);
  CHECK((n.directory.state(slot) == SlotState::granted));
  CHECK(n.directory.writer(slot) == 1);
  CHECK_FALSE(n.committed("k"));
}

TEST_CASE("owner puts: a commit is pending until the master has published it") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  CHECK(n.slots(SlotState::pending) == 1);
  CHECK_FALSE(n.committed("k"));
  CHECK_FALSE(n.answered(commit));
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(commit).code == Code::ok);
  CHECK((n.answer(commit).putId == PutId(7)));
  REQUIRE(n.committed("k"));
  CHECK((n.directory.putId(*n.committed("k")) == PutId(7)));
  CHECK(n.core.grants() == 0);
}

TEST_CASE("owner puts: an inline value is written, published and answered in one command") {
  Node n;
  const Caller put = n.putInline("k", "hello");
  n.started(n.take<rpc::PutStart>(), PutId(7), 128);
  CHECK(std::memcmp(n.segmentPages.data() + 128, "hello", 5) == 0);
  CHECK_FALSE(n.answered(put));
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(put).code == Code::ok);
  CHECK(n.directory.payloadBytes(*n.committed("k")) == 5);
}

TEST_CASE("owner puts: an inline value of no bytes is a value") {
  Node n;
  n.putInline("k", "");
  n.started(n.take<rpc::PutStart>(), PutId(7), 128);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.directory.payloadBytes(*n.committed("k")) == 0);
}

TEST_CASE("owner puts: the owner retires its older value before it asks the master to publish") {
  Node n;
  const uint32_t old = n.put("k", 7, 0);
  const Answer grant = n.granted("k", 8, 65536);
  CHECK((n.directory.state(old) == SlotState::committed));
  n.onRef(CommandKind::commit, grant.slotRef);
  CHECK(n.sent<rpc::PutDone>() == 1);
  CHECK((n.directory.state(old) == SlotState::retired));
  CHECK_FALSE(n.committed("k"));
}

TEST_CASE("owner puts: a put that an existing key refuses leaves the older value readable") {
  Node n;
  const uint32_t old = n.put("k", 7, 0);
  const Answer grant = n.granted("k", 8, 65536, {.onExisting = PutMode::OnExisting::reject});
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  CHECK((n.directory.state(old) == SlotState::committed));
  n.refuse(n.take<rpc::PutDone>(), Code::exists);
  CHECK(n.answer(commit).code == Code::exists);
  CHECK(n.committed("k") == old);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{65536});
}

TEST_CASE("owner puts: an older value that was retired for a refused put is reported as given up before its release") {
  Node n;
  n.put("k", 7, 0);
  const Answer grant = n.granted("k", 8, 65536);
  n.host.sent.clear();
  n.onRef(CommandKind::commit, grant.slotRef);
  n.refuse(n.take<rpc::PutDone>(), Code::noLease);
  n.scanAll();
  REQUIRE(n.sent<rpc::Dropped>() == 1);
  CHECK(n.host.sent.front().is<rpc::Dropped>());
  const rpc::MemoryReplica dropped = n.take<rpc::Dropped>().replicas.at(0);
  CHECK(dropped.offset == 0);
  CHECK((dropped.putId == PutId(7)));
}

TEST_CASE("owner puts: a put that a newer one of this owner has overtaken leaves the newer value readable") {
  Node n;
  const Answer slow = n.granted("k", 7, 0);
  const uint32_t newer = n.put("k", 8, 65536);
  const Caller commit = n.onRef(CommandKind::commit, slow.slotRef);
  CHECK(n.committed("k") == newer);
  n.ended(n.take<rpc::PutDone>(), PutId(7), false);
  CHECK(n.answer(commit).code == Code::ok);
  CHECK(n.committed("k") == newer);
  n.scanAll();
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{0});
}

TEST_CASE("owner puts: an overwritten put is a success and its extent goes back") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  n.ended(n.take<rpc::PutDone>(), PutId(7), false);
  CHECK(n.answer(commit).code == Code::ok);
  CHECK_FALSE(n.committed("k"));
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.allFree());
}

TEST_CASE("owner puts: a put invalidated between its publish and the reply is not committed") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  const auto done = n.take<rpc::PutDone>();
  n.invalidate("k", PutId(9));  // overtakes the reply
  n.ended(done, PutId(7));
  CHECK_FALSE(n.committed("k"));
  CHECK(n.answer(commit).code == Code::ok);
  CHECK(n.take<rpc::Dropped>().replicas.at(0).offset == 8192);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
}

TEST_CASE("owner puts: an invalidation below the put does not stop it") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.invalidate("k", PutId(7));
  n.onRef(CommandKind::commit, grant.slotRef);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.committed("k"));
}

TEST_CASE("owner puts: an invalidation that came while the put was still asked for is remembered") {
  Node n;
  const Caller caller = n.putStart("k");
  n.invalidate("k", PutId(9));
  n.started(n.take<rpc::PutStart>(), PutId(7), 8192);
  n.onRef(CommandKind::commit, n.answer(caller).slotRef);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK_FALSE(n.committed("k"));
}

TEST_CASE("owner puts: of two puts of a key the later one stays, in whatever order their replies come") {
  for (const bool swapped : {false, true}) {
    CAPTURE(swapped);
    Node n;
    const Answer first = n.granted("k", 7, 0), second = n.granted("k", 8, 65536);
    n.onRef(CommandKind::commit, first.slotRef);
    n.onRef(CommandKind::commit, second.slotRef);
    const auto one = n.take<rpc::PutDone>(), two = n.take<rpc::PutDone>();
    if (swapped)
      n.ended(two, PutId(8)), n.ended(one, PutId(7));
    else
      n.ended(one, PutId(7)), n.ended(two, PutId(8));
    CHECK(n.slots(SlotState::committed) == 1);
    CHECK((n.directory.putId(*n.committed("k")) == PutId(8)));
  }
}

TEST_CASE("owner puts: a commit with a lapsed lease is given up") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.now = n.now + seconds(10);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  CHECK(n.answer(commit).code == Code::unavailable);
  CHECK(n.take<rpc::PutAbort>().put == OperationId(1));
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.allFree());
}

TEST_CASE("owner puts: a publish that arrives after the lease is not committed and its outcome is unknown") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  n.now = n.now + seconds(10);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(commit).code == Code::outcomeUnknown);
  CHECK_FALSE(n.committed("k"));
  CHECK((n.take<rpc::Dropped>().replicas.at(0).putId == PutId(7)));
}

TEST_CASE("owner puts: a commit an instant before the end of the lease is good") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.now = n.now + seconds(10) + Duration{-1};
  n.onRef(CommandKind::commit, grant.slotRef);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.committed("k"));
}

TEST_CASE("owner puts: an abort gives the grant back, once") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  CHECK(n.answer(n.onRef(CommandKind::abort, grant.slotRef)).code == Code::ok);
  CHECK(n.sent<rpc::PutAbort>() == 1);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.answer(n.onRef(CommandKind::abort, grant.slotRef)).code == Code::invalidArgument);
  CHECK(n.answer(n.onRef(CommandKind::commit, grant.slotRef)).code == Code::invalidArgument);
  CHECK(n.core.grants() == 0);
}

TEST_CASE("owner puts: only the client with the grant may commit or abort it, and only while it is granted") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  CHECK(n.answer(n.onRef(CommandKind::commit, grant.slotRef, 2)).code == Code::invalidArgument);
  CHECK(n.answer(n.onRef(CommandKind::abort, grant.slotRef, 2)).code == Code::invalidArgument);
  CHECK(n.answer(n.onRef(CommandKind::commit, grant.slotRef + 1)).code == Code::invalidArgument);
  CHECK(n.answer(n.onRef(CommandKind::commit, UINT64_MAX)).code == Code::invalidArgument);
  n.onRef(CommandKind::commit, grant.slotRef);
  CHECK(n.answer(n.onRef(CommandKind::commit, grant.slotRef)).code == Code::invalidArgument);
  CHECK(n.answer(n.onRef(CommandKind::abort, grant.slotRef)).code == Code::invalidArgument);
  CHECK(n.sent<rpc::PutDone>() == 1);
}

TEST_CASE("owner puts: a grant whose caller has given up is undone") {
  Node n;
  n.putStart("k");
  n.host.listening = false;
  n.started(n.take<rpc::PutStart>(), PutId(7), 8192);
  CHECK(n.sent<rpc::PutAbort>() == 1);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.allFree());
  CHECK(n.core.grants() == 0);
}

TEST_CASE("owner puts: a commit whose caller has given up counts all the same") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.onRef(CommandKind::commit, grant.slotRef);
  n.host.listening = false;
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.committed("k"));
}

TEST_CASE("owner puts: a client that ends before its grant arrives leaves nothing") {
  Node n;
  n.putStart("k");
  n.core.clientGone(ClientId(1), n.now);
  n.host.listening = false;
  n.started(n.take<rpc::PutStart>(), PutId(7), 8192);
  CHECK(n.allFree());
  CHECK(n.sent<rpc::PutAbort>() == 1);
}

TEST_CASE("owner puts: a client that ends with a grant loses it, other clients keep theirs") {
  Node n;
  n.granted("k", 7, 8192, {}, 1);
  const Answer other = n.granted("k", 8, 65536, {}, 2);
  n.core.clientGone(ClientId(1), n.now);
  CHECK(n.sent<rpc::PutAbort>() == 1);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.core.grants() == 1);
  n.onRef(CommandKind::commit, other.slotRef, 2);
  n.ended(n.take<rpc::PutDone>(), PutId(8));
  CHECK(n.committed("k"));
}

TEST_CASE("owner puts: a client that ends after its commit has put its value") {
  Node n;
  const Answer grant = n.granted("k", 7, 8192);
  n.onRef(CommandKind::commit, grant.slotRef);
  n.core.clientGone(ClientId(1), n.now);
  CHECK(n.slots(SlotState::pending) == 1);
  n.host.listening = false;
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.committed("k"));
  CHECK(n.core.grants() == 0);
}

TEST_CASE("owner puts: a refused start is passed on and leaves nothing") {
  Node n;
  const Caller put = n.putStart("k");
  n.refuse(n.take<rpc::PutStart>(), Code::noSpace);
  CHECK(n.answer(put).code == Code::noSpace);
  CHECK(n.allFree());
  CHECK(n.core.requestsPending() == 0);
}

TEST_CASE("owner puts: an empty key is refused") {
  Node n;
  CHECK(n.answer(n.putStart("")).code == Code::invalidKey);
  CHECK(n.core.requestsPending() == 0);
}

TEST_CASE("owner puts: without a lease nothing is begun") {
  Node n;
  n.now = n.now + seconds(10);
  const Caller put = n.putStart("k"), small = n.putInline("k", "v");
  CHECK_FALSE(n.answered(put));
  CHECK_FALSE(n.answered(small));
  CHECK(n.answer(n.get("k")).code == Code::unavailable);
  CHECK(n.answer(n.run(CommandKind::remove, "k")).code == Code::unavailable);
  n.pass(seconds(59));
  CHECK_FALSE(n.answered(put));
  n.pass(seconds(1));
  n.pass(milliseconds(1));
  CHECK(n.answer(put).code == Code::unavailable);
  CHECK(n.answer(small).code == Code::unavailable);
  CHECK(n.host.sent.empty());
}

TEST_CASE("owner puts: those that begin without a master go to the next one, those that an end of a term met before their grant too") {
  Node n;
  const Caller before = n.putInline("before", "value");
  n.core.keep(n.now);
  const Caller during = n.putStart("during");
  n.rejoin();
  CHECK_FALSE(n.answered(before));
  n.pass(milliseconds(1));
  const auto first = n.take<rpc::PutStart>(), second = n.take<rpc::PutStart>();
  CHECK(first.key == "before");
  n.started(first, PutId(7), 8192);
  n.started(second, PutId(8), 65536);
  CHECK(n.answer(during).code == Code::ok);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(n.answer(before).code == Code::ok);
  CHECK(std::memcmp(n.segmentPages.data() + 8192, "value", 5) == 0);
  CHECK(n.core.counters().puts == 2);
}

TEST_CASE("owner puts: an owner that stops answers those that wait for a master") {
  Node n(64, false);
  const Caller put = n.putStart("k");
  n.core.stop(n.now);
  CHECK(n.answer(put).code == Code::unavailable);
}

TEST_CASE("owner puts: a full directory refuses the put and gives its extent back") {
  Node n(1);
  uint64_t id = 1;
  for (; n.slots(SlotState::free) > 0; ++id) {
    const Caller put = n.putStart("k" + std::to_string(id));
    n.started(n.take<rpc::PutStart>(), PutId(id), id * 64);
    if (n.answer(put).code != Code::ok) break;
  }
  n.host.sent.clear();
  const Caller put = n.putStart("one more");
  n.started(n.take<rpc::PutStart>(), PutId(999), 8192);
  CHECK(n.answer(put).code == Code::noSpace);
  CHECK(n.sent<rpc::PutAbort>() == 1);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
  CHECK(n.core.counters().directoryFull > 0);
}

TEST_CASE("owner puts: a grant outside the segment is refused, not written to") {
  Node n;
  const Caller put = n.putInline("k", "value");
  n.started(n.take<rpc::PutStart>(), PutId(7), kSegmentBytes + 4096);
  CHECK(n.answer(put).code == Code::protocol);
  CHECK(n.allFree());
}

TEST_CASE("owner puts: a failing lease answers callers at once; effects are undone when the replies come") {
  Node n;
  const Answer grant = n.granted("b", 7, 65536);
  const Caller asked = n.putStart("a");
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef), remove = n.run(CommandKind::remove, "x"), get = n.get("y");
  n.pass(seconds(10));
  CHECK_FALSE(n.answered(asked));  // it tries again
  CHECK(n.answer(get).code == Code::unavailable);
  CHECK(n.answer(commit).code == Code::outcomeUnknown);
  CHECK(n.answer(remove).code == Code::outcomeUnknown);
}

TEST_CASE("owner puts: a grant that arrives after its caller was told of the failing lease is undone") {
  Node n;
  const Caller asked =
      n.putStart("a", kLarge, {.onInFlight = PutMode::OnInFlight::reject});  // a second one would find the first one in flight
  n.pass(seconds(10));
  CHECK(n.answer(asked).code == Code::unavailable);
  n.started(n.take<rpc::PutStart>(), PutId(7), 8192);
  CHECK(n.allFree());
  CHECK(n.sent<rpc::PutAbort>() == 1);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{8192});
}

// --- the reserve

TEST_CASE("owner reserve: a used size gets a reserve, and a put from it needs no answer before its bytes move") {
  Node n;
  n.putStart("k", 1000);
  const auto ask = n.take<rpc::Reserve>();
  CHECK(ask.extentBytes == 1024);
  CHECK(ask.count > 0);
  n.reply(ask, rpc::Reserved{{0, 1024, 2048}});
  CHECK(n.core.reserveBytes() == 3 * 1024);
  const Caller put = n.putStart("k2", 1010);
  CHECK(n.answer(put).offset == 2048);
  CHECK(n.core.reserveBytes() == 2 * 1024);
  n.onRef(CommandKind::commit, n.answer(put).slotRef);
  const auto done = n.take<rpc::PutReserved>();
  CHECK(done.key == "k2");
  CHECK(done.bytes == 1010);
  CHECK(done.offset == 2048);
  n.ended(done, PutId(7));
  CHECK((n.directory.putId(*n.committed("k2")) == PutId(7)));
}

// A node with `count` reserved extents of 1 KiB.
struct ReservedNode : Node {
  explicit ReservedNode(size_t count = 4) {
    putStart("warm", 1000, {}, 9);
    refuse(take<rpc::PutStart>(), Code::noSpace);
    give(count);
  }
  void give(size_t count) {
    rpc::Reserved given;
    for (size_t i = 0; i < count; ++i) given.offsets.push_back(4096 + i * 1024);
    reply(take<rpc::Reserve>(), std::move(given));
  }
};

TEST_CASE("owner reserve: a size for which there was no room is asked for when it is used again, not whenever another one is") {
  Reserve reserve(16 * 1024);
  const Time now{1};
  const auto asked = [&] {
    std::vector<uint64_t> sizes;
    for (const Reserve::Want& want : reserve.refill()) sizes.push_back(want.extentBytes);
    return sizes;
  };
  CHECK_FALSE(reserve.take(1024, now));
  CHECK(asked() == std::vector<uint64_t>{1024});
  reserve.answered(1024, std::vector<uint64_t>(16, 0));
  CHECK_FALSE(reserve.take(2048, now));
  CHECK(asked().empty());
  for (int i = 0; i < 7; ++i) CHECK(reserve.take(1024, now));
  CHECK(asked().empty());  // there is room for both now; this one has enough
  CHECK_FALSE(reserve.take(2048, now));
  CHECK(asked() == std::vector<uint64_t>{2048});
}

TEST_CASE("owner: the age of the oldest put, grant, copy and export") {
  Node n;
  const auto ages = [&] { return n.core.oldest(n.now); };
  CHECK(ages().put.ns == 0);
  const Answer first = n.granted("first", 7, 0);
  n.pass(seconds(2));
  const Answer second = n.granted("second", 8, 65536, {}, 2);
  n.pass(seconds(1));
  CHECK(ages().grant.ms() == 3000);
  n.onRef(shm::CommandKind::commit, first.slotRef);
  CHECK(ages().put.ms() == 3000);
  CHECK(ages().grant.ms() == 1000);
  n.ended(n.take<rpc::PutDone>(), PutId(7));
  CHECK(ages().put.ms() == 1000);
  n.core.clientGone(ClientId(2), n.now);
  CHECK(ages().put.ns == 0);
  CHECK(ages().flight.ns == 0);
  n.get("k");
  n.reply(n.take<rpc::GetStart>(), rpc::FetchFrom{.putId = PutId(9), .bytes = kLarge, .offset = 131072, .source = {.node = "far"}});
  n.pass(milliseconds(500));
  CHECK(ages().flight.ms() == 500);
  n.core.fetched(n.host.fetches.front().id, {}, n.now);
  CHECK(ages().flight.ns == 0);
  CHECK(ages().exported.ns == 0);
}

TEST_CASE("owner reserve: it goes back when the master wants it, and is not asked for again before the next put") {
  ReservedNode n;
  const Answer grant = n.answer(n.putStart("k", 1000));
  n.give(0);
  n.order(rpc::Shrink());
  CHECK(n.take<rpc::Release>().offsets.size() == 3);
  CHECK(n.core.reserveBytes() == 0);
  n.order(rpc::Shrink());
  CHECK(n.sent<rpc::Release>() == 0);
  CHECK(n.sent<rpc::Reserve>() == 0);
  n.onRef(CommandKind::commit, grant.slotRef);
  CHECK(n.sent<rpc::PutReserved>() == 1);
  n.putStart("again", 1000);
  CHECK(n.sent<rpc::Reserve>() == 1);
}

TEST_CASE("owner reserve: an aborted put returns its extent to the reserve, not to the master") {
  ReservedNode n;
  const uint64_t before = n.core.reserveBytes();
  const Answer grant = n.answer(n.putStart("k", 1000));
  n.onRef(CommandKind::abort, grant.slotRef);
  CHECK(n.core.reserveBytes() == before);
  CHECK(n.sent<rpc::PutAbort>() == 0);
  CHECK(n.sent<rpc::Release>() == 0);
  CHECK(n.allFree());
}

TEST_CASE("owner reserve: a refused put releases its extent to the master") {
  ReservedNode n;
  const Answer grant = n.answer(n.putStart("k", 1000));
  const Caller commit = n.onRef(CommandKind::commit, grant.slotRef);
  n.refuse(n.take<rpc::PutReserved>(), Code::noLease);
  CHECK(n.answer(commit).code == Code::noLease);
  CHECK(n.take<rpc::Release>().offsets == std::vector<uint64_t>{grant.offset});
}

TEST_CASE("owner reserve: conditional puts always ask the master first") {
  ReservedNode n;
  const uint64_t before = n.core.reserveBytes();
  n.putStart("k", 1000, {.onExisting = PutMode::OnExisting::reject});
  n.putStart("k", 1000, {.onInFlight = PutMode::OnInFlight::reject});
  CHECK(n.sent<rpc::PutStart>() == 2);
  CHECK(n.core.reserveBytes() == before);
}

TEST_CASE("owner reserve: a grant whose caller has given up goes back into the reserve") {
  ReservedNode n;
  const uint64_t before = n.core.reserveBytes();
  n.host.listening = false;
  n.putStart("k", 1000);
  CHECK(n.core.reserveBytes() == before);
  CHECK(n.allFree());
}

TEST_CASE("owner reserve: an inline put from it is submitted at once") {
  ReservedNode n;
  const Caller put = n.putInline("k", std::string(1000, 'x'));
  CHECK_FALSE(n.answered(put));
  const auto done = n.take<rpc::PutReserved>();
  CHECK(n.segmentPages.data()[done.offset + 999] == 'x');
  n.ended(done, PutId(7));
  CHECK(n.answer(put).code == Code::ok);
}

TEST_CASE("owner reserve: a master that has nothing to give is not asked again and again") {
  Node n;
  n.putStart("k", 1000);
  for (int round = 0; round < 3 && n.sent<rpc::Reserve>() > 0; ++round) n.reply(n.take<rpc::Reserve>());
  CHECK(n.sent<rpc::Reserve>() == 0);
  n.putStart("k2", 1000);
  CHECK(n.sent<rpc::Reserve>() == 1);
}

TEST_CASE("owner reserve: sizes that are not used for 10 s go back") {
  ReservedNode n;
  n.now = n.now + seconds(5);
  n.core.heartbeat({}, n.now);
  CHECK(n.core.reserveBytes() == 4 * 1024);
  n.now = n.now + seconds(6);
  n.core.heartbeat({}, n.now);
  CHECK(n.core.reserveBytes() == 0);
  CHECK(n.take<rpc::Release>().offsets.size() == 4);
}

TEST_CASE("reserve: what is at hand and asked for stays within the budget") {
  Reserve reserve(64 * 1024);
  for (uint64_t size = 1024; size <= 32 * 1024; size *= 2) reserve.take(size, Time{1});
  uint64_t asked = 0;
  for (const Reserve::Want& want : reserve.refill()) asked += want.extentBytes * want.count;
  CHECK(asked > 0);
  CHECK(asked <= 64 * 1024);
  CHECK_FALSE(reserve.take(33 * 1024, Time{1}));
  CHECK(reserve.refill().empty());
}

TEST_CASE("reserve: a size that runs dry gets more next time, up to a limit") {
  Reserve reserve(1 << 30);
  uint64_t last = 0, offset = 0;
  for (int round = 0; round < 10; ++round) {
    while (reserve.take(64, Time{1})) {
    }
    const std::vector<Reserve::Want> wants = reserve.refill();
    REQUIRE(wants.size() == 1);
    CHECK(wants[0].count >= last);
    last = wants[0].count;
    std::vector<uint64_t> given;
    for (uint64_t i = 0; i < last; ++i) given.push_back(offset += 64);
    reserve.answered(64, given);
  }
  CHECK(last == 128);
}

}  // namespace
}  // namespace fluxon::owner
