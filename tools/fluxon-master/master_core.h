// MasterCore: the logic of the master. It sees no socket, promise, file or clock: callers pass requests and times in, messages go out
// through Outbox.
//
// The core dispatches each request to one part, keeps the order of events at one moment, and tells every part when a member ends. The parts
// make all decisions; each has its invariants at its head:
//   routes.h         which value each key has, where its replicas lie, key leases
//   changes.h        publish and delete, and the invalidations that must be answered before they are acknowledged
//   puts.h           puts under way, and the placement of their values
//   gets.h           where a value is read or fetched from
//   transfers.h      copies from member to member; staging.h: copies from an SSD of another host
//   space_queue.h    requests that wait for space, and victims of eviction
//   ssd_replicas.h   owners' reports about their replicas
//   membership.h     joining, leases and fencing of owners; record.h: the part of it that survives this process
//   window.h         the recovery window of a term; inventory.h: the values that returning owners list
//   drains.h, leases.h, listings.h
//
// Two rules hold for all of them:
//   1. put_ids come from one counter and only grow.
//   2. The master carries out each request id of an incarnation once; a repetition gets the recorded reply (answer_log.h).
// One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "changes.h"
#include "drains.h"
#include "gets.h"
#include "inventory.h"
#include "leases.h"
#include "listings.h"
#include "membership.h"
#include "outgoing.h"
#include "puts.h"
#include "record.h"
#include "routes.h"
#include "space_queue.h"
#include "ssd_replicas.h"
#include "staging.h"
#include "transfers.h"
#include "window.h"

namespace fluxon::master {

struct Settings {
  Duration lease = seconds(10);
  Duration putWait = seconds(5);
  Duration minimumKeyLease = milliseconds(100);
  // A wake-up that comes later than this shows that the process was stopped, and messages of owners are still unread. The master then reads
  // for as long again before it judges leases; judging later is always safe. 0: never.
  Duration stopped{0};
  size_t mostKeyLeases = size_t{1} << 20;  // each takes some 150 bytes plus its keys
};

// Totals since start, for metrics: those of the parts.
#define FLUXON_MASTER_CORE_COUNTERS(X) \
  X(invalidations, "fluxon_master_invalidations_total", "Replicas of other owners invalidated by an overwrite or delete.")
struct CoreCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_CORE_COUNTERS)
};
struct MasterCounters : CounterSet<PutCounters, ChangeCounters, SpaceCounters, GetCounters, TransferCounters, SsdCounters,
                                   MembershipCounters, LeaseCounters, InventoryCounters, CoreCounters> {};

class MasterCore {
 public:
  struct Identity {
    std::string cluster;
    std::string clusterId;
    Term term;
    Incarnation incarnation;
  };
  // `members`: the durable record of the last term; `windowEnd`: by then the last lease of that term has certainly run out.
  MasterCore(Identity identity, Settings settings, std::map<std::string, Incarnation> members, Time windowEnd, Outbox& outbox);
  ~MasterCore();

  const Identity& identity() const { return identity_; }
  const Settings& settings() const { return settings_; }

  // An owner joins, or joins again after a lost connection (same incarnation). On ok sets `member` and sends unanswered orders again.
  rpc::Registered registerOwner(const rpc::Registration& registration, Time now, std::shared_ptr<Member>& member) {
    return membership_.add(registration, now, member);
  }
  // The owner has said that it serves nothing any more. kept: its values wait for its next life.
  enum class Content { kept, gone };
  void leave(Member&, Content, Time now);
  void disconnected(Member& member) { membership_.disconnected(member); }
  // durable() as it was at `version` is on disk.
  void persisted(uint64_t version, Time now);

  // For operators. drain: copies the node's values to other nodes, then tells its owner to leave. undrain: stops that; copies that were
  // made stay. evictTo: evicts until at most `percent` of each segment is in use. unavailable: no such member.
  Error drain(const std::string& node, Time now) { return drains_.begin(node, now); }
  Error undrain(const std::string& node) { return drains_.end(node); }
  Error evictTo(const std::string& node, uint64_t percent, Time now) { return space_.evictTo(node, percent, now); }

  // The owner has received the answers to all requests below the lowest unanswered one, except those of the stragglers.
  void handle(Member&, std::vector<rpc::Request>, OperationId lowestUnanswered, Time now, const std::vector<OperationId>& stragglers = {});

  // Judges leases, deadlines, the recovery window, and retries. `nextWake` says when it next has something to do. `heard`: the master has
  // handled everything that was sent to it by then; it does not judge a lease that ended later, because a message that prolongs it may be
  // on its way.
  void tick(Time now, Time heard);
  Time nextWake() const;
  // There is long work to do in slices; `work` does one slice (well below 1 ms).
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
  uint64_t inFlightPuts() const { return puts_.inFlight(); }
  size_t invalidating() const { return invalidations_.members(); }  // members with versions still to retire
  uint64_t transfers() const { return transfers_.underWay(); }
  // Ages, 0 when there is none.
  Duration oldestPut(Time now) const { return puts_.oldest(now); }
  Duration oldestTransfer(Time now) const { return transfers_.oldest(now); }

 private:
  void dispatch(Member&, const rpc::Request&, Time now);
  void goOn(const std::vector<Deferred>&, Time now);
  Member* retry(const Waiting&, Time now);
  void memberEnded(Member&);

  Identity identity_;
  Settings settings_;
  Time heardUntil_{0};                                      // after a stop: when leases are judged again
  std::map<std::string, std::shared_ptr<Member>> members_;  // by node; fenced ones until they are replaced
  Outgoing out_;
  PutIds putIds_;
  Bounds bounds_;
  Routes routes_;
  Record record_;
  Window window_;
  Membership membership_;
  Invalidations invalidations_;
  Inventory inventory_;
  SpaceQueue space_;
  SsdReplicas ssds_;
  Listings listings_;
  Changes changes_;
  Puts puts_;
  Transfers transfers_;
  Staging staging_;
  Gets gets_;
  Drains drains_;
  Leases leases_;
};

}  // namespace fluxon::master
