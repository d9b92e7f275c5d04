#include "routes.h"

#include <algorithm>

namespace fluxon::master {
namespace {

constexpr size_t kSweepSlice = 100;  // replicas

}  // namespace

void Routes::replace(KeyEntry& entry, PutId putId, uint64_t bytes, KeyLeaseId lease, Replica replica) {
  dropAll(entry);
  if (entry.lease) leases_.detach(entry.lease, std::string(entry.key));
  table_.setRoute(entry, putId, bytes, lease);
  add(entry, std::move(replica));
  if (lease) leases_.attach(lease, std::string(entry.key));
}

void Routes::replace(KeyEntry& entry, PutId putId, uint64_t bytes) {
  dropAll(entry);
  table_.setRoute(entry, putId, bytes, KeyLeaseId());
}

void Routes::end(KeyEntry& entry, PutId below) {
  dropAll(entry);
  if (entry.lease) leases_.detach(entry.lease, std::string(entry.key));
  bounds_.add(entry.key, below);
  table_.clearRoute(entry);
}

void Routes::add(KeyEntry& entry, Replica replica) {
  if (replica.ssd) {
    replica.member->onSsd.own()[replica.ssd].insert(&entry);
  } else {
    replica.member->space.route(replica.offset, &entry, entry.hash, bool(entry.lease));
  }
  entry.replicas.push_back(std::move(replica));
  if (entry.replicas.size() > 1) weigh(entry);
}

// Updates the member's own records of a replica that leaves the route.
void Routes::unlink(KeyEntry& entry, const Replica& replica) {
  if (!replica.ssd) return replica.member->space.unroute(replica.offset);
  const auto life = replica.member->onSsd.own().find(replica.ssd);
  life->second.erase(&entry);
  if (life->second.empty()) replica.member->onSsd.own().erase(life);
}

void Routes::drop(KeyEntry& entry, const Member& member, Medium medium) {
  const Replica* const found = replicaOf(entry, member, medium);
  if (!found) return;
  unlink(entry, *found);
  entry.replicas.erase(entry.replicas.begin() + (found - entry.replicas.data()));
  weigh(entry);
}

void Routes::dropAll(KeyEntry& entry) {
  for (const Replica& replica : entry.replicas) unlink(entry, replica);
  entry.replicas.clear();
}

void Routes::lose(KeyEntry& entry, const Member& member, Medium medium) {
  drop(entry, member, medium);
  endIfLost(entry);
}

void Routes::loseFreed(KeyEntry& entry, const Member& member) {
  std::erase_if(entry.replicas, [&](const Replica& replica) { return replica.member == member && !replica.ssd; });
  weigh(entry);
  endIfLost(entry);
}

void Routes::endIfLost(KeyEntry& entry) {
  if (entry.replicas.empty() && !entry.change) end(entry, entry.putId);
  table_.forgetIfIdle(entry);
}

// Updates the hint that a value has another replica: such victims are preferred. A replica of an ended member, or of an earlier life of an
// SSD, still counts until it is swept.
void Routes::weigh(const KeyEntry& entry) {
  for (const Replica& replica : entry.replicas) {
    if (!replica.ssd) replica.member->space.redundant(replica.offset, entry.replicas.size() > 1);
  }
}

void Routes::sweepSlice() {
  if (sweeps_.empty()) return;
  const Swept swept = sweeps_.front();
  Member& member = *swept.member;
  const bool all = swept.what == Sweep::everything;
  for (size_t n = 0; n < kSweepSlice; ++n) {
    if (const std::optional<MemberSpace::Record> record = all ? member.space.takeRecord() : std::nullopt) {
      if (record->key) loseFreed(*record->key, member);
      continue;
    }
    const auto life =
        std::find_if(member.onSsd->begin(), member.onSsd->end(), [&](const auto& each) { return all || each.first != *member.ssdLife; });
    if (life == member.onSsd->end()) return sweeps_.pop_front();
    lose(**life->second.begin(), member, Medium::ssd);
  }
}

}  // namespace fluxon::master
