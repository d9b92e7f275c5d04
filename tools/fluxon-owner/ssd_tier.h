// SsdTier: what is on this owner's SSD. ssdd does the I/O (ssd/messages.h has the messages); this owner speaks for it, and nobody else
// reads from it.
//
//   none ──attached──► attached ──ssdd ends, or is given up──► none: what was on the SSD is over, its life never comes again
//   On a protocol violation, or when ssdd says nothing in time: its channel ends (start over) and its contents are discarded.
//
// Invariants
//   1. Of an entry that the master may name, a later put or delete is acknowledged only when ssdd has dropped it, or when its life is
//      over: no load and no inventory finds it then, not even in the next life of this process. The directory's header names the one
//      life of the SSD that counts; it changes before an answer relies on that.
//   2. An invalidation is passed on before anything that may be loaded later: messages to ssdd keep their order. A load that was under
//      way is a flight like any other: the bound of its key decides.
//   3. What ssdd has and the master has not taken is dead when this life, or the term, ends (Message forget, and messages.h).
//      The master forgets such an entry by this owner's word alone, and that is said after ssdd was told to drop it.
//   4. What has gone from the SSD by itself is told after the commit that made it known: ssdd keeps an entry until the master has
//      decided about it. Commits and what has gone are one numbered stream of requests, sent again in its order after a lost
//      connection, and a version is persisted once; so the master never takes away what ssdd still has.
//   5. ssdd is heard whatever the master does. What has gone waits here for a master that is slow or away, and nothing else does: it is no
//      more than the SSD has held and the master has taken, and takes less memory than its entries did at ssdd. To ask ssdd for a list of
//      what is left instead, once there is too much, would need as much for all that lives. A route that is not taken back yet costs a
//      get one miss at ssdd. A new term makes it void: it asks for a list.
// Why nothing older comes back after both this process and the master have died: the next life lists what ssdd has kept, which by
// (1) and (3) holds no version below an acknowledged one, unless the record on disk names another life: then the list is refused.
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/counters.h"
#include "retirement.h"
#include "ssd_persists.h"

namespace fluxon::owner {

#define FLUXON_OWNER_SSD_TIER_COUNTERS(X)                                                                \
  X(ssdLoads, "fluxon_owner_ssd_loads_total", "Values brought from the own SSD for gets of this host.")  \
  X(ssdLoadsFailed, "fluxon_owner_ssd_loads_failed_total", "Loads that the SSD did not give.")           \
  X(ssdLoadedBytes, "fluxon_owner_ssd_loaded_bytes_total", "Payload bytes brought from the own SSD.")    \
  X(ssdEvicted, "fluxon_owner_ssd_evicted_total", "Replicas that have gone from the SSD by themselves.") \
  X(ssdLost, "fluxon_owner_ssd_lost_total", "Times what was on the SSD was over as a whole.")
struct TierCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_SSD_TIER_COUNTERS)
};
struct SsdCounters : CounterSet<PersistCounters, TierCounters> {};

class SsdTier {
 public:
  struct Settings {
    SsdPersists::Settings persists;
    bool awaited;  // ssdd of the last life lives, and may bring what it has
  };
  // Loads are flights and stages. The extent of one that is left stays ssdd's to write until the host says that it has ended.
  struct Loads {
    std::function<void(const char* why, Time now)> leaveAll;  // ssdd has ended
    std::function<void(uint64_t task, Time now)> stalled;     // its device does nothing
  };
  SsdTier(Settings, shm::DirectoryWriter&, Host&, MasterCalls&, const Standing&, Retirement&, Loads);

  // --- who is there
  Incarnation life() const { return life_; }
  // May an ssdd of that life attach? One that is not empty only before the master is told what is here.
  bool takes(Incarnation life, bool empty) const { return empty ? life != lost_ : !described_ && life == directory_.ssd(); }
  void attached(Incarnation life);
  void gone(Time now);
  void giveUp(const char* why, Time now);
  void expected(bool expected) { awaited_ = expected; }
  bool awaited() const { return awaited_; }
  // What a registration says of the SSD: any other life of it is worth nothing from here on.
  Incarnation describe();

