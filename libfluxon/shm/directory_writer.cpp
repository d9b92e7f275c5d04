#include "shm/directory_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/extent.h"
#include "base/hash.h"

namespace fluxon::shm {
namespace {

void copyName(char (&to)[40], std::string_view from) { std::memcpy(to, from.data(), std::min(from.size(), sizeof to - 1)); }

}  // namespace

DirectoryWriter::Shape DirectoryWriter::shapeFor(uint64_t maxKeys, uint64_t segmentBytes) {
  Shape shape;
  shape.buckets = static_cast<uint32_t>(std::bit_ceil(std::max<uint64_t>(maxKeys * 2 / kSlotsPerBucket, 1)));
  shape.overflowSlots = static_cast<uint32_t>(std::max<uint64_t>(maxKeys / 8, 64));
  shape.keysBytes = maxKeys * 128 + 64 * kMaxKeyBytes;
  shape.segmentBytes = segmentBytes;
  return shape;
}

DirectoryWriter::Memory DirectoryWriter::layout(void* directory, void* keysFile, const Shape& shape, Incarnation incarnation,
                                                std::string_view cluster, std::string_view node) {
  auto* header = static_cast<DirectoryHeader*>(directory);
  std::memcpy(header->file.magic, kDirectoryMagic, 8);
  header->file.version = kFormatVersion;
  header->file.headerBytes = sizeof(DirectoryHeader);
  header->file.fileBytes = directoryFileBytes(shape.buckets, shape.overflowSlots);
  header->file.incarnation = incarnation.value;
  copyName(header->cluster, cluster);
  copyName(header->node, node);
  header->buckets = shape.buckets;
  header->overflowSlots = shape.overflowSlots;
  header->tagsOffset = sizeof(DirectoryHeader);
  header->slotsOffset = header->tagsOffset + uint64_t{shape.buckets} * 64;
  header->segmentBytes = shape.segmentBytes;
  header->keysBytes = shape.keysBytes;
  auto* keys = static_cast<KeysHeader*>(keysFile);
  std::memcpy(keys->file.magic, kKeysMagic, 8);
  keys->file.version = kFormatVersion;
  keys->file.headerBytes = sizeof(KeysHeader);
  keys->file.fileBytes = keysFileBytes(shape.keysBytes);
  keys->file.incarnation = incarnation.value;
  return {header, reinterpret_cast<Word*>(static_cast<char*>(directory) + header->tagsOffset),
          reinterpret_cast<DirectorySlot*>(static_cast<char*>(directory) + header->slotsOffset),
          static_cast<char*>(keysFile) + sizeof(KeysHeader)};
}

DirectoryWriter::DirectoryWriter(Memory memory, const Shape& shape)
    : memory_(memory), buckets_(shape.buckets), slotCount_(shape.buckets * kSlotsPerBucket + shape.overflowSlots), keys_(shape.keysBytes) {
  for (uint32_t slot = slotCount_; slot-- > buckets_ * kSlotsPerBucket;) freeOverflow_.push_back(slot);
  for (uint32_t slot = 0; slot < slotCount_; ++slot) {
    memory_.slots[slot].word.store(slotWord(1, SlotState::free), std::memory_order_relaxed);
  }
  counts_[static_cast<uint32_t>(SlotState::free)] = slotCount_;
}

DirectoryWriter::DirectoryWriter(Memory memory, const Shape& shape, Adopting)
    : memory_(memory), buckets_(shape.buckets), slotCount_(shape.buckets * kSlotsPerBucket + shape.overflowSlots), keys_(shape.keysBytes) {}

Result<std::unique_ptr<DirectoryWriter>> DirectoryWriter::adopt(Memory memory, const Shape& shape) {
  std::unique_ptr<DirectoryWriter> writer(new DirectoryWriter(memory, shape, Adopting{}));
  if (Error error = writer->adoptSlots(); !error.ok()) return error;
  return writer;
}

// A process may have ended between any two of its stores. What that leaves, and what becomes of it:
//   grant     fields and key bytes of a free slot, or its tag: the slot is free, the tag is written anew
//   commit    put_id and lease of a pending slot: nobody has read them, it is retired by its owner
//   release   the tag gone, the state not: the tag is written anew, and the slot as it was
//   overwrite the new slot pending, older ones readable or retired: the new one is retired, the master has not heard of it
//   layout    a header and slots of generation 0: damage, the node starts empty, as it was
//   drop      content 0, some values still readable: they are worth nothing, their owner retires them (OwnerCore::adopt)
//   serve     content without serving incarnation or lease: those are 0 at each start anyway
Error DirectoryWriter::adoptSlots() {
  const auto damaged = [](uint32_t slot, const char* what) {
    return Error{Code::corrupt, "directory slot " + std::to_string(slot) + ": " + what};
  };
  std::vector<Extent> extents;
  std::vector<std::pair<uint64_t, std::string_view>> readable;  // hash, key
  const uint64_t segmentBytes = memory_.header->segmentBytes;
  for (uint32_t slot = 0; slot < slotCount_; ++slot) {
    const uint64_t word = memory_.slots[slot].word.load(std::memory_order_relaxed);
    if (static_cast<uint32_t>(word) >= kSlotStates || generationOf(word) == 0) return damaged(slot, "unknown state");
    ++counts_[static_cast<uint32_t>(stateOf(word))];
    if (stateOf(word) == SlotState::free) continue;
    const DirectorySlot& fields = memory_.slots[slot];
    const uint64_t record = fields.key.load(std::memory_order_relaxed), bytes = payloadBytes(slot), at = offset(slot);
    if (keyBytes(record) == 0 || keyBytes(record) > kMaxKeyBytes || !keys_.claim(keyOffset(record), keyBytes(record)))
      return damaged(slot, "key bytes out of range or used twice");
    if (keyHash(key(slot)) != hash(slot)) return damaged(slot, "hash differs from its key");
    const uint32_t bucket = slot / kSlotsPerBucket;
    if (bucket < buckets_ && bucket != firstBucket(hash(slot), buckets_) && bucket != secondBucket(hash(slot), buckets_))
      return damaged(slot, "in a bucket that is not its key's");
    const uint64_t length = extentBytes(bytes);
    if (length > segmentBytes || at > segmentBytes - length || at % (length < kLargeStep ? kSmallStep : kLargeStep) != 0)
      return damaged(slot, "extent outside the segment");
    if (stateOf(word) == SlotState::committed && !putId(slot)) return damaged(slot, "a value without a version");
    extents.push_back({at, length});
    // What is being reclaimed may be kept.
    if (stateOf(word) == SlotState::committed || stateOf(word) == SlotState::reclaiming) readable.emplace_back(hash(slot), key(slot));
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].offset < extents[i - 1].offset + extents[i - 1].length) return {Code::corrupt, "directory: two slots share bytes"};
  }
  std::sort(readable.begin(), readable.end());
  if (std::adjacent_find(readable.begin(), readable.end()) != readable.end())
    return {Code::corrupt, "directory: two readable values of one key"};
  // The tags say what the states say: an end between the two left one of them behind.
  for (uint32_t slot = 0; slot < slotCount_; ++slot) {
    const bool free = state(slot) == SlotState::free;
    if (slot < buckets_ * kSlotsPerBucket) {
      memory_.tags[slot].store(free ? 0 : tagOf(hash(slot)), std::memory_order_relaxed);
    } else if (free) {
      freeOverflow_.push_back(slot);
    } else {
      overflow_.emplace(hash(slot), slot);
      ++overflowUsed_;
    }
  }
  return {};
}

