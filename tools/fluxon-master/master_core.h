// MasterCore: the logic of the master. It sees no socket, promise, file or clock: requests and times come in by calls, messages
// go out through Outbox.
//
// Invariants
//   1. put_ids come from one counter and only grow; a route never goes to a smaller one.
//   2. Before a put or delete is acknowledged, every other owner with a replica of the key has answered that it retired it, or
//      its lease has run out and it is fenced. So a reader that trusts a serving lease never reads an older value after that.
//   3. Changes of one key never interleave (key_table.h).
//   4. An extent is given out once and comes back by its owner's word only (member_space.h).
//   5. Each request id of an incarnation is carried out once; a repetition gets the recorded reply.
//   6. While a term is young (recovery window, recovery.cpp) owners of the last term may still serve under its lease, and list their
//      values: changes are acknowledged when each of them has registered, and only after it was told of them.
//      Only in the window is an inventory taken that no earlier life of this term vouches for: that of exactly the life which the durable
//      record of its node names. A route that it names is the latest completed put of its key: a later one was acknowledged only
//      after this owner had retired the value (so it is refused if it is listed), or after the record named another life or none.
//   7. The record of a node changes on disk before anything that relies on it is said: it names no life any more before a put or
//      delete of one of its keys is acknowledged that a fenced owner has not heard of, before its dormant routes are forgotten, and
//      before the window ends without it; it names the new life before that one may serve. While the window is open, a node whose
//      values are refused may still serve under a lease of the last term: its record names kNobody then, so that a next term waits for it.
//      (A list of fenced lives would not do: a term that an owner sits out never knows its life,
//      fences nothing, and the next term would take what it had before.)
//   8. Within a term, an inventory revives only what is dormant here: the replicas of exactly the life that it adopts, that no put
//      or delete has ended since.
//   9. An invalidation goes to every member with a replica and to every member with a transfer of the key. What a transfer brings
//      becomes a replica only if the route is still that of its put_id and no change is under way.
//  10. A life that is here ends for another one of its node only when its lease has run out, or when the newcomer has its directory, in
//      which it has ended that lease (or it is the same process). On one host a registration that was sent before that of the life which is
//      here is refused.
//  11. A replica on an SSD goes by its owner's word alone (ssd.cpp). So what an owner may list in a next term is known here: its changes
//      are told to that owner, who answers when its SSD has nothing older any more.
//  12. A put that rejects an existing key (PutMode::OnExisting::reject) is done only if the key was absent all the time since it began: another
//      one that became the route meanwhile, or a delete of one that had, makes it `exists`, whichever has the smaller put_id. So of those
//      that are in flight together one at most is done.
// One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "bounds.h"
#include "inventory.h"
#include "invalidations.h"
#include "listings.h"
#include "membership.h"
#include "outgoing.h"
#include "placement.h"
#include "record.h"
#include "routes.h"
#include "space_queue.h"
#include "window.h"

namespace fluxon::master {

struct Settings {
  Duration lease = seconds(10);
  Duration putWait = seconds(5);
  Duration minimumKeyLease = milliseconds(100);
  // A wake-up that comes later than this shows that the process was stopped: what owners sent meanwhile has not been read yet. As long
  // again it is heard before leases are judged; judging later is always safe. 0: never.
  Duration stopped{0};
  size_t mostKeyLeases = size_t{1} << 20;  // each takes some 150 bytes, and its keys
};

// Totals since start, for metrics.
struct MasterCounters {
  uint64_t putsStarted = 0, putsPublished = 0, putsOverwritten = 0, putsRefused = 0, putsAborted = 0, noSpace = 0;
  uint64_t gets = 0, getMisses = 0, removes = 0, evictions = 0, evictionsBusy = 0, invalidations = 0, fenced = 0, leasesExpired = 0,
           fetches = 0, replicasMade = 0, transfersFailed = 0, placedElsewhere = 0, revived = 0, inventoryRefused = 0;
  uint64_t ssdCommits = 0, ssdCommitsIgnored = 0, ssdEvictions = 0, ssdLoads = 0, ssdLoadsFailed = 0;
};

class MasterCore {
 public:
  struct Identity {
    std::string cluster;
    std::string clusterId;
    Term term;
    Incarnation incarnation;
  };
  // `members`: the durable record of the last term; `windowEnd`: when its last lease has run out for sure.
  MasterCore(Identity identity, Settings settings, std::map<std::string, Incarnation> members, Time windowEnd, Outbox& outbox);
  ~MasterCore();

