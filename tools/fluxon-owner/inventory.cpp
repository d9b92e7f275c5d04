// OwnerCore: between terms and lives. What of the directory goes on, and how the master hears of it.
#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {

void OwnerCore::adopt(const std::set<uint64_t>& living, Time now) {
  const bool worthless = !directory_.content();  // the last life ended while it dropped its values
  retirement_.adopt(worthless);
  for (uint32_t slot = 0; slot < directory_.slotCount(); ++slot) {
    if (directory_.state(slot) != shm::SlotState::granted) continue;
    // A client may still write; bytes from other owners came through the process that has ended, and ended with it.
    if (living.count(directory_.writer(slot))) {
      FLUXON_MARK("owner: adopts a grant whose writer lives");
      if (directory_.writer(slot) == kSsdWriter.value) FLUXON_MARK("owner: adopts what an ssdd may be writing");
      Put put;
      put.client = ClientId(directory_.writer(slot));
      put.orphan = true;
      put.since = now;
      puts_.emplace(slot, std::move(put));
      controls_.open(std::string(directory_.key(slot)));
    } else {
      FLUXON_MARK("owner: adopts a grant whose writer has died");
      directory_.release(slot);
    }
  }
}

Incarnation OwnerCore::content() const {
  return directory_.count(shm::SlotState::committed) > 0 || ssdLife_ ? directory_.content() : Incarnation();
}

// The term is over for us. Commands under way are answered, grants stay with their writers as orphans, flights and exports end when
// the host says so; committed values stay committed, or are retired.
void OwnerCore::part(bool keep, Time now) {
  if (standing_.endTerm()) ++counters_.rejoins;
  if (!keep) {
    contentRefused_ = false;
    directory_.setLease(0);
    directory_.setServing(Incarnation());
    // First: what an ssdd has that is not attached now goes as well, also in the next life, if this one ends here.
    directory_.setSsd(Incarnation());
    directory_.setContent(Incarnation());
  }
  // What ssdd is asked, or tells, from here on is for the next time. What it has stays with the values, and goes with them.
  described_ = false;
  reportEnds_ = false;
  invalidating_.clear();
  while (!persists_.empty()) endPersist(persists_.begin()->first);
  commits_.clear();
  ssdInventory_.clear();
  listing_ = 0;
  if (ssdLife_ && !keep) {
    giveUpSsd("what this node has is given up", now);
  } else if (ssdLife_) {
    host_.ssd({ssd::MessageKind::forget, nextTask_++});
  }
  failPending(now);
  calls_.endTerm();
  evictedTold_ = 0;
  begun_.clear();
  reserve_.forget();
  inventory_.clear();
  pages_.clear();
  published_.clear();
  incoming_.clear();
  std::set<uint32_t> busy;  // written by a fetch, or read by an export
  if (!flights_.empty()) FLUXON_MARK("owner: a term ends under a flight");
  if (!exports_.empty()) FLUXON_MARK("owner: a term ends under an export");
  for (auto& [id, flight] : flights_) flight.orphan = true, busy.insert(flight.slot);
  for (auto& [id, exported] : exports_) exported.orphan = true, busy.insert(exported.slot);
  for (auto it = puts_.begin(); it != puts_.end();) {
    const uint32_t slot = it->first;
    if (directory_.state(slot) == shm::SlotState::granted) {
      FLUXON_MARK("owner: a term ends under a grant");
      it->second.orphan = true;
      ++it;
    } else {
      FLUXON_MARK("owner: a term ends under a put that is being decided");
      if (!busy.count(slot)) directory_.release(slot);
      it = puts_.erase(it);
    }
  }
  retirement_.endTerm(keep ? Retirement::Values::kept : Retirement::Values::dropped, busy);
  controls_.endTerm();
  for (const auto& [slot, put] : puts_) controls_.open(std::string(directory_.key(slot)));
  if (!flights_.empty()) host_.cancelFetches();
  std::vector<ExportId> exports;
  for (const auto& [id, exported] : exports_) exports.push_back(id);
  for (const ExportId id : exports) {
    endExport(id);
    if (exports_.count(id) != 0 && exports_.at(id).staged) settleStage(id, now);
  }
  retirement_.lookAgain(now);
  retirement_.tick(now);
}

bool OwnerCore::stop(Time now) {
  keep(now);
  for (const auto& [when, next] : retries_.takeAll()) host_.answerCode(next.caller, Code::unavailable, "the owner stops");
  directory_.setLease(0);
  directory_.setServing(Incarnation());
  return directory_.count(shm::SlotState::committed) > 0 || ssdLife_;
}

size_t OwnerCore::fetches() const {
  return static_cast<size_t>(std::count_if(flights_.begin(), flights_.end(), [](const auto& each) { return !each.second.load; }));
}

std::vector<Extent> OwnerCore::occupied() {
  FLUXON_CHECK(fetches() == 0 && exports_.empty(), "occupied extents while bytes are under way");
  // From here on, what becomes free is news to the master.
  retirement_.forgetReleases();
  std::vector<Extent> extents;
  for (uint32_t slot = 0; slot < directory_.slotCount(); ++slot) {
    const shm::SlotState state = directory_.state(slot);
    if (state == shm::SlotState::free || state == shm::SlotState::committed) continue;
    extents.push_back({directory_.offset(slot), extentBytes(directory_.payloadBytes(slot))});
  }
  return extents;
}