void DirectoryWriter::change(uint32_t slot, SlotState to) {
  const SlotState from = state(slot);
  uint32_t gen = generation(slot);
  if (to == SlotState::free && ++gen == 0) gen = 1;
  FLUXON_MAY_END();
  memory_.slots[slot].word.exchange(slotWord(gen, to), std::memory_order_seq_cst);
  --counts_[static_cast<uint32_t>(from)];
  ++counts_[static_cast<uint32_t>(to)];
}

std::optional<uint32_t> DirectoryWriter::findFree(uint64_t hash) {
  // The emptier of the two buckets, so that both fill evenly.
  uint32_t best = UINT32_MAX, bestFree = 0;
  for (const uint32_t bucket : {firstBucket(hash, buckets_), secondBucket(hash, buckets_)}) {
    uint32_t free = 0, first = UINT32_MAX;
    for (uint32_t i = 0; i < kSlotsPerBucket; ++i) {
      if (memory_.tags[uint64_t{bucket} * kSlotsPerBucket + i].load(std::memory_order_relaxed) != 0) continue;
      if (free++ == 0) first = bucket * kSlotsPerBucket + i;
    }
    if (free > bestFree) bestFree = free, best = first;
  }
  if (best != UINT32_MAX) return best;
  if (freeOverflow_.empty()) return std::nullopt;
  const uint32_t slot = freeOverflow_.back();
  freeOverflow_.pop_back();
  return slot;
}

