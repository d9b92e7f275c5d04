#include "owner_core.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr Duration kRescanUrgent = milliseconds(5);  // somebody waits for space
constexpr Duration kRescan = seconds(1);
constexpr Duration kReserveIdle = seconds(10);
constexpr size_t kBeatsUnanswered = 4;

// The lease, an inventory, or what the master waits for: what is held back anywhere may be waiting for the answer to an order, and two
// owners that held theirs back for each other would do so for ever. Not the life of an SSD: what has been said of the one before comes
// first.
bool goesAtOnce(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InvalidateDone>() || request.is<rpc::ReclaimDone>() ||
         request.is<rpc::ReplicateDone>() || request.is<rpc::Staged>() || request.is<rpc::Unstaged>() || request.is<rpc::InventoryPage>();
}

}  // namespace

OwnerCore::OwnerCore(Settings settings, shm::DirectoryWriter& directory, char* segment, uint64_t segmentBytes, Host& host)
    : settings_(std::move(settings)),
      directory_(directory),
      segment_(segment),
      segmentBytes_(segmentBytes),
      host_(host),
      reserve_(segmentBytes / 32),
      awaitsSsd_(settings_.awaitsSsd) {}

void OwnerCore::reconnected(Duration lease, Time sent) {
  lease_ = lease;
  listening_ = true;
  if (reporting_) {
    leaseFrom_ = std::max(leaseFrom_, sent);
  } else if ((sent + lease).ns > directory_.leaseUntilNs()) directory_.setLease((sent + lease).ns);
  if (!reporting_) lapsed_ = false;
  for (const auto& [id, pending] : pending_) host_.send(pending.request);
}

OwnerCore::Pending& OwnerCore::request(rpc::Request::Body body, Caller caller, shm::CommandKind command) {
  Pending pending;
  pending.request.body = std::move(body);
  pending.caller = caller;
  pending.command = command;
  if (pending.request.is<rpc::PutStart>()) ++putsAsked_;
  if (goesAtOnce(pending.request) || (heldBack_.empty() && !full())) return send(std::move(pending));
  FLUXON_MARK("owner: a request is held back");
  heldBack_.push_back(std::move(pending));
  return heldBack_.back();
}

OwnerCore::Pending& OwnerCore::send(Pending pending) {
  pending.request.id = OperationId(nextId_++);
  Pending& sent = pending_[pending.request.id] = std::move(pending);
  host_.send(sent.request);
  return sent;
}

OwnerCore::Unanswered OwnerCore::unanswered() const {
  Unanswered result{OperationId(nextId_), {}};
  for (const auto& [id, pending] : pending_) {
    if (id.value + settings_.straggles >= nextId_ || result.stragglers.size() == settings_.stragglers) {
      result.lowest = id;
      break;
    }
    result.stragglers.push_back(id);
  }
  return result;
}

// The ids have run far ahead of the lowest unanswered one that is no straggler.
bool OwnerCore::full() const {
  return !pending_.empty() && nextId_ - pending_.begin()->first.value >= settings_.ahead &&
         nextId_ - unanswered().lowest.value >= settings_.ahead;
}

void OwnerCore::sendHeldBack() {
  while (!heldBack_.empty() && !full()) {
    Pending next = std::move(heldBack_.front());
    heldBack_.pop_front();
    send(std::move(next));
  }
}

void OwnerCore::open(const std::string& key) { ++controls_[key].open; }

void OwnerCore::close(const std::string& key, Time now) {
  const auto it = controls_.find(key);
  FLUXON_CHECK(it != controls_.end() && it->second.open > 0, "control of a key closed twice");
  --it->second.open;
  wake(key, now);
}

// Gets that waited for a put or a reclaim of the key run again; they may wait again.
void OwnerCore::wake(const std::string& key, Time now) {
  const auto it = controls_.find(key);
  if (it == controls_.end()) return;
  std::deque<Waiting> waiting = std::move(it->second.waiting);
  it->second.waiting.clear();
  if (it->second.open == 0) controls_.erase(it);
  for (Waiting& next : waiting) get(next.caller, std::move(next.command), now);
}

