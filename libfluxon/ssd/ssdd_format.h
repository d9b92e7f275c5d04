// Layout of `ssdd`, the file by which an owner and its ssdd talk, and the messages of attaching. Page: fluxon-ssd(5).
//
// The owner makes the file anew for each ssdd that attaches and hands it over. Both write it, so neither trusts what it reads there: each
// copies every number once and then checks it, and a frame that makes no sense ends the channel.
//
//   SsddHeader | SsddStatus | ring to ssdd | ring to the owner
//
// A ring is a circle of bytes with one writer and one reader. `tail` counts the bytes written since the beginning, `head` those read;
// both only grow. A frame begins at a multiple of 8 and may wrap; it is written in full before `tail` passes it, so a writer that is
// killed leaves whole frames. The reader sets `asleep` before its last look (seq_cst on both sides); a writer that finds it set
// rings the reader's eventfd. A writer that has more than there is room for sets `starved` before its last look at `head`; a reader
// that finds it set rings the writer's eventfd when half of the ring is empty.
#pragma once

#include "shm/file_header.h"

namespace fluxon::ssd {

constexpr char kSsddMagic[9] = "FLXSSDD1";
constexpr uint32_t kSsddVersion = 2;  // of the messages, of attaching and of what is shown
constexpr uint64_t kRingBytes = uint64_t{1} << 20;

// One Message (messages.h), followed by its key, padded with zeros to a multiple of 8.
struct Frame {
  uint16_t kind;
  uint16_t code;
  uint32_t keyBytes;  // up to kMaxKeyBytes
  uint64_t id;
  uint64_t putId;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(Frame) == 40);

struct ByteRing {
  alignas(64) shm::Word tail;  // by the writer
  shm::Half starved;           // by the writer
  alignas(64) shm::Word head;  // by the reader
  shm::Half asleep;            // by the reader
  alignas(64) char bytes[kRingBytes];
};

// What ssdd shows of itself, for people and for the owner's metrics: written by ssdd, each word by itself.
constexpr uint32_t kShownDevices = 16;
constexpr uint32_t kShownShards = 128;
struct ShownDevice {
  char path[128];  // of the root, cut to its end if longer
  shm::Word capacityBytes;
  shm::Word blockBytes;
  shm::Word direct;  // 1: O_DIRECT
  shm::Word readsQueued, writesQueued;
  shm::Word reads, writes;  // records
  shm::Word readBytes, writtenBytes;
  shm::Word readErrors, writeErrors;
  shm::Word oldestNs;         // CLOCK_BOOTTIME when the oldest I/O under way began, 0: none
  shm::Word registeredBytes;  // of the segment: known to the device's io_uring
  shm::Word state;            // 0 serving, 1 full, 2 failing, 3 hung, 4 gone: nothing is written there but in 0
  shm::Word stalled;          // persists and loads that it does not answer
  shm::Word writesDirect;     // records that were not copied before they were written
  shm::Word reserved[1];
};
static_assert(sizeof(ShownDevice) == 264);
struct ShownShard {
  shm::Word device;  // index
  shm::Word state;   // 0 serving, 1 retired: nothing new is written there
  shm::Word capacityBytes;
  shm::Word headPosition, tailPosition;
  shm::Word usedBytes, deadBytes;
  shm::Word entries;  // committed
  shm::Word readPins, commitPins, writers, waiting;
};
struct SsddStatus {
  shm::Word devices, shards;  // how many of those below are in use; of more shards than are shown only the sums exist
  shm::Word engine;           // 1 io_uring, 2 threads
  shm::Word capacityBytes, usedBytes, entries;
  shm::Word persists, persistsFailed, persistsIgnored, tooLarge;
  shm::Word loads, loadsMissed, loadsFailed, loadsDirect;
  shm::Word evicted, invalidated, damaged;
  shm::Word paused;                                  // 1: each device is out, or no shard left: nothing is persisted
  shm::Word scrubChecked, scrubTotal, scrubDamaged;  // entries, of the scrub under way or the last one; total 0: there was none
  char http[64];                                     // address of its pages, "127.0.0.1:9301"; empty: off, or longer than this
  shm::Word reserved[3];
  ShownDevice device[kShownDevices];
  ShownShard shard[kShownShards];
};

struct SsddHeader {
  shm::FileHeader file;
  uint64_t life;       // of what is in the shards
  uint64_t pid;        // of ssdd
  int64_t attachedNs;  // CLOCK_BOOTTIME
  uint64_t segmentBytes;
  shm::Word givenUp;  // by the owner: values that it has left out, as their memory was wanted sooner, since its start
};

struct SsddFile {
  alignas(4096) SsddHeader header;
  alignas(4096) SsddStatus status;
  alignas(4096) ByteRing toSsdd;
  alignas(4096) ByteRing toOwner;
};
static_assert(sizeof(SsddFile) % 4096 == 0);

// Attaching: one message each way on the owner's unix socket (SOCK_SEQPACKET), as clients do (client_format.h); descriptors by
// SCM_RIGHTS. An ssdd sends it only when it holds the locks of all its shard files and no I/O of its own touches the segment.
constexpr char kSsddAttachMagic[9] = "FLXSSDA1";
struct SsddAttach {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t life;     // of what is in its shards
  uint64_t entries;  // 0: they are empty
  uint64_t capacityBytes;
  uint64_t reserved2;
};
// ok: descriptors follow. `fenced`: what is in the shards is worth nothing any more: attach again, empty, under a new life.
// unavailable: the node has an ssdd already, or is not ready for one; ask again.
struct SsddAttached {
  char magic[8];
  uint32_t version;
  uint32_t code;    // Code
  int64_t clockNs;  // CLOCK_BOOTTIME, read for this answer, as in client_format.h
  char detail[256];
};
static_assert(sizeof(SsddAttach) == 48 && sizeof(SsddAttached) == 280);
// The file `ssdd` (writable), the segment (writable), the eventfd that wakes the owner, the eventfd that wakes ssdd.
constexpr int kSsddDescriptors = 4;

}  // namespace fluxon::ssd