std::optional<uint32_t> DirectoryWriter::grant(std::string_view key, uint64_t hash, uint64_t offset, uint64_t payloadBytes, uint64_t writer,
                                               OperationId operation) {
  const std::optional<uint64_t> record = keys_.take(key.size());
  if (!record) {
    fullOf_ = "the directory has no room for the bytes of the key (max_keys: 128 bytes for each; keys here are longer)";
    return std::nullopt;
  }
  const std::optional<uint32_t> found = findFree(hash);
  if (!found) {
    keys_.give(*record, key.size());
    fullOf_ = "the directory is full (max_keys)";
    return std::nullopt;
  }
  DirectorySlot& slot = memory_.slots[*found];
  std::memcpy(memory_.keys + *record, key.data(), key.size());
  slot.hash.store(hash, std::memory_order_relaxed);
  slot.putId.store(0, std::memory_order_relaxed);
  slot.offset.store(offset, std::memory_order_relaxed);
  slot.payloadBytes.store(payloadBytes, std::memory_order_relaxed);
  slot.key.store(keyRecord(*record, key.size()), std::memory_order_relaxed);
  slot.writer.store(writer, std::memory_order_relaxed);
  slot.operation.store(operation.value, std::memory_order_relaxed);
  if (*found < buckets_ * kSlotsPerBucket) {
    memory_.tags[*found].store(tagOf(hash), std::memory_order_relaxed);
  } else {
    overflow_.emplace(hash, *found);
    ++overflowUsed_;
  }
  change(*found, SlotState::granted);
  return found;
}

void DirectoryWriter::submit(uint32_t slot) {
  FLUXON_CHECK(state(slot) == SlotState::granted, "submit of a slot that is not granted");
  change(slot, SlotState::pending);
}

void DirectoryWriter::commit(uint32_t slot, PutId putId, KeyLeaseId lease) {
  FLUXON_CHECK(state(slot) == SlotState::pending, "commit of a slot that is not pending");
  FLUXON_CHECK(!committed(key(slot), hash(slot)), "two committed slots of one key");
  memory_.slots[slot].putId.store(putId.value, std::memory_order_relaxed);
  memory_.slots[slot].operation.store(lease.value, std::memory_order_relaxed);
  change(slot, SlotState::committed);
}

void DirectoryWriter::retire(uint32_t slot) {
  const SlotState from = state(slot);
  FLUXON_CHECK(from == SlotState::pending || from == SlotState::committed || from == SlotState::reclaiming,
               "retire of a slot without a value");
  change(slot, SlotState::retired);
}

void DirectoryWriter::beginReclaim(uint32_t slot) {
  FLUXON_CHECK(state(slot) == SlotState::committed, "reclaim of a slot that is not committed");
  change(slot, SlotState::reclaiming);
}

void DirectoryWriter::keep(uint32_t slot) {
  FLUXON_CHECK(state(slot) == SlotState::reclaiming, "keep of a slot that is not reclaiming");
  change(slot, SlotState::committed);
}

void DirectoryWriter::release(uint32_t slot) {
  const SlotState from = state(slot);
  FLUXON_CHECK(from != SlotState::free && from != SlotState::committed, "release of a free or committed slot");
  const DirectorySlot& fields = memory_.slots[slot];
  const uint64_t record = fields.key.load(std::memory_order_relaxed);
  if (slot < buckets_ * kSlotsPerBucket) {
    memory_.tags[slot].store(0, std::memory_order_relaxed);
  } else {
    const auto [first, last] = overflow_.equal_range(hash(slot));
    for (auto it = first; it != last; ++it) {
      if (it->second != slot) continue;
      overflow_.erase(it);
      break;
    }
    freeOverflow_.push_back(slot);
    --overflowUsed_;
  }
  keys_.give(keyOffset(record), keyBytes(record));
  change(slot, SlotState::free);
}

std::string_view DirectoryWriter::key(uint32_t slot) const {
  const uint64_t record = memory_.slots[slot].key.load(std::memory_order_relaxed);
  return {memory_.keys + keyOffset(record), keyBytes(record)};
}

std::optional<uint32_t> DirectoryWriter::committed(std::string_view wanted, uint64_t hash) const {
  std::optional<uint32_t> found;
  forEach(wanted, hash, [&](uint32_t slot) {
    if (state(slot) == SlotState::committed) found = slot;
  });
  return found;
}

}  // namespace fluxon::shm
