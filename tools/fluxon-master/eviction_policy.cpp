#include "eviction_policy.h"

#include <algorithm>
#include <cmath>

namespace fluxon::master {

namespace {

constexpr uint8_t kMaxFrequency = 3;
constexpr uint64_t kFreshDivisor = 50;       // Fresh holds capacity / 50
constexpr uint64_t kRunDivisor = 50;         // retention is decided once per capacity / 50 bytes leaving Fresh
constexpr uint64_t kAgingFloorDivisor = 64;  // damps learnRetention while Aging is nearly empty
constexpr double kInitialWeight = 4.0;
constexpr double kMinWeight = 2.0;
constexpr double kMaxWeight = 40.0;
constexpr double kWeightRate = 4.0;  // log(weight) per capacity of returning bytes
constexpr double kMaxWeightStep = 0.7;
constexpr double kRetentionRate = 2.0;  // log(retention) per Aging-full of hit bytes
constexpr double kMaxRetentionStep = 0.5;
constexpr double kYoungHitBonus = 2.0;  // sampling must pay twice over: it splits what arrived together
constexpr double kMinRetention = 0.03;
constexpr int kRedundantLook = 8;

double share(uint64_t part, uint64_t whole) { return static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(whole, 1)); }

}  // namespace

EvictionPolicy::EvictionPolicy(uint64_t capacityBytes)
    : capacityBytes_(capacityBytes), logWeight_(std::log(kInitialWeight)), weight_(kInitialWeight) {}

void EvictionPolicy::setCapacity(uint64_t capacityBytes) {
  capacityBytes_ = capacityBytes;
  trimGhosts();
}

void EvictionPolicy::insert(Id id, uint64_t keyHash, uint64_t sizeBytes) {
  remove(id);
  clock_ += sizeBytes;
  const Slot ghost = findGhost(keyHash);
  const bool returns = ghost != kNone;
  if (returns) {
    learnWeight(ghost);
    dropGhost(ghost);
  }
  const Slot slot = allocate();
  nodes_[slot] = Node{id, keyHash, clock_, sizeBytes, kNone, kNone, State::Free, 0, returns, Redundancy::OnlyCopy};
  link(slot, returns ? State::Reused : State::Fresh);
  liveIndex_.add(id, slot);
  liveBytes_ += sizeBytes;
  ++liveCount_;
  lastInserted_ = slot;
}

void EvictionPolicy::touch(Id id) {
  const Slot slot = findLive(id);
  if (slot == kNone) return;
  Node& node = nodes_[slot];
  clock_ += node.sizeBytes;
  if (node.state == State::Aging && node.frequency == 0) learnRetention(slot);
  node.frequency = static_cast<uint8_t>(std::min(node.frequency + 1, int{kMaxFrequency}));
}

void EvictionPolicy::remove(Id id) {
  const Slot slot = findLive(id);
  if (slot == kNone) return;
  dropLive(slot);
  release(slot);
  trimGhosts();
}

std::optional<EvictionPolicy::Id> EvictionPolicy::nextVictim() {
  Slot victim = passedOver();
  if (victim == kNone) victim = oldestWorth();
  if (victim == kNone) return std::nullopt;
  victim = preferRedundant(victim);
  moveTo(victim, State::Candidate);
  return nodes_[victim].id;
}

void EvictionPolicy::evicted(Id id) {
  const Slot slot = findLive(id);
  if (slot == kNone) return;
  dropLive(slot);
  // Two replicas of one key may be evicted in turn: the later ghost stands for both.
  const Slot twin = findGhost(nodes_[slot].keyHash);
  if (twin != kNone) dropGhost(twin);
  nodes_[slot].stamp = clock_;
  link(slot, nodes_[slot].reused ? State::GhostReused : State::GhostOnce);
  ghostIndex_.add(nodes_[slot].keyHash, slot);
  trimGhosts();
}

void EvictionPolicy::busy(Id id) {
  const Slot slot = findLive(id);
  if (slot == kNone || nodes_[slot].state != State::Candidate) return;
  moveTo(slot, State::Busy);
}