  const Identity& identity() const { return identity_; }
  const Settings& settings() const { return settings_; }

  // Joins, or joins again after a lost connection (same incarnation). On ok `member` is set; orders not answered are sent again.
  rpc::Registered registerOwner(const rpc::Registration&, Time now, std::shared_ptr<Member>& member);
  // Nothing is served by that owner any more: it has said so itself. `keeps`: its values wait for its next life.
  enum class Content { kept, gone };
  void leave(Member&, Content, Time now);
  void disconnected(Member& member) { member.connected = false; }
  // What durable() was at `version` is on disk.
  void persisted(uint64_t version, Time now);

  // For operators. drain: the node's values are brought to others, then it is told to leave; undrain: no more, what has been brought
  // stays. evictTo: victims go until at most `percent` of each segment is in use. unavailable: no such member.
  Error drain(const std::string& node, Time now);
  Error undrain(const std::string& node);
  Error evictTo(const std::string& node, uint64_t percent, Time now);

  // Requests below the lowest unanswered one are answered and known to be so, but for the stragglers.
  void handle(Member&, std::vector<rpc::Request>, OperationId lowestUnanswered, Time now,
              const std::vector<OperationId>& stragglers = {});

  // Leases, deadlines, the recovery window, back-off. `nextWake` says when it has something to do. `heard`: what was sent here by then has
  // been handled; a lease that ended later is not judged yet, since its owner's word may be on its way.
  void tick(Time now, Time heard);
  Time nextWake() const;
  // Long work left to do in slices; `work` does one slice (well below 1 ms).
  bool hasWork() const { return routes_.sweeping() || listings_.counting(); }
  void work();

  bool recovering() const { return window_.open(); }
  uint64_t keys() const { return table().routes(); }
  const KeyTable& table() const { return routes_.table(); }
  const KeyLeases& keyLeases() const { return routes_.leases(); }
  const std::map<std::string, std::shared_ptr<Member>>& members() const { return members_; }
  const Durable& durable() const { return record_.durable(); }
  MasterCounters counters() const;
  uint64_t persistedVersion() const { return record_.persisted(); }
  uint64_t inFlightPuts() const;
  uint64_t transfers() const;
  // Ages, 0 when there is none.
  Duration oldestPut(Time now) const;
  Duration oldestTransfer(Time now) const;

 private:
  void dispatch(Member&, const rpc::Request&, Time now);
  // A request of each kind is carried out by its overload.
  void on(Member&, OperationId, const rpc::Heartbeat&, Time now);
  void on(Member&, OperationId, const rpc::PutStart&, Time now);
  void on(Member&, OperationId, const rpc::PutDone&, Time now);
  void on(Member&, OperationId, const rpc::PutReserved&, Time now);
  void on(Member&, OperationId, const rpc::PutAbort&, Time now);
  void on(Member&, OperationId, const rpc::Reserve&, Time now);
  void on(Member&, OperationId, const rpc::Release&, Time now);
  void on(Member&, OperationId, const rpc::Dropped&, Time now);
  void on(Member&, OperationId, const rpc::GetStart&, Time now);
  void on(Member&, OperationId, const rpc::GetDone&, Time now);
  void on(Member&, OperationId, const rpc::StatKey&, Time now);
  void on(Member&, OperationId, const rpc::RemoveKey&, Time now);
  void on(Member&, OperationId, const rpc::CountKeys&, Time now);
  void on(Member&, OperationId, const rpc::ListKeys&, Time now);
  void on(Member&, OperationId, const rpc::LeaseGrant&, Time now);
  void on(Member&, OperationId, const rpc::LeaseKeepAlive&, Time now);
  void on(Member&, OperationId, const rpc::LeaseRevoke&, Time now);
  void on(Member&, OperationId, const rpc::Spread&, Time now);
  void on(Member&, OperationId, const rpc::InventoryPage&, Time now);
  void on(Member&, OperationId, const rpc::SsdLife&, Time now);
  void on(Member&, OperationId, const rpc::SsdCommit&, Time now);
  void on(Member&, OperationId, const rpc::SsdEvicted&, Time now);
  void on(Member&, OperationId, const rpc::InvalidateDone&, Time now);
  void on(Member&, OperationId, const rpc::ReclaimDone&, Time now);
  void on(Member&, OperationId, const rpc::ReplicateDone&, Time now);
  void on(Member&, OperationId, const rpc::Staged&, Time now);
  void on(Member&, OperationId, const rpc::Unstaged&, Time now);

