// SsdPersists: values on their way to the SSD.
#include "owner_parts.h"
#include "ssd_persists.h"

namespace fluxon::owner {
namespace {

using shm::SlotState;

// Two at once, and no more than a quarter of 1 MiB.
struct Persisting : Parts {
  uint32_t begin(uint64_t id, uint64_t bytes = 100) {
    const uint32_t slot = committed("k" + std::to_string(id), id, id * 4096, bytes);
    persists.begin(id, slot, now);
    return slot;
  }
  // What ssdd has been told since it was asked last.
  std::vector<uint64_t> told(ssd::MessageKind kind) {
    std::vector<uint64_t> ids;
    for (const ssd::Message& message : host.toSsd) {
      CHECK(message.kind == kind);
      ids.push_back(message.id);
    }
    host.toSsd.clear();
    return ids;
  }
  SsdWatch watch;
  SsdPersists persists{{2, kSegmentBytes}, directory, host, calls, retirement, watch};
};

using Ids = std::vector<uint64_t>;

TEST_CASE("persists: so many are told to ssdd at a time, in their order, and the next one when it has answered") {
  Persisting p;
  for (uint64_t id = 1; id <= 4; ++id) p.begin(id);
  CHECK(p.told(ssd::MessageKind::persist) == Ids{1, 2});
  p.persists.persisted(2, Code::ok, p.now);
  CHECK(p.told(ssd::MessageKind::persist) == Ids{3});
  p.persists.persisted(1, Code::system, p.now);
  CHECK(p.told(ssd::MessageKind::persist) == Ids{4});
  CHECK(p.persists.counters().persistsFailed == 1);
  CHECK(p.persists.count() == 3);
}

TEST_CASE("persists: their bytes at a time are a part of the memory, but one always goes") {
  Persisting p;
  p.begin(1, 300'000);
  p.begin(90, 100);
  CHECK(p.told(ssd::MessageKind::persist) == Ids{1});
  p.persists.persisted(1, Code::ok, p.now);
  CHECK(p.told(ssd::MessageKind::persist) == Ids{90});
}

TEST_CASE("persists: the master is asked once about what ssdd has, and ssdd hears what it has decided") {
  Persisting p;
  p.begin(1);
  p.begin(2);
  p.told(ssd::MessageKind::persist);
  for (const uint64_t id : {1, 2, 2}) p.persists.persisted(id, Code::ok, p.now);
  p.persists.tell();
  p.persists.tell();
  const rpc::SsdCommit commit = p.sentOne<rpc::SsdCommit>();
  REQUIRE(commit.values.size() == 2);
  CHECK(commit.values[1].key == "k2");
  p.persists.decided({1, 2}, {{}, Code::ok, {}, rpc::SsdTaken{{0}}});
  REQUIRE(p.host.toSsd.size() == 2);
  CHECK(p.host.toSsd[0].code == Code::miss);
  CHECK(p.host.toSsd[1].code == Code::ok);
  CHECK(p.persists.count() == 0);
  CHECK(p.persists.counters().persistsTaken == 1);
  CHECK(p.persists.counters().persistsIgnored == 1);
  CHECK(p.persists.counters().persistedBytes == 100);
}

TEST_CASE("persists: a refusal of the master drops all of them at ssdd") {
  Persisting p;
  p.begin(1);
  p.persists.persisted(1, Code::ok, p.now);
  p.host.toSsd.clear();
  p.persists.decided({1}, {{}, Code::protocol, {}, {}});
  REQUIRE(p.host.toSsd.size() == 1);
  CHECK(p.host.toSsd[0].code == Code::miss);
}

TEST_CASE("persists: a victim waits for its write, and only for a while for the write to begin") {
  Persisting p;
  const uint32_t writing = p.begin(1);
  p.begin(2);
  const uint32_t queued = p.begin(3);
  CHECK(p.persists.yields(p.committed("other", 9, 0), p.now));
  CHECK_FALSE(p.persists.yields(queued, p.now));
  p.now = p.now + seconds(1);
  CHECK(p.persists.yields(queued, p.now));
  CHECK_FALSE(p.persists.yields(writing, p.now + seconds(1000)));
  CHECK(p.persists.counters().persistsLeftOut == 1);
  p.told(ssd::MessageKind::persist);
  p.persists.persisted(1, Code::ok, p.now);
  CHECK(p.told(ssd::MessageKind::persist).empty());  // the third is none any more
  CHECK_FALSE(p.persists.yields(writing, p.now));    // the master takes a replica beside the one in memory
}

TEST_CASE("persists: a retired value that waits is given up; one that ssdd reads stays until that has ended") {
  Persisting p;
  const uint32_t writing = p.begin(1);
  p.begin(2);
  const uint32_t queued = p.begin(3);
  p.directory.retire(writing);
  p.directory.retire(queued);
  CHECK_FALSE(p.persists.reads(queued));
  CHECK(p.persists.reads(writing));
  p.told(ssd::MessageKind::persist);
  p.persists.persisted(1, Code::ok, p.now);
  CHECK_FALSE(p.persists.reads(writing));
  REQUIRE(p.host.toSsd.size() == 1);  // what ssdd has of it is dead
  CHECK(p.host.toSsd[0].code == Code::miss);
  p.persists.tell();
  CHECK(p.sent().empty());
}

TEST_CASE("persists: one that stalls makes room, and its late answer is not heard") {
  Persisting p;
  for (uint64_t id = 1; id <= 3; ++id) p.begin(id);
  p.told(ssd::MessageKind::persist);
  CHECK(p.persists.stalled(1, p.now));
  CHECK_FALSE(p.persists.stalled(1, p.now));
  CHECK(p.told(ssd::MessageKind::persist) == Ids{3});
  p.persists.persisted(1, Code::ok, p.now);
  p.persists.tell();
  CHECK(p.sent().empty());
  CHECK(p.persists.counters().persistsStalled == 1);
}

TEST_CASE("persists: those under way when the SSD is lost have failed; at the end of a term nobody hears of them") {
  for (const bool lost : {true, false}) {
    CAPTURE(lost);
    Persisting p;
    const uint32_t slot = p.begin(1);
    p.begin(2);
    p.begin(3);
    p.persists.persisted(1, Code::ok, p.now);
    if (lost)
      p.persists.lose();
    else
      p.persists.endTerm();
    CHECK(p.persists.count() == 0);
    CHECK(p.persists.counters().persistsFailed == (lost ? 3 : 0));
    CHECK(p.persists.yields(slot, p.now));
    CHECK(p.watch.due() == Time::never());
    p.persists.tell();
    CHECK(p.sent().empty());
    p.host.toSsd.clear();
    p.begin(4);
    p.begin(5);
    CHECK(p.told(ssd::MessageKind::persist) == Ids{4, 5});  // nothing counts as under way
  }
}

}  // namespace
}  // namespace fluxon::owner
