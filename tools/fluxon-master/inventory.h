// Inventory: what owners that come back list of their values, and which of these are taken.
//
//   1. Only in the recovery window is a value taken that no earlier life of this term vouches for: of exactly the life which the durable
//      record of its node names. A route that it names is the latest completed put of its key: a later one was acknowledged only after
//      this owner had retired the value (so it is refused if it is listed), or after the record named another life or none.
//   2. Within a term, an inventory revives only what is dormant here: the replicas of exactly the life that it adopts, that no put or
//      delete has ended since.
//   3. Extents are taken as used before anything is decided about the values in them: a value that is refused stays in use until its owner
//      says that nobody reads it.
//   4. With the answer to its last page the owner serves: that waits until the next term would know that it may.
// One thread.
#pragma once

#include <map>
#include <string>

#include "base/counters.h"
#include "invalidations.h"
#include "membership.h"
#include "outgoing.h"
#include "record.h"
#include "routes.h"
#include "window.h"

namespace fluxon::master {

#define FLUXON_MASTER_INVENTORY_COUNTERS(X)                                                                  \
  X(revived, "fluxon_master_inventory_taken_total", "Values of an owner's last life that are served again.") \
  X(inventoryRefused, "fluxon_master_inventory_refused_total", "Values of an owner's last life that had to go.")
struct InventoryCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_INVENTORY_COUNTERS)
};

class Inventory {
 public:
  Inventory(Term term, Duration lease, Outgoing& out, Routes& routes, const Bounds& bounds, Record& record, Window& window,
            Membership& membership, Invalidations& invalidations)
      : term_(term),
        lease_(lease),
        out_(out),
        routes_(routes),
        bounds_(bounds),
        record_(record),
        window_(window),
        membership_(membership),
        invalidations_(invalidations) {}

  void page(Member&, OperationId, const rpc::InventoryPage&, Time now);
  void memberEnded(Member& member) { pages_.erase(member); }
  const InventoryCounters& counters() const { return counters_; }

 private:
  struct Listed {
    const std::string& key;
    PutId putId;
    uint64_t bytes;
    KeyLeaseId lease;
    Medium medium;
    uint64_t offset = 0;  // memory: of its extent
    Replica at(Member& member) const { return medium == Medium::ssd ? Replica{member, 0, member.ssdLife} : Replica{member, offset}; }
  };
  bool take(Member&, const Listed&);
  bool takeOfTerm(Member&, const Listed&);
  bool takeDormant(Member&, const Listed&);

  Term term_;
  Duration lease_;
  Outgoing& out_;
  Routes& routes_;
  const Bounds& bounds_;
  Record& record_;
  Window& window_;
  Membership& membership_;
  Invalidations& invalidations_;
  struct Pages {
    uint64_t come = 0, inAll = 0;  // inAll: 0 until that is known
  };
  std::map<MemberRef, Pages, ByName> pages_;  // of inventories that are not complete
  InventoryCounters counters_;
};

}  // namespace fluxon::master