  void sendHome(Member&, Put&, OperationId request, Time now);
  Code refusePut(const std::string& key, PutMode, KeyLeaseId, std::string& detail, Time now);

  void goOn(const std::vector<Deferred>&, Time now);
  void memberEnded(Member&, Time now);

  // transfers.cpp: gets, and copies from owner to owner
  enum class Turn { first, last };  // among those who wait for space
  void find(Member&, OperationId, const rpc::GetStart&, Turn, unsigned stagings, Time now);
  Member* lacksSpaceForGet(Member&, OperationId, const rpc::GetStart&, Turn, unsigned stagings, Time now);
  const Replica* chooseSource(const KeyEntry&, const Member&, const rpc::GetStart&);
  void copyEnded(Member&, OperationId request, TransferId, Code, Time now);
  OrderId replicate(const KeyEntry&, Member& source, Member& to, std::optional<rpc::Exported>, uint64_t timeLeftMs, Transfer transfer);
  void dropTransfer(Member&, TransferId);
  void moveOut(Member&, Time now);
  bool moveAway(KeyEntry&, Member& from, Time now);
  void letLeave(Member&, Time now);
  std::vector<Member*> candidates(const Member& asker, uint64_t extentBytes, Time now);

  // ssd.cpp: replicas on SSDs, and what is brought from there for another host
  bool loseSsd(KeyEntry&, Member&, PutId, Incarnation life);
  void loadFailed(Member&, const Transfer&, Code);
  void stage(Member&, OperationId, const rpc::GetStart&, unsigned stagings);
  void dropStaged(const StagedGet&);
  void unstage(Member& source, OrderId stage, uint64_t offset);
  // Not 0, and no put_id: those are the ids of other exports.
  static ExportId exportOf(OrderId stage) { return ExportId(stage.value | rpc::kStagedExport); }

  // space.cpp
  Member* lacksSpaceForPut(Member&, OperationId, const rpc::PutStart&, Time now);
  Member* retry(const Waiting&, Time now);

  // changes.cpp: publish, remove, invalidate
  void defer(KeyEntry&, Member&, rpc::Request);
  void publish(Member&, OperationId request, OperationId put, Time now, Copied copy = {});
  void begin(KeyEntry&, std::unique_ptr<Change>, const Member* except, Time now);
  void finish(KeyEntry&, Time now);
  void endPut(Member&, OperationId put);
  void abandonPut(Member&, OperationId put);
  void changesWithout(Member&);
  void tellInstead(Member&, Member& next);
  void settleChanges(Member&, Time now);
  std::vector<std::string> changing() const;
  void removeKey(KeyEntry&, Member* origin, OperationId request, Time now);

  PutId nextPutId() { return PutId(identity_.term, ++sequence_); }

  Identity identity_;
  Settings settings_;
  Outgoing out_;
  std::map<std::string, std::shared_ptr<Member>> members_;  // by node; fenced ones until they are replaced
  Time heardUntil_{0};      // after a stop: leases are judged from then on
  Bounds bounds_;
  Routes routes_;
  Listings listings_;
  Record record_;
  Window window_;
  Invalidations invalidations_;
  Membership membership_;
  SpaceQueue space_;
  Inventory inventory_;
  std::set<KeyEntry*, ByName> changing_;  // entries with a change
  uint64_t rotate_ = 0;                          // over sources that are as good as each other
  uint64_t sequence_ = 0;
  MasterCounters counters_;
};

}  // namespace fluxon::master
