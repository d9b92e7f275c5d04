#include "changes.h"

#include <utility>

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::master {

void Changes::defer(KeyEntry& entry, Member& member, rpc::Request request) {
  FLUXON_MARK("master: a request waits for a change of its key");
  entry.deferred.push_back({member, std::move(request)});
}

void Changes::publish(Member& member, OperationId request, Put put, Time now, Copied copy) {
  KeyEntry& entry = *put.key;
  FLUXON_CHECK(!entry.change, "publishing into a change");
  // The copied value is not published after all.
  const auto unwanted = [&] {
    if (!copy.home) return;
    FLUXON_MARK("master: the copy of a put comes too late");
    out_.reply(*copy.home, copy.request, rpc::CopyEnded{put.putId, false, {}});
    events_.copyUnwanted(*copy.home, copy.transfer);
  };
  const bool rejects = put.mode.onExisting == PutMode::OnExisting::reject;
  if (rejects && (put.overtaken != Overtaken::no || readable(entry))) {
    if (put.overtaken == Overtaken::byPut) FLUXON_MARK("master: a put that rejects an existing key is done after another one of the key");
    if (put.overtaken == Overtaken::byDelete) FLUXON_MARK("master: a put that rejects an existing key is done after a delete of the key");
    ++counters_.putsRefusedAtEnd;
    events_.putGivenUp(member, put.operation);
    out_.refuse(member, request, Code::exists);
    return unwanted();
  }
  if (put.overtaken == Overtaken::byDelete || entry.putId > put.putId) {
    FLUXON_MARK("master: a put is done after a later one");
    ++counters_.putsOverwritten;
    events_.putGivenUp(member, put.operation);
    out_.reply(member, request, rpc::PutEnded{put.putId, false});
    return unwanted();
  }
  if (put.lease && !routes_.leases().find(put.lease)) {
    // The lease ended before the put was done. The outcome is as if the put had been published in time and then deleted with its lease, so
    // the value before it goes too.
    FLUXON_MARK("master: a put is done after the end of its key lease");
    ++counters_.putsRefusedAtEnd;
    const std::string key(entry.key);
    events_.putGivenUp(member, put.operation);
    out_.refuse(member, request, Code::noLease);
    if (KeyEntry* const left = routes_.find(key); left && left->routed()) removeKey(*left, By::lease, {}, {}, now);
    return unwanted();
  }
  auto change = std::make_unique<Change>();
  change->origin = member;
  change->request = request;
  change->below = put.putId;
  change->value = NewValue{member, put.offset, put.bytes, put.lease, {}};
  events_.putEnded(member, put.operation);
  if (copy.home) {
    member.space.unroute(put.offset);  // where it was filled
    change->value->home = copy.home;
    change->value->offset = put.home->offset;
    change->value->copyDone = copy.request;
    events_.copyTaken(*copy.home, copy.transfer);
  }
  const Member* const home = change->value->home.get();
  begin(entry, std::move(change), home, now);
}

// A requested delete covers all puts of the key under way; the end of a lease covers only what has the lease.
void Changes::removeKey(KeyEntry& entry, By by, MemberRef origin, OperationId request, Time now) {
  if (by == By::request) {
    if (!entry.puts.empty()) FLUXON_MARK("master: a delete overtakes a put");
    events_.overtaken(entry, Overtaken::byDelete);
  }
  auto change = std::make_unique<Change>();
  change->origin = std::move(origin);
  change->request = request;
  change->below = by == By::request ? putIds_.next() : PutId(entry.putId.value + 1);
  begin(entry, std::move(change), nullptr, now);
}

// A publish that is under way checks the lease itself when it finishes.
void Changes::endLeased(KeyEntry& entry, const std::shared_ptr<Revoke>& revoke, Time now) {
  const std::string key(entry.key);
  if (!entry.change) removeKey(entry, By::lease, {}, {}, now);
  KeyEntry* const left = routes_.find(key);
  if (revoke && left && left->change) left->change->revokes.push_back(revoke);
}

void Changes::remove(Member& member, OperationId id, const rpc::RemoveKey& remove, Time now) {
  ++counters_.removes;
  KeyEntry* entry = routes_.find(remove.key);
  if (entry && entry->change) return defer(*entry, member, {id, remove});
  // A transfer may still carry a value whose replicas were all evicted: no get that begins from here on may join it.
  if (!entry || (!entry->routed() && entry->transfers.empty())) return out_.refuse(member, id, Code::miss);
  // A delete ends a dormant value like a readable one, but does not report that it was there.
  removeKey(*entry, By::request, member, id, now);
}

void Changes::begin(KeyEntry& entry, std::unique_ptr<Change> change, const Member* except, Time now) {
  const auto mustHear = [&](Member& member) {
    if (&member == except || member.lives()) return &member != except;
    membership_.askFence(member);
    if (member.fence != Fence::onDisk) FLUXON_MARK("master: a change waits for a fence to be durable");
    return member.fence != Fence::onDisk;
  };
  for (const Replica& replica : entry.replicas) {
    // The home has retired its older replica in memory itself. Its replica on the SSD ends like that of any other member.
    const bool older = replica.ssd && replica.member.get() == except;
    if (older) FLUXON_MARK("master: the home of a new value is told, an older one is on its SSD");
    if (mustHear(*replica.member) || older) change->waiting.insert(replica.member);
  }
  for (const auto& [member, id] : entry.transfers) {
    if (!mustHear(*member)) continue;
    FLUXON_MARK("master: a transfer is told of a change");
    change->waiting.insert(member);
  }
  // These nodes have not listed all their values yet: each may have an older value of the key.
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

void Changes::finish(KeyEntry& entry, Time now) {
  const std::unique_ptr<Change> change = std::move(entry.change);
  changing_.erase(&entry);
  rpc::Reply answer{change->request, Code::ok, {}, {}};
  if (const std::optional<NewValue>& value = change->value) {
    routes_.replace(entry, change->below, value->bytes, value->lease, {value->home, value->offset});
    events_.overtaken(entry, Overtaken::byPut);
    answer.answer = rpc::PutEnded{change->below, true};
    ++counters_.putsPublished;
    if (value->copyDone) out_.reply(*value->home, value->copyDone, rpc::CopyEnded{change->below, true, value->lease});
  } else {
    if (!entry.routed()) answer.code = Code::miss;
    routes_.end(entry, change->below);
  }
  if (change->origin && !change->origin.living()) FLUXON_MARK("master: who asked for a change ends");
  if (change->origin.living()) out_.reply(*change->origin, std::move(answer));
  for (const std::shared_ptr<Revoke>& revoke : change->revokes) {
    if (!revoke->origin.living()) FLUXON_MARK("master: who revoked a key lease ends");
    if (revoke.use_count() == 1 && revoke->origin.living()) out_.reply(*revoke->origin, revoke->request, rpc::Done());
  }
  if (entry.lease && !routes_.leases().find(entry.lease)) FLUXON_MARK("master: a key lease ends under a change");
  if (entry.lease && !routes_.leases().find(entry.lease)) removeKey(entry, By::lease, {}, {}, now);
  // The requests that queued behind this change go on in order. One of them may begin the next change; those behind it queue again.
  std::vector<Deferred> deferred = std::exchange(entry.deferred, {});
  for (Deferred& each : window_.take(std::string(entry.key))) deferred.push_back(std::move(each));
  routes_.forgetIfIdle(entry);
  events_.goOn(std::move(deferred), now);
}

void Changes::invalidateDone(Member& member, OperationId id, const rpc::InvalidateDone& done, Time now) {
  out_.reply(member, id, rpc::Done());
  for (const rpc::Version& item : invalidations_.answered(member, done.order)) {
    KeyEntry* entry = routes_.find(item.key);
    if (!entry || !entry->change || entry->change->below != item.putId) continue;
    // The member has retired its replicas: it may release the extent before the other owners have answered.
    routes_.drop(*entry, member, Medium::memory);
    routes_.drop(*entry, member, Medium::ssd);
    if (entry->change->waiting.erase(member) && entry->change->waiting.empty()) finish(*entry, now);
  }
  invalidations_.sendNext(member);
}

// If the member was the home of a new value, the change becomes a delete. A change that waits for the member goes on when the member's
// fence is on disk.
void Changes::memberEnded(Member& member) {
  for (const std::string& key : changing()) {
    KeyEntry* const entry = routes_.find(key);
    if (!entry || !entry->change) continue;
    Change& change = *entry->change;
    if (change.waiting.count(member)) FLUXON_MARK("master: a change goes on without a fenced member");
    if (change.waiting.count(member)) membership_.askFence(member);
    if (!change.value || change.value->home != member) continue;
    // The new value is gone, and others may have dropped the old one already: the key becomes a miss. The master has not acknowledged the
    // put.
    FLUXON_MARK("master: a new value ends with its owner before it is the route");
    member.space.unroute(change.value->offset);
    change.value.reset();
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

// Collects names, not entries: finishing one change may finish others and begin new ones.
std::vector<std::string> Changes::changing() const {
  std::vector<std::string> keys;
  for (const KeyEntry* entry : changing_) keys.emplace_back(entry->key);
  return keys;
}

void Changes::fenceOnDisk(Member& member, Time now) {
  for (const std::string& key : changing()) {
    KeyEntry* const entry = routes_.find(key);
    if (!entry || !entry->change) continue;
    entry->change->waiting.erase(member);
    if (entry->change->waiting.empty()) finish(*entry, now);
  }
}

void Changes::tellInstead(Member& member, Member& next) {
  for (KeyEntry* entry : changing_) {
    if (entry->change->waiting.erase(member) == 0) continue;
    FLUXON_MARK("master: the next life is told of a change instead");
    entry->change->waiting.insert(next);
    invalidations_.add(next, {std::string(entry->key), entry->change->below});
  }
}

}  // namespace fluxon::master
