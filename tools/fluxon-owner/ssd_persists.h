// SsdPersists: writes values to the SSD (write-behind) and makes them replicas there.
//
// Life of a persist, of a value that a put has made readable here:
//   queued ──► writing ──persisted──► asked ──(the master takes it)──► over: a replica on the SSD
//     │           ├──failed──► over      └──(it does not)──► over: ssdd drops the entry
//     │           └──stalled──► over: its version is dead, so nobody minds which bytes the disk still takes for it
//     └──given up: too old, while its memory is wanted; or the value has gone
//   Who owns the bytes: until a persist is over its slot is no victim, and if it is retired it does not become free. ssdd reads the bytes,
//   and the master takes a replica on the SSD only beside the one in memory.
//
// Invariants
//   1. The owner persists a version once. An entry that ssdd has and the master has not taken is dead when this life, or the term, ends.
//   2. The values and bytes that ssdd may be writing are bounded: disks that do not answer hold no more than a part of the memory.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/counters.h"
#include "retirement.h"

namespace fluxon::owner {

#define FLUXON_OWNER_PERSIST_COUNTERS(X)                                                                                       \
  X(persists, "fluxon_owner_ssd_persists_total", "Values that were to be persisted.")                                          \
  X(persistsTaken, "fluxon_owner_ssd_persists_taken_total", "Values that became replicas on the SSD.")                         \
  X(persistsIgnored, "fluxon_owner_ssd_persists_ignored_total", "Values that were persisted, but were none any more.")         \
  X(persistsFailed, "fluxon_owner_ssd_persists_failed_total", "Values that could not be persisted.")                           \
  X(persistsGivenUp, "fluxon_owner_ssd_persists_given_up_total",                                                               \
    "Values whose memory was wanted before they were persisted, or that had gone.")                                            \
  X(persistsLeftOut, "fluxon_owner_ssd_persists_left_out_total",                                                               \
    "Those among them whose memory was wanted: the SSD is slower than what comes in.")                                         \
  X(persistsStalled, "fluxon_owner_ssd_persists_stalled_total", "Those among the failed ones that a disk did not answer for.") \
  X(persistedBytes, "fluxon_owner_ssd_persisted_bytes_total", "Payload bytes that became replicas on the SSD.")
struct PersistCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_PERSIST_COUNTERS)
};

// The watchdog of ssdd: an ssdd that has something to do sends a message each half second.
class SsdWatch {
 public:
  void begins(Time now) {
    if (open_++ == 0) heard_ = now;
  }
  void ends() { --open_; }
  void heard(Time now) { heard_ = now; }
  void forget() { open_ = 0; }
  Time due() const { return open_ > 0 ? heard_ + kPatience : Time::never(); }

 private:
  static constexpr Duration kPatience = seconds(4);
  size_t open_ = 0;  // writes and loads
  Time heard_{0};    // the last word, or the first of a row of writes and loads was told
};

class SsdPersists {
 public:
  struct Settings {
    size_t atOnce;  // told to ssdd; others wait here
    uint64_t segmentBytes;
  };
  SsdPersists(Settings settings, const shm::DirectoryWriter& directory, Host& host, MasterCalls& calls, Retirement& retirement,
              SsdWatch& watch)
      : settings_(settings), directory_(directory), host_(host), calls_(calls), retirement_(retirement), watch_(watch) {}

  void begin(uint64_t id, uint32_t slot, Time now);
  // May a victim go? One that is being persisted stays, but one that waits for its write goes after a while: the SSD may be much slower
  // than what comes in.
  bool yields(uint32_t slot, Time now);
  // Does ssdd read a retired value? Gives up a persist that only waits: its turn may be far away.
  bool reads(uint32_t slot);

  // --- messages of ssdd. One about a persist that is over, or was forgotten, does nothing: its entry is dead.
  void persisted(uint64_t id, Code, Time now);
  // False: it is none.
  bool stalled(uint64_t id, Time now);
  // The master has decided.
  void decided(const std::vector<uint64_t>& ids, const rpc::Reply&);

  // Asks the master about what has been persisted since.
  void tell();
  // What is on the SSD is over: those under way have failed.
  void lose();
  // Nobody is told what becomes of those under way, nor of what has been persisted since.
  void endTerm();

  size_t count() const { return persists_.size(); }
  const PersistCounters& counters() const { return counters_; }

 private:
  struct Persist {
    enum class State { queued, writing, asked } state = State::queued;
    uint64_t ref = 0;  // of the slot
    std::string key;
    PutId putId;
    uint64_t bytes = 0;
    Time since{0};
  };
  void pump(Time now);
  bool stillThere(const Persist&) const;
  void leave(Persist&, Persist::State to);
  void end(uint64_t id);
  void decide(uint64_t id, Code);

  Settings settings_;
  const shm::DirectoryWriter& directory_;
  Host& host_;
  MasterCalls& calls_;
  Retirement& retirement_;
  SsdWatch& watch_;
  std::map<uint64_t, Persist> persists_;
  std::unordered_map<uint32_t, uint64_t> bySlot_;
  std::set<uint64_t> queue_;
  uint64_t writing_ = 0, writingBytes_ = 0;  // told to ssdd
  std::vector<uint64_t> persisted_;          // the master is to be asked
  PersistCounters counters_;
};

}  // namespace fluxon::owner
