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

}  // namespace

OwnerCore::OwnerCore(Settings settings, shm::DirectoryWriter& directory, char* segment, uint64_t segmentBytes, Host& host)
    : settings_(std::move(settings)),
      directory_(directory),
      segment_(segment),
      segmentBytes_(segmentBytes),
      host_(host),
      calls_({settings_.straggles, settings_.stragglers, settings_.ahead}, host),
      standing_(directory, calls_),
      reserve_(segmentBytes / 32),
      awaitsSsd_(settings_.awaitsSsd) {}

void OwnerCore::reconnected(Duration lease, Time sent) { standing_.reconnected(lease, sent); }

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
void OwnerCore::submit(uint32_t slot, Caller caller, Time now) {
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
  calls_.send(std::move(done), caller, Call::Slot{slot});
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
  if (put.operation && tellMaster && !put.orphan) calls_.send(rpc::PutAbort{.put = put.operation});
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
  retries_.clientGone(client);
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
  if (!standing_.heartbeat(touched, now)) return;
  shrinkReserve(Time{now.ns - kReserveIdle.ns});
  flush(now);
}

void OwnerCore::tick(Time now) {
  if (standing_.lapses(now)) failPending(now);
  while (std::optional<Retries::Entry> due = retries_.takeDue(now)) {
    if (now < due->command.deadline) {
      command(due->caller, std::move(due->command), now);
    } else {
      FLUXON_MARK("owner: a command was put off until its deadline");
      host_.answerCode(due->caller, Code::unavailable, std::move(due->why));
    }
  }
  if (now >= nextRetiredScan_) scanRetired(now);
  tickSsd(now);
  flush(now);
}

Time OwnerCore::nextWake() const {
  Time next = Time::never();
  if (!retired_.empty() && !retiredScanning_ && !standing_.reporting()) next = nextRetiredScan_;
  next = std::min({next, standing_.nextWake(), retries_.nextWake()});
  next = std::min(next, ssdWake());
  return next;
}

// What has piled up during one call goes to the master together.
void OwnerCore::flush(Time now) {
  if (!standing_.listening()) return;
  if (standing_.reporting()) {
    report();
    return;
  }
  // What cannot be told yet piles up further.
  if (!calls_.holdsBack()) tellNews(now);
  if (retired_.empty() || retiredScanning_) return;
  if (calls_.putsAsked() > 0) nextRetiredScan_ = std::min(nextRetiredScan_, now + kRescanUrgent);
  if (nextRetiredScan_ <= now) scanRetired(now);
}

// What is gone and what is wanted, each in one request.
void OwnerCore::tellNews(Time now) {
  if (!dropped_.empty()) calls_.send(rpc::Dropped{.replicas = std::exchange(dropped_, {})});
  if (!releases_.empty()) calls_.send(rpc::Release{.offsets = std::exchange(releases_, {})});
  tellSsdNews(now);
  for (const Reserve::Want& want : reserve_.refill()) calls_.send(rpc::Reserve{.extentBytes = want.extentBytes, .count = want.count});
}

void OwnerCore::scanRetired(Time now) {
  // While the inventory is made nothing leaves it.
  if (retired_.empty() || retiredScanning_ || standing_.reporting()) return;
  nextRetiredScan_ = now + kRescan;
  Scan scan;
  for (const uint32_t slot : retired_) scan.refs.push_back(directory_.ref(slot));
  retiredScanning_ = true;
  startScan(std::move(scan));
}

}  // namespace fluxon::owner