void EvictionPolicy::retryBusy() {
  while (list(State::Busy).count > 0) restamp(list(State::Busy).oldest, State::Reused);
}

void EvictionPolicy::retry(Id id) {
  const Slot slot = findLive(id);
  if (slot != kNone && nodes_[slot].state == State::Busy) restamp(slot, State::Reused);
}

bool EvictionPolicy::propose(Id id) {
  const Slot slot = findLive(id);
  if (slot == kNone || nodes_[slot].state == State::Candidate || nodes_[slot].state == State::Busy) return false;
  moveTo(slot, State::Candidate);
  return true;
}

void EvictionPolicy::setRedundancy(Id id, Redundancy redundancy) {
  const Slot slot = findLive(id);
  if (slot != kNone) nodes_[slot].redundancy = redundancy;
}

// Drains what Fresh holds beyond its share: touched replicas to Reused, retained runs to Aging. Returns the first one not retained.
EvictionPolicy::Slot EvictionPolicy::passedOver() {
  List& fresh = list(State::Fresh);
  while (fresh.count > 1 && fresh.bytes > capacityBytes_ / kFreshDivisor) {
    const Slot slot = fresh.oldest;
    if (nodes_[slot].frequency > 0) {
      nodes_[slot].frequency = 0;
      restamp(slot, State::Reused);
    } else if (retainNext(nodes_[slot].sizeBytes)) {
      moveTo(slot, State::Aging);
    } else {
      return slot;
    }
  }
  return kNone;
}

// The older of the two tails, never-reused replicas ageing faster; what was touched since its last turn has another turn.
EvictionPolicy::Slot EvictionPolicy::oldestWorth() {
  for (;;) {
    const Slot once = list(State::Aging).oldest;
    const Slot reused = list(State::Reused).oldest;
    const Slot fresh = list(State::Fresh).oldest;
    Slot slot = once;
    if (once == kNone) {
      slot = reused;
    } else if (reused != kNone) {
      // A sample that stands for more than itself would outlive Reused by its long ages alone: retention takes that out.
      const double onceAge = static_cast<double>(age(once)) * weight_ * retention_;
      slot = onceAge >= static_cast<double>(age(reused)) ? once : reused;
    }
    if (slot == kNone || (slot == lastInserted_ && fresh != kNone)) slot = fresh;
    if (slot == kNone) return kNone;
    if (slot == lastInserted_ && once != kNone) slot = once;
    if (slot == lastInserted_ && list(nodes_[slot].state).count > 1) {
      restamp(slot, State::Reused);
      continue;
    }

    Node& node = nodes_[slot];
    if (node.frequency == 0) return slot;
    node.frequency = node.state == State::Reused ? static_cast<uint8_t>(node.frequency - 1) : uint8_t{0};
    restamp(slot, State::Reused);
  }
}

// Looks from the proposed victim a few places towards the younger end; a replica due another turn is no better victim for having a copy.
EvictionPolicy::Slot EvictionPolicy::preferRedundant(Slot first) const {
  Slot slot = first;
  for (int i = 0; i < kRedundantLook && slot != kNone; ++i, slot = nodes_[slot].newer) {
    const Node& node = nodes_[slot];
    if (node.redundancy == Redundancy::HasOtherCopy && node.frequency == 0 && slot != lastInserted_) return slot;
  }
  return first;
}

// Spreads the retained share evenly over runs, without chance: a run is kept whenever the owed share reaches one.
bool EvictionPolicy::retainNext(uint64_t sizeBytes) {
  if (runLeftBytes_ == 0) {
    runLeftBytes_ = std::max<uint64_t>(capacityBytes_ / kRunDivisor, 1);
    retentionDebt_ += retention_;
    runRetained_ = retentionDebt_ >= 1.0;
    if (runRetained_) retentionDebt_ -= 1.0;
  }
  runLeftBytes_ -= std::min(runLeftBytes_, sizeBytes);
  return runRetained_;
}

