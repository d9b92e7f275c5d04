// What an owner and its master say to each other, as plain values: the logic of both sees these and no Cap'n Proto. The schema
// (schema/master.capnp) has the same structs under the same names and specifies the protocol; codec.h converts. Each request names the
// answers that it can get when its reply is ok.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/extent.h"
#include "base/ids.h"
#include "base/put_mode.h"
#include "base/result.h"

namespace fluxon::rpc {

// Of the protocol as a whole. Both sides name theirs when they meet, and go on only if it is the same.
constexpr uint32_t kProtocolVersion = 2;

// --- parts of messages

// An owner as others reach it.
struct Peer {
  std::string node;
  std::string hostId;
  std::string link;  // entries of its links (link/link.h), empty: none of them listens
  Incarnation incarnation;
};

// What an owner has exported, which is no readable value: peers fetch it by the id.
struct Exported {
  ExportId id;
  uint64_t offset = 0;  // in the segment of the owner that exports it
};

// An export that a Stage makes has the order's id as its own, with this bit; one of a put has its put_id, whose top bits are a term.
constexpr uint64_t kStagedExport = uint64_t{1} << 63;
constexpr bool isStaged(ExportId id) { return (id.value & kStagedExport) != 0; }

struct Version {
  std::string key;
  PutId putId;
};
// In an owner's segment.
struct MemoryReplica {
  std::string key;
  PutId putId;
  uint64_t offset = 0;  // of its extent
};
struct MemoryValue {
  std::string key;
  PutId putId;
  uint64_t offset = 0;  // of its extent
  uint64_t bytes = 0;   // payload
  KeyLeaseId lease;
};
struct SsdValue {
  std::string key;
  PutId putId;
  uint64_t bytes = 0;  // payload
};
struct ListedKey {
  std::string key;
  uint64_t bytes = 0;
  PutId putId;
};

// --- what a reply brings, beside its code

struct Done {};
struct PutGranted {
  PutId putId;
  uint64_t offset = 0;       // of the extent to be filled
  std::optional<Peer> home;  // an owner of another host that shall have the value, and comes for it
};
struct PutElsewhere {
  Peer neighbour;  // of the same host: it is to be asked, and shall have the value
};
struct PutEnded {
  PutId putId;
  bool published = false;  // false: the put was overwritten before it was done, which is a success
};
struct Reserved {
  std::vector<uint64_t> offsets;
};
struct ReadAt {
  PutId putId;
  uint64_t bytes = 0;
  Peer owner;        // of the same host, or the one that asks
  bool ssd = false;  // it brings the value from its SSD for who asks it
};
struct FetchFrom {
  PutId putId;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of the extent that the value is to be brought to
  Peer source;
  std::optional<Exported> exported;  // there; none: the readable value
};
struct LoadHere {
  PutId putId;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of the extent that the value is to be loaded to, from the asker's own SSD
};
struct KeyStat {
  PutId putId;
  uint64_t bytes = 0;
  KeyLeaseId lease;
  std::vector<std::string> nodes;  // that have a readable replica
};
struct KeyCount {
  uint64_t keys = 0;
};
struct KeyPage {
  std::vector<ListedKey> keys;
};
struct LeaseGranted {
  KeyLeaseId lease;
};
struct InventoryTaken {              // but for these: they must go
  std::vector<uint64_t> refused;     // offsets of the page's extents
  std::vector<uint32_t> refusedSsd;  // indices into the page's `ssd`
};
struct CopyEnded {
  PutId putId;
  bool published = false;  // the copy is a replica now
  KeyLeaseId lease;        // of the value
};
struct SpreadEnded {
  uint64_t replicas = 0;  // owners that have the value
};
struct SsdTaken {                 // but for these
  std::vector<uint32_t> ignored;  // indices into the request's values
};

using Answer = std::variant<Done, PutGranted, PutElsewhere, PutEnded, Reserved, ReadAt, FetchFrom, LoadHere, KeyStat, KeyCount, KeyPage,
                            LeaseGranted, InventoryTaken, CopyEnded, SpreadEnded, SsdTaken>;

struct Reply {
  OperationId id;
  Code code = Code::ok;
  std::string detail;
  Answer answer;  // Done unless the code is ok

  // What it brings, if that is a T.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&answer);
  }
};

// --- requests of an owner

template <class... Answers>
struct AnsweredBy {
  template <class T>
  static constexpr bool kTakes = (std::is_same_v<T, Answers> || ...);
};

