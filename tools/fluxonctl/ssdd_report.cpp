#include "ssdd_report.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace fluxon::ctl {
namespace {

uint64_t of(const shm::Word& word) { return word.load(std::memory_order_relaxed); }

// Milliseconds from a moment until now; 0 if it has not come yet.
uint64_t msSince(uint64_t ns, Time now) {
  const auto nowNs = static_cast<uint64_t>(std::max<int64_t>(now.ns, 0));
  return ns < nowNs ? (nowNs - ns) / 1'000'000 : 0;
}

std::string deviceState(uint64_t state) {
  static constexpr const char* kStates[] = {"serving", "full", "failing", "hung", "gone"};
  return state < std::size(kStates) ? kStates[state] : "invalid";
}

SsddReport::Device deviceOf(const ssd::ShownDevice& from, Time now) {
  SsddReport::Device to;
  to.path.assign(from.path, ::strnlen(from.path, sizeof from.path));
  to.capacityBytes = of(from.capacityBytes);
  to.blockBytes = of(from.blockBytes);
  to.direct = of(from.direct) != 0;
  to.readsQueued = of(from.readsQueued), to.writesQueued = of(from.writesQueued);
  to.reads = of(from.reads), to.writes = of(from.writes);
  to.readBytes = of(from.readBytes), to.writtenBytes = of(from.writtenBytes);
  to.readErrors = of(from.readErrors), to.writeErrors = of(from.writeErrors);
  to.registeredBytes = of(from.registeredBytes);
  to.writesDirect = of(from.writesDirect);
  to.state = deviceState(of(from.state));
  to.stalled = of(from.stalled);
  if (const uint64_t oldest = of(from.oldestNs); oldest != 0) to.oldestMs = msSince(oldest, now);
  return to;
}

SsddReport::Shard shardOf(const ssd::ShownShard& from, size_t devices) {
  SsddReport::Shard to;
  if (const uint64_t device = of(from.device); device < devices) to.device = device;
  const uint64_t state = of(from.state);
  to.state = state == 0 ? "serving" : state == 1 ? "retired" : "invalid";
  to.capacityBytes = of(from.capacityBytes);
  to.head = of(from.headPosition), to.tail = of(from.tailPosition);
  to.usedBytes = of(from.usedBytes), to.deadBytes = of(from.deadBytes), to.entries = of(from.entries);
  to.readPins = of(from.readPins), to.commitPins = of(from.commitPins), to.writers = of(from.writers), to.waiting = of(from.waiting);
  return to;
}

}  // namespace

Result<SsddReport> reportOf(const ssd::SsddHeader& header, const ssd::SsddStatus& status, uint64_t bytes, Time now) {
  if (const char* why = shm::refuse(header.file, ssd::kSsddMagic, bytes)) return Error{Code::corrupt, why};
  if (bytes != sizeof(ssd::SsddFile)) return Error{Code::corrupt, "another size"};
  SsddReport report;
  report.owner = Incarnation(header.file.incarnation);
  report.life = Incarnation(header.life);
  report.pid = header.pid;
  report.attachedMs = header.attachedNs > 0 ? msSince(static_cast<uint64_t>(header.attachedNs), now) : 0;
  const uint64_t engine = of(status.engine);
  report.engine = engine == 1 ? "io_uring" : engine == 2 ? "threads" : "invalid";
  report.http.assign(status.http, ::strnlen(status.http, sizeof status.http));
  report.capacityBytes = of(status.capacityBytes), report.usedBytes = of(status.usedBytes), report.entries = of(status.entries);
  report.paused = of(status.paused) != 0;
  report.scrubChecked = of(status.scrubChecked), report.scrubTotal = of(status.scrubTotal), report.scrubDamaged = of(status.scrubDamaged);
  report.counters = {{"persists", of(status.persists)},
                     {"persists_failed", of(status.persistsFailed)},
                     {"persists_ignored", of(status.persistsIgnored)},
                     {"given_up", of(header.givenUp)},
                     {"too_large", of(status.tooLarge)},
                     {"loads", of(status.loads)},
                     {"loads_missed", of(status.loadsMissed)},
                     {"loads_failed", of(status.loadsFailed)},
                     {"loads_direct", of(status.loadsDirect)},
                     {"evicted", of(status.evicted)},
                     {"invalidated", of(status.invalidated)},
                     {"damaged", of(status.damaged)}};
  const uint64_t devicesSaid = of(status.devices), shardsSaid = of(status.shards);
  const uint64_t devices = std::min<uint64_t>(devicesSaid, ssd::kShownDevices), shards = std::min<uint64_t>(shardsSaid, ssd::kShownShards);
  report.devicesHidden = devicesSaid - devices, report.shardsHidden = shardsSaid - shards;
  for (size_t i = 0; i < devices; ++i) {
    report.devices.push_back(deviceOf(status.device[i], now));
    if (report.shardsHidden == 0) report.devices[i].usedBytes = 0;
  }
  for (size_t i = 0; i < shards; ++i) {
    SsddReport::Shard& shard = report.shards.emplace_back(shardOf(status.shard[i], devices));
    // What is there is given up with its device.
    if (shard.device && shard.state == "serving") {
      if (const std::string& whole = report.devices[*shard.device].state; whole == "gone" || whole == "hung") shard.state = whole;
    }
    if (shard.device && report.shardsHidden == 0) *report.devices[*shard.device].usedBytes += shard.usedBytes;
  }
  return report;
}

}  // namespace fluxon::ctl
