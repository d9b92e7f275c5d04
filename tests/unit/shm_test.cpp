// shm: the hazard table, scans, the key store, the writer and the view of a directory. Memory is plain.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "base/hash.h"
#include "shm/directory_view.h"
#include "shm/directory_writer.h"
#include "shm/hazard_scan.h"
#include "shm/segment_format.h"

namespace fluxon::shm {
namespace {

struct Pages {
  explicit Pages(size_t bytes) : size((bytes + 4095) / 4096 * 4096), data(static_cast<char*>(std::aligned_alloc(4096, size))) {
    std::memset(data, 0, size);
  }
  ~Pages() { std::free(data); }
  Pages(const Pages&) = delete;
  size_t size;
  char* data;
};

struct OneClient {
  Pages pages{sizeof(ClientFile)};
  ClientFile& file = *reinterpret_cast<ClientFile*>(pages.data);
  HazardTable table{file.hazards};
  uint64_t words() const {
    uint64_t count = 0;
    for (const HazardShard& shard : file.hazards) {
      for (const Word& word : shard.words) count += word.load() != 0;
    }
    return count;
  }
  bool seen(uint64_t ref) const { return scanHazards({&file}, {ref})[0]; }
};

TEST_CASE("hazards: a held slot is seen by a scan, a dropped one is not") {
  OneClient c;
  const HazardTable::Ref hold = c.table.hold(0, 42);
  REQUIRE(hold.valid());
  CHECK(scanHazards({&c.file}, {41, 42, 43}) == std::vector<bool>{false, true, false});
  c.table.drop(hold);
  CHECK_FALSE(c.seen(42));
  CHECK(c.words() == 0);
}

TEST_CASE("hazards: holders of one slot in one shard share a word; the last one clears it") {
  OneClient c;
  const HazardTable::Ref one = c.table.hold(3, 42), two = c.table.hold(3, 42);
  CHECK(one.index == two.index);
  CHECK(c.words() == 1);
  CHECK(c.table.holders() == 2);
  c.table.drop(one);
  CHECK(c.seen(42));
  c.table.drop(two);
  CHECK_FALSE(c.seen(42));
  CHECK(c.table.holders() == 0);
}

TEST_CASE("hazards: threads of different shards use different words") {
  OneClient c;
  c.table.hold(0, 42);
  c.table.hold(1, 42);
  CHECK(c.words() == 2);
}

// Slots whose home lies in the same window.
std::vector<uint64_t> neighbours(size_t count) {
  std::vector<uint64_t> refs;
  for (uint64_t ref = 1; refs.size() < count; ++ref) {
    if ((ref * 0x9E3779B97F4A7C15ull) >> 55 == 100) refs.push_back(ref);
  }
  return refs;
}

TEST_CASE("hazards: a full window overflows to the next shards; all full is an answer, and a drop makes room") {
  OneClient c;
  const std::vector<uint64_t> refs = neighbours(8 * kHazardShards + 1);
  std::vector<HazardTable::Ref> holds;
  for (size_t i = 0; i + 1 < refs.size(); ++i) {
    holds.push_back(c.table.hold(0, refs[i]));
    REQUIRE(holds.back().valid());
    CHECK(holds.back().index / kHazardsPerShard == i / 8);
  }
  CHECK_FALSE(c.table.hold(0, refs.back()).valid());
  for (size_t i = 0; i + 1 < refs.size(); ++i) CHECK(c.seen(refs[i]));
  c.table.drop(holds[20]);
  CHECK(c.table.hold(0, refs.back()).valid());
  CHECK_FALSE(c.seen(refs[20]));
}

TEST_CASE("hazards: who ends a holder twice ends nobody's of another slot, and none when there is none") {
  OneClient c;
  const std::vector<uint64_t> refs = neighbours(2);
  const HazardTable::Ref gone = c.table.hold(0, refs[0]);
  c.table.drop(gone);
  c.table.drop(gone);
  CHECK(c.table.holders() == 0);
  const HazardTable::Ref other = c.table.hold(0, refs[1]);
  REQUIRE(other.index == gone.index);
  c.table.drop(gone);
  CHECK(c.seen(refs[1]));
  CHECK(c.table.holders() == 1);
}

TEST_CASE("hazards: a word freed before a sharer's is reused without losing the sharer") {
  OneClient c;
  const std::vector<uint64_t> refs = neighbours(2);
  const HazardTable::Ref first = c.table.hold(0, refs[0]), second = c.table.hold(0, refs[1]);
  c.table.drop(first);
  CHECK(c.table.hold(0, refs[1]).index == second.index);
  CHECK(c.table.hold(0, refs[0]).index == first.index);
}

TEST_CASE("hazards: the high-water mark covers every published word, also at the wrap of the window") {
  OneClient c;
  for (uint64_t ref = 1; ref < 3000; ++ref) {
    const HazardTable::Ref hold = c.table.hold(static_cast<unsigned>(ref), ref);
    if (!hold.valid()) continue;
    CHECK(hold.index % kHazardsPerShard < c.file.hazards[hold.index / kHazardsPerShard].highWater.load());
    CHECK(c.seen(ref));
  }
}

TEST_CASE("hazards: a mark beyond the table, as a broken client may write it, is not followed") {
  OneClient c;
  c.file.hazards[kHazardShards - 1].highWater.store(UINT32_MAX);
  CHECK_FALSE(c.seen(42));
}

TEST_CASE("hazards: a scan looks at all clients") {
  OneClient a, b;
  b.table.hold(0, 42);
  CHECK(scanHazards({&a.file, &b.file}, {42})[0]);
  CHECK_FALSE(scanHazards({&a.file}, {42})[0]);
  CHECK_FALSE(scanHazards({}, {42})[0]);
}

TEST_CASE("key store: rooms do not overlap and come back by size") {
  KeyStore store(4096);
  std::map<uint64_t, uint64_t> used;
  for (const uint64_t length : {0, 1, 32, 33, 64, 65, 1000}) {
    const auto offset = store.take(length);
    REQUIRE(offset);
    for (const auto& [from, size] : used) CHECK((*offset >= from + size || *offset + length <= from));
    used[*offset] = std::max<uint64_t>(length, 1);
  }
  const auto room = store.take(500);
  REQUIRE(room);
  store.give(*room, 500);
  CHECK(store.take(400) == room);
}

TEST_CASE("key store: full is an answer") {
  KeyStore store(100);
  CHECK(store.take(64));
  CHECK(store.take(20));
  CHECK_FALSE(store.take(1));
  CHECK_FALSE(store.take(65536));
}

TEST_CASE("key store: room given back by keys of one length serves keys of another") {
  KeyStore store(8192);
  std::vector<uint64_t> rooms;
  while (const auto room = store.take(64)) rooms.push_back(*room);
  for (const uint64_t room : rooms) store.give(room, 64);
  CHECK(store.take(4096));
}

// --- directory

struct Directory {
  explicit Directory(uint64_t maxKeys = 64, uint64_t segmentBytes = 1 << 20)
      : shape(DirectoryWriter::shapeFor(maxKeys, segmentBytes)),
        directory(directoryFileBytes(shape.buckets, shape.overflowSlots)),
        keys(keysFileBytes(shape.keysBytes)),
        segment(kSegmentDataOffset + segmentBytes),
        writer(DirectoryWriter::layout(directory.data, keys.data, shape, Incarnation(9), "cluster", "node"), shape) {
    auto* s = reinterpret_cast<SegmentHeader*>(segment.data);
    std::memcpy(s->file.magic, kSegmentMagic, 8);
    s->file.version = kFormatVersion;
    s->file.headerBytes = sizeof(SegmentHeader);
    s->file.fileBytes = segment.size;
    s->file.incarnation = 9;
    s->dataBytes = segmentBytes;
  }
  Result<DirectoryView> view(uint64_t cut = 0) const {
    return DirectoryView::over(directory.data, directory.size - cut, keys.data, keys.size, segment.data, segment.size);
  }
  DirectoryHeader& header() { return *reinterpret_cast<DirectoryHeader*>(directory.data); }
  FileHeader& keysHeader() { return *reinterpret_cast<FileHeader*>(keys.data); }
  FileHeader& segmentHeader() { return *reinterpret_cast<FileHeader*>(segment.data); }
  std::optional<uint32_t> grant(const std::string& key, uint64_t offset = 0, uint64_t bytes = 100) {
    return writer.grant(key, keyHash(key), offset, bytes, 1, OperationId(1));
  }
  uint32_t put(const std::string& key, uint64_t id, uint64_t offset = 0, uint64_t bytes = 100) {
    const uint32_t slot = grant(key, offset, bytes).value();
    writer.submit(slot);
    writer.commit(slot, PutId(id));
    return slot;
  }
  void serve() {
    writer.setServing(Incarnation(5));
    writer.setLease(INT64_MAX);
  }

