// Inventory: the list of its values that an owner gives its master when it joins with values, page by page: what is in memory, then what is
// on the SSD.
//
//   idle ──begin──► listing, some pages under way at once ──the last answer──► listed ──ssdd has dropped what was refused──► complete
//   What an answer names goes: it was refused. A refused page ends the joining: the service joins again.
//
// Invariants
//   1. Everything committed when the list was begun is in it, unless its slot has become free; while it is made nothing leaves memory.
//   2. Serving begins when all pages are answered and all that was refused is gone, on the SSD, too: this life is the one whose list the
//      next term believes.
//   3. Values that the master has refused as a whole are not listed once more: they are dropped before the next registration.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "ssd_tier.h"

namespace fluxon::owner {

#define FLUXON_OWNER_INVENTORY_COUNTERS(X)                                                             \
  X(adopted, "fluxon_owner_adopted_total", "Values of an earlier life or term that are served again.") \
  X(adoptRefused, "fluxon_owner_adopt_refused_total", "Values of an earlier life or term that had to go.")
struct InventoryCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_INVENTORY_COUNTERS)
};

class Inventory {
 public:
  struct Settings {
    size_t page;      // values of one message; heartbeats pass between the pages
    size_t pageKeys;  // bytes of keys, until which more are added
    size_t atOnce;    // pages that are not answered
  };
  Inventory(Settings settings, const shm::DirectoryWriter& directory, MasterCalls& calls, Standing& standing, Retirement& retirement,
            SsdTier& ssd)
      : settings_(settings), directory_(directory), calls_(calls), standing_(standing), retirement_(retirement), ssd_(ssd) {}

  void begin(Time now);
  // The next pages, as long as not too many are unanswered.
  void send();
  void answered(OperationId, const rpc::InventoryPage&, const rpc::Reply&, Time now);
  bool complete() const { return state_ == State::listed && !ssd_.dropsRefused(); }
  void endTerm();

  // The master has refused the values as a whole: they must be dropped before the next registration.
  bool contentRefused() const { return contentRefused_; }
  void contentDropped() { contentRefused_ = false; }
  const InventoryCounters& counters() const { return counters_; }

 private:
  bool sendPage();

  Settings settings_;
  const shm::DirectoryWriter& directory_;
  MasterCalls& calls_;
  Standing& standing_;
  Retirement& retirement_;
  SsdTier& ssd_;
  enum class State { idle, listing, listed } state_ = State::idle;
  // Slots to be listed, a heap whose oldest value is next: the master takes the order for that of their age. Sorted at once, a million
  // of them would keep everything else waiting for 0.2 s.
  std::vector<std::pair<PutId, uint32_t>> slots_;
  std::map<OperationId, std::vector<uint32_t>> pages_;  // that are not answered yet: their slots
  uint64_t pagesSent_ = 0;
  bool allListed_ = false;  // the last page has been sent
  bool contentRefused_ = false;
  InventoryCounters counters_;
};

}  // namespace fluxon::owner
