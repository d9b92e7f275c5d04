// SsdCore: the logic of an ssdd. Callers pass in messages of the owner (ssd/messages.h), results of jobs and times; messages go out through
// Host, jobs through Disk (disk.h). It sees no file, no socket and no byte of a value, only the rings of the shards (storage/shard_ring.h)
// and offsets in the owner's segment.
//
// Life of a persist
//
//             place in a shard              written                 decided
//   persist ───────┬───────────► writing ───────────► undecided ───────────────► over: a decided entry, or none
//                  │                ▲ │                   │
//                  └─► waiting ─────┘ │                   │
//                         │           │                   │
//                         └───────────┴───────────────────┴─ dead version, error, forget, owner gone ─► over: no entry
//   writing ──stalled──► over when the job has ended: the device hangs, and the version is dead from then on
//   waiting: a QueuedClaim. writing: the WriteGuard and a job; the owner leaves the bytes in the segment unchanged until it has ended.
//   undecided: the CommitPin; the segment is not needed any more.
// Life of a load
//   load ──► reading ──► over                            the ReadPin and a job, which may write into the extent from `load` to `loaded`
//
// Invariants
//   1. A guard lives as long as the job that uses its bytes: it ends after Disk's answer, whatever happens to the version, persist or
//      owner.
//   2. ssdd answers each persist and load exactly once while its owner is there, after the job has ended. It answers a load `ok` only if
//      the version has not been invalidated before the answer.
//   3. An undecided entry is not read, listed or reported as evicted: the owner asks for an entry only after it has sent `decided`, so ssdd
//      answers an earlier load with `miss`.
//   4. When a decided entry ends without the owner's request (overwritten, damaged, unreadable), ssdd reports it as evicted, once, at that
//      moment, and before the `loaded` that found it damaged.
//   5. A persist first ends older versions of its key, whatever becomes of it, so that nobody reads an older one afterwards.
//   6. Without an owner ssdd sends nothing, begins no write, and keeps nothing undecided.
//   7. A device affects only its own entries and jobs: devices share no count, turn or patience, except for values that find no other
//      place.
// Why a list that is sent in pieces names exactly the entries that were decided when it was asked for and have not ended: the walk of each
// ring stops where the head was then, so it meets nothing claimed later; claims undecided then are remembered and left out. An entry that
// ends before the walk reaches it is not named. One that ends later is named first and reported as evicted behind that on the same ordered
// channel, unless the owner itself has ended it. After `done` of an invalidation the list names nothing that it has ended, because the walk
// sees the current ring.
//
// A value goes to the device with the fewest bytes to write, round robin among equals, and there to the shards round robin. So a slow
// device takes up no more memory than each of the others, and does not slow them down. Shards that are too small or retired, and devices
// that are out (outages.cpp), are left out:
//
//   serving ──no space──────────────────────────────────► full ─────┐
//      ▲ ────kDeviceErrors writes in a row have failed──► failing ──┤ after kPause ssdd lets one persist through as a probe
//      │ ────as many reads, or: has ended no request ─────────────┐ │
//      │     for kDevicePatience─► hung (tried when it has ended  │ │   given up: entries go, as if they were evicted; persists and loads
//      │                           all of them) ────────given up ─┴─┤   under way are `stalled`
//      └────────────────────────────it is written───────────────────┘
//   gone: its files are not there any more; given up for good.
// ssdd judges a device by its own requests alone; a write or read that moves bytes may take any time. It retires a shard whose writes have
// failed kWriteErrors times while others of its device succeed: it writes nothing there any more, and reads its entries until they fail.
//
// Disk and Host never call back from within a call. One thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/counters.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "disk.h"
#include "ssd/messages.h"
#include "storage/shard_ring.h"