  DirectoryWriter::Shape shape;
  Pages directory, keys, segment;
  DirectoryWriter writer;
};

struct Reader {
  explicit Reader(Directory& d) : view(d.view().value()) {}
  Probe read(const std::string& key) { return probe(view, client.table, 0, key, keyHash(key), hit); }
  DirectoryView view;
  OneClient client;
  Hit hit;
};

TEST_CASE("directory: a committed value is found with its fields and held") {
  Directory d;
  d.serve();
  const uint32_t slot = d.put("k", 7, 4096, 300);
  Reader r(d);
  REQUIRE(r.read("k") == Probe::hit);
  CHECK((r.hit.putId == PutId(7)));
  CHECK(r.hit.length == 300);
  CHECK(r.hit.data == r.view.segment + 4096);
  CHECK(r.hit.slotRef == d.writer.ref(slot));
  CHECK(r.client.seen(r.hit.slotRef));
}

TEST_CASE("directory: only committed slots are found") {
  Directory d;
  d.serve();
  Reader r(d);
  CHECK(r.read("k") == Probe::miss);
  const uint32_t slot = d.grant("k").value();
  CHECK(r.read("k") == Probe::miss);
  d.writer.submit(slot);
  CHECK(r.read("k") == Probe::miss);
  d.writer.commit(slot, PutId(7));
  d.writer.beginReclaim(slot);
  CHECK(r.read("k") == Probe::miss);
  d.writer.keep(slot);
  CHECK(r.read("k") == Probe::hit);
  r.client.table.drop(r.hit.hazard);
  d.writer.retire(slot);
  CHECK(r.read("k") == Probe::miss);
  d.writer.release(slot);
  CHECK(r.read("k") == Probe::miss);
  CHECK(r.client.words() == 0);
}

TEST_CASE("directory: another key with the same hash is not taken for it") {
  Directory d;
  d.serve();
  const uint32_t slot = d.writer.grant("other", keyHash("k"), 0, 100, 1, OperationId(1)).value();
  d.writer.submit(slot);
  d.writer.commit(slot, PutId(7));
  Reader r(d);
  CHECK(r.read("k") == Probe::miss);
  CHECK(r.client.words() == 0);
  CHECK_FALSE(d.writer.committed("k", keyHash("k")));
}

TEST_CASE("directory: without a lease, or under another incarnation, nothing is served and no hazard stays") {
  Directory d;
  d.put("k", 7);
  Reader r(d);
  CHECK(r.read("k") == Probe::lapsed);
  d.serve();
  CHECK(r.read("k") == Probe::hit);
  r.client.table.drop(r.hit.hazard);
  d.writer.setLease(1);
  CHECK(r.read("k") == Probe::lapsed);
  d.writer.setLease(INT64_MAX);
  const uint32_t slot = d.writer.committed("k", keyHash("k")).value();
  CHECK(holdSlot(r.view, r.client.table, 0, slot, r.view.slots[slot].word.load(), "k", 4, kAnyMaster, r.hit) == Probe::lapsed);
  CHECK(r.client.words() == 0);
}

TEST_CASE("directory: a slot that changed between the look and the hazard is a miss") {
  Directory d;
  d.serve();
  const uint32_t slot = d.put("k", 7);
  Reader r(d);
  const uint64_t seen = r.view.slots[slot].word.load();
  d.writer.retire(slot);
  d.writer.release(slot);
  d.put("k", 8);
  CHECK(holdSlot(r.view, r.client.table, 0, slot, seen, "k", 5, kAnyMaster, r.hit) == Probe::miss);
  CHECK(r.client.words() == 0);
}

TEST_CASE("directory: fields that point outside the mappings are a miss") {
  Directory d;
  d.serve();
  const uint32_t slot = d.put("k", 7, 0, 100);
  Reader r(d);
  DirectorySlot& fields = const_cast<DirectorySlot&>(r.view.slots[slot]);
  const auto tryWith = [&](Word& word, uint64_t value) {
    const uint64_t before = word.exchange(value);
    const Probe result = r.read("k");
    word.store(before);
    return result;
  };
  CHECK(tryWith(fields.offset, (1 << 20) - 99) == Probe::miss);
  CHECK(tryWith(fields.offset, UINT64_MAX - 50) == Probe::miss);
  CHECK(tryWith(fields.payloadBytes, (1 << 20) + 1) == Probe::miss);
  CHECK(tryWith(fields.payloadBytes, UINT64_MAX) == Probe::miss);
  CHECK(tryWith(fields.key, keyRecord(d.shape.keysBytes, 1)) == Probe::miss);
  CHECK(tryWith(fields.key, keyRecord(uint64_t{1} << 47, 1)) == Probe::miss);
  CHECK(r.client.words() == 0);
  CHECK(r.read("k") == Probe::hit);
}

TEST_CASE("directory: without a free hazard word the ring has to answer") {
  Directory d;
  d.serve();
  d.put("k", 7);
  Reader r(d);
  REQUIRE(r.read("k") == Probe::hit);
  const uint64_t home = (r.hit.slotRef * 0x9E3779B97F4A7C15ull) >> 55;
  r.client.table.drop(r.hit.hazard);
  for (unsigned shard = 0; shard < kHazardShards; ++shard) {
    size_t taken = 0;
    for (uint64_t ref = uint64_t{1} << 40; taken < 8; ++ref) {
      if ((ref * 0x9E3779B97F4A7C15ull) >> 55 == home) taken += r.client.table.hold(shard, ref).index / kHazardsPerShard == shard;
    }
  }
  CHECK(r.read("k") == Probe::noHazard);
}

TEST_CASE("directory: full buckets overflow into slots that their owner alone finds; then it is full") {
  Directory d(1);
  d.serve();
  Reader r(d);
  std::vector<uint32_t> slots;
  std::vector<std::string> keys;
  for (int i = 0;; ++i) {
    const auto slot = d.grant("key" + std::to_string(i));
    if (!slot) break;
    d.writer.submit(*slot);
    d.writer.commit(*slot, PutId(static_cast<uint64_t>(i) + 1));
    slots.push_back(*slot);
    keys.push_back("key" + std::to_string(i));
  }
  CHECK(slots.size() == d.writer.slotCount());
  CHECK(std::set<uint32_t>(slots.begin(), slots.end()).size() == slots.size());
  CHECK(d.writer.overflowUsed() == d.shape.overflowSlots);
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK(d.writer.committed(keys[i], keyHash(keys[i])) == slots[i]);
    CHECK((r.read(keys[i]) == Probe::hit) == (slots[i] < d.shape.buckets * kSlotsPerBucket));
  }
  d.writer.retire(slots.back());
  d.writer.release(slots.back());
  CHECK(d.writer.overflowUsed() == d.shape.overflowSlots - 1);
  CHECK_FALSE(d.writer.committed(keys.back(), keyHash(keys.back())));
  CHECK(d.grant("again"));
}

TEST_CASE("directory: what it is full of is said: slots, or room for the bytes of keys") {
  Directory slots(1);
  while (slots.grant("key" + std::to_string(slots.writer.overflowUsed()) + std::to_string(slots.writer.count(SlotState::granted)))) {
  }
  CHECK(std::string(slots.writer.fullOf()) == "the directory is full (max_keys)");
  Directory bytes(4096);
  uint64_t granted = 0;
  while (bytes.grant(std::string(4000, 'x') + std::to_string(granted))) ++granted;
  CHECK(granted < 4096);
  CHECK(std::string(bytes.writer.fullOf()).starts_with("the directory has no room for the bytes of the key (max_keys: 128 bytes for each"));
}

TEST_CASE("directory: a slot's generation grows when it becomes free, and only then") {
  Directory d;
  const uint32_t slot = d.put("k", 7);
  const uint32_t generation = d.writer.generation(slot);
  d.writer.retire(slot);
  CHECK(d.writer.generation(slot) == generation);
  d.writer.release(slot);
  CHECK(d.writer.generation(slot) == generation + 1);
}

TEST_CASE("directory: counts follow the states") {
  Directory d;
  const uint32_t slot = d.put("k", 7);
  CHECK(d.writer.count(SlotState::committed) == 1);
  d.writer.retire(slot);
  CHECK(d.writer.count(SlotState::retired) == 1);
  d.writer.release(slot);
  CHECK(d.writer.count(SlotState::free) == d.writer.slotCount());
}

TEST_CASE("directory: one with two readable values of a key is not taken over") {
  for (const SlotState state : {SlotState::committed, SlotState::reclaiming}) {
    Directory d;
    d.put("key", 1);
    const uint32_t other = d.grant("key", 4096).value();
    d.writer.submit(other);
    const DirectoryWriter::Memory memory{&d.header(), reinterpret_cast<Word*>(d.directory.data + d.header().tagsOffset),
                                         reinterpret_cast<DirectorySlot*>(d.directory.data + d.header().slotsOffset),
                                         d.keys.data + sizeof(KeysHeader)};
    CHECK(DirectoryWriter::adopt(memory, d.shape).ok());
    memory.slots[other].putId.store(2);
    memory.slots[other].word.store(slotWord(1, state));
    const auto adopted = DirectoryWriter::adopt(memory, d.shape);
    REQUIRE_FALSE(adopted.ok());
    CHECK(adopted.error().detail.find("two readable values") != std::string::npos);
  }
}

TEST_CASE("local hit: a lease of another master than the one asked for is none") {
  Directory d;
  d.serve();
  d.put("k", 8);
  d.writer.setMaster(Incarnation(9));
  Reader r(d);
  const auto under = [&](uint64_t master) {
    const Probe outcome = probe(r.view, r.client.table, 0, "k", keyHash("k"), r.hit, master);
    if (outcome == Probe::hit) r.client.table.drop(r.hit.hazard);
    return outcome;
  };
  CHECK(under(9) == Probe::hit);
  CHECK(under(kAnyMaster) == Probe::hit);
  CHECK(under(8) == Probe::lapsed);
  DirectoryWriter::endServing(d.header());
  CHECK(under(9) == Probe::lapsed);
  CHECK(r.client.words() == 0);
}

TEST_CASE("directory view: truncated and foreign files are refused with a reason") {
  Directory d;
  REQUIRE(d.view());
  const auto refused = [&](auto change, const char* why) {
    Directory other;
    change(other);
    const Result<DirectoryView> view = other.view();
    REQUIRE_FALSE(view);
    CHECK(view.error().code == Code::corrupt);
    INFO(view.error().detail);
    CHECK(view.error().detail.find(why) != std::string::npos);
  };
  refused([](Directory& o) { o.header().file.magic[0] ^= 1; }, "directory: wrong magic");
  refused([](Directory& o) { o.header().file.version = kFormatVersion + 1; }, "directory: unknown format version");
  refused([](Directory& o) { o.header().file.incarnation = 0; }, "no incarnation");
  refused([](Directory& o) { o.header().file.headerBytes = 0; }, "header length");
  refused([](Directory& o) { o.header().file.fileBytes += 4096; }, "size differs");
  refused([](Directory& o) { o.header().buckets = 0; }, "does not fit");
  refused([](Directory& o) { o.header().buckets = 3; }, "does not fit");
  refused([](Directory& o) { o.header().buckets *= 2; }, "does not fit");
  refused([](Directory& o) { o.header().buckets = 1u << 31; }, "does not fit");
  refused([](Directory& o) { o.header().overflowSlots = UINT32_MAX; }, "does not fit");
  refused([](Directory& o) { o.header().overflowSlots += 4096; }, "does not fit");
  refused([](Directory& o) { o.header().tagsOffset += 64; }, "does not fit");
  refused([](Directory& o) { o.header().slotsOffset = UINT64_MAX; }, "does not fit");
  refused([](Directory& o) { o.header().keysBytes = UINT64_MAX; }, "keys: shorter");
  refused([](Directory& o) { o.header().segmentBytes += 1; }, "segment: shorter");
  refused([](Directory& o) { o.keysHeader().magic[7] = 'x'; }, "keys: wrong magic");
  refused([](Directory& o) { o.keysHeader().incarnation = 8; }, "another incarnation");
  refused([](Directory& o) { o.segmentHeader().magic[7] = 'x'; }, "segment: wrong magic");
  refused([](Directory& o) { o.segmentHeader().incarnation = 8; }, "another incarnation");
}

TEST_CASE("directory view: every length shorter than the file is refused, without a look beyond it") {
  Directory d(1);
  for (size_t length = 0; length < d.directory.size; length += length < 512 ? 1 : 509) {
    const Pages cut(length);  // at least as long as it says
    std::memcpy(cut.data, d.directory.data, length);
    CHECK_FALSE(DirectoryView::over(cut.data, length, d.keys.data, d.keys.size, d.segment.data, d.segment.size));
  }
  for (const size_t length : {0, 63, 64, 4095, 4096}) {
    CHECK_FALSE(DirectoryView::over(d.directory.data, d.directory.size, d.keys.data, length, d.segment.data, d.segment.size));
    CHECK_FALSE(DirectoryView::over(d.directory.data, d.directory.size, d.keys.data, d.keys.size, d.segment.data, length));
  }
}

}  // namespace
}  // namespace fluxon::shm
