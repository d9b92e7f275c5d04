// OwnerCore: orders of the master, and scans.
#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {
namespace {

constexpr size_t kOrdersKnown = 4096;  // orders come again right after a lost connection only

}  // namespace

void OwnerCore::message(const rpc::MasterMessage& message, Time now) {
  std::visit([&](const auto& each) { carryOut(each, now); }, message);
  flush(now);
}

void OwnerCore::carryOut(const rpc::Invalidate& order, Time now) {
  std::vector<uint32_t> retired;
  for (const rpc::Version& item : order.below) {
    const auto control = controls_.find(item.key);
    if (control != controls_.end() && control->second.bound < item.putId) {
      FLUXON_MARK("owner: an invalidation of a key that is open");
      control->second.bound = item.putId;
    }
    directory_.forEach(item.key, keyHash(item.key), [&](uint32_t slot) {
      const shm::SlotState state = directory_.state(slot);
      if (state != shm::SlotState::committed && state != shm::SlotState::reclaiming) return;
      if (directory_.putId(slot) >= item.putId) {
        FLUXON_MARK("owner: an invalidation comes after the value that it is for");
        return;
      }
      if (state == shm::SlotState::reclaiming) FLUXON_MARK("owner: an invalidation of what is being reclaimed");
      directory_.retire(slot);
      retired.push_back(slot);
      ++counters_.invalidated;
    });
  }
  // What is on the SSD is over when ssdd has said so: it keeps that in mind when this process dies.
  if (ssdLife_ && !order.below.empty()) return invalidateSsd(order.below, {order.order, now, std::move(retired)});
  invalidated({order.order, now, std::move(retired)});
}

// The master names what was retired until it hears this, so nothing of it is released before.
void OwnerCore::invalidated(const Invalidation& invalidation) {
  calls_.send(rpc::InvalidateDone{.order = invalidation.order});
  awaitReaders(invalidation.retired);
}

void OwnerCore::carryOut(const rpc::Reclaim& order, Time now) {
  for (const auto& [id, scan] : scans_) {
    if (scan.order != order.order) continue;
    FLUXON_MARK("owner: a reclaim comes twice, the first one is under way");
    return;  // the first one answers
  }
  // Answered already: the master counts the first answer, so a second one must not free anything.
  if (!begins(order.order)) {
    FLUXON_MARK("owner: a reclaim comes twice, the first one was answered");
    return;
  }
  Scan scan;
  scan.order = order.order;
  scan.results.assign(order.replicas.size(), rpc::ReclaimResult::gone);
  for (size_t i = 0; i < order.replicas.size(); ++i) {
    const rpc::MemoryReplica& item = order.replicas[i];
    directory_.forEach(item.key, keyHash(item.key), [&](uint32_t slot) {
      if (directory_.offset(slot) != item.offset) return;
      const shm::SlotState state = directory_.state(slot);
      if (state == shm::SlotState::pending) scan.results[i] = rpc::ReclaimResult::busy;
      if (state != shm::SlotState::committed || directory_.putId(slot) != item.putId) return;
      if (!yieldsPersist(slot, now)) {
        scan.results[i] = rpc::ReclaimResult::busy;
        return;
      }
      const uint64_t ref = directory_.ref(slot);
      directory_.beginReclaim(slot);
      scan.refs.push_back(ref);
      scan.items.push_back(i);
      scan.keys.push_back(item.key);
    });
  }
  startScan(std::move(scan));
}

// False: it has begun before.
bool OwnerCore::begins(OrderId order) {
  if (!begun_.insert(order).second) return false;
  if (begun_.size() > kOrdersKnown) begun_.erase(begun_.begin());
  return true;
}

void OwnerCore::startScan(Scan scan) {
  const uint64_t id = nextScan_++;
  ++counters_.scans;
  std::vector<uint64_t> refs = scan.refs;
  scans_.emplace(id, std::move(scan));
  host_.scan(id, std::move(refs));
}

void OwnerCore::scanned(uint64_t id, const std::vector<bool>& held, Time now) {
  const auto found = scans_.find(id);
  if (found == scans_.end()) {  // of an earlier term
    FLUXON_MARK("owner: a scan ends after its term");
    return;
  }
  Scan scan = std::move(found->second);
  scans_.erase(found);
  FLUXON_CHECK(held.size() == scan.refs.size(), "a scan answered another number of slots");
  if (!scan.order) {
    retiredScanning_ = false;
    std::unordered_map<uint64_t, bool> byRef;
    for (size_t i = 0; i < scan.refs.size(); ++i) byRef.emplace(scan.refs[i], held[i]);
    std::erase_if(retired_, [&](uint32_t slot) {
      const uint64_t ref = directory_.ref(slot);
      const auto scannedSlot = byRef.find(ref);
      if (scannedSlot != byRef.end() && scannedSlot->second) FLUXON_MARK("owner: a retired value is still held");
      if (scannedSlot == byRef.end() || scannedSlot->second) return false;
      if (readBySsd(slot)) return false;
      freeSlot(slot);
      return true;
    });
  } else {
    for (size_t i = 0; i < scan.refs.size(); ++i) {
      const uint32_t slot = shm::slotOfRef(scan.refs[i]);
      if (directory_.ref(slot) != scan.refs[i] || directory_.state(slot) != shm::SlotState::reclaiming) {  // invalidated meanwhile
        FLUXON_MARK("owner: a victim is invalidated during its scan");
        continue;
      }
      if (held[i]) {
        FLUXON_MARK("owner: a victim is held");
        directory_.keep(slot);
        scan.results[scan.items[i]] = rpc::ReclaimResult::busy;
        ++counters_.reclaimBusy;
      } else {
        directory_.release(slot);
        scan.results[scan.items[i]] = rpc::ReclaimResult::ok;
        ++counters_.reclaimed;
      }
    }
    calls_.send(rpc::ReclaimDone{.order = scan.order, .results = std::move(scan.results)});
  }
  for (const std::string& key : scan.keys) wake(key, now);
  flush(now);
}

}  // namespace fluxon::owner
