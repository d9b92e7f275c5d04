// Layout of `client-<id>`, the one file that a client writes, and the messages of attaching. Page: fluxon-client(5).
//
// The client writes it, so its owner trusts nothing in it: it copies every index and length once, then checks it. A broken
// client can spoil only its own file: a wrong hazard word keeps an extent of the owner alive until the client ends.
//
//   ClientHeader | hazard shards | held words | counter shards | touch shards | submission ring | command slots | payload areas
//
// Life of a command slot; the word is the futex on which the client waits:
//
//            submit               complete
//   free ───────────► submitted ───────────► completed ──► free     (client takes the answer)
//                         │ give up                                  client
//                         └─────────► abandoned ──────────► free     (owner undoes what it had granted)
//   free, completed: the client owns request, answer and payload; submitted, abandoned: the owner does. The two ways out of
//   `submitted` are compare-exchanges, so exactly one of them happens.
#pragma once

#include "base/put_mode.h"
#include "shm/file_header.h"

namespace fluxon::shm {

constexpr char kClientMagic[9] = "FLXCLNT1";

constexpr uint32_t kHazardShards = 8;
constexpr uint32_t kHazardsPerShard = 512;
constexpr uint32_t kCounterShards = 8;
constexpr uint32_t kTouchShards = 8;
constexpr uint32_t kTouchesPerShard = 4096;
constexpr uint32_t kCommandSlots = 128;
constexpr uint32_t kPayloadBytes = 8192;  // per command: the key first, then an inline value; in the answer, a page of a listing
constexpr uint32_t kInlineValueBytes = 4096;
constexpr uint32_t kLatencyBuckets = 24;  // bucket i: below 32 ns << i; the last one takes the rest
constexpr uint32_t kLatencySampling = 64;

// Hazard words of the threads of one shard. highWater only grows; a reader raises it before it publishes a word beyond it.
struct HazardShard {
  Half highWater;  // words at or above it have never been used
  Half reserved[15];
  Word words[kHazardsPerShard];  // slotRef, or 0
};
static_assert(sizeof(HazardShard) == 64 + 8 * kHazardsPerShard);

// Holds that the owner gave with an answer, of values that the client cannot hold by a hazard word: its words for the slot are taken,
// or the copy is a temporary one. The owner sets a free word (0) to the slotRef before it answers, the client clears it when it lets
// go; scans read them like hazard words, also those of the owner's next life.
constexpr uint32_t kHeldWords = 4096;
struct HeldTable {
  Half highWater;  // words at or above it have never been used; raised before a word beyond it is set
  Half reserved[15];
  Word words[kHeldWords];
};

// Counters of a client: name, documentation. They only grow; the owner adds up those of the living and the dead. Hits of all sources
// stand in the file at the client's own owner; what probes met, in the file at the owner whose directory was probed.
#define FLUXON_CLIENT_COUNTERS(X)                                                          \
  X(hits, "gets answered from the directory of the client's own owner, without a message") \
  X(hitBytes, "payload bytes of those gets")                                               \
  X(askedHits, "gets answered from memory of the client's own owner, after a message")     \
  X(askedBytes, "payload bytes of those gets")                                             \
  X(neighbourHits, "gets answered from memory of another owner of the host, in place")     \
  X(neighbourBytes, "payload bytes of those gets")                                         \
  X(remoteHits, "gets answered with a value brought from memory of another host")          \
  X(remoteBytes, "payload bytes of those gets")                                            \
  X(ssdHits, "gets answered with a value brought from an SSD of the host")                 \
  X(ssdBytes, "payload bytes of those gets")                                               \
  X(remoteSsdHits, "gets answered with a value brought from an SSD of another host")       \
  X(remoteSsdBytes, "payload bytes of those gets")                                         \
  X(probesMissed, "probes of the directory that found nothing")                            \
  X(leaseLapsed, "probes refused because the serving lease had run out")                   \
  X(hazardsFull, "gets for which no hazard word was free")                                 \
  X(copiedBytes, "payload bytes copied into the segment by copying puts")

struct CounterShard {
#define FLUXON_DECLARE(name, text) Word name;
  FLUXON_CLIENT_COUNTERS(FLUXON_DECLARE)
#undef FLUXON_DECLARE
  Word latency[kLatencyBuckets];  // of gets without a message, one in kLatencySampling
  Word latencySumNs;
  Word reserved[7];
};
static_assert(sizeof(CounterShard) % 64 == 0);

// The last slots that were hit, in order, overwritten in a circle: recency for eviction, so losing some is harmless.
struct TouchShard {
  Word head;  // touches ever written
  Word reserved[7];
  Half slots[kTouchesPerShard];
};

enum class CommandState : uint32_t { free = 0, submitted = 1, completed = 2, abandoned = 3 };

// What a client can ask of its owner. Values are part of the format.
enum class CommandKind : uint32_t {
  get = 1,          // key; kHold: hold it by a held word
  putStart = 2,     // key, valueBytes -> slotRef, offset; or node: the owner of this host that shall have the value
  putInline = 3,    // key, value in the payload -> putId, owners that have the value in valueBytes; or node
  commit = 4,       // slotRef -> putId, owners that have the value in valueBytes
  abort = 5,        // slotRef
  exists = 6,       // key
  stat = 7,         // key -> putId, valueBytes, payload: node names
  remove = 8,       // key
  countPrefix = 9,  // prefix -> count in valueBytes
  list = 10,        // prefix, after, limit -> payload: ListEntry records
  leaseGrant = 11,  // ttl in valueBytes (ms) -> lease
  leaseKeepAlive = 12,
  leaseRevoke = 13,
  scrub = 14,  // checks every entry of the node's SSD -> valueBytes: entries checked, offset: damaged ones
};

// Flags of a command. Those that its kind does not have are 0.
constexpr uint32_t kRejectIfExists = 1;    // putStart, putInline: OnExisting::reject
constexpr uint32_t kRejectIfInFlight = 2;  // putStart, putInline: OnInFlight::reject
constexpr uint32_t kHold = 4;              // get
constexpr uint32_t kLocalOnly = 8;         // get: do not ask the master (the caller follows another owner's answer)
constexpr uint32_t kPlacedHere = 16;       // putStart, putInline: Home::here; get: another owner has named this one
constexpr uint32_t kBringHere = 32;        // get: bring the value here: the owner of this host that was named does not take this client
constexpr uint32_t kReplicasShift = 24;    // putStart, putInline: the top byte is the number of owners that shall have the value

constexpr uint32_t kGetFlags = kHold | kLocalOnly | kPlacedHere | kBringHere;
constexpr uint32_t kPutFlags = kRejectIfExists | kRejectIfInFlight | kPlacedHere | 0xFFu << kReplicasShift;

constexpr uint32_t flagsOf(PutMode mode, uint8_t replicas) {
  return (mode.onExisting == PutMode::OnExisting::reject ? kRejectIfExists : 0) |
         (mode.onInFlight == PutMode::OnInFlight::reject ? kRejectIfInFlight : 0) | (mode.home == PutMode::Home::here ? kPlacedHere : 0) |
         uint32_t{replicas} << kReplicasShift;
}
constexpr PutMode putModeOf(uint32_t flags) {
  return {flags & kRejectIfExists ? PutMode::OnExisting::reject : PutMode::OnExisting::replace,
          flags & kRejectIfInFlight ? PutMode::OnInFlight::reject : PutMode::OnInFlight::proceed,
          flags & kPlacedHere ? PutMode::Home::here : PutMode::Home::any};
}

struct CommandRequest {
  uint32_t kind;
  uint32_t flags;
  uint32_t keyBytes;    // in the payload from 0; list: the prefix
  uint32_t extraBytes;  // in the payload after the key; list: `after`; putInline: the value
  uint64_t valueBytes;
  uint64_t slotRef;
  uint64_t lease;
  int64_t deadlineNs;  // CLOCK_BOOTTIME
};
static_assert(sizeof(CommandRequest) == 48);

// Where the bytes of a get came from.
enum class AnswerSource : uint32_t {
  memory = 0,   // of the owner that answers: they were here
  peer = 1,     // memory of another host, brought here for this get
  ssd = 2,      // the SSD of the owner that answers
  peerSsd = 3,  // the SSD of an owner of another host
};
constexpr uint32_t kAnswerSources = 4;

struct CommandAnswer {
  uint32_t code;         // Code
  uint32_t payloadUsed;  // bytes of the payload: error detail, listing, node names
  uint64_t slotRef;      // get, putStart
  uint64_t putId;
  uint64_t offset;  // of the extent
  uint64_t valueBytes;
  uint64_t lease;
  char node[40];    // get, putStart: the owner of this host that has it, or shall have it; empty: this one
  uint32_t held;    // get: 1 + the index of the held word that names the slot, 0: there is none
  uint32_t source;  // get: AnswerSource; with a node: ssd: it is to bring the value from its SSD when it is asked
};
static_assert(sizeof(CommandAnswer) == 96);

struct CommandSlot {
  Half state;    // CommandState
  Half waiting;  // 1: the client sleeps on state
  CommandRequest request;
  CommandAnswer answer;
  uint8_t reserved[40];
};
static_assert(sizeof(CommandSlot) == 192);

// A record of a listing in a payload, followed by the key, padded to 8 bytes.
struct ListEntry {
  uint32_t keyBytes;
  uint32_t reserved;
  uint64_t valueBytes;
  uint64_t putId;
};

struct SubmissionRing {
  alignas(64) Half tail;  // written by the client
  alignas(64) Half head;  // written by the owner
  alignas(64) Half entries[kCommandSlots];
};

struct ClientHeader {
  FileHeader file;
  uint64_t clientId;
  uint64_t pid;
  int64_t attachedNs;  // CLOCK_BOOTTIME
  char name[40];       // what the client calls itself, for people
  Word detached;       // 1: closed in good order
};
static_assert(sizeof(ClientHeader) == 136);

struct ClientFile {
  alignas(4096) ClientHeader header;
  alignas(4096) HazardShard hazards[kHazardShards];
  alignas(4096) HeldTable held;
  alignas(4096) CounterShard counters[kCounterShards];
  TouchShard touches[kTouchShards];
  alignas(4096) SubmissionRing ring;
  CommandSlot commands[kCommandSlots];
  alignas(4096) char payloads[kCommandSlots][kPayloadBytes];
};
static_assert(sizeof(ClientFile) % 4096 == 0);

// Attaching: one message each way on the owner's unix socket (SOCK_SEQPACKET), descriptors by SCM_RIGHTS.
constexpr char kAttachMagic[9] = "FLXATTC1";
enum class AttachKind : uint32_t {
  attach = 1,           // -> client file (flocked), directory, keys, segment (all read-only but the first), eventfd
  writableSegment = 2,  // -> segment, writable
  clock = 3,            // -> nothing but the reading of the clock
  attachOwner = 4,      // attach, by an owner that copies values: owner.max_clients does not count it
};
// A caller that has given up leaves its answer in the socket, so each answer names its request.
struct AttachRequest {
  char magic[8];
  uint32_t version;
  uint32_t kind;
  uint64_t number;
  char name[40];
};
struct AttachReply {
  char magic[8];
  uint32_t version;
  uint32_t code;    // Code
  uint64_t number;  // of the request
  uint64_t clientId;
  int64_t clockNs;  // CLOCK_BOOTTIME, read for this answer: it proves that both sides have one clock (time_namespace.h)
  char detail[256];
};
static_assert(sizeof(AttachRequest) == 64 && sizeof(AttachReply) == 296);
constexpr int kAttachDescriptors = 5;

}  // namespace fluxon::shm