namespace fluxon::ssdd {

// A persist is open until it is decided. ssdd answers more open persists with `tooMany`.
constexpr size_t kMostPersists = 4096;
constexpr size_t kMostLoads = 4096;  // of a device
constexpr size_t kMostForgets = 64;  // ssdd answers the next one with done(tooMany) at once, before its jobs have ended
constexpr unsigned kWriteErrors = 3;
constexpr unsigned kDeviceErrors = 3;
constexpr Duration kPause = seconds(1);
constexpr Duration kDevicePatience = seconds(4);
constexpr Duration kTick = milliseconds(500);
constexpr size_t kMostChecks = 4;
// Entries that work() visits at once for a list or a scrub: some 100 ns each.
constexpr size_t kEntriesAtOnce = 1024;

class Host {
 public:
  virtual ~Host() = default;
  virtual void send(ssd::Message) = 0;
};

// Its id is its index.
struct ShardSpec {
  DeviceIndex device;
  uint64_t bytes;
  uint32_t blockBytes;
};

#define FLUXON_SSDD_SSD_COUNTERS(X)                                                                               \
  X(persists, "fluxon_ssdd_persists_total", "Values that the owner wanted to be kept.")                           \
  X(persistsFailed, "fluxon_ssdd_persists_failed_total", "Those that could not be written.")                      \
  X(persistsIgnored, "fluxon_ssdd_persists_ignored_total", "Those whose version was dead before they were kept.") \
  X(tooLarge, "fluxon_ssdd_too_large_total", "Those that are larger than a shard.")                               \
  X(loads, "fluxon_ssdd_loads_total", "Values that the owner asked for.")                                         \
  X(loadsMissed, "fluxon_ssdd_loads_missed_total", "Those that were not there.")                                  \
  X(loadsFailed, "fluxon_ssdd_loads_failed_total", "Those that could not be read.")                               \
  X(evicted, "fluxon_ssdd_evicted_total", "Entries that were overwritten or given up.")                           \
  X(invalidated, "fluxon_ssdd_invalidated_total", "Entries that the owner has ended.")                            \
  X(damaged, "fluxon_ssdd_damaged_total", "Entries whose bytes were not what was written, or could not be read.")
struct SsdCounters {
  FLUXON_COUNTERS(FLUXON_SSDD_SSD_COUNTERS)
};

struct ScrubGauges {  // entries, of the scrub under way or the last one; total 0: there was none, or nothing to check
  uint64_t checked = 0, total = 0, damaged = 0;
};

enum class DeviceState : uint8_t { serving, full, failing, hung, gone };

struct DeviceGauges {
  DeviceState state = DeviceState::serving;
  size_t jobs = 0;     // that the device has not answered
  size_t stalled = 0;  // persists and loads among them
  size_t leaving = 0;  // shards whose entries are being given up
};

struct ShardGauges {
  bool retired = false;
  uint64_t capacityBytes = 0, headPosition = 0, tailPosition = 0, usedBytes = 0, deadBytes = 0;
  size_t entries = 0, readPins = 0, commitPins = 0, writers = 0, waiting = 0;
};

class SsdCore {
 public:
  // Without an owner, and empty.
  SsdCore(const std::vector<ShardSpec>&, Disk&, Host&);

  // An owner attaches: only when drained. It may list the entries that are left from an earlier owner.
  void ownerAttached(uint64_t segmentBytes);
  // The channel has ended.
  void ownerGone();
  // Drops everything in the shards: only when drained.
  void startOver();
  // No owner, and no job in flight: nothing of this process touches segment or shards.
  bool drained() const { return !attached_ && writes_.empty() && loads_.empty() && checks_.empty(); }

  // protocol: the message makes no sense and has had no effect; the channel is to be ended.
  [[nodiscard]] Error message(const ssd::Message&, Time now);
  void written(JobId, const Result<uint32_t>& payloadCrc, Time now);
  void progress(JobId, uint64_t bytes, Time now);
  void readDone(JobId, const Error&, Time now);
  void checked(JobId, const Error&, Time now);
  // Call this every kTick.
  void tick(Time now);
  // Somebody has removed the files of a device.
  void deviceGone(DeviceIndex, Time now);

  // work() does a piece of a list, a scrub, or the giving up of entries. Call it when hasWork(), or later while many messages wait.
  bool hasWork() const;
  void work();

  // Committed entries.
  size_t entries() const;
  bool hasEntries() const { return entries() > 0; }
  // No persist succeeds: each device is out, or no shard is left.
  bool paused() const;
  std::vector<ShardGauges> shards() const;
  std::vector<DeviceGauges> devices() const;
  const SsdCounters& counters() const { return counters_; }
  const ScrubGauges& lastScrub() const { return lastScrub_; }

