#include "inventory.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/mark.h"

namespace fluxon::owner {

void Inventory::begin(Time now) {
  endTerm();
  state_ = State::listing;
  for (uint32_t slot = 0; slot < directory_.slotCount(); ++slot) {
    if (directory_.state(slot) == shm::SlotState::committed) slots_.emplace_back(directory_.putId(slot), slot);
  }
  std::make_heap(slots_.begin(), slots_.end(), std::greater<>());
  ssd_.beginList(now);
}

void Inventory::send() {
  while (state_ == State::listing && pages_.size() < settings_.atOnce && sendPage()) {
  }
}

bool Inventory::sendPage() {
  // While ssdd still sends its list, a page waits until it is full.
  if (ssd_.listing() && slots_.empty() && ssd_.listed() < settings_.page) return false;
  rpc::InventoryPage page;
  std::vector<uint32_t> slots;
  size_t keyBytes = 0;
  const auto full = [&] { return page.memory.size() + page.ssd.size() >= settings_.page || keyBytes >= settings_.pageKeys; };
  while (!slots_.empty() && !full()) {
    std::pop_heap(slots_.begin(), slots_.end(), std::greater<>());
    const uint32_t slot = slots_.back().second;
    slots_.pop_back();
    // A value that was retired since the list was begun was not among the occupied extents, so the master must hear of its extent. The
    // master refuses it as a value.
    if (directory_.state(slot) == shm::SlotState::free) continue;
    slots.push_back(slot);
    page.memory.push_back({std::string(directory_.key(slot)), directory_.putId(slot), directory_.offset(slot),
                           directory_.payloadBytes(slot), directory_.lease(slot)});
    keyBytes += page.memory.back().key.size();
  }
  while (ssd_.listed() > 0 && !full()) {
    page.ssd.push_back(ssd_.takeListed());
    keyBytes += page.ssd.back().key.size();
  }
  const bool last = slots_.empty() && !ssd_.listing() && ssd_.listed() == 0;
  if (page.memory.empty() && page.ssd.empty() && !last) return false;
  ++pagesSent_;
  page.pages = last ? pagesSent_ : 0;
  if (last) state_ = State::sent;
  pages_.emplace(calls_.send(std::move(page)), std::move(slots));
  return true;
}

void Inventory::answered(OperationId id, const rpc::InventoryPage& page, const rpc::Reply& reply, Time now) {
  if (reply.code != Code::ok) {
    // The service joins again. A fenced life may only have been slow, so the next one offers its values again; nonsense it drops.
    FLUXON_MARK("owner: fenced while it reports");
    standing_.fence();
    contentRefused_ |= reply.code != Code::fenced;
    return;
  }
  const rpc::InventoryTaken& taken = *reply.as<rpc::InventoryTaken>();
  const std::set<uint64_t> refused(taken.refused.begin(), taken.refused.end());
  const std::vector<uint32_t> slots = std::move(pages_.extract(id).mapped());
  for (const uint32_t slot : slots) {
    if (!refused.count(directory_.offset(slot))) {
      ++counters_.adopted;
      continue;
    }
    FLUXON_MARK("owner: the master refuses a value of the inventory");
    ++counters_.adoptRefused;
    if (directory_.state(slot) == shm::SlotState::committed) retirement_.retire(slot);
  }
  std::vector<rpc::Version> dead;
  for (const uint32_t index : std::set<uint32_t>(taken.refusedSsd.begin(), taken.refusedSsd.end())) {
    if (index >= page.ssd.size() || !ssd_.life()) continue;
    FLUXON_MARK("owner: the master refuses what is on the SSD");
    ++counters_.adoptRefused;
    dead.push_back({page.ssd[index].key, PutId(page.ssd[index].putId.value + 1)});
  }
  if (!dead.empty()) ssd_.dropRefused(dead, now);
  // Answers may overtake each other, so the answer to the last page need not be the last answer.
  if (state_ != State::sent || !pages_.empty()) return;
  state_ = State::listed;
  if (!complete()) FLUXON_MARK("owner: it waits for ssdd before it serves");
}

void Inventory::endTerm() {
  state_ = State::idle;
  slots_.clear();
  pages_.clear();
  pagesSent_ = 0;
}

}  // namespace fluxon::owner
