// What the file `ssdd` of a node says, as plain values: counts are cut to what the file has room for, texts end with their field, and
// an index that leads nowhere is no index. Format: ssd/ssdd_format.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "ssd/ssdd_format.h"

namespace fluxon::ctl {

struct SsddReport {
  struct Device {
    std::string path;  // of the root; its end alone if it is long
    uint64_t capacityBytes = 0, blockBytes = 0;
    std::optional<uint64_t> usedBytes;  // of its shards; nullopt: not all shards are shown
    bool direct = false;
    uint64_t readsQueued = 0, writesQueued = 0, reads = 0, writes = 0, readBytes = 0, writtenBytes = 0, readErrors = 0, writeErrors = 0;
    uint64_t writesDirect = 0;     // records that were not copied
    std::string state;             // "serving", "full", "failing", "hung", "gone"; "invalid" for a value that is none
    uint64_t stalled = 0;          // persists and loads that it does not answer
    uint64_t registeredBytes = 0;  // of the segment
    uint64_t oldestMs = 0;         // that the oldest I/O under way has taken so far
  };
  struct Shard {
    std::optional<uint64_t> device;  // index in `devices`
    std::string state;               // "serving", "retired"; "invalid" for a value that is none
    uint64_t capacityBytes = 0, head = 0, tail = 0, usedBytes = 0, deadBytes = 0, entries = 0, readPins = 0, commitPins = 0, writers = 0,
             waiting = 0;
  };
  struct Counter {
    std::string name;  // "persists_failed"
    uint64_t value;
  };

  Incarnation owner;  // that made the file
  Incarnation life;   // of what is in the shards
  uint64_t pid = 0;
  uint64_t attachedMs = 0;  // ago
  std::string engine;       // "io_uring", "threads"; "invalid" for a value that is none
  std::string http;         // address of its pages; empty: off
  uint64_t capacityBytes = 0, usedBytes = 0, entries = 0;
  bool paused = false;
  uint64_t scrubChecked = 0, scrubTotal = 0, scrubDamaged = 0;
  std::vector<Counter> counters;
  std::vector<Device> devices;
  std::vector<Shard> shards;
  uint64_t devicesHidden = 0, shardsHidden = 0;  // that the file says there are, and has no room for
};

// `header` and `status` are copies of what the file had, `bytes` its length. corrupt: it is no such file.
Result<SsddReport> reportOf(const ssd::SsddHeader& header, const ssd::SsddStatus& status, uint64_t bytes, Time now);

}  // namespace fluxon::ctl