// Retires what the key of a slot has besides it, but for what is known to be newer than `putId`; nobody begins to read it any more.
std::vector<uint32_t> OwnerCore::retireOlder(uint32_t than, PutId putId) {
  std::vector<uint32_t> older;
  directory_.forEach(directory_.key(than), directory_.hash(than), [&](uint32_t slot) {
    const shm::SlotState state = directory_.state(slot);
    if (slot == than || (state != shm::SlotState::committed && state != shm::SlotState::reclaiming)) return;
    if (putId && directory_.putId(slot) > putId) return;
    directory_.retire(slot);
    older.push_back(slot);
  });
  return older;
}

// Retired slots that the master names no more go when nobody reads them.
void OwnerCore::awaitReaders(const std::vector<uint32_t>& retired) {
  if (retired.empty()) return;
  retired_.insert(retired_.end(), retired.begin(), retired.end());
  nextRetiredScan_ = Time{0};
}

// granted → pending: the bytes are there; the master decides.
void OwnerCore::submit(uint32_t slot, Caller caller, shm::CommandKind command, Time now) {
  Put& put = puts_.at(slot);
  directory_.submit(slot);
  // An older value of ours must be gone before the master publishes. A put that an existing key refuses replaces nothing, and one whose
  // value lies elsewhere is invalidated here like at any other owner.
  if (put.elsewhere) {
    FLUXON_MARK("owner: a put is exported");
    ++counters_.exports;
    exports_.emplace(ExportId(put.putId.value), Export{slot, now});
    const uint64_t bytes = directory_.payloadBytes(slot);
    host_.exportValue(ExportId(put.putId.value), directory_.offset(slot), bytes, bytes);
  } else if (put.mode.onExisting == PutMode::OnExisting::replace) put.replaced = retireOlder(slot, put.putId);
  rpc::Request::Body done = rpc::PutDone{.put = put.operation};
  if (!put.operation) {
    done = rpc::PutReserved{.key = std::string(directory_.key(slot)),
                            .bytes = directory_.payloadBytes(slot),
                            .offset = directory_.offset(slot),
                            .mode = put.mode,
                            .lease = put.lease};
  }
  request(std::move(done), caller, command).slot = slot;
}

void OwnerCore::freeSlot(uint32_t slot) {
  releases_.push_back(directory_.offset(slot));
  directory_.release(slot);
}

void OwnerCore::shrinkReserve(Time unusedSince) {
  const std::vector<uint64_t> idle = reserve_.idleSince(unusedSince);
  releases_.insert(releases_.end(), idle.begin(), idle.end());
}

// A put that has not been submitted ends. Its writer is done with the extent.
void OwnerCore::giveUpPut(uint32_t slot, bool tellMaster) {
  const Put put = puts_.at(slot);
  if (put.orphan) FLUXON_MARK("owner: a put of an earlier term ends");
  puts_.erase(slot);
  if (put.operation && tellMaster && !put.orphan) request(rpc::PutAbort{.put = put.operation});
  if (!put.operation && !put.orphan) {
    reserve_.give(extentBytes(directory_.payloadBytes(slot)), directory_.offset(slot));
    directory_.release(slot);
  } else {
    freeSlot(slot);
  }
}

void OwnerCore::clientGone(ClientId client, Time now) {
  std::vector<uint32_t> slots;
  for (const auto& [slot, put] : puts_) {
    if (put.client == client && directory_.state(slot) == shm::SlotState::granted) slots.push_back(slot);
  }
  for (const uint32_t slot : slots) {
    FLUXON_MARK("owner: a client dies with a grant");
    const std::string key(directory_.key(slot));
    giveUpPut(slot, true);
    close(key, now);
  }
  for (auto& [key, control] : controls_) {
    std::erase_if(control.waiting, [&](const Waiting& waiting) { return waiting.caller.client == client; });
  }
  std::erase_if(later_, [&](const auto& next) { return next.second.caller.client == client; });
  nextRetiredScan_ = now;  // its hazards are gone
  flush(now);
}

