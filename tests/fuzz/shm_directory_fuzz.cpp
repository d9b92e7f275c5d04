// Directory, keys and segment, as a reader maps them and as the next life of an owner takes them over. What a reader is given lies in
// the files; a directory that is taken over holds together, can be emptied, and is full again when it is taken over once more.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/extent.h"
#include "fuzz.h"
#include "shm/directory_view.h"
#include "shm_files.h"

namespace fluxon::fuzz {
namespace {

using namespace shm;

// Headers are made good but for their shape; hashes become those of their keys. Without them few inputs would get further.
constexpr uint8_t kMendHeaders = 1, kMendHashes = 2;

constexpr size_t kMostFileBytes = 64 * 1024;

struct Head {
  uint8_t mend;
  uint8_t reserved;
  uint16_t directoryBytes, keysBytes, segmentBytes;  // of the files
  uint16_t directoryGiven, keysGiven;                // what the input has of them; the rest is zero, the segment takes what is left
};

struct Files {
  explicit Files(Input& in)
      : head(in.take<Head>()), directory(head.directoryBytes + 1), keys(head.keysBytes + 1), segment(head.segmentBytes + 1) {
    fill(directory, in.take(head.directoryGiven));
    fill(keys, in.take(head.keysGiven));
    fill(segment, in.rest());
    if (head.mend & kMendHeaders) {
      mend(directory, kDirectoryMagic);
      mend(keys, kKeysMagic);
      mend(segment, kSegmentMagic);
    }
  }
  static void fill(const Pages& pages, std::string_view bytes) {
    std::memcpy(pages.data, bytes.data(), std::min(bytes.size(), pages.size));
  }
  static void mend(const Pages& pages, const char (&magic)[9]) {
    FileHeader header{{}, kFormatVersion, sizeof header, pages.size, 9, {}};
    std::memcpy(header.magic, magic, 8);
    std::memcpy(pages.data, &header, std::min(pages.size, sizeof header));
  }
  Head head;
  Pages directory, keys, segment;
};

std::string_view keyAt(const DirectoryView& view, uint64_t record) {
  if (keyOffset(record) > view.keysBytes || keyBytes(record) > view.keysBytes - keyOffset(record)) return "";
  return {view.keys + keyOffset(record), keyBytes(record)};
}

uint64_t sum(const char* data, uint64_t bytes) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < bytes; ++i) total += static_cast<unsigned char>(data[i]);
  return total;
}

// Every read that a client can do.
bool readAll(const Files& files, const DirectoryView& view) {
  const auto within = [](const Pages& pages, const void* from, uint64_t bytes) {
    const auto* at = static_cast<const char*>(from);
    return at >= pages.data && at <= pages.data + pages.size && bytes <= static_cast<uint64_t>(pages.data + pages.size - at);
  };
  FLUXON_CHECK(within(files.directory, view.tags, uint64_t{view.buckets} * 64), "tags outside of the directory");
  FLUXON_CHECK(within(files.directory, view.slots, uint64_t{view.slotCount} * sizeof(DirectorySlot)), "slots outside of the directory");
  FLUXON_CHECK(reinterpret_cast<const char*>(view.tags + uint64_t{view.buckets} * 8) == reinterpret_cast<const char*>(view.slots), "a gap");
  FLUXON_CHECK(within(files.keys, view.keys, view.keysBytes), "keys outside of their file");
  FLUXON_CHECK(within(files.segment, view.segment, view.segmentBytes), "values outside of the segment");

  static Pages& pages = *new Pages(sizeof(HazardShard) * kHazardShards);
  auto* const shards = reinterpret_cast<HazardShard*>(pages.data);
  HazardTable hazards(shards);
  volatile uint64_t total = 0;
  bool hits = false;
  for (uint32_t slot = 0; slot < view.slotCount; ++slot) {
    const DirectorySlot& fields = view.slots[slot];
    const std::string_view key = keyAt(view, fields.key.load());
    Hit hit;
    if (probe(view, hazards, slot, key, fields.hash.load(), hit) != Probe::hit) continue;
    hits = true;
    FLUXON_CHECK(within(files.segment, hit.data, hit.length), "a value outside of the segment");
    FLUXON_CHECK(shards[hit.hazard.index / kHazardsPerShard].words[hit.hazard.index % kHazardsPerShard].load() == hit.slotRef, "not held");
    FLUXON_CHECK(slotOfRef(hit.slotRef) < view.slotCount && keyAt(view, view.slots[slotOfRef(hit.slotRef)].key.load()) == key,
                 "another key");
    total = total + sum(hit.data, hit.length);
    hazards.drop(hit.hazard);
    FLUXON_CHECK(hazards.holders() == 0, "a holder is left");
  }
  return hits;
}

DirectoryWriter::Memory memoryOf(const Files& files, const DirectoryView& view) {
  auto* header = reinterpret_cast<DirectoryHeader*>(files.directory.data);
  return {header, reinterpret_cast<Word*>(files.directory.data + header->tagsOffset),
          reinterpret_cast<DirectorySlot*>(files.directory.data + header->slotsOffset), const_cast<char*>(view.keys)};
}

