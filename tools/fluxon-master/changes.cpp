// MasterCore: changes of routes. Publish and delete first invalidate every other replica, then touch the route, then answer.
#include "base/check.h"
#include "base/mark.h"
#include "master_core.h"

namespace fluxon::master {
void MasterCore::defer(KeyEntry& entry, Member& member, rpc::Request request) {
  FLUXON_MARK("master: a request waits for a change of its key");
  entry.deferred.push_back({member, std::move(request)});
}

void MasterCore::endPut(Member& member, OperationId put) {
  KeyEntry& entry = *member.puts.at(put).key;
  std::erase(entry.puts, std::pair(MemberRef(member), put));
  member.puts.erase(put);
}

void MasterCore::abandonPut(Member& member, OperationId operation) {
  const Put put = member.puts.at(operation);
  KeyEntry& entry = *put.key;
  member.space.unroute(put.offset);
  if (put.home && !put.home.living()) FLUXON_MARK("master: the home of a put ends");
  if (Member* const home = put.home.living()) {
    const auto copy = home->transfers.find(put.copy);
    if (copy != home->transfers.end()) {
      FLUXON_MARK("master: a put is given up whose copy is under way");
      copy->second.origin = {};  // it ends as any copy that is not wanted
    } else if (!put.copy) {
      home->space.free(put.homeOffset);  // nobody there has heard of it
    }
  }
  endPut(member, operation);
  routes_.forgetIfIdle(entry);
}

// `copy`: the value lies at another member, who has just brought it there and waits for an answer.
void MasterCore::publish(Member& member, OperationId request, OperationId operation, Time now, Copied copy) {
  const Put put = member.puts.at(operation);
  KeyEntry& entry = *put.key;
  if (copy.home) {
    copy.home->transfers.at(copy.transfer).origin = {};
    FLUXON_CHECK(!entry.change, "publishing into a change");
  }
  // The copy did not become the value after all.
  const auto unwanted = [&] {
    if (!copy.home) return;
    FLUXON_MARK("master: the copy of a put comes too late");
    copy.home->space.unroute(put.homeOffset);
    out_.reply(*copy.home, copy.request, rpc::CopyEnded{put.putId, false, {}});
    dropTransfer(*copy.home, copy.transfer);
  };
  if (put.mode.onExisting == PutMode::OnExisting::reject && (put.passed || put.superseded || readable(entry))) {
    if (put.passed) FLUXON_MARK("master: a put that rejects an existing key is done after another one of the key");
    if (put.superseded) FLUXON_MARK("master: a put that rejects an existing key is done after a delete of the key");
    ++counters_.putsRefused;
    abandonPut(member, operation);
    out_.refuse(member, request, Code::exists);
    return unwanted();
  }
  if (put.superseded || entry.putId > put.putId) {
    FLUXON_MARK("master: a put is done after a later one");
    ++counters_.putsOverwritten;
    abandonPut(member, operation);
    out_.reply(member, request, rpc::PutEnded{put.putId, false});
    return unwanted();
  }
  const bool leaseGone = put.lease && !routes_.leases().find(put.lease);
  if (leaseGone) {
    // Done too late: as if it had been done in time and had gone with its lease. The value before it is gone too.
    FLUXON_MARK("master: a put is done after the end of its key lease");
    ++counters_.putsRefused;
    member.space.unroute(put.offset);
    endPut(member, operation);
    out_.refuse(member, request, Code::noLease);
    if (entry.routed()) {
      removeKey(entry, nullptr, OperationId(), now);
      return unwanted();
    }
    // The copy's transfer keeps the entry until it is dropped.
    if (copy.home) return unwanted();
    return routes_.forgetIfIdle(entry);
  }
  endPut(member, operation);
  auto change = std::make_unique<Change>();
  change->origin = member;
  change->request = request;
  change->below = put.putId;
  change->home = member;
  change->offset = put.offset;
  change->bytes = put.bytes;
  change->lease = put.lease;
  if (copy.home) {
    member.space.unroute(put.offset);  // where it was filled
    change->home = copy.home;
    change->offset = put.homeOffset;
    change->copyDone = copy.request;
    copy.home->transfers.erase(copy.transfer);
    std::erase(entry.transfers, std::pair(copy.home, TransferId(copy.transfer)));
  }
  Member* const home = change->home.get();
  begin(entry, std::move(change), home, now);
}

void MasterCore::removeKey(KeyEntry& entry, Member* origin, OperationId request, Time now) {
  if (entry.change) return;  // only without a caller: the publish under way checks the lease when it ends
  // A delete that was asked for covers puts under way; the end of a lease covers what has the lease.
  if (origin) {
    if (!entry.puts.empty()) FLUXON_MARK("master: a delete overtakes a put");
    for (const auto& [member, operation] : entry.puts) member->puts.at(operation).superseded = true;
  }
  auto change = std::make_unique<Change>();
  if (origin) change->origin = *origin;
  change->request = request;
  change->removal = true;
  change->below = origin ? nextPutId() : PutId(entry.putId.value + 1);
  begin(entry, std::move(change), nullptr, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::RemoveKey& remove, Time now) {
  ++counters_.removes;
  KeyEntry* entry = routes_.find(remove.key);
  if (entry && entry->change) return defer(*entry, member, {id, remove});
  // A value that was evicted may still be on its way to somebody: no get that begins from here on may join that.
  if (!entry || (!entry->routed() && entry->transfers.empty())) return out_.refuse(member, id, Code::miss);
  // A dormant value ends like a readable one; that it was there is no one's business.
  removeKey(*entry, &member, id, now);
}

void MasterCore::begin(KeyEntry& entry, std::unique_ptr<Change> change, const Member* except, Time now) {
  const auto mustHear = [&](Member& member) {
    if (&member == except || member.lives()) return &member != except;
    membership_.askFence(member);
    if (member.fence != Fence::onDisk) FLUXON_MARK("master: a change waits for a fence to be durable");
    return member.fence != Fence::onDisk;
  };
  for (const Replica& replica : entry.replicas) {
    // What the home has of an older version in memory it has retired itself, and its new value is not here yet. What is on its SSD
    // ends like that of anybody else.
    const bool older = replica.ssd && replica.member.get() == except;
    if (older) FLUXON_MARK("master: the home of a new value is told, an older one is on its SSD");
    if (mustHear(*replica.member) || older) change->waiting.insert(replica.member);
  }
  for (const auto& [member, id] : entry.transfers) {
    if (!mustHear(*member)) continue;
    FLUXON_MARK("master: a transfer is told of a change");
    change->waiting.insert(member);
  }
  // What these nodes have is not known yet: they may all have an older value.
  for (const MemberRef& member : window_.listing()) {
    if (!mustHear(*member)) continue;
    if (change->waiting.insert(member).second) FLUXON_MARK("master: a node that lists its values is told of a change");
  }
  entry.change = std::move(change);
  changing_.insert(&entry);
  const MemberSet others = entry.change->waiting;
  if (others.empty()) return finish(entry, now);
  for (const MemberRef& other : others) {
    if (other.living()) invalidations_.add(*other, {std::string(entry.key), entry.change->below});
  }
}

void MasterCore::finish(KeyEntry& entry, Time now) {
  const std::unique_ptr<Change> change = std::move(entry.change);
  changing_.erase(&entry);
  rpc::Reply answer{change->request, Code::ok, {}, {}};
  if (change->removal) {
    if (!entry.routed()) answer.code = Code::miss;
    routes_.end(entry, change->below);
  } else {
    routes_.replace(entry, change->below, change->bytes, change->lease, {change->home, change->offset});
    for (const auto& [member, operation] : entry.puts) member->puts.at(operation).passed = true;
    answer.answer = rpc::PutEnded{change->below, true};
    ++counters_.putsPublished;
    if (change->copyDone) out_.reply(*change->home, change->copyDone, rpc::CopyEnded{change->below, true, change->lease});
  }
  if (change->origin && !change->origin.living()) FLUXON_MARK("master: who asked for a change ends");
  if (change->origin.living()) out_.reply(*change->origin, std::move(answer));
  for (const std::shared_ptr<Revoke>& revoke : change->revokes) {
    if (!revoke->origin.living()) FLUXON_MARK("master: who revoked a key lease ends");
    if (revoke.use_count() == 1 && revoke->origin.living()) out_.reply(*revoke->origin, revoke->request, rpc::Done());
  }
  if (entry.lease && !routes_.leases().find(entry.lease)) FLUXON_MARK("master: a key lease ends under a change");
  if (entry.lease && !routes_.leases().find(entry.lease)) removeKey(entry, nullptr, OperationId(), now);
  // What queued behind this change goes on in its order; it may begin the next change and queue again behind that.
  std::vector<Deferred> deferred = std::exchange(entry.deferred, {});
  for (Deferred& each : window_.take(std::string(entry.key))) deferred.push_back(std::move(each));
  routes_.forgetIfIdle(entry);
  goOn(deferred, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::InvalidateDone& done, Time now) {
  out_.reply(member, id, rpc::Done());
  for (const rpc::Version& item : invalidations_.answered(member, done.order)) {
    KeyEntry* entry = routes_.find(item.key);
    if (!entry || !entry->change || entry->change->below != item.putId) continue;
    // Its replicas are over now: the owner may release the extent before the other owners have answered.
    routes_.drop(*entry, member, Medium::memory);
    routes_.drop(*entry, member, Medium::ssd);
    if (entry->change->waiting.erase(member) && entry->change->waiting.empty()) finish(*entry, now);
  }
  invalidations_.sendNext(member);
}

// A change whose new value ends with the member becomes a delete; one that waits for it goes on when the fence of the member is on disk.
void MasterCore::changesWithout(Member& member) {
  for (const std::string& key : changing()) {
    KeyEntry* const entry = routes_.find(key);
    if (!entry || !entry->change) continue;
    Change& change = *entry->change;
    if (change.waiting.count(member)) FLUXON_MARK("master: a change goes on without a fenced member");
    if (change.waiting.count(member)) membership_.askFence(member);
    if (change.home != member) continue;
    // The new value is gone, and others may have dropped the old one already: the key ends as a miss. Nobody was told that the put
    // is done.
    FLUXON_MARK("master: a new value ends with its owner before it is the route");
    member.space.unroute(change.offset);
    change.home = {};
    change.removal = true;
    if (change.origin.living()) {
      out_.refuse(*change.origin, change.request, Code::unavailable, "node " + member.node() + ", which was to have the value, ended");
      change.origin = {};
    }
    for (const Replica& replica : entry->replicas) {
      if (replica.member->lives() && change.waiting.insert(replica.member).second)
        invalidations_.add(*replica.member, {std::string(entry->key), change.below});
    }
  }
}

// By name: ending one change may end others, and begin new ones.
std::vector<std::string> MasterCore::changing() const {
  std::vector<std::string> keys;
  for (const KeyEntry* entry : changing_) keys.emplace_back(entry->key);
  return keys;
}

// Changes need not wait for the member any more.
void MasterCore::settleChanges(Member& member, Time now) {
  for (const std::string& key : changing()) {
    KeyEntry* const entry = routes_.find(key);
    if (!entry || !entry->change) continue;
    entry->change->waiting.erase(member);
    if (entry->change->waiting.empty()) finish(*entry, now);
  }
}

// Changes that wait for a member wait for the one that has its directory now.
void MasterCore::tellInstead(Member& member, Member& next) {
  for (KeyEntry* entry : changing_) {
    if (entry->change->waiting.erase(member) == 0) continue;
    FLUXON_MARK("master: the next life is told of a change instead");
    entry->change->waiting.insert(next);
    invalidations_.add(next, {std::string(entry->key), entry->change->below});
  }
}

}  // namespace fluxon::master
