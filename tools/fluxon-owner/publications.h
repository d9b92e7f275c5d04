// Publications: pending values that the master decides about, and the order in which they become readable.
//
// Life of a pending value of a put, one of this owner's clients or one that has come home from another owner:
//   submitted: what is older here is retired ──decided──► published ──no other put of the key is undecided──► readable (committed)
//                                                  │         └─waits for those ──publishWaiting──► readable | retired: it is none any more
//                                                  └──► not published: who submitted it sees to its slot
//   A copy of a readable value enters at `published`: it retires nothing before.
//
// Invariants
//   1. A put retires this owner's older slots of the key before the owner asks the master to publish it; the owner commits the new slot
//      after the master's reply. Two committed slots of one key never exist.
//   2. While a put of a key is submitted and not decided, no other value of the key becomes readable here: the put retired older values at
//      its submit and waits for no invalidation at this owner, so an older value that became readable after the submit would stay.
//   3. If a put is not published, the slots that its submit retired may still be the route: the owner reports them as dropped before it
//      reports their extents as free. It frees none of them before the master's reply, since the master names them until then.
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "key_controls.h"
#include "retirement.h"
#include "ssd_tier.h"
#include "standing.h"

namespace fluxon::owner {

class Publications {
 public:
  Publications(shm::DirectoryWriter& directory, const Standing& standing, Retirement& retirement, KeyControls& controls, SsdTier& ssd)
      : directory_(directory), standing_(standing), retirement_(retirement), controls_(controls), ssd_(ssd) {}

  // A put whose bytes are there; `retired`: what its submit has retired.
  void submitted(uint32_t slot, std::vector<uint32_t> retired) { undecided_.emplace(slot, std::move(retired)); }
  bool isSubmitted(uint32_t slot) const { return undecided_.count(slot) != 0; }
  // The master has decided about what was submitted. True: this gives up replicas that the submit had retired.
  enum class Outcome { published, other };
  bool decided(uint32_t slot, Outcome);

  // The master has published it; its key is open. Values of puts are persisted.
  enum class Origin { put, homecoming, copy };
  enum class Becomes { readable, waits };
  Becomes publish(uint32_t slot, PutId, KeyLeaseId, Origin, Time now);
  // After a decision: values that waited for it.
  void publishWaiting(const std::string& key, Time now);
  void endTerm();

 private:
  struct Waiting {
    PutId putId;
    KeyLeaseId lease;
    Origin origin;
  };
  bool undecided(uint32_t except) const;
  void makeReadable(uint32_t slot, const Waiting&, Time now);

  shm::DirectoryWriter& directory_;
  const Standing& standing_;
  Retirement& retirement_;
  KeyControls& controls_;
  SsdTier& ssd_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> undecided_;  // submitted: what each has retired
  std::unordered_map<uint32_t, Waiting> waiting_;                  // published, for other puts of their keys
};

}  // namespace fluxon::owner
