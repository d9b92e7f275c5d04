#include "ssd_replicas.h"

#include "base/mark.h"

namespace fluxon::master {
namespace {

// The codes by which an owner reports that its SSD does not have the value (any more).
bool isGone(Code code) { return code == Code::miss || code == Code::corrupt || code == Code::system; }

}  // namespace

// A new life of the SSD: replicas of the last one are not readable any more and leave the routes in slices. The owner lists none of them in
// a next term.
void SsdReplicas::life(Member& member, OperationId id, const rpc::SsdLife& ssd) {
  const Incarnation life = ssd.life;
  if (life != member.ssdLife && !member.onSsd->empty()) {
    FLUXON_MARK("master: what was on an SSD is gone");
    routes_.sweep(member, Routes::Sweep::earlierSsds);
  }
  membership_.setSsdLife(member, life);
  out_.reply(member, id, rpc::Done());
}

void SsdReplicas::commit(Member& member, OperationId id, const rpc::SsdCommit& commit, Time now) {
  rpc::SsdTaken taken;
  for (uint32_t i = 0; i < commit.values.size(); ++i) {
    const rpc::SsdValue& item = commit.values[i];
    KeyEntry* const entry = routes_.find(item.key);
    // A value with a key lease is refused too: the SSD does not record leases, so a next term would keep the value forever.
    const bool current = entry && !entry->change && entry->putId == item.putId && entry->bytes == item.bytes && !entry->lease;
    const Replica* const here = current ? replicaOf(*entry, member, Medium::memory) : nullptr;
    if (!here || !*member.ssdLife) {
      FLUXON_MARK("master: a commit to an SSD comes too late");
      ++counters_.ssdCommitsIgnored;
      taken.ignored.push_back(i);
      continue;
    }
    ++counters_.ssdCommits;
    // The replica in memory may have been a busy victim only because it was being persisted.
    member.space.retry(here->offset);
    const Replica* const known = replicaOf(*entry, member, Medium::ssd);
    if (known && known->ssd == member.ssdLife) continue;
    routes_.drop(*entry, member, Medium::ssd);
    routes_.add(*entry, {member, 0, member.ssdLife});
  }
  out_.reply(member, id, std::move(taken));
  if (member.shortage.any()) space_.askVictims(member, now);
}

void SsdReplicas::evicted(Member& member, OperationId id, const rpc::SsdEvicted& evicted) {
  for (const rpc::Version& item : evicted.values) {
    KeyEntry* const entry = routes_.find(item.key);
    if (entry && lose(*entry, member, item.putId, member.ssdLife)) ++counters_.ssdEvictions;
  }
  out_.reply(member, id, rpc::Done());
}

// The owner reports that its SSD has lost a replica. The call may erase the entry.
bool SsdReplicas::lose(KeyEntry& entry, Member& member, PutId putId, Incarnation life) {
  const Replica* const replica = replicaOf(entry, member, Medium::ssd);
  if (entry.putId != putId || !replica || replica->ssd != life) {
    FLUXON_MARK("master: what has gone from an SSD is known no more");
    return false;
  }
  routes_.lose(entry, member, Medium::ssd);
  return true;
}

void SsdReplicas::loadFailed(Member& member, const Transfer& transfer, Code code) {
  if (!isGone(code)) {
    FLUXON_MARK("master: a load from an SSD fails, the value is still there");
    return;
  }
  ++counters_.ssdLoadsFailed;
  lose(*transfer.key, member, transfer.putId, transfer.ssd);
}

// The owner has given up a replica in memory. The report may come late: the owner has answered a reclaim of it with `gone`, and a copy has
// since brought the same version to another extent. That replica is readable and stays.
void SsdReplicas::dropped(Member& member, OperationId id, const rpc::Dropped& dropped, Time now) {
  for (const rpc::MemoryReplica& item : dropped.replicas) {
    KeyEntry* entry = routes_.find(item.key);
    const Replica* const replica = entry && entry->putId == item.putId ? replicaOf(*entry, member, Medium::memory) : nullptr;
    if (!replica || replica->offset != item.offset) {
      FLUXON_MARK("master: a replica that it does not know is dropped");
      continue;
    }
    routes_.lose(*entry, member, Medium::memory);
  }
  out_.reply(member, id, rpc::Done());
  space_.serve(member, now);
}

}  // namespace fluxon::master
