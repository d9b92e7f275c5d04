// MasterCore: the logic of the master. It sees no socket, promise, file or clock: requests and times come in by calls, messages
// go out through Outbox.
//
// The core gives each request to the part that it is for, keeps the order of what happens at one moment, and tells every part when a member
// ends. What is decided is decided in the parts, each of which has its invariants at its head:
//   routes.h         which value each key has, where its replicas lie, key leases
//   changes.h        publish and delete: what must be heard and retired before they are acknowledged
//   puts.h           puts under way, and who shall have the value
//   gets.h           where a value is read, or brought from
//   transfers.h      copies from member to member; staging.h: what comes from an SSD of another host
//   space_queue.h    who waits for space, and victims
//   ssd_replicas.h   what owners say of their replicas
//   membership.h     who takes part, and whose values wait for a next life; record.h: what of that survives this process
//   window.h         the recovery window of a term; inventory.h: what owners that come back list, and what is taken of it
//   drains.h, leases.h, listings.h
//
// Two rules are about all of them:
//   1. put_ids come from one counter and only grow.
//   2. Each request id of an incarnation is carried out once; a repetition gets the recorded reply (answer_log.h).
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
  // A wake-up that comes later than this shows that the process was stopped: what owners sent meanwhile has not been read yet. As long
  // again it is heard before leases are judged; judging later is always safe. 0: never.
  Duration stopped{0};
  size_t mostKeyLeases = size_t{1} << 20;  // each takes some 150 bytes, and its keys
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
  // `members`: the durable record of the last term; `windowEnd`: when its last lease has run out for sure.
  MasterCore(Identity identity, Settings settings, std::map<std::string, Incarnation> members, Time windowEnd, Outbox& outbox);
  ~MasterCore();

  const Identity& identity() const { return identity_; }
  const Settings& settings() const { return settings_; }

  // Joins, or joins again after a lost connection (same incarnation). On ok `member` is set; orders not answered are sent again.
  rpc::Registered registerOwner(const rpc::Registration& registration, Time now, std::shared_ptr<Member>& member) {
    return membership_.add(registration, now, member);
  }
  // Nothing is served by that owner any more: it has said so itself. kept: its values wait for its next life.
  enum class Content { kept, gone };
  void leave(Member&, Content, Time now);
  void disconnected(Member& member) { membership_.disconnected(member); }
  // What durable() was at `version` is on disk.
  void persisted(uint64_t version, Time now);

  // For operators. drain: the node's values are brought to others, then it is told to leave; undrain: no more, what has been brought
  // stays. evictTo: victims go until at most `percent` of each segment is in use. unavailable: no such member.
  Error drain(const std::string& node, Time now) { return drains_.begin(node, now); }
  Error undrain(const std::string& node) { return drains_.end(node); }
  Error evictTo(const std::string& node, uint64_t percent, Time now) { return space_.evictTo(node, percent, now); }

  // Requests below the lowest unanswered one are answered and known to be so, but for the stragglers.
  void handle(Member&, std::vector<rpc::Request>, OperationId lowestUnanswered, Time now, const std::vector<OperationId>& stragglers = {});

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
  uint64_t inFlightPuts() const { return puts_.inFlight(); }
  size_t invalidating() const { return invalidations_.members(); }  // members that have something to retire
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
  Time heardUntil_{0};                                      // after a stop: leases are judged from then on
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
