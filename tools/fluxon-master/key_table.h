// KeyTable: the master's keys. An entry holds the key's route, its puts and transfers in flight, a change that waits for owners, and the
// requests that wait for that change. It exists while it holds any of these.
//
// Life of a route:    none ──publish──► routed ──publish──► routed (greater put_id) ──remove, evict──► none
// A route lives while it has replicas: each member has at most one in memory and one on its SSD, and each comes and goes by itself. The
// route is readable while one of its replicas is: the replica's member is joined and, for one on an SSD, the SSD is still in the life in
// which it was written. A route is dormant when all its members are fenced but their values may come back with their next life: gets miss
// it, a put or delete ends it, an inventory that lists it revives it.
// A change (a delete, or an overwrite of a replica at another owner) first invalidates every other replica and only then changes the route.
// Meanwhile later puts, deletes and gets of the key queue behind it, so changes of one key never interleave. One thread.
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

// Orders sets of members and keys by name, so that the master's behaviour does not depend on addresses.
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

// The member that will have the value of a put, if it is not the one where the writer fills the put's extent.
struct PutHome {
  MemberRef member;
  uint64_t offset = 0;  // there
  OperationId done;     // the PutDone that waits for the copy, 0: none yet
  OrderId copy;         // the Replicate, 0: not yet
};

// Whether another put was published, or the key deleted, since a put of the key began. A delete outweighs a put.
enum class Overtaken : uint8_t { no, byPut, byDelete };

struct Put {
  OperationId operation;
  KeyEntry* key = nullptr;
  PutId putId;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  PutMode mode;
  KeyLeaseId lease;
  Time deadline;  // after it others do not count the put as in flight any more
  Time since{0};  // when it began
  Overtaken overtaken = Overtaken::no;
  std::optional<PutHome> home;  // none: its own member has the value
};

// A Spread request. The master answers it when all its copies have ended: each copy holds a reference.
struct Spread {
  MemberRef origin;
  OperationId request;
  rpc::SpreadEnded answer;
};

// The put whose value a transfer brings to its home.
struct OfPut {
  MemberRef origin;
  OperationId put;
};

// The order by which the source brings a value from its SSD to a place in its own segment, to be fetched from there.
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
  Time since{0};         // when it began
  bool durable = false;  // the copy may become a replica
  Incarnation ssd{};     // the life of the source's SSD from which the value comes; 0: it comes from the source's memory
  std::optional<StagedAt> stage;
  std::variant<std::monostate, OfPut, std::shared_ptr<Spread>> purpose;  // none: a get, or a drain
};

// A LeaseRevoke request. The master answers it when the last key is deleted: each change that deletes one holds a reference.
struct Revoke {
  MemberRef origin;
  OperationId request;
};

// The value of a put has been copied to its home: the home, the transfer, and the home's ReplicateDone.
struct Copied {
  MemberRef home;
  OrderId transfer;
  OperationId request;
};

// The new value of a publish.
struct NewValue {
  MemberRef home;  // the member that has it
  uint64_t offset = 0;
  uint64_t bytes = 0;
  KeyLeaseId lease;
  OperationId copyDone;  // if it was copied to its home: the home's ReplicateDone, which waits for an answer
};

// A publish or a delete that waits until every other owner has invalidated its replica.
struct Change {
  MemberRef origin;  // who gets the reply; nobody: a key lease ran out
  OperationId request;
  PutId below;                    // replicas with a lower put_id are invalidated; the put_id of the put being published
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
  // Erases the entry if it holds nothing any more.
  void forgetIfIdle(KeyEntry& entry);
  // Makes room for so many more keys.
  void expect(uint64_t keys) { entries_.reserve(entries_.size() + keys); }
  // Sets or clears the route. The listing names exactly the keys with a route.
  void setRoute(KeyEntry& entry, PutId putId, uint64_t bytes, KeyLeaseId lease);
  void clearRoute(KeyEntry& entry);

  uint64_t routes() const { return ordered_.size(); }  // dormant ones too
  // Visits keys with `prefix` that come after `after`, in byte order, until `each` has returned true `limit` times.
  void list(std::string_view prefix, std::string_view after, uint64_t limit, const std::function<bool(const KeyEntry&)>& each) const;

 private:
  std::unordered_map<std::string, KeyEntry> entries_;
  std::set<std::string_view> ordered_;  // keys with a route
};

}  // namespace fluxon::master
