// The owner's side of a directory: the only place where slot words change. States and ownership: directory_format.h.
//
// Invariants
//   1. Every extent that is not free is named by exactly one slot that is not free.
//   2. Fields of a slot change only while it is free; putId and operation also while it is pending (readers read after `committed`).
//   3. A slot leaves committed or reclaiming by a seq_cst exchange, and becomes free only after a scan of all hazard words
//      that began after that exchange found none for it (the caller's duty; release() and drop() check the state).
//   4. At most one slot of a key is committed.
// A key whose buckets are full takes an overflow slot: found by its owner alone (through the ring), protected the same way.
// One thread: the owner's control thread.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/mark.h"
#include "base/result.h"
#include "shm/directory_format.h"
#include "shm/key_store.h"

namespace fluxon::shm {

class DirectoryWriter {
 public:
  struct Memory {
    DirectoryHeader* header;
    Word* tags;
    DirectorySlot* slots;
    char* keys;
  };
  // Lays out an empty directory in zeroed memory and begins with lease 0 and serving incarnation 0.
  struct Shape {
    uint32_t buckets = 0;
    uint32_t overflowSlots = 0;
    uint64_t keysBytes = 0;
    uint64_t segmentBytes = 0;
  };
  // Two buckets of 8 for each of maxKeys keys would be 16 slots a key; buckets are sized for a load of at most 1/2.
  static Shape shapeFor(uint64_t maxKeys, uint64_t segmentBytes);
  static Memory layout(void* directory, void* keysFile, const Shape& shape, Incarnation incarnation, std::string_view cluster,
                       std::string_view node);

  // Nothing is served from a directory any more, nor from one of a neighbour beside it, by those who map it as that of their own owner.
  static void endServing(DirectoryHeader& header) {
    for (Word* word : {&header.leaseUntilNs, &header.servingIncarnation, &header.servingMaster}) word->store(0, std::memory_order_seq_cst);
  }

  // Over a fresh layout.
  DirectoryWriter(Memory memory, const Shape& shape);
  // Over a directory that an earlier process has left, in whatever moment it ended. Every slot, extent and key record is checked before
  // anything is changed; `corrupt` says what does not hold together. Clients may be reading meanwhile.
  static Result<std::unique_ptr<DirectoryWriter>> adopt(Memory memory, const Shape& shape);

  // free → granted. nullopt: no slot or no room for the key bytes, as fullOf() says.
  std::optional<uint32_t> grant(std::string_view key, uint64_t hash, uint64_t offset, uint64_t payloadBytes, uint64_t writer,
                                OperationId operation);
  // Why the last grant() gave nothing.
  const char* fullOf() const { return fullOf_; }
  void submit(uint32_t slot);                                      // granted → pending
  void commit(uint32_t slot, PutId putId, KeyLeaseId lease = {});  // pending → committed
  void retire(uint32_t slot);                                      // pending, committed, reclaiming → retired
  void beginReclaim(uint32_t slot);                                // committed → reclaiming
  void keep(uint32_t slot);                                        // reclaiming → committed
  void release(uint32_t slot);                                     // granted, pending, reclaiming, retired → free (invariant 3)

  SlotState state(uint32_t slot) const { return stateOf(memory_.slots[slot].word.load(std::memory_order_relaxed)); }
  uint32_t generation(uint32_t slot) const { return generationOf(memory_.slots[slot].word.load(std::memory_order_relaxed)); }
  uint64_t ref(uint32_t slot) const { return slotRef(slot, generation(slot)); }
  PutId putId(uint32_t slot) const { return PutId(memory_.slots[slot].putId.load(std::memory_order_relaxed)); }
  uint64_t offset(uint32_t slot) const { return memory_.slots[slot].offset.load(std::memory_order_relaxed); }
  uint64_t payloadBytes(uint32_t slot) const { return memory_.slots[slot].payloadBytes.load(std::memory_order_relaxed); }
  uint64_t hash(uint32_t slot) const { return memory_.slots[slot].hash.load(std::memory_order_relaxed); }
  KeyLeaseId lease(uint32_t slot) const { return KeyLeaseId(memory_.slots[slot].operation.load(std::memory_order_relaxed)); }
  uint64_t writer(uint32_t slot) const { return memory_.slots[slot].writer.load(std::memory_order_relaxed); }
  std::string_view key(uint32_t slot) const;
  uint32_t slotCount() const { return slotCount_; }
  // Slots in each state.
  uint64_t count(SlotState state) const { return counts_[static_cast<uint32_t>(state)]; }
  uint64_t overflowUsed() const { return overflowUsed_; }

  // Calls each(slot) for every slot of a key that is not free. `each` must not free slots.
  template <class F>
  void forEach(std::string_view wanted, uint64_t hash, F each) const {
    const uint32_t pair[2] = {firstBucket(hash, buckets_), secondBucket(hash, buckets_)};
    for (int b = 0; b < (pair[0] == pair[1] ? 1 : 2); ++b) {
      for (uint32_t i = 0; i < kSlotsPerBucket; ++i) {
        const uint32_t slot = pair[b] * kSlotsPerBucket + i;
        if (memory_.tags[slot].load(std::memory_order_relaxed) == tagOf(hash) && key(slot) == wanted) each(slot);
      }
    }
    const auto [first, last] = overflow_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (key(it->second) == wanted) each(it->second);
    }
  }
  // The committed slot of a key.
  std::optional<uint32_t> committed(std::string_view key, uint64_t hash) const;

  void setLease(int64_t untilNs) { store(memory_.header->leaseUntilNs, static_cast<uint64_t>(untilNs)); }
  int64_t leaseUntilNs() const { return static_cast<int64_t>(memory_.header->leaseUntilNs.load(std::memory_order_relaxed)); }
  void setServing(Incarnation incarnation) { store(memory_.header->servingIncarnation, incarnation.value); }
  void setMaster(Incarnation master) { store(memory_.header->servingMaster, master.value); }
  Incarnation content() const { return Incarnation(memory_.header->contentIncarnation.load(std::memory_order_relaxed)); }
  Incarnation ssd() const { return Incarnation(memory_.header->ssdLife.load(std::memory_order_relaxed)); }
  void setSsd(Incarnation life) { store(memory_.header->ssdLife, life.value); }
  void setContent(Incarnation incarnation) { store(memory_.header->contentIncarnation, incarnation.value); }

 private:
  static void store(Word& word, uint64_t value) {
    FLUXON_MAY_END();
    word.store(value, std::memory_order_seq_cst);
  }
  struct Adopting {};
  DirectoryWriter(Memory memory, const Shape& shape, Adopting);
  Error adoptSlots();
  void change(uint32_t slot, SlotState to);
  std::optional<uint32_t> findFree(uint64_t hash);

  Memory memory_;
  uint32_t buckets_;
  uint32_t slotCount_;
  KeyStore keys_;
  std::vector<uint32_t> freeOverflow_;
  std::unordered_multimap<uint64_t, uint32_t> overflow_;  // hash → overflow slots that are not free
  uint64_t overflowUsed_ = 0;
  const char* fullOf_ = "";
  uint64_t counts_[kSlotStates] = {};
};

}  // namespace fluxon::shm
