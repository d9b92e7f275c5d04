// Stages: values that this owner loads from its SSD for an owner of another host, by order of the master.
//
// Life of a stage
//   loading and readable ──loaded──► readable ──unstage ordered, or the term ends──► ending ──nobody reads, nobody writes──► over
//   Peers read what is loaded already while ssdd writes the rest. A failed load fails those who read; the stage stays until the master, or
//   the end of the term, ends it. When it is over the owner frees the extent and answers `unstaged`, by which the master knows it is free;
//   after the end of the term it answers nothing.
//   A load that outlasts its stage after the term is adrift: ssdd writes into the extent until the host reports the end of the load.
//
// Invariants
//   1. The extent is in the directory, as granted, from before it is written until nobody reads or writes it.
//   2. The owner answers an order to unstage once, when that is so; at once if there is no such stage.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "base/counters.h"
#include "ssd_tier.h"

namespace fluxon::owner {

#define FLUXON_OWNER_STAGE_COUNTERS(X) \
  X(staged, "fluxon_owner_ssd_staged_total", "Values brought from the own SSD for owners of other hosts.")
struct StageCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_STAGE_COUNTERS)
  uint64_t stagesWithoutSlot = 0;
};

class Stages {
 public:
  Stages(shm::DirectoryWriter& directory, uint64_t segmentBytes, Host& host, MasterCalls& calls, Retirement& retirement, SsdTier& ssd)
      : directory_(directory), segmentBytes_(segmentBytes), host_(host), calls_(calls), retirement_(retirement), ssd_(ssd) {}

  // An order that has not been begun before.
  void begin(const rpc::Stage&, Time now);
  void end(const rpc::Unstage&);

  // --- its load. False: the load is none of a stage.
  bool loading(uint64_t load, uint64_t bytes, Time now);
  bool loaded(uint64_t load, Code, Time now);
  bool stalled(uint64_t load);
  // ssdd has ended: fails those who read, since nothing more comes. ssdd, or the kernel for it, may still write the extents.
  void leaveLoads();

  void unexported(ExportId);
  // The slots that peers read or ssdd writes, but for those of loads adrift. endTerm() ends their stages.
  std::set<uint32_t> slots() const;
  void endTerm();

  size_t count() const { return stages_.size(); }
  size_t loads() const { return loads_.size() + adrift_.size(); }
  Time oldest(Time now) const;
  Time oldestLoad(Time now) const;
  const StageCounters& counters() const { return counters_; }

 private:
  struct Load {
    uint64_t task;
    Incarnation life;    // of the SSD; 0: it does nothing any more
    uint64_t bytes = 0;  // that are there
  };
  // Who ends it: nobody yet, the order, the end of its term.
  struct Wanted {};
  struct Unstaged {
    OrderId order;
  };
  struct TermOver {};
  struct Stage {
    uint32_t slot;
    PutId putId;
    Time since;
    std::optional<Load> load;  // while ssdd may write
    enum class Peers { read, ending, gone } peers = Peers::read;
    std::variant<Wanted, Unstaged, TermOver> end;
  };
  struct Adrift {
    uint32_t slot;
    Incarnation life;
    Time since;
  };
  void fail(ExportId, const Stage&);
  void endExport(ExportId);
  void endIfOver(ExportId);

  shm::DirectoryWriter& directory_;
  uint64_t segmentBytes_;
  Host& host_;
  MasterCalls& calls_;
  Retirement& retirement_;
  SsdTier& ssd_;
  std::map<ExportId, Stage> stages_;
  std::map<uint64_t, ExportId> loads_;
  std::map<uint64_t, Adrift> adrift_;  // loads whose stage is over
  StageCounters counters_;
};

}  // namespace fluxon::owner
