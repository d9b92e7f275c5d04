// SsdTier: the replicas on this owner's SSD. ssdd does the I/O (its messages: ssd/messages.h); this owner speaks for it to the master, and
// nobody else reads from it.
//
//   none ──attached──► attached ──ssdd ends, or is given up──► none: its contents are over, and its life never comes again
//   On a protocol violation or timeout the owner ends the channel (start over) and discards the contents.
//
// Invariants
//   1. The owner answers an invalidation only when ssdd has dropped its entries, or when the life of the SSD is over: then no load and no
//      inventory finds them, not even in the next life of this process. The directory's header names the one life of the SSD that counts;
//      the owner changes it before an answer relies on that.
//   2. The owner passes an invalidation on before any later load: messages to ssdd keep their order. A load under way is a flight like any
//      other: the bound of its key decides.
//   3. An entry that ssdd has and the master has not taken is dead when this life, or the term, ends (message `forget`). The master forgets
//      an entry by this owner's word alone, and the owner gives it after it has told ssdd to drop the entry.
//   4. The owner reports an eviction after the commit that made the entry known: ssdd keeps an entry until the master has decided about it.
//      Commits and evictions are one stream of numbered requests, which the owner sends again in order after a lost connection, and it
//      persists a version once. So the master never forgets what ssdd still has.
//   5. The owner hears ssdd whatever the master does. Only evictions wait here for a master that is slow or away: they are no more than the
//      SSD has held and the master has taken, and take less memory than their entries did at ssdd. (Rejected: to ask ssdd for a list of
//      what is left once they are too many; that needs as much memory for all that lives.) Until the master hears of an eviction its route
//      costs a get one miss at ssdd. A new term voids them: it asks for a list.
// If this process and the master have both died nothing older comes back: the next life lists what ssdd has kept, which by (1) and (3)
// holds no version below an acknowledged one; if the record on disk names another life, the list is refused. One thread.
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
  // Loads are flights and stages. After a load is left ssdd may write its extent until the host has reported its end.
  struct Loads {
    std::function<void(const char* why, Time now)> leaveAll;  // ssdd has ended
    std::function<void(uint64_t task, Time now)> stalled;     // its device does nothing
  };
  SsdTier(Settings, shm::DirectoryWriter&, Host&, MasterCalls&, const Standing&, Retirement&, Loads);

  // --- who is there
  Incarnation life() const { return life_; }
  // May an ssdd of that life attach? One with entries may only before a registration has told the master what is on the SSD.
  bool takes(Incarnation life, bool empty) const { return empty ? life != lost_ : !described_ && life == directory_.ssd(); }
  void attached(Incarnation life);
  void gone(Time now);
  void giveUp(const char* why, Time now);
  // No ssdd will come with what it had in the last life.
  void notComing() { awaited_ = false; }
  bool awaited() const { return awaited_; }
  // The life of the SSD that a registration names. From here on any other life of it is worth nothing.
  Incarnation describe();

  void heard(const ssd::Message&, Time now);

  // Flights and requests to ssdd share one sequence of ids, since the messages of ssdd name either.
  uint64_t newTask() { return nextTask_++; }

  // --- replicas on the SSD
  void persist(uint32_t slot, Time now);
  bool yields(uint32_t slot, Time now) { return persists_.yields(slot, now); }
  bool reads(uint32_t slot) { return persists_.reads(slot); }
  void committed(const std::vector<uint64_t>& persists, const rpc::Reply& reply) { persists_.decided(persists, reply); }
  void evictedTold(size_t count) { told_ -= count; }

  // Answers the order when ssdd has dropped its entries, at once if there is no ssdd. The retired slots may go after that.
  void invalidate(const rpc::Invalidate&, std::vector<uint32_t> retired, Time now);
  // Drops what the master has refused of the list; this life does not serve before that is done.
  void dropRefused(const std::vector<rpc::Version>& below, Time now);
  bool dropsRefused() const;
  void scrub(Caller);

  // --- loads
  // The life that a load is from; none: there is no ssdd, and the load will fail.
  Incarnation loadBegins(Time now);
  void loadSays(Time now) { watch_.heard(now); }
  void loadEnds(Incarnation life, Time now);
  // The load does nothing: the watchdog counts it no more. False: it did not count it.
  bool loadStalls(Incarnation& life);
  void countLoad() { ++counters_.ssdLoads; }
  void countLoaded(uint64_t bytes) { counters_.ssdLoadedBytes += bytes; }
  void countFailedLoad() { ++counters_.ssdLoadsFailed; }
  // Tells ssdd to drop an entry that a load found missing or damaged, before the master hears of it, so that no list names what the
  // master has forgotten. False: the code means something else.
  bool dropUnreadable(const std::string& key, PutId, Code);
  // Reports an entry as gone to the master without waiting for others.
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
