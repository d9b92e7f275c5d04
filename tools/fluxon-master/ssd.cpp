// MasterCore: what is on the owners' SSDs. An owner speaks for its SSD; the master hears of it from nobody else.
//
// A replica on an SSD (of one version, in one life of the SSD):
//
//   none ──ssdCommit, inventory──► readable ──ssdEvicted, a load that found it missing or damaged, an invalidation──► none
//                                     └──another life──► not readable ──(swept in slices)──► none
//
// Only what the owner has said itself takes it away, or an invalidation that the owner has answered; the word of an owner that fetched
// from there does not. Else the owner would still list it in a next term, though a later put had been acknowledged without its knowing.
//
// A value that lies on no other medium is brought back into memory by a get. On the SSD of who asks: it is given a place, loads, and says
// getDone. Of an owner of its host: it is sent there. Of another host: the source brings it to a place of its own first, where it is
// fetched from. The get is answered when the source says that it is coming; the source is told when the transfer has ended. That place:
//
//   stage ──staged(ok)──► exported ──the transfer ends──► unstage ──unstaged──► free
//     ├──staged(error)──────────────────────────────────────────────────────────►
//     └──who asked ends──► unwanted ──staged(ok)──► unstage ──unstaged──► free
//   An `unstage` is never under way beside the `stage` that it is about: orders may overtake each other, and a `stage` that came after
//   `unstaged` would be written into a place that is somebody else's.
#include "base/mark.h"
#include "master_core.h"

namespace fluxon::master {
namespace {

constexpr unsigned kStagings = 3;  // sources that one get tries

// What an owner says of a value that its SSD does not have (any more).
bool isGone(Code code) { return code == Code::miss || code == Code::corrupt || code == Code::system; }

}  // namespace

// What was there is readable no longer, and leaves the routes in slices: no next term is told of it.
void MasterCore::on(Member& member, OperationId id, const rpc::SsdLife& ssd, Time) {
  const Incarnation life = ssd.life;
  if (life != member.ssdLife && !member.onSsd.empty()) {
    FLUXON_MARK("master: what was on an SSD is gone");
    routes_.sweep(member, Routes::Sweep::earlierSsds);
  }
  membership_.setSsdLife(member, life);
  out_.reply(member, id, rpc::Done());
}

void MasterCore::on(Member& member, OperationId id, const rpc::SsdCommit& commit, Time now) {
  rpc::SsdTaken taken;
  for (uint32_t i = 0; i < commit.values.size(); ++i) {
    const rpc::SsdValue& item = commit.values[i];
    KeyEntry* const entry = routes_.find(item.key);
    // Nor what has a key lease: an SSD does not know of it, and a next term would take it for good.
    const bool current = entry && !entry->change && entry->putId == item.putId && entry->bytes == item.bytes && !entry->lease;
    const Replica* const here = current ? replicaOf(*entry, member, Medium::memory) : nullptr;
    if (!here || !member.ssdLife) {
      FLUXON_MARK("master: a commit to an SSD comes too late");
      ++counters_.ssdCommitsIgnored;
      taken.ignored.push_back(i);
      continue;
    }
    ++counters_.ssdCommits;
    // It may have been a busy victim for being persisted alone.
    member.space.retry(here->offset);
    const Replica* const known = replicaOf(*entry, member, Medium::ssd);
    if (known && known->ssd == member.ssdLife) continue;
    routes_.drop(*entry, member, Medium::ssd);
    routes_.add(*entry, {member, 0, member.ssdLife});
  }
  out_.reply(member, id, std::move(taken));
  if (member.shortage.any()) space_.askVictims(member, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::SsdEvicted& evicted, Time) {
  for (const rpc::Version& item : evicted.values) {
    KeyEntry* const entry = routes_.find(item.key);
    if (entry && loseSsd(*entry, member, item.putId, member.ssdLife)) ++counters_.ssdEvictions;
  }
  out_.reply(member, id, rpc::Done());
}

// The owner's word about what is on its SSD. The entry may be gone after it.
bool MasterCore::loseSsd(KeyEntry& entry, Member& member, PutId putId, Incarnation life) {
  const Replica* const replica = replicaOf(entry, member, Medium::ssd);
  if (entry.putId != putId || !replica || replica->ssd != life) {
    FLUXON_MARK("master: what has gone from an SSD is known no more");
    return false;
  }
  routes_.lose(entry, member, Medium::ssd);
  return true;
}

// A load from the member's own SSD has failed.
void MasterCore::loadFailed(Member& member, const Transfer& transfer, Code code) {
  if (!isGone(code)) {
    FLUXON_MARK("master: a load from an SSD fails, the value is still there");
    return;
  }
  ++counters_.ssdLoadsFailed;
  loseSsd(*transfer.key, member, transfer.putId, transfer.ssd);
}

void MasterCore::stage(Member& member, OperationId get, const rpc::GetStart& request, unsigned stagings) {
  Transfer& transfer = member.transfers.at(get);
  Member& source = *transfer.source;
  rpc::Stage order{{}, std::string(transfer.key->key), transfer.putId, transfer.bytes, {{}, transfer.staging}, request.timeLeftMs};
  order.to.id = exportOf(out_.nextOrder());
  transfer.stage = out_.order(source, std::move(order));
  source.staging.emplace(transfer.stage, StagedGet{member, get, request, stagings});
}

void MasterCore::on(Member& member, OperationId id, const rpc::Staged& staged, Time now) {
  out_.reply(member, id, rpc::Done());
  const std::optional<rpc::Stage> order = out_.answered<rpc::Stage>(member, staged.order);
  if (!order) return;
  const auto waiting = member.staging.find(staged.order);
  if (waiting == member.staging.end()) {
    FLUXON_MARK("master: what is staged is not wanted any more");
    if (staged.code == Code::ok) return unstage(member, staged.order, order->to.offset);
    member.space.free(order->to.offset);
    return space_.serve(member, now);
  }
  StagedGet get = std::move(waiting->second);
  member.staging.erase(waiting);
  const Transfer& transfer = get.member->transfers.at(get.id);
  if (staged.code == Code::ok)
    return out_.reply(*get.member, get.id, rpc::FetchFrom{transfer.putId, transfer.bytes, transfer.offset, peerOf(member), order->to});
  loadFailed(member, transfer, staged.code);
  member.space.free(order->to.offset);
  dropStaged(get);
  if (++get.stagings == kStagings) {
    out_.refuse(*get.member, get.id, Code::unavailable, "no node could bring the value from its SSD, at last " + member.node());
  } else {
    get.request.avoid = member.node();
    find(*get.member, get.id, get.request, Turn::first, get.stagings, now);
  }
  space_.serve(member, now);
  space_.serve(*get.member, now);
}

// The get goes on without it. Nobody has heard of its target, and there is nothing to unstage.
void MasterCore::dropStaged(const StagedGet& get) {
  Transfer& transfer = get.member->transfers.at(get.id);
  get.member->space.free(transfer.offset);
  transfer.stage = OrderId();
  dropTransfer(*get.member, get.id);
}

void MasterCore::unstage(Member& source, OrderId stage, uint64_t offset) {
  source.unstaging.emplace(out_.order(source, rpc::Unstage{{}, exportOf(stage)}), offset);
}

void MasterCore::on(Member& member, OperationId id, const rpc::Unstaged& unstaged, Time now) {
  out_.reply(member, id, rpc::Done());
  if (!out_.answered<rpc::Unstage>(member, unstaged.order)) return;
  const auto place = member.unstaging.extract(unstaged.order);
  member.space.free(place.mapped());
  space_.serve(member, now);
}

}  // namespace fluxon::master