OwnerCore::Ages OwnerCore::oldest(Time now) const {
  Ages ages;
  const auto look = [&](Duration& age, Time since) { age = std::max(age, now - since); };
  for (const auto& [slot, put] : puts_) {
    look(ages.put, put.since);
    if (directory_.state(slot) == shm::SlotState::granted) look(ages.grant, put.since);
  }
  for (const auto& [id, flight] : flights_) look(ages.flight, flight.since);
  for (const auto& [id, exported] : exports_) look(ages.exported, exported.since);
  return ages;
}

void OwnerCore::heartbeat(const std::vector<uint32_t>& touched, Time now) {
  // A master that does not answer gets no pile of heartbeats.
  if (!listening_ || beats_.size() >= kBeatsUnanswered) {
    if (listening_) FLUXON_MARK("owner: heartbeats are not answered");
    return;
  }
  rpc::Heartbeat beat{.serving = !reporting_};
  for (const uint32_t slot : touched) {
    if (slot < directory_.slotCount() && directory_.state(slot) == shm::SlotState::committed)
      beat.touched.push_back(directory_.offset(slot));
  }
  beats_[request(std::move(beat)).request.id] = now;
  shrinkReserve(Time{now.ns - kReserveIdle.ns});
  flush(now);
}

void OwnerCore::tick(Time now) {
  if (!lapsed_ && !serving(now)) {
    lapsed_ = true;
    failPending(now);
  }
  while (!later_.empty() && later_.begin()->first <= now) {
    Later next = std::move(later_.begin()->second);
    later_.erase(later_.begin());
    if (now < next.command.deadline) {
      command(next.caller, std::move(next.command), now);
    } else {
      FLUXON_MARK("owner: a command was put off until its deadline");
      answerCode(next.caller, Code::unavailable, std::move(next.why));
    }
  }
  if (now >= nextRetiredScan_) scanRetired(now);
  tickSsd(now);
  flush(now);
}

Time OwnerCore::nextWake() const {
  Time next = Time::never();
  if (!retired_.empty() && !retiredScanning_ && !reporting_) next = nextRetiredScan_;
  if (!lapsed_) next = std::min(next, Time{directory_.leaseUntilNs()});
  if (!later_.empty()) next = std::min(next, later_.begin()->first);
  next = std::min(next, ssdWake());
  return next;
}

// What has piled up during one call goes to the master together.
void OwnerCore::flush(Time now) {
  if (!listening_) return;
  if (reporting_) {
    report();
    return;
  }
  // What cannot be told yet piles up further.
  if (heldBack_.empty()) tellNews(now);
  if (retired_.empty() || retiredScanning_) return;
  if (putsAsked_ > 0) nextRetiredScan_ = std::min(nextRetiredScan_, now + kRescanUrgent);
  if (nextRetiredScan_ <= now) scanRetired(now);
}

// What is gone and what is wanted, each in one request.
void OwnerCore::tellNews(Time now) {
  if (!dropped_.empty()) request(rpc::Dropped{.replicas = std::exchange(dropped_, {})});
  if (!releases_.empty()) request(rpc::Release{.offsets = std::exchange(releases_, {})});
  tellSsdNews(now);
  for (const Reserve::Want& want : reserve_.refill()) request(rpc::Reserve{.extentBytes = want.extentBytes, .count = want.count});
}

void OwnerCore::scanRetired(Time now) {
  // While the inventory is made nothing leaves it.
  if (retired_.empty() || retiredScanning_ || reporting_) return;
  nextRetiredScan_ = now + kRescan;
  Scan scan;
  for (const uint32_t slot : retired_) scan.refs.push_back(directory_.ref(slot));
  retiredScanning_ = true;
  startScan(std::move(scan));
}

}  // namespace fluxon::owner
