#include "ssd_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/extent.h"
#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::ssdd {
namespace {

constexpr uint64_t kToldEntries = 64;  // a scrub tells how far it has come after so many, or after this time
constexpr Duration kToldEach = milliseconds(100);

}  // namespace

using ssd::MessageKind;

SsdCore::SsdCore(const std::vector<ShardSpec>& specs, Disk& disk, Host& host) : disk_(disk), host_(host) {
  for (const ShardSpec& spec : specs) {
    if (devices_.size() <= spec.device.value) devices_.resize(spec.device.value + 1);
    devices_[spec.device.value].shards.push_back(shards_.size());
    shards_.emplace_back().spec = spec;
  }
  startOver();
}

void SsdCore::startOver() {
  FLUXON_CHECK(drained(), "ssdd: starts over with jobs or an owner");
  lastScrub_ = {};
  for (Device& device : devices_) device.leaving.clear();
  for (size_t n = 0; n < shards_.size(); ++n) {
    shards_[n].ring.emplace(index_, ShardId(n), shards_[n].spec.bytes, shards_[n].spec.blockBytes);
  }
}

void SsdCore::ownerAttached(uint64_t segmentBytes) {
  FLUXON_CHECK(drained(), "ssdd: an owner comes while jobs of another are in flight");
  attached_ = true;
  segmentBytes_ = segmentBytes;
}

void SsdCore::ownerGone() {
  if (!attached_) return;
  attached_ = false;
  list_.reset();
  scrub_.reset();
  forgets_.clear();
  dropOpen();
  for (size_t n = 0; n < devices_.size(); ++n) disk_.cancelQueued(DeviceIndex(n));
}

// --- messages ------------------------------------------------------------------------------------------------------------------

Error SsdCore::message(const ssd::Message& message, Time now) {
  FLUXON_CHECK(attached_, "ssdd: a message without an owner");
  now_ = now;
  Error error;
  switch (message.kind) {
    case MessageKind::persist: error = persist(message, now); break;
    case MessageKind::decided: decided(message); break;
    case MessageKind::load: load(message, now); break;
    case MessageKind::invalidate: invalidate(message); break;
    case MessageKind::drop: index_.drop(message.key, message.putId); break;
    case MessageKind::list: list(message.id); break;
    case MessageKind::forget: forget(message.id); break;
    case MessageKind::scrub: scrub(message.id, now); break;
    default: error = {Code::protocol, "message of kind " + std::to_string(static_cast<unsigned>(message.kind))};
  }
  serveWaiting();
  return error;
}

void SsdCore::send(ssd::Message message) {
  if (attached_) host_.send(std::move(message));
}

void SsdCore::tell(MessageKind kind, uint64_t id, Code code) { send({.kind = kind, .id = id, .code = code}); }

void SsdCore::tellEvicted(Shard& shard) {
  for (Version& version : shard.ring->takeEvicted()) {
    ++counters_.evicted;
    send({.kind = MessageKind::evicted, .key = std::move(version.key), .putId = version.putId});
  }
}

void SsdCore::invalidate(const ssd::Message& asked) {
  if (index_.invalidate(asked.key, asked.putId)) ++counters_.invalidated;
  if (asked.id != 0) tell(MessageKind::done, asked.id);
}

// --- loads ---------------------------------------------------------------------------------------------------------------------

void SsdCore::load(const ssd::Message& asked, Time now) {
  ++counters_.loads;
  std::optional<ReadPin> pin = index_.pin(asked.key, asked.putId);
  if (pin && !pin->undecided() && outOfReach(deviceOf(pin->shard()))) {
    pin.reset();
    evict({asked.key, asked.putId});
  }
  if (!pin || pin->undecided()) {
    FLUXON_MARK("ssdd: a load of what is not here");
    return endLoad(asked.id, Code::miss);
  }
  if (asked.bytes != pin->payloadBytes() || !inSegment(asked.offset, extentBytes(asked.bytes))) return endLoad(asked.id, Code::protocol);
  Device& device = deviceOf(pin->shard());
  if (device.loads >= kMostLoads) return endLoad(asked.id, Code::tooMany);
  ++device.loads;
  const JobId job = nextJob();
  begins(pin->shard(), now);
  disk_.read({job, pin->shard(), pin->fileOffset(), pin->payloadBytes(), pin->payloadCrc(), asked.offset});
  loads_.emplace(job, Load{asked.id, std::move(*pin)});
}

void SsdCore::progress(JobId job, uint64_t bytes, Time now) {
  if (const auto write = writes_.find(job); write != writes_.end()) {
    deviceOf(ShardId(persists_.at(write->second).shard)).moved = now;
    return;
  }
  if (const auto check = checks_.find(job); check != checks_.end()) {
    deviceOf(check->second.pin.shard()).moved = now;
    return;
  }
  const auto found = loads_.find(job);
  FLUXON_CHECK(found != loads_.end(), "ssdd: progress of a job that is not under way");
  deviceOf(found->second.pin.shard()).moved = now;
  if (!found->second.pin.current()) return;
  send({.kind = MessageKind::progress, .id = found->second.id, .bytes = bytes});
}

