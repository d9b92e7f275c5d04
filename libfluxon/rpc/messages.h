// What an owner and its master say to each other, as plain values: the logic of both sees these and no Cap'n Proto. The
// schema (schema/master.capnp) says the same on the wire and explains the protocol; codec.h converts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/extent.h"
#include "base/ids.h"
#include "base/result.h"

namespace fluxon::rpc {

enum class RequestKind : uint16_t {
  heartbeat,       // touches, gauges
  putStart,        // key, bytes, flags, lease, timeLeftMs, after (whose request it is) -> offset, putId; peer
  putDone,         // put -> putId, published
  putReserved,     // key, bytes, offset, lease -> putId, published: start and done of a put into a reserved extent
  putAbort,        // put: the writer has ended; its extent comes back by `release`
  reserve,         // bytes, count -> offsets
  release,         // offsets: extents that no one reads or writes any more
  dropped,         // items (key, putId, offset): replicas in memory that the owner has given up
  getStart,        // key, timeLeftMs, flags (kFarOnly, kBringHere), after (a node that did not deliver) -> source, putId, bytes, fetch,
                   // offset, ssd or exportId and sourceOffset
  stat,            // key -> putId, bytes, lease, nodes
  remove,          // key -> ok or miss
  countPrefix,     // key (the prefix) -> count
  list,            // key (the prefix), after, count (limit) -> entries
  leaseGrant,      // ttlMs -> lease
  leaseKeepAlive,  // lease
  leaseRevoke,     // lease: its keys are deleted
  invalidateDone,  // command
  reclaimDone,     // command, results
  inventory,       // items (committed values, then what is on the SSD), count of the last page: how many there are, else 0
                   // -> offsets: of values that must go
  spread,          // key, items (its version), count, timeLeftMs: as many owners shall have it; answered when they have, or cannot
                   // -> count: those that have it
  getDone,         // put (the getStart) or command (the replicate), code -> published: the copy is a replica now; miss, corrupt or
                   // system of a load from its own SSD: that does not have the value any more
  ssdLife,         // count: the life of what is on this owner's SSD from now on, 0: there is nothing; of an earlier life nothing comes back
  ssdCommit,       // items (key, putId, bytes): are on this owner's SSD now -> offsets: indices of those that the master does not take;
                   // until it has taken one the owner lists it in no inventory
  ssdEvicted,      // items (key, putId): have gone from this owner's SSD by themselves
  staged,          // command, code: the answer to `stage`: the value can be fetched, or why it cannot: then nobody reads or writes the
                   // extent any more, it is free; and with miss, corrupt or system its SSD does not have the value any more
  unstaged,        // command: the answer to `unstage`: nobody reads or writes the extent any more, it is free
};
constexpr uint16_t kRequestKinds = 26;

enum class ReclaimResult : uint8_t { ok, busy, gone };

// getStart: do not name a neighbour of the same host, it cannot be reached there.
constexpr uint32_t kFarOnly = 1;
// getStart: a neighbour of the same host does not take the client that asks; this owner can copy from there.
constexpr uint32_t kBringHere = 2;
// putStart: this owner was chosen by another one, the value goes nowhere else.
constexpr uint32_t kPlacedHere = 16;

// An export that a `stage` makes has the order's command as its id, with this bit; one of a put has its put_id, whose top bits are a term.
constexpr uint64_t kStagedExport = uint64_t{1} << 63;
constexpr bool isStaged(ExportId id) { return (id.value & kStagedExport) != 0; }

// A version of a key at one owner.
struct Version {
  std::string key;
  PutId putId;
  uint64_t offset = 0;  // of its extent; on an SSD: what the owner calls it in an inventory
  uint64_t bytes = 0;   // payload
  KeyLeaseId lease;
  bool ssd = false;     // inventory: it lies on the owner's SSD
};

// An owner as others reach it.
struct Peer {
  std::string node;
  std::string hostId;
  std::string link;         // address of its tcp link, empty: it has none
  Incarnation incarnation;
};

struct Request {
  OperationId id;
  RequestKind kind = RequestKind::heartbeat;
  uint32_t flags = 0;       // kRejectIf... of client_format.h
  std::string key;
  std::string after;
  uint64_t bytes = 0;       // payload
  uint64_t offset = 0;
  OperationId put;          // the putStart that this is about
  KeyLeaseId lease;
  uint64_t timeLeftMs = 0;  // until the caller's deadline
  uint64_t ttlMs = 0;
  uint64_t count = 0;
  OperationId command;      // the command that this answers
  Code code = Code::ok;     // getDone
  std::vector<uint64_t> offsets;      // release: extents; heartbeat: extents read since the last one, oldest first
  std::vector<Version> items;
  std::vector<ReclaimResult> results;
};

struct ListedKey {
  std::string key;
  uint64_t bytes = 0;
  PutId putId;
};

struct Reply {
  OperationId id;
  Code code = Code::ok;
  std::string detail;
  PutId putId;
  bool published = false;  // false: the put was overwritten before it was done, which is a success
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
  KeyLeaseId lease;
  Peer peer;               // getStart: who has the value; putStart: who shall have it, empty: the one who asked
  bool fetch = false;      // getStart: bring the value from `peer` to `offset`; else read it there
  bool ssd = false;        // getStart, with fetch: from this owner's own SSD; without: `peer` brings it from there for who asks it
  // getStart, with fetch: what the peer has exported under it, at `sourceOffset` of its segment; 0: the readable value
  ExportId exportId;
  uint64_t sourceOffset = 0;
  std::vector<std::string> nodes;
  std::vector<uint64_t> offsets;
  std::vector<ListedKey> entries;
};

enum class CommandKind : uint16_t { reply, invalidate, reclaim, replicate, leave, shrink, stage, unstage };

// From master to owner: an answer, or an order that is answered by invalidateDone, reclaimDone, getDone, staged or unstaged.
struct MasterMessage {
  CommandKind kind = CommandKind::reply;
  Reply reply;
  OperationId command;         // identity of an order; an order may come twice
  // invalidate: drop all below putId; reclaim: this version, if nobody reads it; replicate: one; stage: one, to be brought from this
  // owner's SSD to its offset and exported meanwhile under exportId; unstage: that exportId, the extent is free after it
  std::vector<Version> items;
  Peer peer;                   // replicate: who has the value
  ExportId exportId;           // replicate: the peer has exported the value under it, 0: it is readable there
  uint64_t sourceOffset = 0;   // of what is exported, in the peer's segment
  uint64_t timeLeftMs = 0;     // replicate, stage: for the copy
};

struct Hello {
  std::string clusterId;
  std::string cluster;
  Term term;
  Incarnation master;
};

struct Registration {
  std::string node;
  std::string hostId;       // boot id and the cluster's folder: "same host" means equal
  Incarnation incarnation;
  uint64_t pid = 0;
  uint64_t segmentBytes = 0;
  uint64_t maxKeys = 0;
  std::string http;         // address of /metrics, empty when off
  std::string link;         // address of the tcp link, empty when off
  std::string label;        // sub-cluster
  Incarnation ssdLife;      // of what is on this owner's SSD, where values put here go as well; 0: it has none
  std::vector<Extent> occupied;  // extents that are not free and hold no value that could be read: held, or still being written
  Incarnation adopts;       // in whose life the values were published that `inventory` will list; 0: there are none
  uint64_t values = 0;      // in memory, that `inventory` will list
  std::vector<Incarnation> ends;  // lives of the node that serve no more: it has their directory, or was they
  Time sent{0};             // on the clock of its host
  std::string from;         // for people: where the owner is and since when, by what the master sees; not sent
};

struct Registered {
  Code code = Code::ok;
  std::string detail;
  uint64_t leaseMs = 0;
  bool inventory = false;   // the owner lists its values before it joins
};

}  // namespace fluxon::rpc