 private:
  struct Shard {
    ShardSpec spec;
    std::optional<ShardRing> ring;
    std::deque<uint64_t> waiting;  // persists, in the ring's order
    unsigned writeErrors = 0;
    bool retired = false;
  };
  struct Device {
    std::vector<size_t> shards;
    size_t next = 0;  // of these
    DeviceState state = DeviceState::serving;
    Time until{0};            // not serving: nothing is tried before
    bool probed = false;      // a persist has been let through and is not written yet
    uint64_t writeBytes = 0;  // of persists that wait or are written here, but for stalled ones
    size_t jobs = 0, loads = 0;
    Time moved{0};                             // the last end or progress of a job, or the first of a row began
    unsigned writeErrors = 0, readErrors = 0;  // in a row
    std::deque<Walk> leaving;                  // over what is being given up
  };
  struct Persist {
    Version version;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    size_t shard = 0;
    uint64_t counted = 0;    // in its device's writeBytes
    bool probe = false;      // of its device
    bool forgotten = false;  // being written for nobody
    bool stalled = false;    // the owner has been told
    std::variant<std::monostate, QueuedClaim, WriteGuard, CommitPin> hold;
  };
  struct Load {
    uint64_t id;
    ReadPin pin;
    bool stalled = false;
  };
  struct Check {
    ReadPin pin;
    bool stalled = false;  // no scrub waits for it
  };
  // A walk over all rings.
  struct Tour {
    std::deque<Walk> walks;
    std::optional<ReadPin> next(size_t& steps);
    bool done() const { return walks.empty(); }
  };
  struct List {
    uint64_t id;
    std::unordered_set<PutId> open;  // not decided when it began
    Tour tour;
  };
  struct Scrub {
    uint64_t id;
    Tour tour;
    uint64_t bytes = 0;
    uint64_t toldChecked = 0;
    Time told;
  };
  struct Forget {
    uint64_t id;
    JobId before;  // jobs that were there
  };

  // persists.cpp
  Error persist(const ssd::Message&, Time now);
  void place(uint64_t id, Persist&, Time now);
  Result<size_t> choose(uint64_t payloadBytes, Time now);
  bool closed(const Device&, Time now) const;
  void beginWrite(uint64_t id, Persist&, WriteGuard);
  void endPersist(uint64_t id, Code);
  void judgeWrite(Persist&, const Error&, Time now);
  void releaseProbe(Persist&);
  void retire(Shard&, Time now);
  void moveWaiting(Shard&, Time now);
  void uncount(Persist&);
  void decided(const ssd::Message&);
  void serve(Shard&);
  void serveWaiting();
  void dropOpen();

  // outages.cpp
  Device& deviceOf(ShardId shard) { return devices_[shards_[shard.value].spec.device.value]; }
  void begins(ShardId, Time now);
  void ends(ShardId, Time now);
  void judgeRead(ShardId, const Error&, Time now);
  void takeOut(Device&, DeviceState, Time now);
  void giveUp(Device&);
  void giveUpSome();
  bool outOfReach(const Device&) const;

  // ssd_core.cpp
  void load(const ssd::Message&, Time now);
  void endLoad(uint64_t id, Code);
  void invalidate(const ssd::Message&);
  void forget(uint64_t id);
  void answerForgets();
  void lose(const ReadPin&);
  void evict(const Version&);
  void list(uint64_t id);
  void listSome();
  void scrub(uint64_t id, Time now);
  void scrubSome(Time now);
  size_t checksAwaited() const;
  Tour tour();
  JobId nextJob() { return JobId(nextJob_++); }
  bool inSegment(uint64_t offset, uint64_t bytes) const { return offset <= segmentBytes_ && bytes <= segmentBytes_ - offset; }
  void tellEvicted(Shard&);
  void tell(ssd::MessageKind, uint64_t id, Code = Code::ok);
  void send(ssd::Message);

  Disk& disk_;
  Host& host_;
  bool attached_ = false;
  uint64_t segmentBytes_ = 0;
  KeyIndex index_;
  std::deque<Shard> shards_;
  std::deque<Device> devices_;
  size_t nextDevice_ = 0;
  std::unordered_map<uint64_t, Persist> persists_;  // by the owner's id
  std::map<JobId, uint64_t> writes_;                // whose persist
  std::map<JobId, Load> loads_;
  std::map<JobId, Check> checks_;
  std::optional<List> list_;
  std::optional<Scrub> scrub_;
  ScrubGauges lastScrub_;
  std::deque<Forget> forgets_;
  uint64_t nextJob_ = 1;
  size_t stalledPersists_ = 0;
  Time now_{0};  // of the last call that said it
  SsdCounters counters_;
};

}  // namespace fluxon::ssdd
