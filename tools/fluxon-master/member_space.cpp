#include "member_space.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/size.h"

namespace fluxon::master {

bool MemberSpace::adopt(Extent extent, Use use) {
  if (!allocator_.adopt(extent)) return false;
  records_.emplace(extent.offset, Record{extent, use});
  bytes_[static_cast<size_t>(use)] += extent.length;
  return true;
}

std::optional<Extent> MemberSpace::allocate(uint64_t payloadBytes, Use use) {
  if (records_.size() >= maxExtents_) return std::nullopt;
  const std::optional<Extent> extent = allocator_.allocate(payloadBytes);
  if (!extent) return extent;
  records_.emplace(extent->offset, Record{*extent, use});
  bytes_[static_cast<size_t>(use)] += extent->length;
  return extent;
}

MemberSpace::Record* MemberSpace::find(uint64_t offset) {
  const auto it = records_.find(offset);
  return it == records_.end() ? nullptr : &it->second;
}

void MemberSpace::account(Record& record, Use to) {
  bytes_[static_cast<size_t>(record.use)] -= record.extent.length;
  bytes_[static_cast<size_t>(to)] += record.extent.length;
  reclaiming_ += (to == Use::reclaiming) - (record.use == Use::reclaiming);
  const auto readable = [](Use use) { return use == Use::routed || use == Use::reclaiming; };
  if (readable(to) && !readable(record.use)) ++replicas_;
  if (!readable(to) && readable(record.use)) {
    --replicas_;
    record.key = nullptr;
    if (record.leased) leasedBytes_ -= record.extent.length, record.leased = false;
    forgetBusy(record);
  }
  record.use = to;
}

void MemberSpace::forgetBusy(Record& record) {
  if (!std::exchange(record.busy, false)) return;
  busyBytes_ -= record.extent.length;
  busy_.erase(record.extent.offset);
}

void MemberSpace::retry(uint64_t offset) {
  Record* record = find(offset);
  if (!record || !record->busy) return;
  forgetBusy(*record);
  policy_.retry(offset);
}

void MemberSpace::route(uint64_t offset, KeyEntry* key, uint64_t keyHash, bool leased) {
  Record* record = find(offset);
  FLUXON_CHECK(record && (record->use == Use::inFlight || record->use == Use::reserved), "route of an extent that is not being put");
  account(*record, Use::routed);
  record->key = key;
  record->leased = leased;
  if (leased) {
    leasedBytes_ += record->extent.length;
  } else {
    policy_.insert(offset, keyHash, record->extent.length);
  }
}

void MemberSpace::unroute(uint64_t offset) {
  Record* record = find(offset);
  FLUXON_CHECK(record && record->use != Use::unrouted, "unroute of an extent that is not in use");
  if ((record->use == Use::routed || record->use == Use::reclaiming) && !record->leased) policy_.remove(offset);
  account(*record, Use::unrouted);
}

void MemberSpace::use(uint64_t offset, Use to) {
  Record* record = find(offset);
  FLUXON_CHECK(record && (record->use == Use::inFlight || record->use == Use::reserved), "extent is neither reserved nor being put");
  account(*record, to);
}

void MemberSpace::free(uint64_t offset) {
  const auto it = records_.find(offset);
  FLUXON_CHECK(it != records_.end(), "free of an extent that is not in use");
  Record& record = it->second;
  if ((record.use == Use::routed || record.use == Use::reclaiming) && !record.leased) policy_.remove(offset);
  account(record, Use::unrouted);
  bytes_[static_cast<size_t>(Use::unrouted)] -= record.extent.length;
  allocator_.free(record.extent);
  records_.erase(it);
}

std::optional<MemberSpace::Record> MemberSpace::takeRecord() {
  if (records_.empty()) return std::nullopt;
  const Record record = records_.begin()->second;
  free(record.extent.offset);
  return record;
}

std::vector<uint64_t> MemberSpace::takeVictims(uint64_t wantedBytes, uint64_t wantedExtents, size_t limit) {
  const auto lacking = [&] {
    return freeBytes() + bytes(Use::reclaiming) < wantedBytes || records_.size() + wantedExtents > maxExtents_ + reclaiming_;
  };
  std::vector<uint64_t> victims;
  while (victims.size() < limit && lacking()) {
    const std::optional<uint64_t> victim = policy_.nextVictim();
    if (!victim) break;
    Record* record = find(*victim);
    FLUXON_CHECK(record && record->use == Use::routed, "the policy proposed an extent that is not routed");
    account(*record, Use::reclaiming);
    victims.push_back(*victim);
  }
  return victims;
}

void MemberSpace::reclaimBusy(uint64_t offset) {
  Record* record = find(offset);
  FLUXON_CHECK(record && record->use == Use::reclaiming, "busy extent that is not being reclaimed");
  account(*record, Use::routed);
  policy_.busy(offset);
  if (std::exchange(record->busy, true)) return;
  busy_.insert(offset);
  busyBytes_ += record->extent.length;
}

std::vector<uint64_t> MemberSpace::takeBusy(uint64_t wantedBytes, size_t limit) {
  std::vector<uint64_t> victims;
  uint64_t taken = 0;
  for (auto each = busy_.begin(); each != busy_.end() && victims.size() < limit && taken < wantedBytes; ++each) {
    if (!policy_.propose(*each)) continue;
    Record& record = *find(*each);
    account(record, Use::reclaiming);
    taken += record.extent.length;
    victims.push_back(*each);
  }
  return victims;
}

void MemberSpace::reclaimed(uint64_t offset) {
  Record* record = find(offset);
  FLUXON_CHECK(record && record->use == Use::reclaiming, "reclaimed extent that is not being reclaimed");
  policy_.evicted(offset);
  account(*record, Use::unrouted);
  bytes_[static_cast<size_t>(Use::unrouted)] -= record->extent.length;
  allocator_.free(record->extent);
  records_.erase(offset);
}

uint64_t MemberSpace::reserveAhead() const { return std::min(capacity() / 50, 64 * kMiB); }

uint64_t MemberSpace::freeAhead() const {
  const uint64_t ahead = reserveAhead();
  return std::max(ahead / 4, ahead - std::min(ahead, bytes(Use::reserved)));
}

std::string MemberSpace::describe(uint64_t wanted) const {
  return formatSize(wanted) + " wanted, " + formatSize(freeBytes()) + " free (largest piece " + formatSize(largestFree()) + ") of " +
         formatSize(capacity()) + "; " + std::to_string(busyValues()) + " values (" + formatSize(busyBytes_) +
         ") are being read and cannot be evicted (fluxonctl pins), " + formatSize(leasedBytes_) + " leased, " +
         formatSize(bytes(Use::unrouted)) + " retired, " + formatSize(bytes(Use::reserved)) + " reserved, " +
         formatSize(bytes(Use::inFlight)) + " being put; " + std::to_string(records_.size()) + " of " + std::to_string(maxExtents_) +
         " keys in use";
}

}  // namespace fluxon::master
