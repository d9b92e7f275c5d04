#include "ssd_persists.h"

#include <algorithm>
#include <utility>

#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr uint64_t kWritingBytesAtOnce = uint64_t{256} << 20;
constexpr Duration kQueuedPatience = seconds(1);  // a value whose memory is wanted waits so long for its write to begin

}  // namespace

bool SsdPersists::stillThere(const Persist& persist) const {
  const uint32_t slot = shm::slotOfRef(persist.ref);
  return directory_.ref(slot) == persist.ref && directory_.state(slot) == shm::SlotState::committed &&
         directory_.putId(slot) == persist.putId;
}

void SsdPersists::begin(uint64_t id, uint32_t slot, Time now) {
  ++counters_.persists;
  persists_[id] = {Persist::State::queued, directory_.ref(slot),          std::string(directory_.key(slot)),
                   directory_.putId(slot), directory_.payloadBytes(slot), now};
  bySlot_[slot] = id;
  queue_.insert(id);
  pump(now);
}

void SsdPersists::pump(Time now) {
  const uint64_t most = std::min(kWritingBytesAtOnce, settings_.segmentBytes / 4);
  while (!queue_.empty() && writing_ < settings_.atOnce && writingBytes_ < most) {
    const uint64_t id = *queue_.begin();
    Persist& persist = persists_.at(id);
    if (!stillThere(persist)) {
      FLUXON_MARK("owner: a value goes before it is persisted");
      ++counters_.persistsGivenUp;
      end(id);
      continue;
    }
    queue_.erase(queue_.begin());
    persist.state = Persist::State::writing;
    watch_.begins(now);
    ++writing_;
    writingBytes_ += persist.bytes;
    host_.ssd({ssd::MessageKind::persist, id, persist.key, persist.putId, directory_.offset(shm::slotOfRef(persist.ref)), persist.bytes});
  }
}

// The persist leaves its state; one that leaves `writing` is read by ssdd no more.
void SsdPersists::leave(Persist& persist, Persist::State to) {
  if (persist.state == Persist::State::writing) {
    watch_.ends();
    --writing_;
    writingBytes_ -= persist.bytes;
  }
  persist.state = to;
}

// Ends a persist: its memory may go.
void SsdPersists::end(uint64_t id) {
  const auto found = persists_.find(id);
  leave(found->second, Persist::State::asked);
  const uint32_t slot = shm::slotOfRef(found->second.ref);
  persists_.erase(found);
  queue_.erase(id);
  bySlot_.erase(slot);
  if (directory_.state(slot) == shm::SlotState::retired) retirement_.lookAgain(Time{0});
}

bool SsdPersists::yields(uint32_t slot, Time now) {
  const auto found = bySlot_.find(slot);
  if (found == bySlot_.end()) return true;
  const Persist& persist = persists_.at(found->second);
  if (persist.state != Persist::State::queued || now < persist.since + kQueuedPatience) return false;
  FLUXON_MARK("owner: a persist is given up for its memory");
  ++counters_.persistsGivenUp;
  ++counters_.persistsLeftOut;
  end(found->second);
  return true;
}

bool SsdPersists::reads(uint32_t slot) {
  const auto found = bySlot_.find(slot);
  if (found == bySlot_.end()) return false;
  if (persists_.at(found->second).state != Persist::State::queued) return true;
  FLUXON_MARK("owner: a retired value is persisted no more");
  ++counters_.persistsGivenUp;
  end(found->second);
  return false;
}

void SsdPersists::persisted(uint64_t id, Code code, Time now) {
  const auto found = persists_.find(id);
  if (found == persists_.end() || found->second.state != Persist::State::writing) return;
  if (code != Code::ok) {
    ++counters_.persistsFailed;
    end(id);
  } else if (!stillThere(found->second)) {
    FLUXON_MARK("owner: a value goes while it is persisted");
    ++counters_.persistsIgnored;
    decide(id, Code::miss);
  } else {
    leave(found->second, Persist::State::asked);
    persisted_.push_back(id);
  }
  pump(now);
}

bool SsdPersists::stalled(uint64_t id, Time now) {
  const auto found = persists_.find(id);
  if (found == persists_.end()) return false;
  if (found->second.state != Persist::State::writing) return true;
  FLUXON_MARK("owner: a persist stalls");
  ++counters_.persistsFailed;
  ++counters_.persistsStalled;
  end(id);
  pump(now);
  return true;
}

void SsdPersists::decide(uint64_t id, Code code) {
  host_.ssd({ssd::MessageKind::decided, id, {}, {}, 0, 0, code});
  end(id);
}

void SsdPersists::decided(const std::vector<uint64_t>& ids, const rpc::Reply& reply) {
  const auto* answer = reply.as<rpc::SsdTaken>();
  const std::set<uint32_t> ignored = answer ? std::set<uint32_t>(answer->ignored.begin(), answer->ignored.end()) : std::set<uint32_t>();
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const auto found = persists_.find(ids[i]);
    if (found == persists_.end()) continue;  // of an SSD that is over
    const bool taken = answer && !ignored.count(i);
    if (!taken) FLUXON_MARK("owner: the master does not take what was persisted");
    ++(taken ? counters_.persistsTaken : counters_.persistsIgnored);
    if (taken) counters_.persistedBytes += found->second.bytes;
    decide(ids[i], taken ? Code::ok : Code::miss);
  }
}

void SsdPersists::tell() {
  if (persisted_.empty()) return;
  rpc::SsdCommit commit;
  std::vector<uint64_t> ids;
  for (const uint64_t id : std::exchange(persisted_, {})) {
    const auto found = persists_.find(id);
    if (found == persists_.end()) continue;
    commit.values.push_back({found->second.key, found->second.putId, found->second.bytes});
    ids.push_back(id);
  }
  if (!ids.empty()) calls_.send(std::move(commit), {}, Call::Persists{std::move(ids)});
}

void SsdPersists::lose() {
  counters_.persistsFailed += persists_.size();
  endTerm();
}

void SsdPersists::endTerm() {
  while (!persists_.empty()) end(persists_.begin()->first);
  persisted_.clear();
}

}  // namespace fluxon::owner
