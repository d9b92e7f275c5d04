// KeyTable: every key the master has something to say about: its route, the puts in flight, a change that waits for owners,
// and what waits for that change. An entry exists while any of these does.
//
// Life of a route:    none ──publish──► routed ──publish──► routed (greater put_id) ──remove, evict──► none
// A change (overwrite of a replica at another owner, delete) first invalidates every other replica and only then touches the
// route; while it waits, later puts, deletes and gets of the key queue behind it, so changes of one key never interleave.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "rpc/messages.h"

namespace fluxon::master {

class Member;
struct KeyEntry;

struct Replica {
  Member* member;
  uint64_t offset;
};

struct Put {
  OperationId operation;
  KeyEntry* key = nullptr;
  PutId putId;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t flags = 0;
  KeyLeaseId lease;
  Time deadline;            // after it the put no longer counts as in flight for others
  bool superseded = false;  // a delete came after its start: done answers "overwritten"
};

// A revoked key lease; answered when the last change that deletes one of its keys is over and drops its reference.
struct Revoke {
  Member* origin;  // nullptr: fenced meanwhile
  OperationId request;
};

// A publish or a delete that waits until every other owner has invalidated its replica.
struct Change {
  Member* origin;  // whom the reply goes to; nullptr: nobody (a key lease ran out)
  OperationId request;
  bool removal = false;
  PutId below;             // replicas below it go; the put_id of the put that is published
  uint64_t offset = 0;     // of the new replica at origin
  uint64_t bytes = 0;
  KeyLeaseId lease;
  std::set<Member*> waiting;
  std::vector<std::shared_ptr<Revoke>> revokes;
};

struct Deferred {
  Member* member;
  rpc::Request request;
};

struct KeyEntry {
  std::string_view key;  // the map's own
  uint64_t hash = 0;
  PutId putId;           // of the route; 0: no route
  uint64_t bytes = 0;
  KeyLeaseId lease;
  std::vector<Replica> replicas;
  std::vector<std::pair<Member*, OperationId>> puts;
  std::unique_ptr<Change> change;
  std::vector<Deferred> deferred;

  bool routed() const { return bool(putId); }
  bool idle() const { return !putId && puts.empty() && !change && deferred.empty(); }
};

class KeyTable {
 public:
  KeyEntry* find(const std::string& key);
  KeyEntry& at(const std::string& key);
  // Forgets the entry if nothing is left of it.
  void settle(KeyEntry& entry);
  // A key enters or leaves the listing with its route.
  void setRoute(KeyEntry& entry, PutId putId, uint64_t bytes, KeyLeaseId lease);
  void clearRoute(KeyEntry& entry);

  uint64_t routes() const { return ordered_.size(); }
  uint64_t countPrefix(std::string_view prefix) const;
  // Keys with `prefix` that come after `after`, in byte order, at most `limit`.
  void list(std::string_view prefix, std::string_view after, uint64_t limit, const std::function<void(const KeyEntry&)>& each) const;
  void forEach(const std::function<void(KeyEntry&)>& each);

 private:
  std::unordered_map<std::string, KeyEntry> entries_;
  std::set<std::string_view> ordered_;  // keys with a route
};

}  // namespace fluxon::master
