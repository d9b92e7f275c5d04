// A mapping of an owner's directory, keys and segment, checked once against the sizes of the mappings, and the read of a
// local hit.
//
// The read (no message, no count, no system call), step by step, and why a stop of either side between any two is harmless:
//   (a) find a slot by its tag alone; load its word: committed, generation g.
//   (b) publish (slot, g) in a hazard word of this client by a seq_cst exchange.
//   (c) load the slot word seq_cst: still committed, generation g. Then compare the key bytes under the hazard; offsets and
//       lengths are checked against the mappings.
//   (d) last, read the header: the incarnation is the one seen before (a), and the serving lease has not run out, the
//       clock being read after the lease.
// The owner reclaims by exchanging the word (seq_cst) and then scanning all hazard words (seq_cst). In the single order of
// these operations either the scan comes after (b) and sees the hazard, so the extent stays; or the exchange comes before
// (c), which then sees no `committed`, so the reader gives up before it has read a byte. With a plain store at (b) the load
// at (c) could overtake it and both could miss each other; without (c) a reader stopped between (a) and (b) would read freed
// memory. Pointer, length and put_id are read after (c): before it they may belong to another value. (d) makes the value the
// latest one: while the lease holds, the master completes no overwrite or delete before this owner has retired its slot; the
// slot was seen committed at (c), and at the later reading of the clock the lease had still not run out.
//
// A lease says that for one master. Owners of one host may have different ones, for a time or for ever, and a value of a neighbour is
// the latest one for a client only if the neighbour serves under the master of the client's own owner. So of a neighbour (d) also
// reads, before the incarnation, the master that the lease is of. An owner changes that word after its last incarnation has stopped
// to serve, or with the new incarnation's first lease, and before it serves under the new one: under an incarnation that is the same
// before (a) and at (d) nobody reads a master of before or after it.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "shm/directory_format.h"
#include "shm/hazard_table.h"

namespace fluxon::shm {

struct DirectoryView {
  const DirectoryHeader* header = nullptr;
  const Word* tags = nullptr;
  const DirectorySlot* slots = nullptr;
  uint32_t buckets = 0;
  uint32_t slotCount = 0;
  const char* keys = nullptr;
  uint64_t keysBytes = 0;
  const char* segment = nullptr;  // first byte of extent 0
  uint64_t segmentBytes = 0;

  // Checks headers and sizes of three mappings; `corrupt` says which file and why.
  static Result<DirectoryView> over(const void* directory, uint64_t directoryBytes, const void* keysFile, uint64_t keysFileBytes,
                                    const void* segmentFile, uint64_t segmentFileBytes);
};

struct Hit {
  const char* data = nullptr;
  uint64_t length = 0;
  PutId putId;
  uint64_t slotRef = 0;
  HazardTable::Ref hazard;
};

enum class Probe { hit, miss, noHazard, lapsed };

#ifdef FLUXON_MUTATE_SKIP_RECHECK
constexpr bool kSkipRecheck = true;  // for the test that shows that step (c) matters
#else
constexpr bool kSkipRecheck = false;
#endif

// Under any master: of the client's own owner.
constexpr uint64_t kAnyMaster = 0;

// Steps (b) to (d) for one slot. `expected` is the word seen at (a); `master`: that which the lease must be of.
inline Probe holdSlot(const DirectoryView& view, HazardTable& hazards, unsigned thread, uint32_t index, uint64_t expected,
                      std::string_view key, uint64_t incarnation, uint64_t master, Hit& hit) {
  const DirectorySlot& slot = view.slots[index];
  const uint64_t ref = slotRef(index, generationOf(expected));
  const HazardTable::Ref hazard = hazards.hold(thread, ref);
  if (!hazard.valid()) return Probe::noHazard;
  if (!kSkipRecheck && slot.word.load(std::memory_order_seq_cst) != expected) {
    hazards.drop(hazard);
    return Probe::miss;
  }
  const uint64_t record = slot.key.load(std::memory_order_relaxed);
  const uint64_t offset = slot.offset.load(std::memory_order_relaxed);
  const uint64_t length = slot.payloadBytes.load(std::memory_order_relaxed);
  const bool sane = keyBytes(record) == key.size() && keyOffset(record) <= view.keysBytes &&
                    keyBytes(record) <= view.keysBytes - keyOffset(record) && offset <= view.segmentBytes &&
                    length <= view.segmentBytes - offset;
  if (!sane || std::memcmp(view.keys + keyOffset(record), key.data(), key.size()) != 0) {
    hazards.drop(hazard);
    return Probe::miss;
  }
  hit.putId = PutId(slot.putId.load(std::memory_order_relaxed));
  const bool ours = master == kAnyMaster || view.header->servingMaster.load(std::memory_order_acquire) == master;
  const bool same = ours && view.header->servingIncarnation.load(std::memory_order_acquire) == incarnation;
  const int64_t leaseUntil = static_cast<int64_t>(view.header->leaseUntilNs.load(std::memory_order_acquire));
  if (!same || bootTime().ns >= leaseUntil) {
    hazards.drop(hazard);
    return Probe::lapsed;
  }
  hit.data = view.segment + offset;
  hit.length = length;
  hit.slotRef = ref;
  hit.hazard = hazard;
  return Probe::hit;
}

// A get without a message. `thread` picks the shard of hazard words; `master` is that of the own owner when the directory is a
// neighbour's. Anything but `hit` means: ask the owner through the ring.
inline Probe probe(const DirectoryView& view, HazardTable& hazards, unsigned thread, std::string_view key, uint64_t hash, Hit& hit,
                   uint64_t master = kAnyMaster) {
  const uint64_t incarnation = view.header->servingIncarnation.load(std::memory_order_acquire);
  const uint64_t tag = tagOf(hash);
  Probe worst = Probe::miss;
  const uint32_t pair[2] = {firstBucket(hash, view.buckets), secondBucket(hash, view.buckets)};
  for (int b = 0; b < (pair[0] == pair[1] ? 1 : 2); ++b) {
    const Word* line = view.tags + uint64_t{pair[b]} * kSlotsPerBucket;
    for (uint32_t i = 0; i < kSlotsPerBucket; ++i) {
      if (line[i].load(std::memory_order_relaxed) != tag) continue;
      const uint32_t index = pair[b] * kSlotsPerBucket + i;
      const uint64_t word = view.slots[index].word.load(std::memory_order_acquire);
      if (stateOf(word) != SlotState::committed) continue;
      const Probe result = holdSlot(view, hazards, thread, index, word, key, incarnation, master, hit);
      if (result == Probe::hit) return result;
      if (result != Probe::miss) worst = result;
    }
  }
  return worst;
}

}  // namespace fluxon::shm
