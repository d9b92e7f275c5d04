// SsdReplicas: what owners say of their replicas, above all of those on their SSDs. An owner speaks for its SSD; the master hears of it
// from nobody else.
//
// A replica on an SSD (of one version, in one life of the SSD):
//
//   none ──ssdCommit, inventory──► readable ──ssdEvicted, a load that found it missing or damaged, an invalidation──► none
//                                     └──another life──► not readable ──(swept in slices)──► none
//
// Only what the owner has said itself takes it away, or an invalidation that the owner has answered; the word of an owner that fetched
// from there does not. Else the owner would still list it in a next term, though a later put had been acknowledged without its knowing.
// One thread.
#pragma once

#include "membership.h"
#include "outgoing.h"
#include "routes.h"
#include "space_queue.h"

namespace fluxon::master {

struct SsdCounters {
  uint64_t ssdCommits = 0, ssdCommitsIgnored = 0, ssdEvictions = 0, ssdLoadsFailed = 0;
};

class SsdReplicas {
 public:
  SsdReplicas(Outgoing& out, Routes& routes, Membership& membership, SpaceQueue& space)
      : out_(out), routes_(routes), membership_(membership), space_(space) {}

  void life(Member&, OperationId, const rpc::SsdLife&);
  void commit(Member&, OperationId, const rpc::SsdCommit&, Time now);
  void evicted(Member&, OperationId, const rpc::SsdEvicted&);
  // In memory.
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