void SsdCore::readDone(JobId job, const Error& error, Time now) {
  now_ = now;
  const auto found = loads_.find(job);
  FLUXON_CHECK(found != loads_.end(), "ssdd: a read ends that is not under way");
  const Load& load = found->second;
  Code code = error.code;
  const ShardId shard = load.pin.shard();
  --deviceOf(shard).loads;
  ends(shard, now);
  if (!load.pin.current()) {
    FLUXON_MARK("ssdd: a version dies while it is read");
    code = Code::miss;
  } else if (code != Code::ok && code != Code::unavailable) {
    lose(load.pin);
  }
  const uint64_t id = load.id;
  loads_.erase(found);
  endLoad(id, code);
  judgeRead(shard, error, now);
  answerForgets();
  serveWaiting();
}

void SsdCore::endLoad(uint64_t id, Code code) {
  if (code == Code::miss)
    ++counters_.loadsMissed;
  else if (code != Code::ok)
    ++counters_.loadsFailed;
  tell(MessageKind::loaded, id, code);
}

// Ends an entry that is damaged or unreadable. For a leaving entry the owner has been told already.
void SsdCore::lose(const ReadPin& entry) {
  const Version& version = entry.version();
  const bool told = !index_.pin(version.key, version.putId);
  index_.drop(version.key, version.putId);
  ++counters_.damaged;
  if (!told) send({.kind = MessageKind::evicted, .key = version.key, .putId = version.putId});
}

// Gives up a decided entry and tells the owner, unless it is gone or the owner has been told already.
void SsdCore::evict(const Version& version) {
  if (!index_.pin(version.key, version.putId)) return;
  index_.drop(version.key, version.putId);
  ++counters_.evicted;
  send({.kind = MessageKind::evicted, .key = version.key, .putId = version.putId});
}

// --- forget --------------------------------------------------------------------------------------------------------------------

void SsdCore::forget(uint64_t id) {
  dropOpen();
  for (size_t n = 0; n < devices_.size(); ++n) disk_.cancelQueued(DeviceIndex(n));
  if (forgets_.size() >= kMostForgets) return tell(MessageKind::done, id, Code::tooMany);
  forgets_.push_back({id, JobId(nextJob_)});
  answerForgets();
}

// Jobs begin in the order of their ids, so the oldest job of each kind shows whether all jobs before a given one have ended.
void SsdCore::answerForgets() {
  while (!forgets_.empty()) {
    const JobId before = forgets_.front().before;
    if (!writes_.empty() && writes_.begin()->first < before) return;
    if (!loads_.empty() && loads_.begin()->first < before) return;
    tell(MessageKind::done, forgets_.front().id);
    forgets_.pop_front();
  }
}

// --- list and scrub ------------------------------------------------------------------------------------------------------------

SsdCore::Tour SsdCore::tour() {
  Tour made;
  for (Shard& shard : shards_) made.walks.emplace_back(*shard.ring);
  return made;
}

std::optional<ReadPin> SsdCore::Tour::next(size_t& steps) {
  while (!walks.empty()) {
    if (std::optional<ReadPin> pin = walks.front().next(steps)) return pin;
    if (!walks.front().done()) return std::nullopt;
    walks.pop_front();
  }
  return std::nullopt;
}

bool SsdCore::hasWork() const {
  if (list_ || (scrub_ && !scrub_->tour.done() && checksAwaited() < kMostChecks)) return true;
  return std::any_of(devices_.begin(), devices_.end(), [](const Device& each) { return !each.leaving.empty(); });
}

void SsdCore::work() {
  giveUpSome();
  if (list_) listSome();
  if (scrub_) scrubSome(now_);
}

// One scrub runs at a time; a new one replaces the one before.
void SsdCore::list(uint64_t id) {
  if (list_) tell(MessageKind::done, list_->id, Code::unavailable);
  list_.reset();
  list_.emplace(List{id, {}, tour()});
  for (const auto& [_, persist] : persists_) list_->open.insert(persist.version.putId);
}

void SsdCore::listSome() {
  size_t steps = kEntriesAtOnce;
  while (const std::optional<ReadPin> pin = list_->tour.next(steps)) {
    const Version& version = pin->version();
    if (list_->open.count(version.putId)) continue;
    send({.kind = MessageKind::listed, .id = list_->id, .key = version.key, .putId = version.putId, .bytes = pin->payloadBytes()});
  }
  if (!list_->tour.done()) return;
  tell(MessageKind::done, list_->id);
  list_.reset();
}

