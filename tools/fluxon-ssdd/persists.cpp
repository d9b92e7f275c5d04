// SsdCore: persists, from the owner's request until the master's decision about the written value.
#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"
#include "ssd/record.h"
#include "ssd_core.h"

namespace fluxon::ssdd {

using ssd::MessageKind;

Error SsdCore::persist(const ssd::Message& asked, Time now) {
  if (persists_.count(asked.id)) return {Code::protocol, "persist under the id of an open one: " + std::to_string(asked.id)};
  ++counters_.persists;
  index_.invalidate(asked.key, asked.putId);
  const bool sound = asked.putId && inSegment(asked.offset, asked.bytes);
  if (!sound || persists_.size() - stalledPersists_ >= kMostPersists) {
    ++counters_.persistsFailed;
    tell(MessageKind::persisted, asked.id, sound ? Code::tooMany : Code::protocol);
    return {};
  }
  Persist& made = persists_[asked.id];
  made.version = {asked.key, asked.putId};
  made.offset = asked.offset;
  made.bytes = asked.bytes;
  place(asked.id, made, now);
  return {};
}

// Whether ssdd must write nothing to the device now.
bool SsdCore::closed(const Device& device, Time now) const {
  return device.state != DeviceState::serving && (device.probed || now < device.until);
}

// Chooses a shard for a value. unavailable: no shard can take it now; tooLarge: no remaining shard is large enough; noSpace: a device is
// full.
Result<size_t> SsdCore::choose(uint64_t payloadBytes, Time now) {
  struct Choice {
    size_t device, shard, place;  // place: of the shard on its device
  };
  std::optional<Choice> best;
  bool full = false, out = false, tooSmall = false;
  for (size_t n = 0; n < devices_.size(); ++n) {
    const size_t at = (nextDevice_ + n) % devices_.size();
    const Device& device = devices_[at];
    if (best && device.writeBytes >= devices_[best->device].writeBytes) continue;
    for (size_t k = 0; k < device.shards.size(); ++k) {
      const size_t place = (device.next + k) % device.shards.size();
      const Shard& shard = shards_[device.shards[place]];
      if (shard.retired) continue;
      if (ssd::recordBytes(payloadBytes, shard.spec.blockBytes) > shard.ring->capacity()) {
        tooSmall = true;
        continue;
      }
      if (closed(device, now))
        (device.state == DeviceState::full ? full : out) = true;
      else
        best = Choice{at, device.shards[place], place};
      break;
    }
  }
  if (!best) return Error{full ? Code::noSpace : out || !tooSmall ? Code::unavailable : Code::tooLarge};
  Device& device = devices_[best->device];
  nextDevice_ = best->device + 1;
  device.next = (best->place + 1) % device.shards.size();
  return best->shard;
}

void SsdCore::place(uint64_t id, Persist& persist, Time now) {
  const Result<size_t> chosen = choose(persist.bytes, now);
  if (!chosen.ok()) {
    if (chosen.error().code == Code::noSpace) FLUXON_MARK("ssdd: a persist while there is no space");
    if (chosen.error().code == Code::unavailable) FLUXON_MARK("ssdd: a persist and no device that works");
    return endPersist(id, chosen.error().code);
  }
  persist.shard = chosen.value();
  Shard& shard = shards_[persist.shard];
  Device& device = devices_[shard.spec.device.value];
  if (device.state != DeviceState::serving) device.probed = persist.probe = true;
  persist.counted = persist.bytes + shard.spec.blockBytes;
  device.writeBytes += persist.counted;
  Claim claim = shard.ring->claim(persist.version, persist.bytes);
  tellEvicted(shard);
  if (auto* const guard = std::get_if<WriteGuard>(&claim)) return beginWrite(id, persist, std::move(*guard));
  if (auto* const blocked = std::get_if<BlockedByBusyIo>(&claim)) {
    FLUXON_MARK("ssdd: a persist waits for bytes that are in use");
    persist.hold = std::move(blocked->claim);
    shard.waiting.push_back(id);
    return;
  }
  FLUXON_CHECK(std::holds_alternative<Outdated>(claim), "ssdd: a shard was chosen that is too small");
  endPersist(id, Code::miss);
}

void SsdCore::beginWrite(uint64_t id, Persist& persist, WriteGuard guard) {
  const JobId job = nextJob();
  const Version& version = persist.version;
  begins(guard.shard(), now_);
  disk_.write({job, guard.shard(), guard.fileOffset(), keyHash(version.key), version.putId, persist.offset, persist.bytes});
  writes_.emplace(job, id);
  persist.hold = std::move(guard);
}

// Ends a persist that the master has not been told of, and releases what it holds.
void SsdCore::endPersist(uint64_t id, Code code) {
  const auto ended = persists_.find(id);
  releaseProbe(ended->second);
  uncount(ended->second);
  stalledPersists_ -= ended->second.stalled;
  persists_.erase(ended);
  if (code == Code::tooLarge)
    ++counters_.tooLarge;
  else if (code != Code::miss)
    ++counters_.persistsFailed;
  tell(MessageKind::persisted, id, code);
}

void SsdCore::written(JobId job, const Result<uint32_t>& payloadCrc, Time now) {
  const auto write = writes_.find(job);
  FLUXON_CHECK(write != writes_.end(), "ssdd: a write ends that is not under way");
  const uint64_t id = write->second;
  writes_.erase(write);
  Persist& persist = persists_.at(id);
  Shard& shard = shards_[persist.shard];
  Device& device = devices_[shard.spec.device.value];
  now_ = now;
  ends(ShardId(persist.shard), now);
  judgeWrite(persist, payloadCrc.ok() ? Error{} : payloadCrc.error(), now);
  uncount(persist);
  if (persist.forgotten || persist.stalled) {
    if (persist.forgotten) FLUXON_MARK("ssdd: a write ends that was forgotten");
    if (persist.stalled) FLUXON_MARK("ssdd: a write ends that was stalled");
    endPersist(id, Code::unavailable);
  } else if (!payloadCrc.ok()) {
    endPersist(id, payloadCrc.error().code);
  } else if (std::optional<CommitPin> pin = std::get<WriteGuard>(std::move(persist.hold)).commit(payloadCrc.value())) {
    persist.hold = std::move(*pin);
    tell(MessageKind::persisted, id);
  } else {
    FLUXON_MARK("ssdd: a version dies while it is written");
    endPersist(id, Code::miss);
  }
  if (device.writeErrors >= kDeviceErrors)
    takeOut(device, DeviceState::failing, now);
  else if (shard.writeErrors >= kWriteErrors && !shard.retired)
    retire(shard, now);
  answerForgets();
  serveWaiting();
}

// Draws conclusions from the end of a write about its shard and device.
void SsdCore::judgeWrite(Persist& persist, const Error& error, Time now) {
  Shard& shard = shards_[persist.shard];
  Device& device = devices_[shard.spec.device.value];
  if (error.code == Code::noSpace) {
    FLUXON_MARK("ssdd: a device without space");
    const bool out = device.state == DeviceState::gone || device.state == DeviceState::hung;
    if (!out) device.state = DeviceState::full, device.until = now + kPause;
  } else if (error.ok()) {
    device.writeErrors = 0;
    if (persist.probe && !persist.stalled) {
      FLUXON_MARK("ssdd: a device that was out serves again");
      device.state = DeviceState::serving;
    }
  } else if (error.code != Code::unavailable) {
    ++shard.writeErrors;
    ++device.writeErrors;
  }
  releaseProbe(persist);
}

void SsdCore::releaseProbe(Persist& persist) {
  if (persist.probe) devices_[shards_[persist.shard].spec.device.value].probed = false;
  persist.probe = false;
}

void SsdCore::uncount(Persist& persist) {
  if (persist.counted == 0) return;
  devices_[shards_[persist.shard].spec.device.value].writeBytes -= std::exchange(persist.counted, 0);
}

// Retires a shard: ssdd writes nothing new there.
void SsdCore::retire(Shard& shard, Time now) {
  FLUXON_MARK("ssdd: a shard is retired");
  shard.retired = true;
  moveWaiting(shard, now);
}

// Moves waiting persists to other shards, except those whose version has died meanwhile: they must not come back to life.
void SsdCore::moveWaiting(Shard& shard, Time now) {
  for (const uint64_t id : std::exchange(shard.waiting, {})) {
    Persist& persist = persists_.at(id);
    const bool wanted = std::get<QueuedClaim>(persist.hold).wanted();
    persist.hold = std::monostate();
    releaseProbe(persist);
    uncount(persist);
    if (wanted)
      place(id, persist, now);
    else
      endPersist(id, Code::miss);
  }
}

// The owner passes on the master's decision about a written value.
void SsdCore::decided(const ssd::Message& said) {
  const auto found = persists_.find(said.id);
  if (found == persists_.end() || !std::holds_alternative<CommitPin>(found->second.hold)) {
    return;  // forgotten meanwhile
  }
  const Device& device = devices_[shards_[found->second.shard].spec.device.value];
  std::optional<CommitPin> pin = std::get<CommitPin>(std::move(found->second.hold));
  persists_.erase(found);
  if (said.code == Code::ok) {
    if (!outOfReach(device)) return;
    const Version version = pin->version();
    pin.reset();
    return evict(version);
  }
  FLUXON_MARK("ssdd: the master has not taken it");
  ++counters_.persistsIgnored;
  std::move(*pin).ignored();
}

// Lets persists that wait for the shard begin, as far as there is room.
void SsdCore::serve(Shard& shard) {
  while (!shard.waiting.empty()) {
    const uint64_t id = shard.waiting.front();
    Persist& persist = persists_.at(id);
    Claim claim = shard.ring->retry(std::get<QueuedClaim>(std::move(persist.hold)));
    tellEvicted(shard);
    if (auto* const blocked = std::get_if<BlockedByBusyIo>(&claim)) {
      persist.hold = std::move(blocked->claim);
      return;
    }
    shard.waiting.pop_front();
    if (auto* const guard = std::get_if<WriteGuard>(&claim)) {
      beginWrite(id, persist, std::move(*guard));
    } else {
      FLUXON_MARK("ssdd: a version dies while it waits");
      endPersist(id, Code::miss);
    }
  }
}

// Guards or waiting versions have ended: there may be room for others.
void SsdCore::serveWaiting() {
  for (Shard& shard : shards_) serve(shard);
}

// Ends every undecided persist; one that is being written ends when its write has ended.
void SsdCore::dropOpen() {
  for (Shard& shard : shards_) {
    for (const uint64_t id : std::exchange(shard.waiting, {})) endPersist(id, Code::unavailable);
  }
  for (auto at = persists_.begin(); at != persists_.end();) {
    Persist& persist = at->second;
    if (std::holds_alternative<CommitPin>(persist.hold)) {
      FLUXON_MARK("ssdd: what was undecided dies");
      std::get<CommitPin>(std::move(persist.hold)).ignored();
      at = persists_.erase(at);
    } else {
      persist.forgotten = true;
      ++at;
    }
  }
}

}  // namespace fluxon::ssdd
