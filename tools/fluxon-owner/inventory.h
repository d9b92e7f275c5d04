// Inventory: the list of its values that an owner gives its master when it joins with values, page by page: what is in memory, then what is
// on the SSD.
//
//   idle ──begin──► listing, some pages under way at once ──the last page──► sent ──the last answer──► listed
//   A list is complete when ssdd, too, has dropped what the master refused.
//   An answer names the values of its page that the master refuses, and the owner drops them. If the master refuses a page as a whole the
//   service joins again.
//
// Invariants
//   1. The list has every value that was committed at its beginning, unless its slot has become free; while the owner makes the list
//      nothing leaves memory (retirement.h).
//   2. The owner serves when the master has answered all pages and all refused values are gone, from the SSD, too: the next term believes
//      the list of this life.
//   3. The owner lists values that the master has refused as a whole no second time: it drops them before the next registration.
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
  // Sends the next pages as long as not too many are unanswered.
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
  enum class State { idle, listing, sent, listed } state_ = State::idle;
  // Slots that are to be listed, as a heap with the oldest value on top: the master takes the order of the list for the order of age. To
  // sort a million of them at once would keep everything else waiting for 0.2 s.
  std::vector<std::pair<PutId, uint32_t>> slots_;
  std::map<OperationId, std::vector<uint32_t>> pages_;  // not answered yet: their slots
  uint64_t pagesSent_ = 0;
  bool contentRefused_ = false;
  InventoryCounters counters_;
};

}  // namespace fluxon::owner
