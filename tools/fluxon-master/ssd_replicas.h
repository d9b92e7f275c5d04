// SsdReplicas: handles owners' reports about their replicas, above all those on their SSDs. The owner alone reports about its SSD.
//
// A replica on an SSD (of one version, in one life of the SSD):
//
//   none ──ssdCommit, inventory──► readable ──ssdEvicted, a load that found it missing or damaged, an invalidation──► none
//                                     └──another life──► not readable ──(swept in slices)──► none
//
// Only the owner's own report, or an invalidation that the owner has answered, ends such a replica; a report of another owner that tried to
// fetch from it does not. Otherwise the owner would still list the replica in a next term, although the master had acknowledged a later put
// without telling it.
// One thread.
#pragma once

#include "base/counters.h"
#include "membership.h"
#include "outgoing.h"
#include "routes.h"
#include "space_queue.h"

namespace fluxon::master {

#define FLUXON_MASTER_SSD_COUNTERS(X)                                                         \
  X(ssdCommits, "fluxon_master_ssd_commits_total", "Values that came to an SSD.")             \
  X(ssdCommitsIgnored, "fluxon_master_ssd_commits_ignored_total",                             \
    "Values that came to an SSD too late: they were overwritten, deleted or evicted.")        \
  X(ssdEvictions, "fluxon_master_ssd_evicted_total", "Values that an SSD gave up by itself.") \
  X(ssdLoadsFailed, "fluxon_master_ssd_loads_failed_total", "Values that were not on the SSD any more when a get asked for them.")
struct SsdCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_SSD_COUNTERS)
};

class SsdReplicas {
 public:
  SsdReplicas(Outgoing& out, Routes& routes, Membership& membership, SpaceQueue& space)
      : out_(out), routes_(routes), membership_(membership), space_(space) {}

  void life(Member&, OperationId, const rpc::SsdLife&);
  void commit(Member&, OperationId, const rpc::SsdCommit&, Time now);
  void evicted(Member&, OperationId, const rpc::SsdEvicted&);
  // The owner has dropped replicas in memory.
  void dropped(Member&, OperationId, const rpc::Dropped&, Time now);

  // A load from the member's own SSD has failed.
  void loadFailed(Member&, const Transfer&, Code);
  const SsdCounters& counters() const { return counters_; }

 private:
  bool lose(KeyEntry&, Member&, PutId, Incarnation life);

  Outgoing& out_;
  Routes& routes_;
  Membership& membership_;
  SpaceQueue& space_;
  SsdCounters counters_;
};

}  // namespace fluxon::master
