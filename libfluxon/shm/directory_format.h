// Layout of `directory` and `keys`. Page: fluxon-directory(5).
//
//   DirectoryHeader | tag words (one 64-byte line per bucket of 8) | slots (8 per bucket, then the overflow slots)
//
// A key with hash h may lie in any of the 8 slots of bucket h & mask and of bucket (h >> 32) & mask. The tag of a slot
// is h (0 means free, so h = 0 is stored as 1). Overflow slots have no tag and are found by their owner only.
//
// Life of a slot. The word changes only in DirectoryWriter (directory_writer.h), by the owner's control thread:
//
//            grant            submit             commit             beginReclaim
//   free ───────────► granted ───────► pending ─────────► committed ◄──────────► reclaiming
//    ▲                   │                │                   │         keep           │ drop (no hazard)
//    │      abort        │      drop      │       retire      │                        │
//    ├───────────────────┘                └────────┬──────────┘                        │
//    │            release (no hazard)              ▼                                   │
//    ├──────────────────────────────────────── retired                                 │
//    └─────────────────────────────────────────────────────────────────────────────────┘
//   state       who owns the bytes of the extent
//   free        nobody: the slot has no extent
//   granted     its writer (a client with a grant, ssdd, a peer); nobody reads
//   pending     the owner; nobody reads; the master decides whether it is published
//   committed   its readers, by hazard or ring hold; nobody writes
//   reclaiming  as committed for readers that hold it already; no new reader can begin
//   retired     readers that hold it already; found by nobody
//
// The fields beside the word are written before the word's store that makes them meaningful and stay unchanged until the
// slot is free again (putId and operation get their last value at the commit); the generation grows when the slot becomes
// free. A reader that holds a hazard word for (slot, generation) and has seen `committed` with that generation afterwards
// may read all of them.
#pragma once

#include "shm/file_header.h"

namespace fluxon::shm {

constexpr char kDirectoryMagic[9] = "FLXDIRE1";
constexpr char kKeysMagic[9] = "FLXKEYS1";
constexpr uint32_t kSlotsPerBucket = 8;

enum class SlotState : uint32_t { free = 0, granted = 1, pending = 2, committed = 3, reclaiming = 4, retired = 5 };
constexpr uint32_t kSlotStates = 6;

constexpr uint64_t slotWord(uint32_t generation, SlotState state) { return uint64_t{generation} << 32 | static_cast<uint32_t>(state); }
constexpr uint32_t generationOf(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
constexpr SlotState stateOf(uint64_t word) { return static_cast<SlotState>(static_cast<uint32_t>(word)); }

// A slot and its generation: what a hazard word holds and what a ring command names. 0 is "none": generations start at 1.
constexpr uint64_t slotRef(uint32_t slot, uint32_t generation) { return uint64_t{slot} << 32 | generation; }
constexpr uint32_t slotOfRef(uint64_t ref) { return static_cast<uint32_t>(ref >> 32); }
constexpr uint32_t generationOfRef(uint64_t ref) { return static_cast<uint32_t>(ref); }

// Key record: offset into the bytes after the header of `keys`, and length.
constexpr uint64_t keyRecord(uint64_t offset, uint64_t bytes) { return offset << 16 | bytes; }
constexpr uint64_t keyOffset(uint64_t record) { return record >> 16; }
constexpr uint64_t keyBytes(uint64_t record) { return record & 0xFFFF; }

struct DirectorySlot {
  Word word;          // generation << 32 | state
  Word hash;          // of the key
  Word putId;         // 0 until the master has given one
  Word offset;        // of the extent
  Word payloadBytes;  // length of the value; the extent is this rounded up to its step
  Word key;           // key record
  Word writer;        // client id of the writer while granted; 0: the owner itself
  Word operation;     // granted, pending: operation id of the put; committed: its key lease, 0: none
};
static_assert(sizeof(DirectorySlot) == 64);

struct DirectoryHeader {
  FileHeader file;
  char cluster[40];
  char node[40];
  uint32_t buckets;  // a power of two
  uint32_t overflowSlots;
  uint64_t tagsOffset;  // from the start of the file
  uint64_t slotsOffset;
  uint64_t segmentBytes;  // capacity for values
  uint64_t keysBytes;     // capacity for key bytes
  uint64_t pid;
  alignas(64) Word leaseUntilNs;  // CLOCK_BOOTTIME; nothing may be served at or after it; 0: not serving
  Word servingIncarnation;        // changes when the owner was fenced and joins again
  Word clusterId;                 // of the masters seen, 0: none yet
  Word highestTerm;               // (term, master incarnation) seen of that cluster; lower ones are refused
  Word highestMaster;
  Word contentIncarnation;                // in whose life the committed values were published; 0: they are worth nothing to the master
  Word life;                              // incarnation of the process that serves the files now; the file may be older
  Word ssdLife;                           // of what its ssdd has on the SSD; any other is worth nothing. 0: none
  alignas(64) Half controlAsleep;         // 1: a client must ring the eventfd after submitting
  alignas(64) Word servingMaster;         // incarnation of the master whose lease this is, or was; 0: this process has had none
  std::atomic<int64_t> bootTimeOffsetNs;  // of the owner's time namespace, for who reads the file without asking (time_namespace.h)
};
static_assert(sizeof(DirectoryHeader) == 384);
static_assert(offsetof(DirectoryHeader, leaseUntilNs) == 192 && offsetof(DirectoryHeader, controlAsleep) == 256);
static_assert(offsetof(DirectoryHeader, servingMaster) == 320);

struct KeysHeader {
  FileHeader file;
};

constexpr uint64_t tagOf(uint64_t hash) { return hash == 0 ? 1 : hash; }
constexpr uint32_t firstBucket(uint64_t hash, uint32_t buckets) { return static_cast<uint32_t>(hash) & (buckets - 1); }
constexpr uint32_t secondBucket(uint64_t hash, uint32_t buckets) { return static_cast<uint32_t>(hash >> 32) & (buckets - 1); }

constexpr uint64_t alignUp4k(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }
constexpr uint64_t directoryFileBytes(uint32_t buckets, uint32_t overflowSlots) {
  return alignUp4k(sizeof(DirectoryHeader) + uint64_t{buckets} * 64 +
                   (uint64_t{buckets} * kSlotsPerBucket + overflowSlots) * sizeof(DirectorySlot));
}
constexpr uint64_t keysFileBytes(uint64_t keysBytes) { return alignUp4k(sizeof(KeysHeader) + keysBytes); }

}  // namespace fluxon::shm
