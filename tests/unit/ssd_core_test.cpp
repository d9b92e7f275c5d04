// The logic of an ssdd: persists, loads, invalidations, lists, scrubs; owners that come and go; devices that fail.
#include "ssd_core.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"

namespace fluxon::ssdd {
namespace {

using ssd::Message;
using ssd::MessageKind;
using ssdd::Version;

constexpr uint32_t kBlock = 512;
constexpr uint64_t kSegmentBytes = 1 << 20;
constexpr uint64_t kAnyOffset = 4096;

struct HostStub final : Host {
  std::deque<Message> sent;
  void send(Message message) override { sent.push_back(std::move(message)); }
};

struct DiskStub final : Disk {
  std::deque<WriteJob> writes;
  std::deque<ReadJob> reads;
  std::deque<CheckJob> checks;
  unsigned cancels = 0;
  void write(const WriteJob& job) override { writes.push_back(job); }
  void read(const ReadJob& job) override { reads.push_back(job); }
  void check(const CheckJob& job) override { checks.push_back(job); }
  void cancelQueued(DeviceIndex) override { ++cancels; }
};

template <class T>
T takeFirst(std::deque<T>& from) {
  REQUIRE_FALSE(from.empty());
  T taken = std::move(from.front());
  from.pop_front();
  return taken;
}

ShardSpec shardOf(uint64_t device, uint64_t blocks) { return {DeviceIndex(device), blocks * kBlock, kBlock}; }

// An ssdd with an owner. Payloads are given in blocks: one of n takes n + 1.
struct Ssdd {
  explicit Ssdd(std::vector<ShardSpec> specs = {shardOf(0, 16)}) : core(specs, disk, host) { core.ownerAttached(kSegmentBytes); }

  // --- the owner
  void say(Message message) {
    const Error error = core.message(message, now);
    CHECK_MESSAGE(error.ok(), error.message());
  }
  uint64_t persist(const std::string& key, uint64_t putId, uint64_t blocks) {
    say({.kind = MessageKind::persist, .id = ++ids, .key = key, .putId = PutId(putId), .offset = kAnyOffset, .bytes = blocks * kBlock});
    return ids;
  }
  void decide(uint64_t id, Code code = Code::ok) { say({.kind = MessageKind::decided, .id = id, .code = code}); }
  uint64_t load(const std::string& key, uint64_t putId, uint64_t blocks, uint64_t offset = 2 * kAnyOffset) {
    say({.kind = MessageKind::load, .id = ++ids, .key = key, .putId = PutId(putId), .offset = offset, .bytes = blocks * kBlock});
    return ids;
  }
  void invalidate(const std::string& key, uint64_t below) {
    say({.kind = MessageKind::invalidate, .id = ++ids, .key = key, .putId = PutId(below)});
    CHECK(take(MessageKind::done).id == ids);
  }
  void drop(const std::string& key, uint64_t putId) { say({.kind = MessageKind::drop, .key = key, .putId = PutId(putId)}); }
  uint64_t ask(MessageKind kind) {
    say({.kind = kind, .id = ++ids});
    return ids;
  }

  // --- what it is told
  // The oldest message of a kind that has not been taken yet.
  Message take(MessageKind kind) {
    const auto at = std::find_if(host.sent.begin(), host.sent.end(), [&](const Message& each) { return each.kind == kind; });
    REQUIRE_MESSAGE(at != host.sent.end(), "no message of kind ", static_cast<int>(kind));
    Message taken = std::move(*at);
    host.sent.erase(at);
    return taken;
  }
  Code persisted(uint64_t id) {
    const Message said = take(MessageKind::persisted);
    CHECK(said.id == id);
    return said.code;
  }
  Code loaded(uint64_t id) {
    const Message said = take(MessageKind::loaded);
    CHECK(said.id == id);
    return said.code;
  }
  std::vector<Version> versions(MessageKind kind) {
    std::vector<Version> found;
    for (const Message& each : host.sent) {
      if (each.kind == kind) found.push_back({each.key, each.putId});
    }
    std::erase_if(host.sent, [&](const Message& each) { return each.kind == kind; });
    return found;
  }
  std::vector<Version> evicted() { return versions(MessageKind::evicted); }
  std::vector<Version> listed() {
    const uint64_t id = ask(MessageKind::list);
    while (core.hasWork()) core.work();
    CHECK(take(MessageKind::done).id == id);
    return versions(MessageKind::listed);
  }

  // --- devices: the oldest job ends
  void write(Code code = Code::ok) {
    const WriteJob job = takeFirst(disk.writes);
    core.written(job.id, code == Code::ok ? Result<uint32_t>(7) : Result<uint32_t>(code, "device"), now);
  }
  // The write of that version.
  void writeOf(uint64_t putId, Code code = Code::ok) {
    const auto at = std::find_if(disk.writes.begin(), disk.writes.end(), [&](const WriteJob& job) { return job.putId == PutId(putId); });
    REQUIRE(at != disk.writes.end());
    std::rotate(disk.writes.begin(), at, at + 1);
    write(code);
  }
  uint64_t shardOfLast() const { return disk.writes.back().shard.value; }
  void read(Code code = Code::ok) { core.readDone(takeFirst(disk.reads).id, {code, {}}, now); }
  void check(Code code = Code::ok) { core.checked(takeFirst(disk.checks).id, {code, {}}, now); }

  // --- steps of tests
  uint64_t undecided(const std::string& key, uint64_t putId, uint64_t blocks) {
    const uint64_t id = persist(key, putId, blocks);
    write();
    CHECK(persisted(id) == Code::ok);
    return id;
  }
  void put(const std::string& key, uint64_t putId, uint64_t blocks) { decide(undecided(key, putId, blocks)); }
  bool readable(const std::string& key, uint64_t putId, uint64_t blocks) {
    const uint64_t id = load(key, putId, blocks);
    if (!disk.reads.empty()) read();
    const Code code = loaded(id);
    CHECK((code == Code::ok || code == Code::miss));
    return code == Code::ok;
  }
  bool quiet() const { return host.sent.empty() && disk.writes.empty() && disk.reads.empty() && disk.checks.empty(); }
  // Nothing is open: no guard, no queued claim.
  bool nothingOpen() const {
    const std::vector<ShardGauges> shards = core.shards();
    return std::all_of(shards.begin(), shards.end(),
                       [](const ShardGauges& each) { return each.readPins + each.commitPins + each.writers + each.waiting == 0; });
  }