struct Heartbeat : AnsweredBy<Done> {
  bool serving = false;           // the owner has joined: it knows which values of its inventory were refused
  std::vector<uint64_t> touched;  // extents that were read since the last one, oldest first
};
struct PutStart : AnsweredBy<PutGranted, PutElsewhere> {
  std::string key;
  uint64_t bytes = 0;  // payload
  PutMode mode;
  KeyLeaseId lease;
  uint64_t timeLeftMs = 0;  // until the caller's deadline, here and below
  std::string onBehalfOf;   // a neighbour, whose clients fill the value here; empty: nobody
};
struct PutDone : AnsweredBy<PutEnded> {
  OperationId put;  // the PutStart
};
struct PutReserved : AnsweredBy<PutEnded> {  // start and done of a put into a reserved extent
  std::string key;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  PutMode mode;
  KeyLeaseId lease;
};
struct PutAbort : AnsweredBy<Done> {
  OperationId put;  // its extent comes back by Release
};
struct Reserve : AnsweredBy<Reserved> {
  uint64_t extentBytes = 0;
  uint64_t count = 0;
};
struct Release : AnsweredBy<Done> {
  std::vector<uint64_t> offsets;  // of extents that no one reads or writes any more
};
struct Dropped : AnsweredBy<Done> {
  std::vector<MemoryReplica> replicas;  // that the owner has given up
};
// What the owner and its client can do about a neighbour that has the value: read it there; have it copied here, since the neighbour does
// not take the client; nothing, since the owner cannot reach it.
enum class NeighbourUse : uint8_t { read, copy, none };
struct GetStart : AnsweredBy<ReadAt, FetchFrom, LoadHere> {
  std::string key;
  NeighbourUse neighbours = NeighbourUse::read;
  std::string avoid;  // a node that did not deliver
  uint64_t timeLeftMs = 0;
};
struct GetDone : AnsweredBy<CopyEnded> {
  OperationId get;       // the GetStart
  Code code = Code::ok;  // miss, corrupt or system of a load from its own SSD: the SSD does not have the value any more
};
struct StatKey : AnsweredBy<KeyStat> {
  std::string key;
  uint64_t timeLeftMs = 0;
};
struct RemoveKey : AnsweredBy<Done> {
  std::string key;
  uint64_t timeLeftMs = 0;
};
struct CountKeys : AnsweredBy<KeyCount> {
  std::string prefix;
  uint64_t timeLeftMs = 0;
};
struct ListKeys : AnsweredBy<KeyPage> {
  std::string prefix;
  std::string after;   // keys that come after it, in byte order
  uint64_t limit = 0;  // 0: as many as the master gives at once
  uint64_t timeLeftMs = 0;
};
struct LeaseGrant : AnsweredBy<LeaseGranted> {
  uint64_t ttlMs = 0;
};
struct LeaseKeepAlive : AnsweredBy<Done> {
  KeyLeaseId lease;
};
struct LeaseRevoke : AnsweredBy<Done> {  // its keys are deleted
  KeyLeaseId lease;
  uint64_t timeLeftMs = 0;
};
struct Spread : AnsweredBy<SpreadEnded> {
  Version value;
  uint64_t replicas = 0;  // owners that shall have it: answered when they do, or cannot
  uint64_t timeLeftMs = 0;
};
struct InventoryPage : AnsweredBy<InventoryTaken> {
  std::vector<MemoryValue> memory;
  std::vector<SsdValue> ssd;
  uint64_t pages = 0;  // on the last one: how many there are, else 0
};
struct SsdLife : AnsweredBy<Done> {
  Incarnation life;  // of what is on this owner's SSD from now on, 0: nothing. Of an earlier life nothing comes back
};
struct SsdCommit : AnsweredBy<SsdTaken> {
  std::vector<SsdValue> values;  // that are on its SSD now; until the master has taken one the owner lists it in no inventory
};
struct SsdEvicted : AnsweredBy<Done> {
  std::vector<Version> values;  // that have gone from its SSD by themselves
};
enum class ReclaimResult : uint8_t { ok, busy, gone };
struct InvalidateDone : AnsweredBy<Done> {
  OrderId order;
};
struct ReclaimDone : AnsweredBy<Done> {
  OrderId order;
  std::vector<ReclaimResult> results;  // of its replicas
};
struct ReplicateDone : AnsweredBy<CopyEnded> {
  OrderId order;
  Code code = Code::ok;
};
struct Staged : AnsweredBy<Done> {
  OrderId order;
  Code code = Code::ok;  // ok: the value can be fetched. Else the extent is free; miss, corrupt, system: as of GetDone
};
struct Unstaged : AnsweredBy<Done> {  // nobody reads or writes the extent any more, it is free
  OrderId order;
};

