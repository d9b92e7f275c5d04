// Leases: owners' requests about key leases, and the expiry of leases. When a lease ends, the master deletes its keys like any others; it
// answers a revoke when the last of these changes is over. One thread.
#pragma once

#include "base/counters.h"
#include "changes.h"
#include "outgoing.h"
#include "routes.h"

namespace fluxon::master {

#define FLUXON_MASTER_LEASE_COUNTERS(X) X(leasesExpired, "fluxon_master_key_leases_expired_total", "Key leases whose time ran out.")
struct LeaseCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_LEASE_COUNTERS)
};

class Leases {
 public:
  struct Limits {
    Duration least;
    size_t most;  // live at once
  };
  Leases(Term term, Limits limits, Outgoing& out, Routes& routes, Changes& changes)
      : term_(term), limits_(limits), out_(out), routes_(routes), changes_(changes) {}

  void grant(Member&, OperationId, const rpc::LeaseGrant&, Time now);
  void keepAlive(Member&, OperationId, const rpc::LeaseKeepAlive&, Time now);
  void revoke(Member&, OperationId, const rpc::LeaseRevoke&, Time now);
  // `heard`: the master has handled everything that was sent to it by then.
  void tick(Time now, Time heard);
  const LeaseCounters& counters() const { return counters_; }

 private:
  Term term_;
  Limits limits_;
  Outgoing& out_;
  Routes& routes_;
  Changes& changes_;
  LeaseCounters counters_;
};

}  // namespace fluxon::master
