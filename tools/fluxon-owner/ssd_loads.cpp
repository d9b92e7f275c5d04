// OwnerCore: what is loaded from its SSD, for gets of this host and for other hosts.
//
// Life of a stage, a value that is brought from here for an owner of another host, by order of the master:
//   loading and readable ──loaded──► readable ──unstage──► (nobody reads or writes it) ──► over: unstaged is said, the extent is free
//   Peers read what is loaded already. A failed load fails them; the stage stays until the master ends it.
#include <algorithm>

#include "base/hash.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {

void OwnerCore::loadBegins(Flight& flight, Time now) {
  flight.load = true;
  flight.ssd = ssdLife_;
  if (!ssdLife_) return;
  asks(now);
  ++loads_;
}

void OwnerCore::loadEnds(const Flight& flight, Time now) {
  if (!flight.ssd || flight.ssd != ssdLife_) return;
  --loads_;
  heard_ = now;
}

// Gets ask for another source, after the master has been told; so do those who fetch what is staged. The extents stay what they are.
void OwnerCore::leaveLoads(Time now) {
  loads_ = 0;
  for (const auto& [id, flight] : flights_) leaveLoad(id, flight, "ssdd has ended", now);
}

void OwnerCore::leaveLoad(uint64_t id, const Flight& flight, const char* why, Time now) {
  if (!flight.load || flight.orphan) return;
  if (flight.staged) {
    const Export& exported = exports_.at(flight.staged);
    if (exported.readable && !exported.ending) host_.exportFailed(flight.staged);
    return;
  }
  const std::string key(directory_.key(flight.slot));
  for (Interest& waiting : controls_.endFlight(key, id)) {
    FLUXON_MARK("owner: a get does not wait for the end of an ssdd's load");
    waiting.command.avoid = settings_.node;
    waiting.command.alone = true;
    retries_.putOff(waiting.caller, std::move(waiting.command), why, now);
  }
}

void OwnerCore::carryOut(const rpc::Stage& order, Time now) {
  if (!begins(order.order)) return;  // it comes twice, or after its end
  const uint64_t size = extentBytes(order.bytes);
  const auto refuse = [&](Code code) { calls_.send(rpc::Staged{.order = order.order, .code = code}); };
  if (order.key.empty() || order.key.size() > kMaxKeyBytes || size > segmentBytes_ || order.to.offset > segmentBytes_ - size ||
      !rpc::isStaged(order.to.id) || exports_.count(order.to.id) != 0)
    return refuse(Code::protocol);
  if (!ssdLife_) return refuse(Code::miss);
  const std::optional<uint32_t> slot = directory_.grant(order.key, keyHash(order.key), order.to.offset, order.bytes, kSsdWriter.value,
                                                        OperationId(order.order.value));
  if (!slot) {
    ++counters_.directoryFull;
    return refuse(Code::noSpace);
  }
  ++counters_.staged;
  const uint64_t id = nextTask_++;
  Flight flight{.slot = *slot, .putId = order.putId, .ordered = order.order, .since = now};
  loadBegins(flight, now);
  flight.staged = order.to.id;
  flights_.emplace(id, std::move(flight));
  Export& exported = exports_[order.to.id];
  exported.slot = *slot;
  exported.since = now;
  exported.staged = true;
  exported.loading = id;
  host_.exportValue(order.to.id, order.to.offset, order.bytes, 0);
  host_.fetch({.id = id,
               .key = order.key,
               .putId = order.putId,
               .offset = order.to.offset,
               .bytes = order.bytes,
               .deadline = now + milliseconds(static_cast<int64_t>(std::min<uint64_t>(order.timeLeftMs, 86'400'000))),
               .ssd = true});
  calls_.send(rpc::Staged{.order = order.order});
}

void OwnerCore::loading(uint64_t flight, uint64_t bytes, Time now) {
  const auto found = flights_.find(flight);
  if (found == flights_.end()) return;
  heard_ = now;
  if (!found->second.staged) return;
  Export& exported = exports_.at(found->second.staged);
  if (bytes < exported.loaded || bytes > directory_.payloadBytes(exported.slot)) {
    giveUpSsd("it counts bytes that cannot be", now);
    return flush(now);
  }
  exported.loaded = bytes;
  if (exported.readable && !exported.ending) host_.exportProgress(found->second.staged, bytes);
}

// A load has failed. What is not there, or damaged, is over for good: ssdd hears that before the master does, so that no list names what
// the master does not know any more.
bool OwnerCore::dropUnreadable(uint32_t slot, PutId putId, Code code) {
  if (code != Code::miss && code != Code::corrupt && code != Code::system) return false;
  if (ssdLife_) host_.ssd({ssd::MessageKind::drop, 0, std::string(directory_.key(slot)), putId});
  return true;
}

void OwnerCore::stageLoaded(const Flight& flight, Code code, Time now) {
  const ExportId id = flight.staged;
  const bool ok = code == Code::ok;
  Export& exported = exports_.at(id);
  exported.loading = 0;
  if (!ok) ++counters_.ssdLoadsFailed;
  // Who asked for it asks again: the master should know by then.
  if (!ok && !exported.orphan && dropUnreadable(exported.slot, flight.putId, code)) {
    evicted_.push_back({std::string(directory_.key(exported.slot)), flight.putId});
    evictedSince_ = Time{0};
  }
  if (ok) counters_.ssdLoadedBytes += directory_.payloadBytes(exported.slot);
  if (exported.readable && !exported.ending) {
    if (ok) host_.exportProgress(id, directory_.payloadBytes(exported.slot));
    if (!ok) host_.exportFailed(id);
  }
  settleStage(id, now);
  flush(now);
}

void OwnerCore::carryOut(const rpc::Unstage& order, Time now) {
  const auto found = exports_.find(order.exportId);
  if (found == exports_.end()) {
    FLUXON_MARK("owner: an order to unstage comes twice");
    calls_.send(rpc::Unstaged{.order = order.order});
    return;
  }
  found->second.unstage = order.order;
  endExport(order.exportId);
  settleStage(order.exportId, now);
}

// Its end, when nobody reads or writes the extent any more.
void OwnerCore::settleStage(ExportId id, Time) {
  const auto found = exports_.find(id);
  if (found == exports_.end()) return;  // over already, if the host said at once that nobody reads
  const Export& exported = found->second;
  if (exported.readable || (!exported.unstage && !exported.orphan)) return;
  if (exported.orphan && exported.loading != 0) {
    FLUXON_MARK("owner: a stage ends after its term, and before its load");
    flights_.at(exported.loading).staged = ExportId();  // whose end frees the extent
  } else if (exported.loading != 0) {
    return;
  } else {
    directory_.release(exported.slot);
  }
  if (!exported.orphan) {
    calls_.send(rpc::Unstaged{.order = exported.unstage});
  } else {
    FLUXON_MARK("owner: a stage ends after its term");
  }
  exports_.erase(found);
}

}  // namespace fluxon::owner
