#include "retirement.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr Duration kRescanUrgent = milliseconds(5);  // somebody waits for space
constexpr Duration kRescan = seconds(1);

}  // namespace

std::vector<uint32_t> Retirement::retireOlder(uint32_t than, PutId putId) {
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

void Retirement::retireBelow(const rpc::Version& below, std::vector<uint32_t>& retired) {
  directory_.forEach(below.key, keyHash(below.key), [&](uint32_t slot) {
    const shm::SlotState state = directory_.state(slot);
    if (state != shm::SlotState::committed && state != shm::SlotState::reclaiming) return;
    if (directory_.putId(slot) >= below.putId) {
      FLUXON_MARK("owner: an invalidation comes after the value that it is for");
      return;
    }
    if (state == shm::SlotState::reclaiming) FLUXON_MARK("owner: an invalidation of what is being reclaimed");
    directory_.retire(slot);
    retired.push_back(slot);
    ++counters_.invalidated;
  });
}

void Retirement::add(const std::vector<uint32_t>& retired) {
  if (retired.empty()) return;
  retired_.insert(retired_.end(), retired.begin(), retired.end());
  lookAgain(Time{0});
}

void Retirement::retire(uint32_t slot) {
  directory_.retire(slot);
  add({slot});
}

void Retirement::free(uint32_t slot) {
  freeExtent(directory_.offset(slot));
  directory_.release(slot);
}

void Retirement::dropped(const std::vector<uint32_t>& slots) {
  for (const uint32_t slot : slots) dropped({std::string(directory_.key(slot)), directory_.putId(slot), directory_.offset(slot)});
}

// --- scans

void Retirement::reclaim(const rpc::Reclaim& order, Time now) {
  ReclaimScan scan{order.order, std::vector<rpc::ReclaimResult>(order.replicas.size(), rpc::ReclaimResult::gone), {}};
  std::vector<uint64_t> refs;
  for (size_t i = 0; i < order.replicas.size(); ++i) {
    const rpc::MemoryReplica& item = order.replicas[i];
    directory_.forEach(item.key, keyHash(item.key), [&](uint32_t slot) {
      if (directory_.offset(slot) != item.offset) return;
      const shm::SlotState state = directory_.state(slot);
      if (state == shm::SlotState::pending) scan.results[i] = rpc::ReclaimResult::busy;
      if (state != shm::SlotState::committed || directory_.putId(slot) != item.putId) return;
      if (!persisting_.yields(slot, now)) {
        scan.results[i] = rpc::ReclaimResult::busy;
        return;
      }
      refs.push_back(directory_.ref(slot));
      directory_.beginReclaim(slot);
      scan.victims.push_back({refs.back(), i, item.key});
    });
  }
  begin(std::move(scan), std::move(refs));
}

bool Retirement::reclaims(OrderId order) const {
  return std::any_of(scans_.begin(), scans_.end(), [&](const auto& each) {
    const auto* scan = std::get_if<ReclaimScan>(&each.second);
    return scan && scan->order == order;
  });
}

void Retirement::scanRetired(Time now) {
  if (retired_.empty() || scanning_ || standing_.reporting()) return;
  nextScan_ = now + kRescan;
  RetiredScan scan;
  for (const uint32_t slot : retired_) scan.refs.push_back(directory_.ref(slot));
  scanning_ = true;
  std::vector<uint64_t> refs = scan.refs;
  begin(std::move(scan), std::move(refs));
}

void Retirement::begin(Scan scan, std::vector<uint64_t> refs) {
  const uint64_t id = nextId_++;
  ++counters_.scans;
  scans_.emplace(id, std::move(scan));
  host_.scan(id, std::move(refs));
}

void Retirement::scanned(uint64_t id, const std::vector<bool>& held, Time now) {
  const auto found = scans_.find(id);
  if (found == scans_.end()) {
    FLUXON_MARK("owner: a scan ends after its term");
    return;
  }
  Scan scan = std::move(found->second);
  scans_.erase(found);
  std::visit([&](auto& each) { ended(each, held, now); }, scan);
}

void Retirement::ended(const RetiredScan& scan, const std::vector<bool>& held, Time) {
  FLUXON_CHECK(held.size() == scan.refs.size(), "a scan answered another number of slots");
  scanning_ = false;
  std::unordered_map<uint64_t, bool> byRef;
  for (size_t i = 0; i < scan.refs.size(); ++i) byRef.emplace(scan.refs[i], held[i]);
  std::erase_if(retired_, [&](uint32_t slot) {
    const auto scannedSlot = byRef.find(directory_.ref(slot));
    if (scannedSlot != byRef.end() && scannedSlot->second) FLUXON_MARK("owner: a retired value is still held");
    if (scannedSlot == byRef.end() || scannedSlot->second) return false;
    if (persisting_.reads(slot)) return false;
    free(slot);
    return true;
  });
}

void Retirement::ended(ReclaimScan& scan, const std::vector<bool>& held, Time now) {
  FLUXON_CHECK(held.size() == scan.victims.size(), "a scan answered another number of slots");
  for (size_t i = 0; i < scan.victims.size(); ++i) {
    const Victim& victim = scan.victims[i];
    const uint32_t slot = shm::slotOfRef(victim.ref);
    if (directory_.ref(slot) != victim.ref || directory_.state(slot) != shm::SlotState::reclaiming) {  // invalidated meanwhile
      FLUXON_MARK("owner: a victim is invalidated during its scan");
      continue;
    }
    if (held[i]) {
      FLUXON_MARK("owner: a victim is held");
      directory_.keep(slot);
      scan.results[victim.item] = rpc::ReclaimResult::busy;
      ++counters_.reclaimBusy;
    } else {
      directory_.release(slot);
      scan.results[victim.item] = rpc::ReclaimResult::ok;
      ++counters_.reclaimed;
    }
  }
  calls_.send(rpc::ReclaimDone{.order = scan.order, .results = std::move(scan.results)});
  for (const Victim& victim : scan.victims) controls_.wake(victim.key, now);
}

// --- when

void Retirement::tell() {
  if (!dropped_.empty()) calls_.send(rpc::Dropped{.replicas = std::exchange(dropped_, {})});
  if (!releases_.empty()) calls_.send(rpc::Release{.offsets = std::exchange(releases_, {})});
}

void Retirement::flush(Time now) {
  if (retired_.empty() || scanning_) return;
  if (calls_.putsAsked() > 0) nextScan_ = std::min(nextScan_, now + kRescanUrgent);
  tick(now);
}

void Retirement::tick(Time now) {
  if (nextScan_ <= now) scanRetired(now);
}

Time Retirement::nextWake() const { return retired_.empty() || scanning_ || standing_.reporting() ? Time::never() : nextScan_; }

// --- from one life or term to the next

std::vector<uint32_t> Retirement::adopt(bool worthless, const std::set<uint64_t>& living) {
  std::vector<uint32_t> grants;
  for (uint32_t slot = 0; slot < directory_.slotCount(); ++slot) {
    switch (directory_.state(slot)) {
      case shm::SlotState::free: break;
      case shm::SlotState::retired: add({slot}); break;
      case shm::SlotState::committed:
      case shm::SlotState::reclaiming:
        if (worthless) {
          FLUXON_MARK("owner: adopts a value that its last life was about to drop");
          retire(slot);
        } else if (directory_.state(slot) == shm::SlotState::reclaiming) {
          // The scan that should have decided has ended with its process.
          FLUXON_MARK("owner: adopts a slot that was being reclaimed");
          directory_.keep(slot);
        }
        break;
      // Its writer had finished, and the process that waited for the decision is gone: nobody writes it. If it was fetched, gets may
      // hold it.
      case shm::SlotState::pending:
        FLUXON_MARK("owner: adopts a value that was being decided");
        retire(slot);
        break;
      case shm::SlotState::granted:
        // A client may still write; a fetch from another owner has ended with the process.
        if (living.count(directory_.writer(slot))) {
          FLUXON_MARK("owner: adopts a grant whose writer lives");
          if (directory_.writer(slot) == kSsdWriter.value) FLUXON_MARK("owner: adopts what an ssdd may be writing");
          grants.push_back(slot);
        } else {
          FLUXON_MARK("owner: adopts a grant whose writer has died");
          directory_.release(slot);
        }
        break;
    }
  }
  return grants;
}

std::vector<Extent> Retirement::occupied() {
  releases_.clear();
  std::vector<Extent> extents;
  for (uint32_t slot = 0; slot < directory_.slotCount(); ++slot) {
    const shm::SlotState state = directory_.state(slot);
    if (state == shm::SlotState::free || state == shm::SlotState::committed) continue;
    extents.push_back({directory_.offset(slot), extentBytes(directory_.payloadBytes(slot))});
  }
  return extents;
}

void Retirement::endTerm(Values values, const std::set<uint32_t>& busy) {
  releases_.clear();
  dropped_.clear();
  scans_.clear();
  scanning_ = false;
  retired_.clear();
  for (uint32_t slot = 0; slot < directory_.slotCount(); ++slot) {
    switch (directory_.state(slot)) {
      case shm::SlotState::free:
      case shm::SlotState::granted: break;
      case shm::SlotState::retired: retired_.push_back(slot); break;
      case shm::SlotState::pending:
        if (busy.count(slot)) break;
        directory_.retire(slot);  // fetched: gets may hold it
        retired_.push_back(slot);
        break;
      case shm::SlotState::reclaiming:
        if (values == Values::kept) {
          FLUXON_MARK("owner: a term ends under a reclaim");
          directory_.keep(slot);
          break;
        }
        [[fallthrough]];
      case shm::SlotState::committed:
        if (values == Values::kept) break;
        directory_.retire(slot);
        retired_.push_back(slot);
        break;
    }
  }
}

}  // namespace fluxon::owner