void checkAdopted(const DirectoryWriter& writer, const DirectoryView& view) {
  std::map<uint64_t, uint64_t> extents;
  std::set<std::string_view> readable;
  for (uint32_t slot = 0; slot < writer.slotCount(); ++slot) {
    const SlotState state = writer.state(slot);
    if (state == SlotState::free) continue;
    const uint64_t offset = writer.offset(slot), length = extentBytes(writer.payloadBytes(slot));
    FLUXON_CHECK(offset <= view.segmentBytes && length <= view.segmentBytes - offset, "an extent outside of the segment");
    FLUXON_CHECK(extents.emplace(offset, length).second, "two slots with one extent");
    const std::string_view key = keyAt(view, view.slots[slot].key.load());
    FLUXON_CHECK(!key.empty() && key.size() <= kMaxKeyBytes && writer.key(slot) == key, "a key outside of its file");
    FLUXON_CHECK(writer.hash(slot) == keyHash(key), "a hash that is not its key's");
    if (state == SlotState::committed || state == SlotState::reclaiming)
      FLUXON_CHECK(readable.insert(key).second, "two readable values of one key");
    bool found = false;
    writer.forEach(key, keyHash(key), [&](uint32_t each) { found |= each == slot; });
    FLUXON_CHECK(found, "a slot that its own owner does not find");
  }
  uint64_t end = 0;
  for (const auto& [offset, length] : extents) {
    FLUXON_CHECK(offset >= end, "two slots share bytes");
    end = offset + length;
  }
}

// False: refused.
bool takeOver(const Files& files, const DirectoryView& view) {
  const DirectoryWriter::Shape shape{view.buckets, view.slotCount - view.buckets * kSlotsPerBucket, view.keysBytes, view.segmentBytes};
  const DirectoryWriter::Memory memory = memoryOf(files, view);
  Result<std::unique_ptr<DirectoryWriter>> first = DirectoryWriter::adopt(memory, shape);
  if (!first) {
    FLUXON_CHECK(first.error().code == Code::corrupt && !first.error().detail.empty(), "refused without a reason");
    return false;
  }
  checkAdopted(**first, view);
  Result<std::unique_ptr<DirectoryWriter>> again = DirectoryWriter::adopt(memory, shape);
  FLUXON_CHECK(again.ok(), "what was taken over once is refused the second time");
  DirectoryWriter& writer = **again;
  for (uint32_t state = 0; state < kSlotStates; ++state)
    FLUXON_CHECK(writer.count(static_cast<SlotState>(state)) == (*first)->count(static_cast<SlotState>(state)), "states are counted wrong");
  checkAdopted(writer, view);
  const bool any = writer.count(SlotState::free) < writer.slotCount();
  for (uint32_t slot = 0; slot < writer.slotCount(); ++slot) {
    if (writer.state(slot) == SlotState::committed) writer.retire(slot);
    if (writer.state(slot) != SlotState::free) writer.release(slot);
  }
  FLUXON_CHECK(writer.count(SlotState::free) == writer.slotCount() && writer.overflowUsed() == 0, "a slot that cannot become free");
  for (uint32_t i = 0; i < view.buckets * kSlotsPerBucket; ++i) FLUXON_CHECK(view.tags[i].load() == 0, "the tag of a free slot");
  const std::string key = "a new key";
  if (view.keysBytes >= 32) FLUXON_CHECK(writer.grant(key, keyHash(key), 0, 1, 1, OperationId(1)), "no room in an empty directory");
  return any;
}

std::string inputOf(const NodeFiles& files, uint8_t mend) {
  const std::string_view directory(files.directory.data, files.directory.size), keys(files.keys.data, files.keys.size);
  const auto used = [](std::string_view bytes) { return static_cast<uint16_t>(bytes.find_last_not_of('\0') + 1); };
  const std::string_view segment(files.segment.data, files.segment.size);
  const Head head{mend,
                  0,
                  static_cast<uint16_t>(directory.size() - 1),
                  static_cast<uint16_t>(keys.size() - 1),
                  static_cast<uint16_t>(segment.size() - 1),
                  used(directory),
                  used(keys)};
  return std::string(bytesOf(head))
      .append(directory.substr(0, head.directoryGiven))
      .append(keys.substr(0, head.keysGiven))
      .append(segment.substr(0, 80));
}

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  Files files(in);
  const Result<DirectoryView> view = DirectoryView::over(files.directory.data, files.directory.size, files.keys.data, files.keys.size,
                                                         files.segment.data, files.segment.size);
  if (!view) {
    FLUXON_CHECK(view.error().code == Code::corrupt && !view.error().detail.empty(), "refused without a reason");
    return false;
  }
  auto* slots = const_cast<DirectorySlot*>(view.value().slots);
  for (uint32_t slot = 0; (files.head.mend & kMendHashes) && slot < view.value().slotCount; ++slot) {
    if (const std::string_view key = keyAt(view.value(), slots[slot].key.load()); !key.empty()) slots[slot].hash.store(keyHash(key));
  }
  const bool hits = readAll(files, view.value());
  return takeOver(files, view.value()) || hits;
}

std::vector<std::string> seeds() {
  std::vector<std::string> inputs;
  for (const uint8_t mend : {0, 1, 3}) {
    NodeFiles one({1, 2, 256, 16384});
    one.put("key", 3, 0, "value");
    inputs.push_back(inputOf(one, mend));

    // Each state, two versions of a key, and slots beyond the buckets.
    NodeFiles many({1, 4, 1024, 32768});
    many.put("other", 4, 64, "another");
    many.writer.retire(many.put("key", 3, 128, "old"));
    many.put("key", 5, 4096, std::string(5000, 'v'));
    many.writer.submit(many.grant("pending", 192, 10));
    many.grant("granted", 256, 100);
    many.writer.beginReclaim(many.put("reclaiming", 6, 512, "r"));
    for (uint64_t i = 0; i < 5; ++i) many.put("key " + std::to_string(i), 10 + i, 16384 + i * 64, "v");
    inputs.push_back(inputOf(many, mend));
  }
  return inputs;
}

}  // namespace fluxon::fuzz