void SsdCore::scrub(uint64_t id, Time now) {
  if (scrub_) return tell(MessageKind::done, id, Code::inFlight);
  scrub_.emplace(Scrub{.id = id, .tour = tour(), .told = now});
  lastScrub_ = {.total = entries()};
}

// Checks that a device does not answer do not count.
size_t SsdCore::checksAwaited() const {
  return static_cast<size_t>(std::count_if(checks_.begin(), checks_.end(), [](const auto& each) { return !each.second.stalled; }));
}

void SsdCore::scrubSome(Time now) {
  size_t steps = kEntriesAtOnce;
  while (checksAwaited() < kMostChecks) {
    std::optional<ReadPin> pin = scrub_->tour.next(steps);
    if (!pin) break;
    if (outOfReach(deviceOf(pin->shard()))) continue;  // it is being given up
    const JobId job = nextJob();
    begins(pin->shard(), now);
    const Version& version = pin->version();
    disk_.check({job, pin->shard(), pin->fileOffset(), keyHash(version.key), version.putId, pin->payloadBytes(), pin->payloadCrc()});
    checks_.emplace(job, Check{std::move(*pin)});
  }
  if (!scrub_->tour.done() || checksAwaited() > 0) return;
  send({.kind = MessageKind::done, .id = scrub_->id, .offset = lastScrub_.damaged, .bytes = lastScrub_.checked});
  lastScrub_.total = lastScrub_.checked;  // what has gone meanwhile was not there to be checked
  scrub_.reset();
}

void SsdCore::checked(JobId job, const Error& error, Time now) {
  const auto found = checks_.find(job);
  FLUXON_CHECK(found != checks_.end(), "ssdd: a check ends that is not under way");
  now_ = now;
  const ReadPin& pin = found->second.pin;
  const ShardId shard = pin.shard();
  const bool stalled = found->second.stalled;
  const bool cancelled = error.code == Code::unavailable;
  const bool damaged = !error.ok() && !cancelled && pin.current();
  const uint64_t bytes = pin.payloadBytes();
  ends(shard, now);
  if (damaged) lose(pin);
  checks_.erase(found);
  judgeRead(shard, error, now);
  if (scrub_ && !stalled) {  // its owner may have gone
    lastScrub_.checked += !cancelled;
    lastScrub_.damaged += damaged;
    scrub_->bytes += cancelled ? 0 : bytes;
    if (lastScrub_.checked >= scrub_->toldChecked + kToldEntries || now >= scrub_->told + kToldEach) {
      scrub_->toldChecked = lastScrub_.checked;
      scrub_->told = now;
      send({.kind = MessageKind::progress, .id = scrub_->id, .bytes = scrub_->bytes});
    }
    scrubSome(now);
  }
  serveWaiting();
}

// --- what is shown -------------------------------------------------------------------------------------------------------------

size_t SsdCore::entries() const {
  size_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.ring->committed();
  return sum;
}

bool SsdCore::paused() const {
  for (const Shard& shard : shards_) {
    if (!shard.retired && devices_[shard.spec.device.value].state == DeviceState::serving) return false;
  }
  return true;
}

std::vector<ShardGauges> SsdCore::shards() const {
  std::vector<ShardGauges> shown;
  for (const Shard& shard : shards_) {
    const ShardRing& ring = *shard.ring;
    shown.push_back({.retired = shard.retired,
                     .capacityBytes = ring.capacity(),
                     .headPosition = ring.head(),
                     .tailPosition = ring.tail(),
                     .usedBytes = ring.usedBytes(),
                     .deadBytes = ring.deadBytes(),
                     .entries = ring.committed(),
                     .waiting = shard.waiting.size()});
  }
  for (const auto& [_, persist] : persists_) {
    if (std::holds_alternative<WriteGuard>(persist.hold)) ++shown[persist.shard].writers;
    if (std::holds_alternative<CommitPin>(persist.hold)) ++shown[persist.shard].commitPins;
  }
  for (const auto& [_, load] : loads_) ++shown[load.pin.shard().value].readPins;
  for (const auto& [_, check] : checks_) ++shown[check.pin.shard().value].readPins;
  return shown;
}

std::vector<DeviceGauges> SsdCore::devices() const {
  std::vector<DeviceGauges> shown;
  for (const Device& device : devices_) {
    shown.push_back({.state = device.state, .jobs = device.jobs, .stalled = 0, .leaving = device.leaving.size()});
  }
  for (const auto& [_, persist] : persists_) shown[shards_[persist.shard].spec.device.value].stalled += persist.stalled;
  for (const auto& [_, load] : loads_) shown[shards_[load.pin.shard().value].spec.device.value].stalled += load.stalled;
  return shown;
}

}  // namespace fluxon::ssdd
