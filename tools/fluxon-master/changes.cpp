// MasterCore: changes of routes. Publish and delete first invalidate every other replica, then touch the route, then answer.
#include "base/check.h"
#include "master_core.h"
#include "shm/client_format.h"

namespace fluxon::master {
namespace {

constexpr size_t kLargestInvalidation = 1024;  // keys of one batch; one batch is in flight per owner

}  // namespace

bool MasterCore::deferIfChanging(KeyEntry& entry, Member& member, const rpc::Request& request) {
  if (!entry.change) return false;
  entry.deferred.push_back({&member, request});
  return true;
}

void MasterCore::endPut(Member& member, OperationId put) {
  KeyEntry& entry = *member.puts.at(put).key;
  std::erase(entry.puts, std::pair(&member, put));
  member.puts.erase(put);
}

void MasterCore::abandonPut(Member& member, OperationId put) {
  KeyEntry& entry = *member.puts.at(put).key;
  member.space.unroute(member.puts.at(put).offset);
  endPut(member, put);
  table_.settle(entry);
}

void MasterCore::publish(Member& member, OperationId request, OperationId operation, Time now) {
  const Put put = member.puts.at(operation);
  KeyEntry& entry = *put.key;
  rpc::Reply answer;
  answer.id = request;
  answer.putId = put.putId;
  if (put.superseded || entry.putId > put.putId) {
    ++counters_.putsOverwritten;
    abandonPut(member, operation);
    return reply(member, std::move(answer));
  }
  const bool leaseGone = put.lease && !leases_.find(put.lease);
  if ((put.flags & shm::kRejectIfExists) && entry.routed()) {
    ++counters_.putsRefused;
    answer.code = Code::exists;
    abandonPut(member, operation);
    return reply(member, std::move(answer));
  }
  if (leaseGone) {
    // Done too late: as if it had been done in time and had gone with its lease. The value before it is gone too.
    ++counters_.putsRefused;
    answer.code = Code::noLease;
    member.space.unroute(put.offset);
    endPut(member, operation);
    reply(member, std::move(answer));
    if (entry.routed()) return removeKey(entry, nullptr, OperationId(), now);
    return table_.settle(entry);
  }
  endPut(member, operation);
  auto change = std::make_unique<Change>();
  change->origin = &member;
  change->request = request;
  change->below = put.putId;
  change->offset = put.offset;
  change->bytes = put.bytes;
  change->lease = put.lease;
  begin(entry, std::move(change), &member, now);
}

void MasterCore::removeKey(KeyEntry& entry, Member* origin, OperationId request, Time now) {
  if (entry.change) return;  // only without a caller: the publish under way checks the lease when it ends
  // A delete that was asked for covers puts under way; the end of a lease covers what has the lease.
  if (origin) {
    for (const auto& [member, operation] : entry.puts) member->puts.at(operation).superseded = true;
  }
  auto change = std::make_unique<Change>();
  change->origin = origin;
  change->request = request;
  change->removal = true;
  change->below = origin ? nextPutId() : PutId(entry.putId.value + 1);
  begin(entry, std::move(change), nullptr, now);
}

void MasterCore::remove(Member& member, const rpc::Request& request, Time now) {
  ++counters_.removes;
  KeyEntry* entry = table_.find(request.key);
  if (entry && deferIfChanging(*entry, member, request)) return;
  if (!entry || !entry->routed()) return replyCode(member, request.id, Code::miss);
  removeKey(*entry, &member, request.id, now);
}

void MasterCore::begin(KeyEntry& entry, std::unique_ptr<Change> change, const Member* except, Time now) {
  for (const Replica& replica : entry.replicas) {
    if (replica.member != except) change->waiting.insert(replica.member);
  }
  entry.change = std::move(change);
  changing_.insert(&entry);
  const std::set<Member*> others = entry.change->waiting;
  if (others.empty()) return finish(entry, now);
  for (Member* other : others) invalidate(*other, {std::string(entry.key), entry.change->below, 0});
}

void MasterCore::finish(KeyEntry& entry, Time now) {
  const std::unique_ptr<Change> change = std::move(entry.change);
  changing_.erase(&entry);
  for (const Replica& replica : entry.replicas) replica.member->space.unroute(replica.offset);
  entry.replicas.clear();
  if (entry.lease) leases_.detach(entry.lease, std::string(entry.key));
  rpc::Reply answer;
  answer.id = change->request;
  if (change->removal) {
    table_.clearRoute(entry);
  } else {
    table_.setRoute(entry, change->below, change->bytes, change->lease);
    entry.replicas.push_back({change->origin, change->offset});
    change->origin->space.route(change->offset, &entry, entry.hash, bool(change->lease));
    if (change->lease) leases_.attach(change->lease, std::string(entry.key));
    answer.putId = change->below;
    answer.published = true;
    ++counters_.putsPublished;
  }
  if (change->origin) reply(*change->origin, std::move(answer));
  for (const std::shared_ptr<Revoke>& revoke : change->revokes) {
    if (revoke.use_count() == 1 && revoke->origin) replyCode(*revoke->origin, revoke->request, Code::ok);
  }
  if (entry.lease && !leases_.find(entry.lease)) removeKey(entry, nullptr, OperationId(), now);
  // What queued behind this change goes on in its order; it may begin the next change and queue again behind that.
  const std::vector<Deferred> deferred = std::exchange(entry.deferred, {});
  const std::string key(entry.key);
  table_.settle(entry);
  for (const Deferred& next : deferred) {
    if (next.member->state == MemberState::joined) dispatch(*next.member, next.request, now);
  }
}

void MasterCore::dropRoute(KeyEntry& entry) {
  if (entry.lease) leases_.detach(entry.lease, std::string(entry.key));
  table_.clearRoute(entry);
}

void MasterCore::dropReplica(KeyEntry& entry, const Member& member) {
  std::erase_if(entry.replicas, [&](const Replica& replica) {
    if (replica.member != &member) return false;
    replica.member->space.unroute(replica.offset);
    return true;
  });
}

void MasterCore::invalidate(Member& member, rpc::Version version) {
  ++counters_.invalidations;
  member.invalidations.push_back(std::move(version));
  sendInvalidations(member);
}

void MasterCore::sendInvalidations(Member& member) {
  if (member.invalidating || member.invalidations.empty()) return;
  std::vector<rpc::Version> batch;
  if (member.invalidations.size() <= kLargestInvalidation) {
    batch = std::move(member.invalidations);
    member.invalidations.clear();
  } else {
    const auto last = member.invalidations.begin() + kLargestInvalidation;
    batch.assign(std::make_move_iterator(member.invalidations.begin()), std::make_move_iterator(last));
    member.invalidations.erase(member.invalidations.begin(), last);
  }
  member.invalidating = true;
  order(member, rpc::CommandKind::invalidate, std::move(batch));
}

void MasterCore::invalidateDone(Member& member, const rpc::Request& request, Time now) {
  replyCode(member, request.id, Code::ok);
  const auto found = member.orders.find(request.command);
  if (found == member.orders.end() || found->second.kind != rpc::CommandKind::invalidate) return;
  const std::vector<rpc::Version> items = std::move(found->second.items);
  member.orders.erase(found);
  member.invalidating = false;
  for (const rpc::Version& item : items) {
    KeyEntry* entry = table_.find(item.key);
    if (!entry || !entry->change || entry->change->below != item.putId) continue;
    // Its replica is over now: the owner may release the extent before the other owners have answered.
    dropReplica(*entry, member);
    if (entry->change->waiting.erase(&member) && entry->change->waiting.empty()) finish(*entry, now);
  }
  sendInvalidations(member);
}

void MasterCore::end(Member& member, MemberState to, Time now) {
  member.state = to;
  if (to == MemberState::fenced) ++counters_.fenced;
  fenced_.insert(member.incarnation());
  while (!member.puts.empty()) abandonPut(member, member.puts.begin()->first);
  for (const WaitingPut& put : member.waiting) replyCode(member, put.request.id, Code::fenced);
  member.waiting.clear();
  std::erase_if(counts_, [&](const CountJob& job) { return job.member == &member; });
  std::erase_if(windowed_, [&](const Deferred& waiting) { return waiting.member == &member; });
  member.orders.clear();
  member.invalidations.clear();

  std::vector<KeyEntry*> keys;
  for (const auto& [offset, record] : member.space.records()) {
    if (record.key) keys.push_back(record.key);
  }
  for (KeyEntry* entry : keys) {
    dropReplica(*entry, member);
    if (entry->replicas.empty() && !entry->change) dropRoute(*entry);
    table_.settle(*entry);
  }
  const std::set<KeyEntry*> changing = changing_;
  for (KeyEntry* entry : changing) {
    if (!changing_.count(entry)) continue;
    std::erase_if(entry->deferred, [&](const Deferred& waiting) { return waiting.member == &member; });
    Change& change = *entry->change;
    for (const std::shared_ptr<Revoke>& revoke : change.revokes) {
      if (revoke->origin == &member) revoke->origin = nullptr;
    }
    if (change.origin == &member) {
      // Its new value is gone with it, and others may have dropped the old one already: the key ends as a miss. Nobody was
      // told that the put is done.
      if (!change.removal) member.space.unroute(change.offset);
      change.origin = nullptr;
      if (!change.removal) {
        change.removal = true;
        for (const Replica& replica : entry->replicas) {
          if (change.waiting.insert(replica.member).second) invalidate(*replica.member, {std::string(entry->key), change.below, 0});
        }
      }
    }
    if (change.waiting.erase(&member); change.waiting.empty()) finish(*entry, now);
  }
}

void MasterCore::endWindow(Time now) {
  recovering_ = false;
  expected_.clear();
  std::vector<Deferred> waiting = std::move(windowed_);
  windowed_.clear();
  for (const Deferred& next : waiting) {
    if (next.member->state == MemberState::joined) dispatch(*next.member, next.request, now);
  }
}

}  // namespace fluxon::master
