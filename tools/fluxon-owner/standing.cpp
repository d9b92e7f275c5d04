#include "standing.h"

#include <algorithm>

#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr size_t kBeatsUnanswered = 4;

}  // namespace

std::string Standing::noLease() const {
  return "no serving lease: " + (apartBecause_.empty() ? "the master does not answer" : apartBecause_);
}

void Standing::registered(Incarnation incarnation, Duration lease, Time sent) {
  calls_.begin();
  incarnation_ = incarnation;
  lease_ = lease;
  leaseFrom_ = sent;
  state_ = State::reporting;
}

void Standing::reconnected(Duration lease, Time sent) {
  lease_ = lease;
  if (reporting()) {
    leaseFrom_ = std::max(leaseFrom_, sent);
  } else {
    state_ = State::joined;
    extend(sent + lease);
    lapsed_ = false;
  }
  calls_.sendAgain();
}

void Standing::serve(Time now) {
  state_ = State::joined;
  directory_.setContent(incarnation_);
  // The master comes before the new incarnation and its lease (shm/directory_view.h).
  directory_.setMaster(master_);
  directory_.setServing(incarnation_);
  extend(leaseFrom_ + lease_);
  lapsed_ = !serving(now);
}

bool Standing::endTerm() {
  const bool was = listening();
  state_ = State::apart;
  fenced_ = false;
  beats_.clear();
  return was;
}

void Standing::extend(Time until) {
  if (until.ns > directory_.leaseUntilNs()) directory_.setLease(until.ns);
}

bool Standing::heartbeat(const std::vector<uint32_t>& touched, Time now) {
  // The owner sends no pile of heartbeats to a master that does not answer.
  if (!listening() || beats_.size() >= kBeatsUnanswered) {
    if (listening()) FLUXON_MARK("owner: heartbeats are not answered");
    return false;
  }
  rpc::Heartbeat beat{.serving = joined()};
  for (const uint32_t slot : touched) {
    if (slot < directory_.slotCount() && directory_.state(slot) == shm::SlotState::committed)
      beat.touched.push_back(directory_.offset(slot));
  }
  beats_[calls_.send(std::move(beat))] = now;
  return true;
}

void Standing::beatAnswered(OperationId id, Code code, Time now) {
  const auto beat = beats_.find(id);
  if (beat == beats_.end()) return;
  const Time sent = beat->second;
  beats_.erase(beat);
  if (reporting()) {
    if (code == Code::ok) leaseFrom_ = std::max(leaseFrom_, sent);
    return;
  }
  if (code == Code::ok) extend(sent + lease_);
  if (serving(now)) lapsed_ = false;
}

bool Standing::lapses(Time now) {
  if (lapsed_ || serving(now)) return false;
  lapsed_ = true;
  return true;
}

}  // namespace fluxon::owner
