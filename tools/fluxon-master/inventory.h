// Inventory: an owner that comes back lists its values, page by page, and the master decides which of them it serves again.
//
//   1. The master takes a value that no earlier life of this term has listed only in the recovery window, and only from exactly the life
//      that the durable record of the node names. Such a value is the latest completed put of its key: the last term acknowledged a later
//      put only after this owner had retired the value (the master refuses it if it is listed all the same), or after the record named
//      another life or none.
//   2. Within a term, an inventory revives only dormant replicas: those of exactly the life that it adopts, which no put or delete has
//      ended since.
//   3. The master marks the extents as used before it decides about the values in them: a refused value stays in use until its owner says
//      that nobody reads it.
//   4. The answer to the last page lets the owner serve. The master holds it back until the record of that life is on disk, so that a next
//      term knows of it.
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
    uint64_t come = 0, inAll = 0;  // inAll: 0 while unknown
  };
  std::map<MemberRef, Pages, ByName> pages_;  // of inventories that are not complete
  InventoryCounters counters_;
};

}  // namespace fluxon::master
