#include "inventory.h"

#include "base/mark.h"

namespace fluxon::master {

void Inventory::page(Member& member, OperationId id, const rpc::InventoryPage& page, Time now) {
  if (member.state != MemberState::reporting) return out_.refuse(member, id, Code::protocol, "no inventory is expected");
  window_.listed(member, leaseEnd(lease_, now));
  // The master does not count this page, so the inventory never becomes complete: the owner drops its values and registers anew. The master
  // does not end the member here, because its owner may still be serving under a lease of the last term.
  const auto senseless = [&] { out_.refuse(member, id, Code::protocol, "inventory: extents overlap or are none"); };
  const auto possible = [&](const auto& value) {
    return !value.key.empty() && value.key.size() <= kMaxKeyBytes && value.putId && extentBytes(value.bytes) <= member.space.capacity();
  };
  rpc::InventoryTaken taken;
  for (const rpc::MemoryValue& value : page.memory) {
    if (!possible(value) || !member.space.adopt({value.offset, extentBytes(value.bytes)}, Use::inFlight)) return senseless();
    if (take(member, {value.key, value.putId, value.bytes, value.lease, Medium::memory, value.offset})) continue;
    member.space.unroute(value.offset);
    taken.refused.push_back(value.offset);
  }
  for (uint32_t i = 0; i < page.ssd.size(); ++i) {
    const rpc::SsdValue& value = page.ssd[i];
    if (!possible(value)) return senseless();
    if (!take(member, {value.key, value.putId, value.bytes, {}, Medium::ssd})) taken.refusedSsd.push_back(i);
  }
  Pages& pages = pages_[member];
  ++pages.come;
  if (page.pages != 0) pages.inAll = page.pages;
  if (pages.inAll == 0 || pages.come < pages.inAll) return out_.reply(member, id, std::move(taken));
  pages_.erase(member);
  membership_.join(member);
  membership_.record(member);
  record_.whenOnDisk([this, named = MemberRef(member), id, last = std::move(taken)](Time) { out_.reply(*named, id, last); });
}

bool Inventory::take(Member& member, const Listed& item) {
  // An SSD without a life has no values.
  const bool somewhere = item.medium == Medium::memory || *member.ssdLife;
  if (somewhere &&
      (member.listing == Listing::ofBefore ? takeDormant(member, item)
                                           : window_.open() && member.listing == Listing::ofLastTerm && takeOfTerm(member, item))) {
    ++counters_.revived;
    return true;
  }
  FLUXON_MARK("master: a value of an inventory is refused");
  ++counters_.inventoryRefused;
  return false;
}

// A value of an earlier term: the highest put_id of a key is its latest completed put. Key leases ended with their term.
bool Inventory::takeOfTerm(Member& member, const Listed& item) {
  if (item.lease || item.putId.term() >= term_.value) return false;
  if (item.putId < bounds_.of(item.key)) {
    FLUXON_MARK("master: an inventory lists what has ended in the window");
    return false;
  }
  KeyEntry& entry = routes_.at(item.key);
  const bool known = replicaOf(entry, member, item.medium);
  if (entry.change || known || entry.putId > item.putId || (entry.putId == item.putId && entry.bytes != item.bytes)) {
    routes_.forgetIfIdle(entry);
    return false;
  }
  if (entry.putId < item.putId) {
    // No owner should have an older value of a key whose later put was acknowledged. If one does, it is dropped.
    for (const Replica& older : entry.replicas) {
      if (older.member->state == MemberState::fenced) membership_.askFence(*older.member);
      if (older.member.living()) invalidations_.add(*older.member, {std::string(entry.key), item.putId});
    }
    routes_.replace(entry, item.putId, item.bytes);
  }
  routes_.add(entry, item.at(member));
  return true;
}

bool Inventory::takeDormant(Member& member, const Listed& item) {
  KeyEntry* entry = routes_.find(item.key);
  if (!entry || entry->change || entry->putId != item.putId || entry->bytes != item.bytes) return false;
  const Replica taken = item.at(member);
  // The replica belongs to the last life, or to one before it whose values the last life had not taken over in full.
  for (const Member* before = member.before->get(); before; before = before->before->get()) {
    const Replica* const dormant = replicaOf(*entry, *before, item.medium);
    if (!dormant || dormant->ssd != taken.ssd || dormant->offset != taken.offset) continue;
    routes_.drop(*entry, *before, item.medium);
    routes_.add(*entry, taken);
    return true;
  }
  return false;
}

}  // namespace fluxon::master
