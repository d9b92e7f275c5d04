// What an owner and its master say to each other, as plain values: the logic of both sees these and no Cap'n Proto. The
// schema (schema/master.capnp) says the same on the wire and explains the protocol; codec.h converts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/extent.h"
#include "base/ids.h"
#include "base/result.h"

namespace fluxon::rpc {

enum class RequestKind : uint16_t {
  heartbeat,       // touches, gauges
  putStart,        // key, bytes, flags, lease, timeLeftMs -> offset, putId
  putDone,         // put -> putId, published
  putReserved,     // key, bytes, offset, lease -> putId, published: start and done of a put into a reserved extent
  putAbort,        // put: the writer has ended; its extent comes back by `release`
  reserve,         // bytes, count -> offsets
  release,         // offsets: extents that no one reads or writes any more
  dropped,         // items: replicas that the owner has given up
  getStart,        // key, timeLeftMs -> node, putId, bytes; code miss
  stat,            // key -> putId, bytes, lease, nodes
  remove,          // key -> ok or miss
  countPrefix,     // key (the prefix) -> count
  list,            // key (the prefix), after, count (limit) -> entries
  leaseGrant,      // ttlMs -> lease
  leaseKeepAlive,  // lease
  leaseRevoke,     // lease: its keys are deleted
  invalidateDone,  // command
  reclaimDone,     // command, results
};
constexpr uint16_t kRequestKinds = 18;

enum class ReclaimResult : uint8_t { ok, busy, gone };

// A version of a key at one owner.
struct Version {
  std::string key;
  PutId putId;
  uint64_t offset = 0;  // of its extent
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
  std::string node;
  std::vector<std::string> nodes;
  std::vector<uint64_t> offsets;
  std::vector<ListedKey> entries;
};

enum class CommandKind : uint16_t { reply, invalidate, reclaim };

// From master to owner: an answer, or an order that is answered by invalidateDone or reclaimDone.
struct MasterMessage {
  CommandKind kind = CommandKind::reply;
  Reply reply;
  OperationId command;         // identity of an order; an order may come twice
  std::vector<Version> items;  // invalidate: drop all below putId; reclaim: this version, if nobody reads it
};

struct Hello {
  std::string clusterId;
  std::string cluster;
  Term term;
  Incarnation master;
};

struct Registration {
  std::string node;
  std::string hostId;       // boot id: "same host" means equal
  Incarnation incarnation;
  uint64_t pid = 0;
  uint64_t segmentBytes = 0;
  uint64_t maxKeys = 0;
  std::string http;         // address of /metrics, empty when off
  std::vector<Extent> occupied;  // extents that are not free although the owner joins empty: held or still being written
};

struct Registered {
  Code code = Code::ok;
  std::string detail;
  uint64_t leaseMs = 0;
};

}  // namespace fluxon::rpc
