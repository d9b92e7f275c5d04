// SsdCore: devices that hang, fail or are gone. The head of ssd_core.h draws the states of a device.
//
// A request that the kernel has not answered may still read or write the segment, however long that takes; nothing can end it. So a device
// that is out keeps its guards, and the owner keeps the extents, until the last answer. ssdd does everything else at once: it takes back
// jobs that have started nothing, tells the owner of those that wait (`stalled`), lets versions under write die, and gives up entries in
// slices, as there may be millions. An entry that is asked for before its slice is given up right then.
#include "base/mark.h"
#include "ssd_core.h"

namespace fluxon::ssdd {

using ssd::MessageKind;

void SsdCore::begins(ShardId shard, Time now) {
  Device& device = deviceOf(shard);
  if (device.jobs++ == 0) device.moved = now;
}

void SsdCore::ends(ShardId shard, Time now) {
  Device& device = deviceOf(shard);
  device.moved = now;
  if (--device.jobs > 0 || device.state != DeviceState::hung) return;
  FLUXON_MARK("ssdd: a device that hung has answered everything");
  device.state = DeviceState::failing;
  device.until = now;
}

// Damaged bytes do not count here: a device that returns other bytes than were written does answer.
void SsdCore::judgeRead(ShardId shard, const Error& error, Time now) {
  Device& device = deviceOf(shard);
  if (error.ok() || error.code == Code::corrupt) device.readErrors = 0;
  if (error.code != Code::system || ++device.readErrors < kDeviceErrors || device.state == DeviceState::gone) return;
  FLUXON_MARK("ssdd: a device cannot be read");
  takeOut(device, DeviceState::failing, now);
  giveUp(device);
}

// Takes a device out: nothing is written there before a probe, and persists that wait for a place there go elsewhere.
void SsdCore::takeOut(Device& device, DeviceState why, Time now) {
  device.writeErrors = device.readErrors = 0;
  if (device.state == DeviceState::hung && why != DeviceState::gone) return;  // until it has answered everything
  device.state = why;
  device.until = why == DeviceState::failing ? now + kPause : Time::never();
  for (const size_t shard : device.shards) {
    shards_[shard].writeErrors = 0;
    moveWaiting(shards_[shard], now);
  }
}

void SsdCore::giveUp(Device& device) {
  FLUXON_MARK("ssdd: what is on a device is given up");
  disk_.cancelQueued(shards_[device.shards.front()].spec.device);
  const auto here = [&](ShardId shard) { return &deviceOf(shard) == &device; };
  device.leaving.clear();
  for (const size_t shard : device.shards) device.leaving.emplace_back(*shards_[shard].ring);
  for (const auto& [_, id] : writes_) {
    Persist& persist = persists_.at(id);
    if (!here(ShardId(persist.shard)) || persist.stalled) continue;
    index_.drop(persist.version.key, persist.version.putId);
    uncount(persist);
    persist.stalled = true;
    ++stalledPersists_;
    tell(MessageKind::stalled, id);
  }
  for (auto& [_, load] : loads_) {
    if (!here(load.pin.shard()) || std::exchange(load.stalled, true)) continue;
    tell(MessageKind::stalled, load.id);
  }
  for (auto& [_, check] : checks_) check.stalled = check.stalled || here(check.pin.shard());
}

void SsdCore::giveUpSome() {
  size_t steps = kEntriesAtOnce;
  for (Device& device : devices_) {
    while (!device.leaving.empty()) {
      std::optional<ReadPin> pin = device.leaving.front().next(steps);
      if (pin) {
        const Version version = pin->version();
        pin.reset();
        evict(version);
      } else if (device.leaving.front().done()) {
        device.leaving.pop_front();
      } else {
        return;
      }
    }
  }
}

bool SsdCore::outOfReach(const Device& device) const {
  return device.state == DeviceState::hung || device.state == DeviceState::gone || !device.leaving.empty();
}

void SsdCore::tick(Time now) {
  now_ = now;
  for (Device& device : devices_) {
    const bool out = device.state == DeviceState::hung || device.state == DeviceState::gone;
    if (out || device.jobs == 0 || now < device.moved + kDevicePatience) continue;
    FLUXON_MARK("ssdd: a device hangs");
    takeOut(device, DeviceState::hung, now);
    giveUp(device);
  }
  if (scrub_) scrubSome(now);
  if (!persists_.empty() || !loads_.empty()) tell(MessageKind::alive, 0);
}

void SsdCore::deviceGone(DeviceIndex index, Time now) {
  Device& device = devices_[index.value];
  if (device.state == DeviceState::gone) return;
  takeOut(device, DeviceState::gone, now);
  giveUp(device);
}

}  // namespace fluxon::ssdd