void EvictionPolicy::learnWeight(Slot ghost) {
  const bool reused = nodes_[ghost].state == State::GhostReused;
  const uint64_t own = list(reused ? State::GhostReused : State::GhostOnce).bytes;
  const uint64_t other = list(reused ? State::GhostOnce : State::GhostReused).bytes;
  const double step = kWeightRate * share(nodes_[ghost].sizeBytes, capacityBytes_) * std::max(1.0, share(other, own));
  const double bounded = std::min(step, kMaxWeightStep);
  logWeight_ = std::clamp(logWeight_ + (reused ? bounded : -bounded), std::log(kMinWeight), std::log(kMaxWeight));
  weight_ = std::exp(logWeight_);
}

// Aging is a plain FIFO, so its two halves by age hold about the same bytes and their hits compare directly.
void EvictionPolicy::learnRetention(Slot hit) {
  const bool older = age(hit) > age(list(State::Aging).oldest) / 2;
  const uint64_t scale = std::max(list(State::Aging).bytes, capacityBytes_ / kAgingFloorDivisor);
  const double step = std::min(kRetentionRate * share(nodes_[hit].sizeBytes, scale), kMaxRetentionStep);
  retention_ = std::clamp(retention_ * std::exp(older ? -step : step * kYoungHitBonus), kMinRetention, 1.0);
}

EvictionPolicy::Slot EvictionPolicy::findLive(Id id) const {
  return liveIndex_.find(id, [&](Slot slot) { return nodes_[slot].id; });
}

EvictionPolicy::Slot EvictionPolicy::findGhost(uint64_t keyHash) const {
  return ghostIndex_.find(keyHash, [&](Slot slot) { return nodes_[slot].keyHash; });
}

EvictionPolicy::Slot EvictionPolicy::allocate() {
  if (free_ != kNone) {
    const Slot slot = free_;
    free_ = nodes_[slot].older;
    return slot;
  }
  nodes_.emplace_back();
  return static_cast<Slot>(nodes_.size() - 1);
}

void EvictionPolicy::release(Slot slot) {
  nodes_[slot].state = State::Free;
  nodes_[slot].older = free_;
  free_ = slot;
}

void EvictionPolicy::link(Slot slot, State state) {
  List& to = list(state);
  Node& node = nodes_[slot];
  node.state = state;
  node.newer = kNone;
  node.older = to.newest;
  (to.newest == kNone ? to.oldest : nodes_[to.newest].newer) = slot;
  to.newest = slot;
  ++to.count;
  to.bytes += node.sizeBytes;
}

void EvictionPolicy::unlink(Slot slot) {
  Node& node = nodes_[slot];
  List& from = list(node.state);
  (node.newer == kNone ? from.newest : nodes_[node.newer].older) = node.older;
  (node.older == kNone ? from.oldest : nodes_[node.older].newer) = node.newer;
  --from.count;
  from.bytes -= node.sizeBytes;
}

void EvictionPolicy::moveTo(Slot slot, State state) {
  unlink(slot);
  link(slot, state);
}

void EvictionPolicy::restamp(Slot slot, State state) {
  nodes_[slot].stamp = clock_;
  nodes_[slot].reused = true;
  moveTo(slot, state);
}

void EvictionPolicy::dropLive(Slot slot) {
  liveIndex_.erase(nodes_[slot].id, slot);
  unlink(slot);
  liveBytes_ -= nodes_[slot].sizeBytes;
  --liveCount_;
  if (lastInserted_ == slot) lastInserted_ = kNone;
}

void EvictionPolicy::dropGhost(Slot slot) {
  ghostIndex_.erase(nodes_[slot].keyHash, slot);
  unlink(slot);
  release(slot);
}

void EvictionPolicy::trimGhosts() {
  List& once = list(State::GhostOnce);
  List& reused = list(State::GhostReused);
  while (once.count + reused.count > liveCount_ || once.bytes + reused.bytes > capacityBytes_) {
    if (once.count + reused.count == 0) return;
    const bool dropOnce = reused.count == 0 || (once.count > 0 && age(once.oldest) >= age(reused.oldest));
    dropGhost(dropOnce ? once.oldest : reused.oldest);
  }
}

}  // namespace fluxon::master