  DiskStub disk;
  HostStub host;
  SsdCore core;
  Time now{seconds(1000).ns};
  uint64_t ids = 100;
};

const std::vector<Version> kNone;

}  // namespace

// --- persists ------------------------------------------------------------------------------------------------------------------

TEST_CASE("ssdd: a persist is written, told, and can be read when the master has taken it") {
  Ssdd ssdd;
  const uint64_t id = ssdd.persist("a", 5, 2);
  REQUIRE(ssdd.disk.writes.size() == 1);
  const WriteJob job = ssdd.disk.writes.front();
  CHECK(job.shard.value == 0);
  CHECK(job.fileOffset == 0);
  CHECK(job.keyHash == keyHash("a"));
  CHECK((job.putId == PutId(5)));
  CHECK(job.segmentOffset == kAnyOffset);
  CHECK(job.payloadBytes == 2 * kBlock);
  CHECK(ssdd.host.sent.empty());
  ssdd.write();
  CHECK(ssdd.persisted(id) == Code::ok);
  ssdd.decide(id);
  const uint64_t load = ssdd.load("a", 5, 2, 8192);
  REQUIRE(ssdd.disk.reads.size() == 1);
  const ReadJob read = ssdd.disk.reads.front();
  CHECK(read.fileOffset == 0);
  CHECK(read.payloadCrc == 7);
  CHECK(read.segmentOffset == 8192);
  ssdd.core.progress(read.id, kBlock, ssdd.now);
  const Message progress = ssdd.take(MessageKind::progress);
  CHECK(progress.id == load);
  CHECK(progress.bytes == kBlock);
  ssdd.read();
  CHECK(ssdd.loaded(load) == Code::ok);
  CHECK(ssdd.quiet());
  CHECK(ssdd.nothingOpen());
}

TEST_CASE("ssdd: what the master has not decided about is not read, listed or checked") {
  Ssdd ssdd;
  const uint64_t id = ssdd.undecided("a", 5, 2);
  CHECK_FALSE(ssdd.readable("a", 5, 2));
  CHECK(ssdd.listed() == kNone);
  ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  CHECK(ssdd.take(MessageKind::done).bytes == 0);
  ssdd.decide(id);
  CHECK(ssdd.readable("a", 5, 2));
  CHECK(ssdd.listed() == std::vector{Version{"a", PutId(5)}});
}

TEST_CASE("ssdd: what the master has not taken is gone") {
  Ssdd ssdd;
  ssdd.decide(ssdd.undecided("a", 5, 2), Code::miss);
  CHECK_FALSE(ssdd.readable("a", 5, 2));
  CHECK(ssdd.evicted() == kNone);
  CHECK(ssdd.core.counters().persistsIgnored == 1);
  CHECK_FALSE(ssdd.core.hasEntries());
}

TEST_CASE("ssdd: bytes are not written over before the master has decided, however late that is") {
  Ssdd ssdd;
  const uint64_t first = ssdd.undecided("a", 1, 7);
  const uint64_t second = ssdd.persist("b", 2, 15);
  CHECK(ssdd.disk.writes.empty());
  CHECK(ssdd.core.shards()[0].waiting == 1);
  CHECK(ssdd.core.shards()[0].commitPins == 1);
  ssdd.decide(first);
  CHECK(ssdd.disk.writes.size() == 1);
  CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
  ssdd.write();
  CHECK(ssdd.persisted(second) == Code::ok);
}

TEST_CASE("ssdd: a decision about an id that is not open, or not written yet, changes nothing") {
  Ssdd ssdd;
  ssdd.decide(999);
  const uint64_t id = ssdd.persist("a", 1, 1);
  ssdd.decide(id, Code::miss);
  ssdd.write();
  CHECK(ssdd.persisted(id) == Code::ok);
  ssdd.decide(id);
  ssdd.decide(id, Code::miss);
  CHECK(ssdd.readable("a", 1, 1));
}

TEST_CASE("ssdd: the oldest entries are told as evicted when newer ones need their bytes") {
  Ssdd ssdd;
  ssdd.put("a", 1, 7);
  ssdd.put("b", 2, 7);
  ssdd.put("c", 3, 3);
  CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
  CHECK_FALSE(ssdd.readable("a", 1, 7));
  CHECK(ssdd.readable("b", 2, 7));
  CHECK(ssdd.core.counters().evicted == 1);
}

TEST_CASE("ssdd: a version that is known, or older than what is, is refused as a miss") {
  Ssdd ssdd;
  ssdd.put("a", 5, 1);
  CHECK(ssdd.persisted(ssdd.persist("a", 5, 1)) == Code::miss);
  CHECK(ssdd.persisted(ssdd.persist("a", 4, 1)) == Code::miss);
  CHECK(ssdd.readable("a", 5, 1));
}

TEST_CASE("ssdd: a newer version ends the older one, also when it is too large, refused or not written") {
  Ssdd ssdd;
  ssdd.put("a", 1, 1);
  ssdd.put("b", 1, 1);
  CHECK(ssdd.persisted(ssdd.persist("a", 2, 16)) == Code::tooLarge);
  CHECK_FALSE(ssdd.readable("a", 1, 1));
  CHECK(ssdd.core.counters().tooLarge == 1);
  const uint64_t id = ssdd.persist("b", 2, 1);
  ssdd.write(Code::system);
  CHECK(ssdd.persisted(id) == Code::system);
  CHECK_FALSE(ssdd.readable("b", 1, 1));
  CHECK_FALSE(ssdd.readable("b", 2, 1));
  CHECK(ssdd.evicted() == kNone);
}

TEST_CASE("ssdd: values go to the devices in turn, and to the shards of each in turn") {
  Ssdd ssdd({shardOf(0, 16), shardOf(0, 16), shardOf(1, 16)});
  std::vector<uint64_t> shards;
  for (uint64_t n = 1; n <= 6; ++n) ssdd.persist("k" + std::to_string(n), n, 1);
  for (const WriteJob& job : ssdd.disk.writes) shards.push_back(job.shard.value);
  CHECK(shards == std::vector<uint64_t>{0, 2, 1, 2, 0, 2});
}

TEST_CASE("ssdd: a value goes where it fits; one that fits nowhere is too large") {
  Ssdd ssdd({shardOf(0, 4), shardOf(1, 16), shardOf(1, 4)});
  for (uint64_t n = 1; n <= 3; ++n) {
    ssdd.put("a", n, 10);
    CHECK(ssdd.core.shards()[1].usedBytes > 0);
  }
  CHECK(ssdd.core.shards()[0].usedBytes + ssdd.core.shards()[2].usedBytes == 0);
  CHECK(ssdd.persisted(ssdd.persist("b", 9, 16)) == Code::tooLarge);
}

TEST_CASE("ssdd: a persist that leaves the segment is refused, one under an open id ends the channel") {
  Ssdd ssdd;
  ssdd.say({.kind = MessageKind::persist, .id = 1, .key = "a", .putId = PutId(1), .offset = kSegmentBytes - 511, .bytes = 512});
  CHECK(ssdd.persisted(1) == Code::protocol);
  ssdd.say({.kind = MessageKind::persist, .id = 1, .key = "a", .putId = PutId(1), .offset = 64, .bytes = UINT64_MAX});
  CHECK(ssdd.persisted(1) == Code::protocol);
  ssdd.say({.kind = MessageKind::persist, .id = 1, .key = "a", .putId = PutId(0), .offset = 0, .bytes = 512});
  CHECK(ssdd.persisted(1) == Code::protocol);
  const Message sound{.kind = MessageKind::persist, .id = 1, .key = "a", .putId = PutId(1), .offset = kSegmentBytes - 512, .bytes = 512};
  ssdd.say(sound);
  CHECK(ssdd.core.message(sound, ssdd.now).code == Code::protocol);
  CHECK(ssdd.core.message({.kind = MessageKind::loaded}, ssdd.now).code == Code::protocol);
  CHECK(ssdd.core.message({.kind = MessageKind{77}}, ssdd.now).code == Code::protocol);
  CHECK(ssdd.disk.writes.size() == 1);
}

TEST_CASE("ssdd: an owner may have so many persists and loads open, and no more") {
  Ssdd ssdd({shardOf(0, 3 * kMostPersists)});
  for (uint64_t n = 1; n <= kMostPersists; ++n) ssdd.persist("k" + std::to_string(n), n, 0);
  CHECK(ssdd.persisted(ssdd.persist("x", 1, 0)) == Code::tooMany);
  ssdd.write();
  ssdd.decide(ssdd.take(MessageKind::persisted).id);
  ssdd.persist("x", 1, 0);
  CHECK(ssdd.host.sent.empty());
  for (uint64_t n = 0; n < kMostLoads; ++n) ssdd.load("k1", 1, 0);
  CHECK(ssdd.host.sent.empty());
  CHECK(ssdd.loaded(ssdd.load("k1", 1, 0)) == Code::tooMany);
}

// --- loads and invalidations ---------------------------------------------------------------------------------------------------

TEST_CASE("ssdd: a load of another version, another length or a place outside the segment reads nothing") {
  Ssdd ssdd;
  ssdd.put("a", 5, 2);
  CHECK(ssdd.loaded(ssdd.load("a", 4, 2)) == Code::miss);
  CHECK(ssdd.loaded(ssdd.load("b", 5, 2)) == Code::miss);
  CHECK(ssdd.loaded(ssdd.load("a", 5, 1)) == Code::protocol);
  CHECK(ssdd.loaded(ssdd.load("a", 5, 2, kSegmentBytes - kBlock)) == Code::protocol);
  CHECK(ssdd.loaded(ssdd.load("a", 5, 2, UINT64_MAX)) == Code::protocol);
  CHECK(ssdd.quiet());
  CHECK(ssdd.core.counters().loadsMissed == 2);
  CHECK(ssdd.core.counters().loadsFailed == 3);
}

TEST_CASE("ssdd: a load may write all of its extent, so all of it must lie in the segment") {
  Ssdd ssdd;
  const uint64_t id = ssdd.persist("a", 1, 9);  // 4608 bytes, an extent of 8192
  ssdd.write();
  CHECK(ssdd.persisted(id) == Code::ok);
  ssdd.decide(id);
  CHECK(ssdd.loaded(ssdd.load("a", 1, 9, kSegmentBytes - 4608)) == Code::protocol);
  ssdd.load("a", 1, 9, kSegmentBytes - 8192);
  CHECK(ssdd.disk.reads.size() == 1);
}

TEST_CASE("ssdd: an invalidation while it is written: the persist is a miss when the write has ended, and not before") {
  Ssdd ssdd;
  const uint64_t id = ssdd.persist("a", 5, 15);
  ssdd.invalidate("a", 6);
  const uint64_t next = ssdd.persist("b", 1, 15);
  CHECK(ssdd.host.sent.empty());
  CHECK(ssdd.disk.writes.size() == 1);  // its bytes may still be written
  ssdd.write();
  CHECK(ssdd.persisted(id) == Code::miss);
  ssdd.write();
  CHECK(ssdd.persisted(next) == Code::ok);
}

TEST_CASE("ssdd: an invalidation while the master is asked: the entry is dead, whatever the master says") {
  Ssdd ssdd;
  const uint64_t id = ssdd.undecided("a", 5, 2);
  ssdd.invalidate("a", 6);
  CHECK(ssdd.core.counters().invalidated == 1);
  ssdd.decide(id);
  CHECK_FALSE(ssdd.readable("a", 5, 2));
  CHECK(ssdd.evicted() == kNone);
  CHECK(ssdd.nothingOpen());
}

TEST_CASE("ssdd: an invalidation while it is read: what was read is a miss, and progress ends") {
  Ssdd ssdd;
  ssdd.put("a", 5, 2);
  const uint64_t id = ssdd.load("a", 5, 2);
  ssdd.invalidate("a", 6);
  ssdd.core.progress(ssdd.disk.reads.front().id, kBlock, ssdd.now);
  CHECK(ssdd.host.sent.empty());
  ssdd.read();
  CHECK(ssdd.loaded(id) == Code::miss);
  ssdd.put("a", 6, 2);
  const uint64_t again = ssdd.load("a", 6, 2);
  ssdd.invalidate("a", 6);  // below it
  ssdd.read();
  CHECK(ssdd.loaded(again) == Code::ok);
}

TEST_CASE("ssdd: an invalidation while it waits: it is a miss, and who waits behind it goes on") {
  Ssdd ssdd;
  ssdd.put("a", 1, 7);
  ssdd.load("a", 1, 7);
  const uint64_t large = ssdd.persist("b", 1, 15);
  const uint64_t small = ssdd.persist("c", 1, 3);
  CHECK(ssdd.disk.writes.empty());
  ssdd.invalidate("b", 2);
  CHECK(ssdd.persisted(large) == Code::miss);
  CHECK(ssdd.disk.writes.size() == 1);
  ssdd.write();
  CHECK(ssdd.persisted(small) == Code::ok);
}

TEST_CASE("ssdd: an invalidation whose id is 0 is not answered, a dropped version is gone") {
  Ssdd ssdd;
  ssdd.put("a", 5, 1);
  ssdd.put("b", 5, 1);
  ssdd.say({.kind = MessageKind::invalidate, .id = 0, .key = "a", .putId = PutId(6)});
  ssdd.drop("b", 4);
  CHECK(ssdd.readable("b", 5, 1));
  ssdd.drop("b", 5);
  CHECK(ssdd.quiet());
  CHECK_FALSE(ssdd.readable("a", 5, 1));
  CHECK_FALSE(ssdd.readable("b", 5, 1));
}

TEST_CASE("ssdd: a ring that a read holds up goes on when it ends; no new reader comes in between") {
  Ssdd ssdd;
  ssdd.put("a", 1, 7);
  const uint64_t load = ssdd.load("a", 1, 7);
  const uint64_t waits = ssdd.persist("b", 2, 15);
  CHECK(ssdd.disk.writes.empty());
  CHECK(ssdd.core.shards()[0].waiting == 1);
  CHECK(ssdd.core.shards()[0].readPins == 1);
  CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
  CHECK(ssdd.loaded(ssdd.load("a", 1, 7)) == Code::miss);
  ssdd.read();
  CHECK(ssdd.loaded(load) == Code::ok);  // it leaves, but it was not invalidated
  REQUIRE(ssdd.disk.writes.size() == 1);
  ssdd.write();
  CHECK(ssdd.persisted(waits) == Code::ok);
  CHECK(ssdd.evicted() == kNone);
}

TEST_CASE("ssdd: a record that is damaged or cannot be read ends: evicted is told before the load that found it") {
  for (const Code code : {Code::corrupt, Code::system}) {
    Ssdd ssdd;
    ssdd.put("a", 1, 1);
    const uint64_t first = ssdd.load("a", 1, 1);
    const uint64_t second = ssdd.load("a", 1, 1);
    ssdd.read(code);
    REQUIRE(ssdd.host.sent.size() == 2);
    CHECK(ssdd.host.sent.front().kind == MessageKind::evicted);
    CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
    CHECK(ssdd.loaded(first) == code);
    ssdd.read(code);
    CHECK(ssdd.loaded(second) == Code::miss);
    CHECK(ssdd.evicted() == kNone);
    CHECK(ssdd.core.counters().damaged == 1);
    CHECK_FALSE(ssdd.readable("a", 1, 1));
  }
}

TEST_CASE("ssdd: a load that was not begun leaves its entry alone") {
  Ssdd ssdd;
  ssdd.put("a", 1, 1);
  const uint64_t id = ssdd.load("a", 1, 1);
  ssdd.read(Code::unavailable);
  CHECK(ssdd.loaded(id) == Code::unavailable);
  CHECK(ssdd.readable("a", 1, 1));
}

TEST_CASE("ssdd: what leaves and is found damaged is told as evicted once") {
  Ssdd ssdd;
  ssdd.put("a", 1, 7);
  const uint64_t id = ssdd.load("a", 1, 7);
  ssdd.persist("b", 2, 15);
  ssdd.read(Code::corrupt);
  CHECK(ssdd.loaded(id) == Code::corrupt);
  CHECK(ssdd.evicted().size() == 1);
}

// --- lists ---------------------------------------------------------------------------------------------------------------------

TEST_CASE("ssdd: a list in pieces names what was decided when it was asked for, and evictions follow what they end") {
  constexpr uint64_t kEntries = 2 * kEntriesAtOnce + 10;
  Ssdd ssdd({shardOf(0, kEntries + 2)});
  for (uint64_t n = 1; n <= kEntries; ++n) ssdd.put("k" + std::to_string(n), n, 0);
  const uint64_t during = ssdd.undecided("during", 10'001, 0);
  const uint64_t list = ssdd.ask(MessageKind::list);
  ssdd.core.work();
  CHECK(ssdd.versions(MessageKind::listed).size() == kEntriesAtOnce);
  ssdd.decide(during);
  ssdd.put("later", 10'002, 0);  // to the last block
  ssdd.put("wraps", 10'003, 0);  // over the first one
  CHECK(ssdd.evicted() == std::vector{Version{"k1", PutId(1)}});
  ssdd.drop("k" + std::to_string(kEntries), kEntries);
  ssdd.invalidate("k" + std::to_string(kEntries - 1), kEntries);
  while (ssdd.core.hasWork()) ssdd.core.work();
  const std::vector<Version> rest = ssdd.versions(MessageKind::listed);
  CHECK(rest.size() == kEntries - kEntriesAtOnce - 2);
  CHECK(rest.back() == Version{"k" + std::to_string(kEntries - 2), PutId(kEntries - 2)});
  CHECK(ssdd.take(MessageKind::done).id == list);
  CHECK(ssdd.listed().size() == kEntries);
}

TEST_CASE("ssdd: a list takes the place of the one before, and names everything") {
  Ssdd ssdd({shardOf(0, 16), shardOf(1, 16)});
  ssdd.put("a", 1, 1);
  ssdd.put("b", 2, 1);
  const uint64_t first = ssdd.ask(MessageKind::list);
  const uint64_t second = ssdd.ask(MessageKind::list);
  const Message done = ssdd.take(MessageKind::done);
  CHECK(done.id == first);
  CHECK(done.code == Code::unavailable);
  ssdd.core.work();
  const Message listed = ssdd.take(MessageKind::listed);
  CHECK(listed.id == second);
  CHECK(listed.bytes == kBlock);
  CHECK(ssdd.take(MessageKind::listed).key == "b");
  CHECK(ssdd.take(MessageKind::done).id == second);
}

// --- forget, and owners that go ------------------------------------------------------------------------------------------------

TEST_CASE("ssdd: forget ends persists and loads in whatever state, and is done when their jobs have ended") {
  Ssdd ssdd({shardOf(0, 16)});
  ssdd.put("a", 1, 3);
  const uint64_t load = ssdd.load("a", 1, 3);
  const uint64_t undecided = ssdd.undecided("b", 2, 3);
  const uint64_t writing = ssdd.persist("c", 3, 3);
  const uint64_t waiting = ssdd.persist("d", 4, 15);
  ssdd.evicted();
  const uint64_t forget = ssdd.ask(MessageKind::forget);
  CHECK(ssdd.persisted(waiting) == Code::unavailable);
  CHECK(ssdd.disk.cancels == 1);
  CHECK(ssdd.host.sent.empty());
  const uint64_t later = ssdd.persist("e", 5, 1);
  ssdd.write();
  CHECK(ssdd.persisted(writing) == Code::unavailable);
  CHECK(ssdd.host.sent.empty());
  ssdd.read();
  CHECK(ssdd.loaded(load) == Code::ok);
  CHECK(ssdd.take(MessageKind::done).id == forget);
  ssdd.decide(undecided);  // crosses it
  ssdd.write();
  CHECK(ssdd.persisted(later) == Code::ok);  // it came after
  ssdd.decide(later);
  CHECK_FALSE(ssdd.readable("b", 2, 3));
  CHECK_FALSE(ssdd.readable("c", 3, 3));
  CHECK_FALSE(ssdd.readable("d", 4, 15));
  CHECK(ssdd.readable("e", 5, 1));
  CHECK(ssdd.nothingOpen());
}

TEST_CASE("ssdd: forget with nothing open is done at once, and twice in a row is done twice") {
  Ssdd ssdd;
  const uint64_t first = ssdd.ask(MessageKind::forget);
  CHECK(ssdd.take(MessageKind::done).id == first);
  ssdd.persist("a", 1, 1);
  const uint64_t second = ssdd.ask(MessageKind::forget);
  const uint64_t third = ssdd.ask(MessageKind::forget);
  CHECK(ssdd.versions(MessageKind::done).empty());
  ssdd.write(Code::unavailable);
  CHECK(ssdd.take(MessageKind::persisted).code == Code::unavailable);
  CHECK(ssdd.take(MessageKind::done).id == second);
  CHECK(ssdd.take(MessageKind::done).id == third);
  ssdd.persist("a", 2, 1);
  for (size_t n = 0; n < kMostForgets; ++n) ssdd.ask(MessageKind::forget);
  CHECK(ssdd.host.sent.empty());
  ssdd.ask(MessageKind::forget);
  CHECK(ssdd.take(MessageKind::done).code == Code::tooMany);
}

TEST_CASE("ssdd: when the owner goes, what is decided stays, all else dies, and nothing is sent") {
  Ssdd ssdd;
  ssdd.put("a", 1, 2);
  ssdd.undecided("b", 2, 2);
  ssdd.persist("c", 3, 2);
  ssdd.load("a", 1, 2);
  ssdd.persist("d", 4, 14);
  ssdd.evicted();
  ssdd.ask(MessageKind::list);
  ssdd.ask(MessageKind::scrub);
  ssdd.ask(MessageKind::forget);
  ssdd.host.sent.clear();
  ssdd.core.ownerGone();
  CHECK(ssdd.disk.cancels == 2);
  CHECK_FALSE(ssdd.core.drained());
  CHECK_FALSE(ssdd.core.hasWork());
  ssdd.core.progress(ssdd.disk.reads.front().id, kBlock, ssdd.now);
  ssdd.write();
  CHECK_FALSE(ssdd.core.drained());
  ssdd.read();
  CHECK(ssdd.core.drained());
  CHECK(ssdd.quiet());
  CHECK(ssdd.nothingOpen());
}

TEST_CASE("ssdd: the next owner finds what is decided") {
  Ssdd ssdd;
  ssdd.put("a", 1, 2);
  ssdd.undecided("b", 2, 2);
  ssdd.persist("c", 3, 2);
  ssdd.core.ownerGone();
  ssdd.write();
  CHECK(ssdd.core.entries() == 1);
  ssdd.core.ownerAttached(kSegmentBytes);
  CHECK(ssdd.listed() == std::vector{Version{"a", PutId(1)}});
  CHECK(ssdd.readable("a", 1, 2));
  CHECK_FALSE(ssdd.readable("b", 2, 2));
  CHECK_FALSE(ssdd.readable("c", 3, 2));
  ssdd.put("c", 3, 2);
}

TEST_CASE("ssdd: starting over, everything is gone") {
  Ssdd ssdd;
  ssdd.put("a", 1, 2);
  ssdd.core.ownerGone();
  CHECK(ssdd.core.hasEntries());
  ssdd.core.startOver();
  CHECK_FALSE(ssdd.core.hasEntries());
  ssdd.core.ownerAttached(kSegmentBytes);
  CHECK_FALSE(ssdd.readable("a", 1, 2));
  ssdd.put("a", 1, 2);
  CHECK(ssdd.core.shards()[0].headPosition == 3 * kBlock);
}

// --- devices that fail ---------------------------------------------------------------------------------------------------------

TEST_CASE("ssdd: a shard whose writes fail is retired: nothing more is written there, its entries are read until they fail") {
  Ssdd ssdd({shardOf(0, 16), shardOf(0, 16)});
  ssdd.put("a", 1, 1);  // in shard 0
  ssdd.put("b", 2, 1);  // in shard 1
  for (unsigned n = 0; n < kWriteErrors; ++n) {
    CHECK_FALSE(ssdd.core.shards()[0].retired);
    const uint64_t id = ssdd.persist("c", 10 + n, 1);
    CHECK(ssdd.shardOfLast() == 0);
    ssdd.write(Code::system);
    CHECK(ssdd.persisted(id) == Code::system);
    ssdd.put("b", 10 + n, 1);
  }
  CHECK(ssdd.core.shards()[0].retired);
  CHECK_FALSE(ssdd.core.paused());
  for (unsigned n = 0; n < 2; ++n) {
    ssdd.persist("d", 20 + n, 1);
    CHECK(ssdd.shardOfLast() == 1);
    ssdd.write();
    ssdd.decide(ssdd.take(MessageKind::persisted).id);
  }
  CHECK(ssdd.readable("a", 1, 1));
  for (unsigned n = 0; n < kWriteErrors; ++n) {
    ssdd.persist("e", 30 + n, 1);
    ssdd.write(Code::system);
    ssdd.take(MessageKind::persisted);
  }
  CHECK(ssdd.core.paused());
  CHECK(ssdd.persisted(ssdd.persist("f", 40, 1)) == Code::unavailable);
  const uint64_t id = ssdd.load("a", 1, 1);
  ssdd.read(Code::system);
  CHECK(ssdd.loaded(id) == Code::system);
  CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
}

TEST_CASE("ssdd: what waits for a shard that is retired goes elsewhere, but not what has died waiting") {
  Ssdd ssdd({shardOf(0, 16), shardOf(0, 16)});
  for (uint64_t n = 1; n <= 6; ++n) ssdd.persist("k" + std::to_string(n), n, 1);  // odd ones in shard 0
  const uint64_t first = ssdd.persist("first", 7, 14);
  ssdd.persist("k8", 8, 1);
  const uint64_t dies = ssdd.persist("dies", 9, 1);
  ssdd.persist("k10", 10, 1);
  const uint64_t last = ssdd.persist("last", 11, 1);
  CHECK(ssdd.core.shards()[0].waiting == 3);
  ssdd.invalidate("dies", 10);
  for (const uint64_t putId : {1, 3, 5}) {
    ssdd.writeOf(putId, Code::system);
    CHECK(ssdd.take(MessageKind::persisted).code == Code::system);
    if (putId == 5) break;
    ssdd.writeOf(putId + 1);  // the other shard works
    ssdd.decide(ssdd.take(MessageKind::persisted).id);
  }
  CHECK(ssdd.core.shards()[0].retired);
  CHECK(ssdd.core.shards()[0].waiting == 0);
  CHECK(ssdd.core.shards()[1].waiting == 2);
  CHECK(ssdd.persisted(dies) == Code::miss);
  CHECK(ssdd.evicted().size() == 2);
  CHECK(ssdd.host.sent.empty());
  for (const uint64_t putId : {6, 8, 10}) {
    ssdd.writeOf(putId);
    ssdd.decide(ssdd.take(MessageKind::persisted).id);
  }
  ssdd.writeOf(7);
  CHECK(ssdd.persisted(first) == Code::ok);
  ssdd.decide(first);
  ssdd.writeOf(11);
  CHECK(ssdd.persisted(last) == Code::ok);
}

TEST_CASE("ssdd: without space persists fail at once; after a while one is let through, and all when it is written") {
  Ssdd ssdd;
  const uint64_t id = ssdd.persist("a", 1, 1);
  ssdd.write(Code::noSpace);
  CHECK(ssdd.persisted(id) == Code::noSpace);
  CHECK(ssdd.core.paused());
  for (uint64_t round = 1; round <= 5; ++round) {  // not an error of the shard, however often
    CHECK(ssdd.persisted(ssdd.persist("b", 10 * round, 1)) == Code::noSpace);
    ssdd.now = ssdd.now + kPause;
    const uint64_t probe = ssdd.persist("c", 10 * round, 1);
    CHECK(ssdd.persisted(ssdd.persist("d", 10 * round, 1)) == Code::noSpace);
    ssdd.write(Code::noSpace);
    CHECK(ssdd.persisted(probe) == Code::noSpace);
  }
  ssdd.now = ssdd.now + kPause;
  const uint64_t probe = ssdd.persist("e", 100, 1);
  CHECK(ssdd.core.paused());
  ssdd.write();
  CHECK(ssdd.persisted(probe) == Code::ok);
  CHECK_FALSE(ssdd.core.paused());
  ssdd.put("f", 101, 1);
}

TEST_CASE("ssdd: one that was let through and says nothing about space lets the next one through") {
  Ssdd ssdd;
  ssdd.put("a", 1, 7);
  ssdd.persist("b", 1, 1);
  ssdd.write(Code::noSpace);
  ssdd.host.sent.clear();
  ssdd.now = ssdd.now + kPause;
  ssdd.load("a", 1, 7);
  const uint64_t waits = ssdd.persist("c", 1, 15);
  ssdd.evicted();
  CHECK(ssdd.persisted(ssdd.persist("d", 1, 1)) == Code::noSpace);
  ssdd.invalidate("c", 2);
  CHECK(ssdd.persisted(waits) == Code::miss);
  const uint64_t fails = ssdd.persist("e", 1, 1);
  ssdd.write(Code::system);
  CHECK(ssdd.persisted(fails) == Code::system);
  ssdd.persist("f", 1, 1);
  CHECK(ssdd.disk.writes.size() == 1);
}

TEST_CASE("ssdd: a device without space does not stop another one") {
  Ssdd ssdd({shardOf(0, 16), shardOf(1, 16)});
  ssdd.persist("a", 1, 1);
  ssdd.write(Code::noSpace);
  ssdd.host.sent.clear();
  for (uint64_t n = 2; n < 5; ++n) {
    ssdd.persist("k", n, 1);
    CHECK(ssdd.shardOfLast() == 1);
  }
  CHECK_FALSE(ssdd.core.paused());
}

// --- devices that do nothing, or are gone -----------------------------------------------------------------------------------------

namespace {

constexpr Duration kAlmost{kDevicePatience.ns - kTick.ns};

// Two devices of a shard each; "a" is on the first one, "b" on the second.
struct TwoDevices : Ssdd {
  TwoDevices() : Ssdd({shardOf(0, 64), shardOf(1, 64)}) {
    put("a", 1, 1);
    put("b", 2, 1);
  }
  // Time goes by, as if the ticks came.
  void pass(Duration duration) {
    for (const Time until = now + duration; now < until;) {
      now = now + kTick;
      core.tick(now);
      while (core.hasWork()) core.work();
    }
  }
  DeviceState state(size_t device) const { return core.devices()[device].state; }
  std::vector<uint64_t> stalled() {
    std::vector<uint64_t> found;
    for (const Message& each : host.sent) {
      if (each.kind == MessageKind::stalled) found.push_back(each.id);
    }
    std::erase_if(host.sent, [](const Message& each) { return each.kind == MessageKind::stalled; });
    return found;
  }
};

}  // namespace

TEST_CASE("ssdd: a device that ends nothing for four seconds is out, and what it has goes; the other one loses nothing") {
  TwoDevices ssdd;
  const uint64_t write = ssdd.persist("c", 3, 1), other = ssdd.persist("d", 4, 1), load = ssdd.load("a", 1, 1);
  ssdd.writeOf(4);
  CHECK(ssdd.persisted(other) == Code::ok);
  ssdd.decide(other);
  ssdd.pass(kAlmost);
  CHECK(ssdd.state(0) == DeviceState::serving);
  CHECK(ssdd.stalled().empty());
  ssdd.pass(kTick);
  CHECK(ssdd.state(0) == DeviceState::hung);
  CHECK(ssdd.state(1) == DeviceState::serving);
  CHECK(ssdd.stalled() == std::vector{write, load});
  CHECK(ssdd.core.devices()[0].stalled == 2);
  CHECK(ssdd.disk.cancels == 1);
  CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
  CHECK(ssdd.loaded(ssdd.load("a", 1, 1)) == Code::miss);
  CHECK(ssdd.listed().size() == 2);
  CHECK(ssdd.core.shards()[0].writers + ssdd.core.shards()[0].readPins == 2);  // whose bytes may still be used
  for (uint64_t n = 10; n < 20; ++n) {
    ssdd.persist("e" + std::to_string(n), n, 1);
    CHECK(ssdd.shardOfLast() == 1);
    ssdd.writeOf(n);
    ssdd.decide(ssdd.take(MessageKind::persisted).id);
  }
  CHECK_FALSE(ssdd.core.paused());
}

TEST_CASE("ssdd: a write, a read or a check that gets on may take as long as it takes") {
  TwoDevices ssdd;
  ssdd.persist("c", 3, 1);
  const JobId write = ssdd.disk.writes.back().id;
  for (int n = 0; n < 20; ++n) {
    ssdd.pass(kAlmost);
    ssdd.core.progress(write, 0, ssdd.now);
  }
  ssdd.load("b", 2, 1);
  ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  for (int n = 0; n < 20; ++n) {
    ssdd.pass(kAlmost);
    ssdd.core.progress(write, 0, ssdd.now);
    ssdd.core.progress(ssdd.disk.reads.back().id, 0, ssdd.now);
  }
  CHECK(ssdd.state(0) == DeviceState::serving);
  CHECK(ssdd.state(1) == DeviceState::serving);
  ssdd.pass(kDevicePatience);
  CHECK(ssdd.state(0) == DeviceState::hung);
}

TEST_CASE("ssdd: a device that hung is tried when it has answered everything; one value brings it back") {
  TwoDevices ssdd;
  const uint64_t write = ssdd.persist("c", 3, 1);
  const uint64_t load = ssdd.load("a", 1, 1);
  ssdd.pass(kDevicePatience);
  ssdd.host.sent.clear();
  ssdd.write();
  CHECK(ssdd.persisted(write) == Code::unavailable);
  CHECK(ssdd.state(0) == DeviceState::hung);
  ssdd.persist("d", 4, 1);
  CHECK(ssdd.shardOfLast() == 1);
  ssdd.read();
  CHECK(ssdd.loaded(load) == Code::miss);
  CHECK(ssdd.state(0) == DeviceState::failing);
  ssdd.writeOf(4);
  ssdd.host.sent.clear();
  const uint64_t probe = ssdd.persist("e", 5, 1);
  CHECK(ssdd.shardOfLast() == 0);
  ssdd.persist("f", 6, 1);
  CHECK(ssdd.shardOfLast() == 1);  // one at a time
  ssdd.writeOf(5);
  CHECK(ssdd.persisted(probe) == Code::ok);
  CHECK(ssdd.state(0) == DeviceState::serving);
  ssdd.decide(probe);
  CHECK(ssdd.readable("e", 5, 1));
}

TEST_CASE("ssdd: what the master takes while its device hangs is told as evicted, after that") {
  TwoDevices ssdd;
  const uint64_t id = ssdd.undecided("c", 3, 1);
  ssdd.load("a", 1, 1);
  ssdd.pass(kDevicePatience);
  CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
  ssdd.decide(id);
  CHECK(ssdd.evicted() == std::vector{Version{"c", PutId(3)}});
}

TEST_CASE("ssdd: what waits for a place on a device that hangs goes to another one") {
  TwoDevices ssdd;
  ssdd.persist("c", 3, 40);
  ssdd.persist("x", 4, 50);  // the other one has more to do
  const uint64_t waits = ssdd.persist("d", 5, 30);
  CHECK(ssdd.core.shards()[0].waiting == 1);
  ssdd.writeOf(4);
  ssdd.decide(ssdd.take(MessageKind::persisted).id);
  ssdd.pass(kDevicePatience);
  CHECK(ssdd.core.shards()[0].waiting == 0);
  ssdd.writeOf(5);
  CHECK(ssdd.persisted(waits) == Code::ok);
}

TEST_CASE("ssdd: a slow device has no more to write than the other one, which goes on") {
  TwoDevices ssdd;
  size_t slow = 0;
  for (uint64_t n = 10; n < 40; ++n) {
    ssdd.persist("k" + std::to_string(n), n, 1);
    if (ssdd.shardOfLast() == 0) {
      ++slow;
      continue;
    }
    ssdd.writeOf(n);
    ssdd.decide(ssdd.take(MessageKind::persisted).id);
  }
  CHECK(slow == 1);
}

TEST_CASE("ssdd: a device whose writes fail is out until one succeeds, and its entries are read meanwhile") {
  TwoDevices ssdd;
  for (unsigned n = 0; n < kDeviceErrors; ++n) {
    CHECK(ssdd.state(0) == DeviceState::serving);
    ssdd.persist("c", 10 + n, 1);
    CHECK(ssdd.shardOfLast() == 0);
    ssdd.write(Code::system);
    ssdd.take(MessageKind::persisted);
    ssdd.put("d", 10 + n, 1);
  }
  CHECK(ssdd.state(0) == DeviceState::failing);
  CHECK_FALSE(ssdd.core.shards()[0].retired);
  ssdd.host.sent.clear();
  CHECK(ssdd.readable("a", 1, 1));
  ssdd.put("e", 20, 1);
  ssdd.put("e", 21, 1);
  ssdd.now = ssdd.now + kPause;
  ssdd.persist("f", 30, 1);
  ssdd.persist("g", 31, 1);
  CHECK(ssdd.disk.writes.front().shard.value + ssdd.disk.writes.back().shard.value == 1);
  ssdd.write();
  ssdd.write();
  CHECK(ssdd.state(0) == DeviceState::serving);
}

TEST_CASE("ssdd: a device of which three reads in a row fail is given up") {
  TwoDevices ssdd;
  std::vector<Version> gone;
  for (uint64_t n = 0; n < 8; ++n) ssdd.put("k" + std::to_string(n), 10 + n, 1);  // half of them on each
  for (unsigned n = 0; n < kDeviceErrors; ++n) {
    ssdd.load("k" + std::to_string(2 * n), 10 + 2 * n, 1);
    REQUIRE(ssdd.disk.reads.back().shard.value == 0);
    ssdd.read(Code::system);
    ssdd.take(MessageKind::loaded);
  }
  CHECK(ssdd.state(0) == DeviceState::failing);
  ssdd.pass(kTick);
  CHECK(ssdd.evicted().size() == 5);  // three that failed, and two more
  CHECK(ssdd.readable("b", 2, 1));
  CHECK(ssdd.core.entries() == 5);
}

TEST_CASE("ssdd: a device whose files are gone is not tried again") {
  TwoDevices ssdd;
  ssdd.core.deviceGone(DeviceIndex(0), ssdd.now);
  ssdd.pass(seconds(60));
  CHECK(ssdd.state(0) == DeviceState::gone);
  CHECK(ssdd.evicted() == std::vector{Version{"a", PutId(1)}});
  for (uint64_t n = 10; n < 14; ++n) {
    ssdd.put("c", n, 1);
    CHECK(ssdd.core.shards()[0].usedBytes == 2 * kBlock);
  }
  ssdd.core.deviceGone(DeviceIndex(1), ssdd.now);
  CHECK(ssdd.core.paused());
  CHECK(ssdd.persisted(ssdd.persist("d", 20, 1)) == Code::unavailable);
}

TEST_CASE("ssdd: a scrub goes on without a device that hangs") {
  TwoDevices ssdd;
  ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  REQUIRE(ssdd.disk.checks.size() == 2);
  std::swap(ssdd.disk.checks[0], ssdd.disk.checks[1]);
  ssdd.check();
  ssdd.pass(kDevicePatience);
  CHECK(ssdd.take(MessageKind::done).bytes == 1);
  ssdd.check();
  CHECK(ssdd.nothingOpen());
}

TEST_CASE("ssdd: it says that it lives while a persist or a load is open, and nothing else when it is idle") {
  TwoDevices ssdd;
  ssdd.pass(seconds(5));
  CHECK(ssdd.host.sent.empty());
  const uint64_t id = ssdd.undecided("c", 3, 1);
  ssdd.pass(seconds(5));
  CHECK(ssdd.versions(MessageKind::alive).size() == 10);
  ssdd.decide(id);
  ssdd.host.sent.clear();
  ssdd.pass(seconds(5));
  CHECK(ssdd.host.sent.empty());
}

TEST_CASE("ssdd: another life knows nothing of a scrub of the one before") {
  TwoDevices ssdd;
  ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  ssdd.check();
  ssdd.check();
  CHECK(ssdd.core.lastScrub().total == 2);
  ssdd.core.ownerGone();
  ssdd.core.startOver();
  CHECK(ssdd.core.lastScrub().total == 0);
}

// --- scrub ---------------------------------------------------------------------------------------------------------------------

TEST_CASE("ssdd: a scrub checks every decided entry, a few at a time; what is damaged goes and is told") {
  Ssdd ssdd({shardOf(0, 64), shardOf(1, 64)});
  for (uint64_t n = 1; n <= 10; ++n) ssdd.put("k" + std::to_string(n), n, 2);
  const uint64_t scrub = ssdd.ask(MessageKind::scrub);
  const uint64_t second = ssdd.ask(MessageKind::scrub);
  const Message refused = ssdd.take(MessageKind::done);
  CHECK(refused.id == second);
  CHECK(refused.code == Code::inFlight);
  CHECK(ssdd.core.lastScrub().total == 10);
  std::set<uint64_t> checked;
  while (!ssdd.disk.checks.empty() || ssdd.core.hasWork()) {
    while (ssdd.core.hasWork()) ssdd.core.work();
    if (ssdd.disk.checks.empty()) break;
    CHECK(ssdd.disk.checks.size() <= kMostChecks);
    const CheckJob job = ssdd.disk.checks.front();
    CHECK(job.payloadCrc == 7);
    CHECK(job.payloadBytes == 2 * kBlock);
    CHECK(job.keyHash == keyHash("k" + std::to_string(job.putId.value)));
    CHECK(checked.insert(job.putId.value).second);
    if (job.putId == PutId(9)) ssdd.invalidate("k9", 10);
    ssdd.check(job.putId == PutId(3) || job.putId == PutId(9) ? Code::corrupt : Code::ok);
    CHECK(ssdd.core.lastScrub().checked == checked.size());
  }
  CHECK(checked.size() == 10);
  CHECK(ssdd.core.lastScrub().checked == 10);
  CHECK(ssdd.core.lastScrub().total == 10);
  CHECK(ssdd.core.lastScrub().damaged == 1);
  const Message done = ssdd.take(MessageKind::done);
  CHECK(done.id == scrub);
  CHECK(done.bytes == 10);
  CHECK(done.offset == 1);
  CHECK(ssdd.core.lastScrub().damaged == 1);
  CHECK(ssdd.evicted() == std::vector{Version{"k3", PutId(3)}});
  CHECK_FALSE(ssdd.readable("k3", 3, 2));
  CHECK(ssdd.readable("k2", 2, 2));
  CHECK(ssdd.nothingOpen());
}

TEST_CASE("ssdd: a scrub tells how far it is, every so many entries or so often") {
  Ssdd ssdd({shardOf(0, 200)});
  for (uint64_t n = 1; n <= 70; ++n) ssdd.put("k" + std::to_string(n), n, 1);
  const uint64_t scrub = ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  for (unsigned n = 0; n < 63; ++n) ssdd.check();
  CHECK(ssdd.host.sent.empty());
  ssdd.check();
  const Message first = ssdd.take(MessageKind::progress);
  CHECK(first.id == scrub);
  CHECK(first.bytes == 64 * kBlock);
  CHECK(ssdd.core.lastScrub().checked == 64);
  CHECK(ssdd.core.lastScrub().total == 70);
  ssdd.now = ssdd.now + milliseconds(100);
  ssdd.check();
  CHECK(ssdd.take(MessageKind::progress).bytes == 65 * kBlock);
  ssdd.check();
  CHECK(ssdd.host.sent.empty());
}

TEST_CASE("ssdd: a scrub of nothing is done, and a check that was not begun is not counted") {
  Ssdd ssdd;
  const uint64_t empty = ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  CHECK(ssdd.take(MessageKind::done).id == empty);
  ssdd.put("a", 1, 1);
  ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  ssdd.check(Code::unavailable);
  CHECK(ssdd.take(MessageKind::done).bytes == 0);
  CHECK(ssdd.readable("a", 1, 1));
}

TEST_CASE("ssdd: what is checked is not written over, also when the owner has gone; damage is found all the same") {
  Ssdd ssdd;
  ssdd.put("a", 1, 7);
  ssdd.ask(MessageKind::scrub);
  ssdd.core.work();
  ssdd.persist("b", 2, 15);
  CHECK(ssdd.disk.writes.empty());
  ssdd.core.ownerGone();
  CHECK_FALSE(ssdd.core.drained());
  ssdd.host.sent.clear();
  ssdd.check(Code::corrupt);
  CHECK(ssdd.core.drained());
  CHECK(ssdd.host.sent.empty());
  CHECK(ssdd.core.counters().damaged == 1);
  CHECK_FALSE(ssdd.core.hasEntries());
}

}  // namespace fluxon::ssdd