  void heard(const ssd::Message&, Time now);

  // One count for flights and what ssdd is asked, since its progress names either.
  uint64_t newTask() { return nextTask_++; }

  // --- replicas on the SSD
  void persist(uint32_t slot, Time now);
  bool yields(uint32_t slot, Time now) { return persists_.yields(slot, now); }
  bool reads(uint32_t slot) { return persists_.reads(slot); }
  void committed(const std::vector<uint64_t>& persists, const rpc::Reply& reply) { persists_.decided(persists, reply); }
  void evictedTold(size_t count) { told_ -= count; }

  // The order to invalidate is answered when ssdd has dropped its entries, if there is one; what it retired goes after that.
  void invalidate(const rpc::Invalidate&, std::vector<uint32_t> retired, Time now);
  // What the master has refused of the list goes before this life serves.
  void dropRefused(const std::vector<rpc::Version>& below, Time now);
  bool dropsRefused() const;
  void scrub(Caller);

  // --- loads
  // The life that a load is from; none: there is no ssdd, and the load will fail.
  Incarnation loadBegins(Time now);
  void loadSays(Time now) { watch_.heard(now); }
  void loadEnds(Incarnation life, Time now);
  // It does nothing, and counts no more. False: it did not.
  bool loadStalls(Incarnation& life);
  void countLoad() { ++counters_.ssdLoads; }
  void countLoaded(uint64_t bytes) { counters_.ssdLoadedBytes += bytes; }
  void countFailedLoad() { ++counters_.ssdLoadsFailed; }
  // What a load found missing or damaged is over for good: ssdd hears that before the master does, so that no list names what the master
  // does not know any more. False: the code means something else.
  bool dropUnreadable(const std::string& key, PutId, Code);
  // The master is to know that at once.
  void goneAtOnce(const std::string& key, PutId);

  // --- the list of what is there, for an inventory
  void beginList(Time now);
  bool listing() const { return listing_ != 0; }
  size_t listed() const { return list_.size(); }
  rpc::SsdValue takeListed();

  // --- when
  void tellLife();
  void tellNews(Time now);
  void tick(Time now);
  Time nextWake() const;
  void endTerm(Retirement::Values, Time now);

  size_t persists() const { return persists_.count(); }
  SsdCounters counters() const;

 private:
  struct Invalidation {
    std::optional<OrderId> order;  // none: of values that an inventory refused
    Time when;                     // ssdd was asked
    std::vector<uint32_t> retired;
  };
  bool leaveLoad(Incarnation& life);
  void ask(const std::vector<rpc::Version>& below, Invalidation);
  void answer(const Invalidation&);
  void lose(Time now);
  void done(const ssd::Message&);
  void listed(const ssd::Message&, Time now);
  Time due() const;

  shm::DirectoryWriter& directory_;
  Host& host_;
  MasterCalls& calls_;
  const Standing& standing_;
  Retirement& retirement_;
  Loads loads_;
  uint64_t segmentBytes_;
  SsdWatch watch_;
  SsdPersists persists_;
  Incarnation life_;        // attached; 0: none
  Incarnation lost_;        // the last one that was: what the master knows of it is over, whatever it has, so it never comes again
  Incarnation toldLife_;    // what the master has heard
  bool described_ = false;  // a registration has said what is on the SSD
  bool awaited_;
  std::deque<rpc::Version> evicted_;  // the master is to be told
  size_t told_ = 0;                   // to the master, which has not answered
  Time evictedSince_{0};
  std::map<uint64_t, Invalidation> invalidating_;  // at ssdd
  std::map<uint64_t, Caller> scrubs_;
  uint64_t listing_ = 0;
  Time listSaid_{0};  // the last word of the list, or when it was asked for
  std::deque<rpc::SsdValue> list_;
  uint64_t nextTask_ = 1;
  TierCounters counters_;
};

}  // namespace fluxon::owner