void OwnerCore::registered(Incarnation incarnation, Duration lease, Time sent, Inventory inventory, Time now) {
  standing_.registered(incarnation, lease, sent);
  tellSsd();
  if (inventory == Inventory::none) {
    FLUXON_CHECK(directory_.count(shm::SlotState::committed) == 0, "joined without an inventory, but with values");
    standing_.serve(now);
    return flush(now);
  }
  for (uint32_t slot = 0; slot < directory_.slotCount(); ++slot) {
    if (directory_.state(slot) == shm::SlotState::committed) inventory_.emplace_back(directory_.putId(slot), slot);
  }
  std::make_heap(inventory_.begin(), inventory_.end(), std::greater<>());
  pagesSent_ = 0;
  ssdReported_ = 0;
  allListed_ = false;
  if (ssdLife_) {
    listing_ = nextTask_++;
    ssdSaid_ = now;
    evicted_.clear();  // is not named
    host_.ssd({ssd::MessageKind::list, listing_});
  }
  report();
}

// The next pages, as long as not too many are unanswered: what is in memory, then what is on the SSD.
void OwnerCore::report() {
  while (!reportEnds_ && pages_.size() < settings_.pagesAtOnce && reportPage()) {
  }
}

bool OwnerCore::reportPage() {
  if (allListed_) return false;
  // While the list of what is on the SSD is under way, its pages are full ones.
  if (listing_ != 0 && inventory_.empty() && ssdInventory_.size() - ssdReported_ < settings_.inventoryPage) return false;
  rpc::InventoryPage page;
  std::vector<uint32_t> slots;
  size_t keyBytes = 0;
  const auto full = [&] {
    return page.memory.size() + page.ssd.size() >= settings_.inventoryPage || keyBytes >= settings_.inventoryPageKeys;
  };
  while (!inventory_.empty() && !full()) {
    std::pop_heap(inventory_.begin(), inventory_.end(), std::greater<>());
    const uint32_t slot = inventory_.back().second;
    inventory_.pop_back();
    // A value that went since the list was made was not occupied then, so the master must hear of its extent. It refuses it as a value.
    if (directory_.state(slot) == shm::SlotState::free) continue;
    slots.push_back(slot);
    page.memory.push_back({std::string(directory_.key(slot)), directory_.putId(slot), directory_.offset(slot),
                           directory_.payloadBytes(slot), directory_.lease(slot)});
    keyBytes += page.memory.back().key.size();
  }
  for (; ssdReported_ < ssdInventory_.size() && !full(); ++ssdReported_) {
    page.ssd.push_back(ssdInventory_[ssdReported_]);
    keyBytes += page.ssd.back().key.size();
  }
  allListed_ = inventory_.empty() && listing_ == 0 && ssdReported_ == ssdInventory_.size();
  if (page.memory.empty() && page.ssd.empty() && !allListed_) return false;
  ++pagesSent_;
  page.pages = allListed_ ? pagesSent_ : 0;
  pages_.emplace(calls_.send(std::move(page)), std::move(slots));
  return true;
}

void OwnerCore::reported(const rpc::InventoryPage& page, const rpc::Reply& reply, Time now) {
  if (reply.code != Code::ok) {
    // The service joins again. A life that is over may have been slow; its values may still be taken. Nonsense is not offered twice.
    FLUXON_MARK("owner: fenced while it reports");
    standing_.fence();
    contentRefused_ |= reply.code != Code::fenced;
    return;
  }
  const std::vector<uint32_t> slots = std::move(pages_.extract(reply.id).mapped());
  const rpc::InventoryTaken& taken = *reply.as<rpc::InventoryTaken>();
  const std::set<uint64_t> refused(taken.refused.begin(), taken.refused.end());
  for (const uint32_t slot : slots) {
    if (!refused.count(directory_.offset(slot))) {
      ++counters_.adopted;
      continue;
    }
    FLUXON_MARK("owner: the master refuses a value of the inventory");
    ++counters_.adoptRefused;
    if (directory_.state(slot) != shm::SlotState::committed) continue;
    retirement_.retire(slot);
  }
  std::vector<rpc::Version> dead;
  for (const uint32_t index : std::set<uint32_t>(taken.refusedSsd.begin(), taken.refusedSsd.end())) {
    if (index >= page.ssd.size() || !ssdLife_) continue;
    FLUXON_MARK("owner: the master refuses what is on the SSD");
    ++counters_.adoptRefused;
    dead.push_back({page.ssd[index].key, PutId(page.ssd[index].putId.value + 1)});
  }
  if (!dead.empty()) invalidateSsd(dead, {{}, now, {}});
  // Answers may overtake each other.
  if (!allListed_ || !pages_.empty()) return;
  // Serving, this life is the one whose list the next term believes: what was refused is to be gone from it.
  reportEnds_ = true;
  if (!dropsRefused()) return endReport(now);
  FLUXON_MARK("owner: it waits for ssdd before it serves");
}

void OwnerCore::endReport(Time now) {
  reportEnds_ = false;
  ssdInventory_.clear();
  retirement_.lookAgain(now);
  standing_.serve(now);
  heartbeat({}, now);  // tells the master that the values it refused are gone
}

}  // namespace fluxon::owner