struct Request {
  using Body = std::variant<Heartbeat, PutStart, PutDone, PutReserved, PutAbort, Reserve, Release, Dropped, GetStart, GetDone, StatKey,
                            RemoveKey, CountKeys, ListKeys, LeaseGrant, LeaseKeepAlive, LeaseRevoke, Spread, InventoryPage, SsdLife,
                            SsdCommit, SsdEvicted, InvalidateDone, ReclaimDone, ReplicateDone, Staged, Unstaged>;
  OperationId id;
  Body body;

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(body);
  }
  template <class T>
  const T* as() const {
    return std::get_if<T>(&body);
  }
};

// The reply can be one to that request: its answer is one of those that the request names.
inline bool fits(const Request& request, const Reply& reply) {
  return std::visit(
      [&](const auto& asked, const auto& answer) {
        if (reply.code != Code::ok) return std::holds_alternative<Done>(reply.answer);
        return std::decay_t<decltype(asked)>::template kTakes<std::decay_t<decltype(answer)>>;
      },
      request.body, reply.answer);
}

// --- orders of the master

struct Invalidate {
  OrderId order;
  std::vector<Version> below;  // every replica of a key below the put_id is to go
};
struct Reclaim {
  OrderId order;
  std::vector<MemoryReplica> replicas;  // exactly these, as far as nobody reads them
};
struct Replicate {
  OrderId order;
  std::string key;
  PutId putId;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of the extent that the value is to be brought to
  Peer source;
  std::optional<Exported> exported;  // there; none: the readable value
  uint64_t timeLeftMs = 0;           // for the copy
};
struct Stage {
  OrderId order;
  std::string key;
  PutId putId;
  uint64_t bytes = 0;
  Exported to;              // where the value is to be brought from the owner's SSD, exported under this id meanwhile
  uint64_t timeLeftMs = 0;  // for the load
};
struct Unstage {
  OrderId order;
  ExportId exportId;
};
struct Leave {};
struct Shrink {};

// Those that the owner answers, and that come again until it has.
using Order = std::variant<Invalidate, Reclaim, Replicate, Stage, Unstage>;
inline OrderId idOf(const Order& order) {
  return std::visit([](const auto& each) { return each.order; }, order);
}

using MasterMessage = std::variant<Reply, Invalidate, Reclaim, Replicate, Stage, Unstage, Leave, Shrink>;
inline MasterMessage messageOf(const Order& order) {
  return std::visit([](const auto& each) { return MasterMessage(each); }, order);
}

// --- meeting

struct Hello {
  std::string clusterId;
  std::string cluster;
  Term term;
  Incarnation master;
  uint32_t protocol = kProtocolVersion;
};

struct Registration {
  std::string node;
  std::string hostId;  // boot id and the cluster's folder: "same host" means equal
  Incarnation incarnation;
  uint64_t pid = 0;
  uint64_t segmentBytes = 0;
  uint64_t maxKeys = 0;
  std::string http;               // address of /metrics, empty when off
  std::string link;               // entries of its links (link/link.h), empty: none of them listens
  std::string label;              // sub-cluster
  Incarnation ssdLife;            // of what is on this owner's SSD, where values put here go as well; 0: it has none
  std::vector<Extent> occupied;   // extents that are not free and hold no value that could be read: held, or still being written
  Incarnation adopts;             // in whose life the values were published that the inventory will list; 0: there are none
  uint64_t values = 0;            // in memory, that the inventory will list
  std::vector<Incarnation> ends;  // lives of the node that serve no more: it has their directory, or was they
  Time sent{0};                   // on the clock of its host
  uint32_t protocol = kProtocolVersion;
  std::string from;  // for people: where the owner is and since when, by what the master sees; not sent
};

struct Registered {
  Code code = Code::ok;
  std::string detail;
  uint64_t leaseMs = 0;
  bool inventory = false;  // the owner lists its values before it joins
};

// How either side of another version is refused.
inline std::string otherProtocol(const char* peer, uint32_t its) {
  return std::string(peer) + " speaks version " + std::to_string(its) + " of the protocol, this process version " +
         std::to_string(kProtocolVersion) + ": run one release of Fluxon in a cluster";
}

}  // namespace fluxon::rpc
