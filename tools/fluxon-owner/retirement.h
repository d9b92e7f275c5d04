// Retirement: how values leave memory (hazard pointers). A retired slot, which nobody begins to read any more, waits for its last readers;
// scans of hazards tell when those are gone. The owner tells the master which extents are free, and which replicas it has given up.
//
// Life of a slot (directory_format.h has its states):
//   committed, pending ──► retired, added here ──scan: nobody reads it──► free, told by `release`
//   committed ──reclaim ordered──► reclaiming ──scan──► free (`ok`) | committed again (`busy`) | retired by an invalidation (`gone`)
//   A part that retires a slot which the master still names adds it here only when the master does not any more: until then the slot
//   may be the route.
//
// Invariants
//   1. A slot becomes free only when no hazard word and no held word names it, by a scan begun after it left `committed`, and ssdd reads it
//      no more; then the master hears `release`, or `ok` as the result of a reclaim, exactly once.
//   2. The master hears that a replica was given up before it hears that its extent is free.
//   3. While the owner makes its inventory no scan for retired slots begins, so that nothing leaves the inventory.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/counters.h"
#include "key_controls.h"
#include "master_calls.h"
#include "standing.h"

namespace fluxon::owner {

#define FLUXON_OWNER_RETIREMENT_COUNTERS(X)                                                                             \
  X(invalidated, "fluxon_owner_invalidated_total", "Replicas retired because another owner or a delete replaced them.") \
  X(reclaimed, "fluxon_owner_reclaimed_total", "Replicas given up to eviction.")                                        \
  X(reclaimBusy, "fluxon_owner_reclaim_busy_total", "Victims that were being read and stayed.")                         \
  X(scans, "fluxon_owner_scans_total", "Scans of hazard words.")
struct RetirementCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_RETIREMENT_COUNTERS)
};

class Retirement {
 public:
  // The SSD reads values, too. May a victim go; is a retired value still read?
  struct Persisting {
    std::function<bool(uint32_t slot, Time now)> yields;
    std::function<bool(uint32_t slot)> reads;
  };
  Retirement(shm::DirectoryWriter& directory, Host& host, MasterCalls& calls, const Standing& standing, KeyControls& controls,
             Persisting persisting)
      : directory_(directory), host_(host), calls_(calls), standing_(standing), controls_(controls), persisting_(std::move(persisting)) {}

  // Retires the other readable slots of the key of a slot, but those that are known to be newer than `putId`. The caller adds them.
  [[nodiscard]] std::vector<uint32_t> retireOlder(uint32_t than, PutId putId);
  // Retires the readable slots of a key that are below the put_id.
  void retireBelow(const rpc::Version& below, std::vector<uint32_t>& retired);
  // Retired slots that the master names no more.
  void add(const std::vector<uint32_t>& retired);
  void retire(uint32_t slot);
  // Frees a slot that nobody reads or writes.
  void free(uint32_t slot);
  void freeExtent(uint64_t offset) { releases_.push_back(offset); }
  // A replica that the master may name has been given up.
  void dropped(rpc::MemoryReplica replica) { dropped_.push_back(std::move(replica)); }
  void dropped(const std::vector<uint32_t>& slots);

  // An order that has not been begun before.
  void reclaim(const rpc::Reclaim&, Time now);
  bool reclaims(OrderId) const;
  void scanned(uint64_t scan, const std::vector<bool>& held, Time now);
  // Readers may have gone.
  void lookAgain(Time when) { nextScan_ = when; }

  // Tells the master what has piled up.
  void tell();
  // Scans if it is time; soon, if a put waits for space.
  void flush(Time now);
  void tick(Time now);
  Time nextWake() const;

  // Adopts a directory that an earlier process has left, whose values may be worthless. Returns the grants whose writers live.
  [[nodiscard]] std::vector<uint32_t> adopt(bool worthless, const std::set<uint64_t>& living);
  // Keeps or retires the values. Leaves alone what is `busy` (an export reads it, a fetch writes it): the part that knows when that ends
  // frees it.
  enum class Values { kept, dropped };
  void endTerm(Values, const std::set<uint32_t>& busy);
  // Extents in use that hold no readable value. From here on the owner tells the master what becomes free.
  std::vector<Extent> occupied();

  size_t retired() const { return retired_.size(); }
  size_t scans() const { return scans_.size(); }
  const RetirementCounters& counters() const { return counters_; }

 private:
  struct Victim {
    uint64_t ref;
    size_t item;  // of the order
    std::string key;
  };
  struct ReclaimScan {
    OrderId order;
    std::vector<rpc::ReclaimResult> results;
    std::vector<Victim> victims;
  };
  struct RetiredScan {
    std::vector<uint64_t> refs;
  };
  using Scan = std::variant<RetiredScan, ReclaimScan>;
  void begin(Scan, std::vector<uint64_t> refs);
  void ended(const RetiredScan&, const std::vector<bool>& held, Time now);
  void ended(ReclaimScan&, const std::vector<bool>& held, Time now);
  void scanRetired(Time now);

  shm::DirectoryWriter& directory_;
  Host& host_;
  MasterCalls& calls_;
  const Standing& standing_;
  KeyControls& controls_;
  Persisting persisting_;
  std::vector<uint32_t> retired_;
  std::unordered_map<uint64_t, Scan> scans_;
  bool scanning_ = false;  // for retired slots
  uint64_t nextId_ = 1;
  Time nextScan_{0};  // for retired slots
  std::vector<uint64_t> releases_;
  std::vector<rpc::MemoryReplica> dropped_;
  RetirementCounters counters_;
};

}  // namespace fluxon::owner
