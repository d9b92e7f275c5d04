#include "owner_core.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

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
      controls_([this](Caller caller, Command command, Time now) { get(caller, std::move(command), now); }),
      retirement_(directory, host, calls_, standing_, controls_,
                  {[this](uint32_t slot, Time now) { return yieldsPersist(slot, now); }, [this](uint32_t slot) { return readBySsd(slot); }}),
      reserve_(segmentBytes / 32),
      awaitsSsd_(settings_.awaitsSsd) {}

void OwnerCore::reconnected(Duration lease, Time sent) { standing_.reconnected(lease, sent); }

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
  } else if (put.mode.onExisting == PutMode::OnExisting::replace) put.replaced = retirement_.retireOlder(slot, put.putId);
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

void OwnerCore::shrinkReserve(Time unusedSince) {
  for (const uint64_t offset : reserve_.idleSince(unusedSince)) retirement_.freeExtent(offset);
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
    retirement_.free(slot);
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
    controls_.close(key, now);
  }
  controls_.clientGone(client);
  retries_.clientGone(client);
  retirement_.lookAgain(now);  // its hazards are gone
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
  retirement_.tick(now);
  tickSsd(now);
  flush(now);
}

Time OwnerCore::nextWake() const {
  return std::min({retirement_.nextWake(), standing_.nextWake(), retries_.nextWake(), ssdWake()});
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
  retirement_.flush(now);
}

// What is gone and what is wanted, each in one request.
void OwnerCore::tellNews(Time now) {
  retirement_.tell();
  tellSsdNews(now);
  for (const Reserve::Want& want : reserve_.refill()) calls_.send(rpc::Reserve{.extentBytes = want.extentBytes, .count = want.count});
}

OwnerCounters OwnerCore::counters() const {
  OwnerCounters all = counters_;
  static_cast<RetirementCounters&>(all) = retirement_.counters();
  all.joinedFlights = controls_.joinedFlights();
  return all;
}

}  // namespace fluxon::owner
