// KeyTable: every key the master has something to say about: its route, the puts in flight, a change that waits for owners,
// and what waits for that change. An entry exists while any of these does.
//
// Life of a route:    none ──publish──► routed ──publish──► routed (greater put_id) ──remove, evict──► none
// A route lives while it has replicas: at most one in the memory and one on the SSD of each member, each of which comes and goes by
// itself. It is readable while one of them is: its member is joined, and an SSD is still in the life in which the replica came to it.
// A route whose members are all away (fenced, but their values may come back with their next life) is dormant: gets miss it, a put or
// delete ends it, an inventory that names it revives it.
// A change (overwrite of a replica at another owner, delete) first invalidates every other replica and only then touches the
// route; while it waits, later puts, deletes and gets of the key queue behind it, so changes of one key never interleave.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "member_ref.h"
#include "rpc/messages.h"

namespace fluxon::master {

struct KeyEntry;

// Sets of members and keys are walked in the order of their names, so that what happens does not depend on addresses.
struct ByName {
  bool operator()(const MemberRef& a, const MemberRef& b) const;
  bool operator()(const KeyEntry* a, const KeyEntry* b) const;
};
using MemberSet = std::set<MemberRef, ByName>;

enum class Medium : uint8_t { memory, ssd };

struct Replica {
  MemberRef member;
  uint64_t offset;    // memory: of its extent
  Incarnation ssd{};  // on the member's SSD, in that life of it; 0: in memory

  Medium medium() const { return ssd ? Medium::ssd : Medium::memory; }
  bool readable() const;
};

// A copy of a value on its way into a member's segment, asked for by that member's get (the GetStart) or ordered (the Replicate).
using TransferId = std::variant<OperationId, OrderId>;

// Another member that shall have the value of a put. The put's own extent is where the writer fills it.
struct PutHome {
  MemberRef member;
  uint64_t offset = 0;  // there
  OperationId done;     // the PutDone that waits for the copy, 0: none yet
  OrderId copy;         // the Replicate, 0: not yet
};

// What has come to a key since a put of it began. A delete counts for more.
enum class Overtaken : uint8_t { no, byPut, byDelete };

struct Put {
  OperationId operation;
  KeyEntry* key = nullptr;
  PutId putId;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  PutMode mode;
  KeyLeaseId lease;
  Time deadline;  // after it the put no longer counts as in flight for others
  Time since{0};  // it has begun
  Overtaken overtaken = Overtaken::no;
  std::optional<PutHome> home;  // none: its member has the value
};

// A Spread, answered when its copies have ended; the last one drops its reference.
struct Spread {
  MemberRef origin;
  OperationId request;
  rpc::SpreadEnded answer;
};

// A put whose only copy a transfer will be.
struct OfPut {
  MemberRef origin;
  OperationId put;
};

// The order by which another source brings a value from its SSD to a place in its segment.
struct StagedAt {
  OrderId order;
  uint64_t offset = 0;
};

struct Transfer {
  KeyEntry* key = nullptr;
  PutId putId;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  MemberRef source;
  Time since{0};         // it has begun
  bool durable = false;  // it may become a replica
  Incarnation ssd{};     // it comes from the source's SSD in that life; 0: from its memory
  std::optional<StagedAt> stage;
  std::variant<std::monostate, OfPut, std::shared_ptr<Spread>> purpose;  // none: a get, or a drain
};

// A revoked key lease; answered when the last change that deletes one of its keys is over and drops its reference.
struct Revoke {
  MemberRef origin;
  OperationId request;
};

// The value of a put that was brought to another member: who that is, its transfer, and its ReplicateDone.
struct Copied {
  MemberRef home;
  OrderId transfer;
  OperationId request;
};

// What a publish brings.
struct NewValue {
  MemberRef home;  // who has it
  uint64_t offset = 0;
  uint64_t bytes = 0;
  KeyLeaseId lease;
  OperationId copyDone;  // it was copied to its home: the ReplicateDone there that waits for an answer
};

// A publish or a delete that waits until every other owner has invalidated its replica.
struct Change {
  MemberRef origin;  // whom the reply goes to; nobody: a key lease ran out
  OperationId request;
  PutId below;                    // replicas below it go; the put_id of the put that is published
  std::optional<NewValue> value;  // none: a delete
  MemberSet waiting;
  std::vector<std::shared_ptr<Revoke>> revokes;
};

struct Deferred {
  MemberRef member;
  rpc::Request request;
};

struct KeyEntry {
  std::string_view key;  // the map's own
  uint64_t hash = 0;
  PutId putId;  // of the route; 0: no route
  uint64_t bytes = 0;
  KeyLeaseId lease;
  std::vector<Replica> replicas;
  std::vector<std::pair<MemberRef, OperationId>> puts;
  std::vector<std::pair<MemberRef, TransferId>> transfers;
  std::unique_ptr<Change> change;
  std::vector<Deferred> deferred;

  bool routed() const { return bool(putId); }  // readable or dormant
  bool idle() const { return !putId && puts.empty() && transfers.empty() && !change && deferred.empty(); }
};

class KeyTable {
 public:
  KeyEntry* find(const std::string& key);
  const KeyEntry* find(const std::string& key) const;
  KeyEntry& at(const std::string& key);
  // Forgets the entry if nothing is left of it.
  void forgetIfIdle(KeyEntry& entry);
  // So many more keys are to come.
  void expect(uint64_t keys) { entries_.reserve(entries_.size() + keys); }
  // A key enters or leaves the listing with its route.
  void setRoute(KeyEntry& entry, PutId putId, uint64_t bytes, KeyLeaseId lease);
  void clearRoute(KeyEntry& entry);

  uint64_t routes() const { return ordered_.size(); }  // dormant ones too
  // Keys with `prefix` that come after `after`, in byte order, until `each` has said `limit` times that it takes one.
  void list(std::string_view prefix, std::string_view after, uint64_t limit, const std::function<bool(const KeyEntry&)>& each) const;

 private:
  std::unordered_map<std::string, KeyEntry> entries_;
  std::set<std::string_view> ordered_;  // keys with a route
};

}  // namespace fluxon::master
