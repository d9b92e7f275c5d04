// MasterCore: gets, and copies of values from owner to owner. The target pulls; the source protects what is read by itself, so the
// master keeps nothing alive there. An owner asks for a copy by getStart, or is ordered to make one. What is in nobody's memory comes
// from an SSD (ssd.cpp): of the one who asks, or of another host, where it is staged first.
//
// Life of a transfer:   (staged ──►) moving ──getDone(ok)──► replica | not wanted any more (temporary at its target)
//                          │            └──getDone(error), target ended──► over
//                          └──the source cannot, or ended──► over, unheard of: the extent is free, and the get looks for another source
// Its extent at the target is inFlight until then, and comes back by `release` when it did not become a replica.
#include <algorithm>
#include <climits>

#include "base/check.h"
#include "base/mark.h"
#include "master_core.h"

namespace fluxon::master {
namespace {

constexpr size_t kDurableAtOnce = 2;  // copies of one version that are to become replicas; more readers get temporary ones
constexpr size_t kMovesAtOnce = 8;
constexpr uint64_t kCopyMs = 60'000;  // for a copy that no caller's deadline bounds
constexpr Duration kMovePause = milliseconds(20), kCollectPause = milliseconds(200), kLeavePause = seconds(1);

bool sameHost(const Member& a, const Member& b) { return a.registration().hostId == b.registration().hostId; }
// Bytes can get from one to the other.
bool reachable(const Member& source, const Member& target) { return sameHost(source, target) || !source.registration().link.empty(); }

// The value can be read where it is.
bool inPlace(const Member& source, const Member& asker, rpc::NeighbourUse neighbours) {
  return &source == &asker || (sameHost(source, asker) && neighbours == rpc::NeighbourUse::read);
}
// It can be brought from there. What is on an SSD comes by the link alone.
bool fetchable(const Replica& replica, const Member& asker, rpc::NeighbourUse neighbours) {
  const bool copied = sameHost(*replica.member, asker) && neighbours == rpc::NeighbourUse::copy && !replica.ssd;
  return copied || !replica.member->registration().link.empty();
}
bool has(const KeyEntry& entry, const Member& member) { return replicaOf(entry, member, Medium::memory); }

}  // namespace

std::vector<Member*> MasterCore::candidates(const Member& asker, uint64_t size, Time now) {
  std::vector<Member*> reached;
  std::vector<Candidate> candidates;
  for (const auto& [node, member] : members_) {
    if (member->state != MemberState::joined || member->draining || !reachable(asker, *member)) continue;
    Candidate c;
    c.index = reached.size();
    c.self = member.get() == &asker;
    c.sameHost = sameHost(*member, asker);
    c.sameLabel = member->registration().label == asker.registration().label;
    c.ssd = bool(member->ssdLife);
    c.capacityBytes = member->space.capacity();
    c.usedBytes = member->space.capacity() - member->space.freeBytes();
    c.age = now - member->joinedAt;
    candidates.push_back(c);
    reached.push_back(member.get());
  }
  std::vector<Member*> ordered;
  for (const Candidate& c : place(std::move(candidates), size)) ordered.push_back(reached[c.index]);
  return ordered;
}

// A readable replica, in memory rather than on an SSD: of the asker, of one of its host, of one of its sub-cluster, any, in turn; not of
// the one that just failed it while there is another, nor of one to which there is no way.
const Replica* MasterCore::chooseSource(const KeyEntry& entry, const Member& asker, const rpc::GetStart& request) {
  const Replica* best = nullptr;
  int bestRank = INT_MIN;
  ++rotate_;
  for (size_t i = 0; i < entry.replicas.size(); ++i) {
    const Replica& replica = entry.replicas[(i + rotate_) % entry.replicas.size()];
    if (!replica.readable()) continue;
    const Member& member = *replica.member;
    const bool near = inPlace(member, asker, request.neighbours);
    int rank = &member == &asker ? 3 : near ? 2 : member.registration().label == asker.registration().label ? 1 : 0;
    if (!replica.ssd) rank += 10;
    if (member.node() == request.avoid && (&member != &asker || replica.ssd)) rank -= 20;
    if (!near && !fetchable(replica, asker, request.neighbours)) rank -= 40;
    if (rank > bestRank) best = &replica, bestRank = rank;
  }
  return best;
}

void MasterCore::on(Member& member, OperationId id, const rpc::GetStart& request, Time now) {
  ++counters_.gets;
  find(member, id, request, Turn::last, 0, now);
}

void MasterCore::find(Member& member, OperationId id, const rpc::GetStart& request, Turn turn, unsigned stagings, Time now) {
  Member* const lacks = lacksSpaceForGet(member, id, request, turn, stagings, now);
  if (!lacks) return;
  const KeyEntry* entry = routes_.find(request.key);
  space_.wait(*lacks, {member, id, request, entry ? entry->bytes : 0, {}, stagings}, request.timeLeftMs, now);
}

// nullptr: answered, or to be answered when it is staged. Only a value that must be brought here needs room, and waits behind those who
// came before; it needs room at its source as well if that must stage it. Else whose segment has none.
Member* MasterCore::lacksSpaceForGet(Member& member, OperationId id, const rpc::GetStart& request, Turn turn, unsigned stagings,
                                     Time now) {
  KeyEntry* entry = routes_.find(request.key);
  if (entry && entry->change) {
    defer(*entry, member, {id, request});
    return nullptr;
  }
  const Replica* const replica = entry ? chooseSource(*entry, member, request) : nullptr;
  if (!replica) {
    ++counters_.getMisses;
    out_.refuse(member, id, Code::miss);
    return nullptr;
  }
  Member& source = *replica->member;
  const bool own = &source == &member, near = inPlace(source, member, request.neighbours);
  if (near && !(own && replica->ssd)) {
    out_.reply(member, id, rpc::ReadAt{entry->putId, entry->bytes, peerOf(source), bool(replica->ssd)});
    return nullptr;
  }
  if (!near && !fetchable(*replica, member, request.neighbours)) {
    out_.refuse(member, id, Code::unavailable, "node " + source.node() + ", which has the value, has no link");
    return nullptr;
  }
  if (extentBytes(entry->bytes) > member.space.capacity()) {
    out_.refuse(member, id, Code::tooLarge,
              std::to_string(entry->bytes) + " bytes, the segment holds " + std::to_string(member.space.capacity()));
    return nullptr;
  }
  if (turn == Turn::last && SpaceQueue::hasLine(member)) return &member;
  const std::optional<Extent> extent = member.space.allocate(entry->bytes, Use::inFlight);
  if (!extent) return &member;
  const bool staged = replica->ssd && !own;
  const std::optional<Extent> staging = staged ? source.space.allocate(entry->bytes, Use::inFlight) : std::nullopt;
  if (staged && !staging) {
    FLUXON_MARK("master: there is no room to stage what is on an SSD");
    member.space.free(extent->offset);
    return &source;
  }
  size_t durable = 0;
  for (const auto& [other, copy] : entry->transfers) durable += other->transfers.at(copy).durable;
  Transfer transfer{entry, entry->putId, extent->offset, entry->bytes};
  transfer.durable = durable < kDurableAtOnce && !member.draining && !has(*entry, member);
  transfer.since = now;
  transfer.source = source;
  transfer.ssd = replica->ssd;
  if (staged) transfer.staging = staging->offset;
  entry->transfers.emplace_back(member, id);
  member.transfers.emplace(id, std::move(transfer));
  counters_.fetches += !own;
  counters_.ssdLoads += bool(replica->ssd);
  if (staged) {
    stage(member, id, request, stagings);
    return nullptr;
  }
  if (own) {
    out_.reply(member, id, rpc::LoadHere{entry->putId, entry->bytes, extent->offset});
  } else {
    out_.reply(member, id, rpc::FetchFrom{entry->putId, entry->bytes, extent->offset, peerOf(source), {}});
  }
  return nullptr;
}

// The transfer is no more; whoever waited for it is answered. Its extent is the caller's business.
void MasterCore::dropTransfer(Member& member, TransferId id) {
  const auto found = member.transfers.find(id);
  const Transfer transfer = std::move(found->second);
  member.transfers.erase(found);
  std::erase(transfer.key->transfers, std::pair(MemberRef(member), id));
  Member* const source = transfer.source.living();
  if (!source) FLUXON_MARK("master: the source of a transfer ends");
  // What is not exported yet is unstaged when it is.
  if (transfer.stage && source && source->staging.erase(transfer.stage) == 0) unstage(*source, transfer.stage, transfer.staging);
  if (transfer.origin) {
    FLUXON_MARK("master: a put cannot be brought to its home");
    const auto put = transfer.origin->puts.find(transfer.put);
    FLUXON_CHECK(put != transfer.origin->puts.end(), "a transfer of a put that is over");
    const OperationId done = put->second.done;
    put->second.home = {};  // nothing there to give up
    abandonPut(*transfer.origin, transfer.put);  // of the same key: forgets the entry if nothing is left of it
    return out_.refuse(*transfer.origin, done, Code::unavailable, "the value could not be brought to node " + member.node());
  }
  if (transfer.spread && transfer.spread.use_count() == 1 && transfer.spread->origin.living())
    out_.reply(*transfer.spread->origin, transfer.spread->request, transfer.spread->answer);
  routes_.forgetIfIdle(*transfer.key);
}

void MasterCore::on(Member& member, OperationId id, const rpc::GetDone& done, Time now) {
  copyEnded(member, id, done.get, done.code, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::ReplicateDone& done, Time now) {
  const auto found = member.transfers.find(done.order);
  if (found == member.transfers.end()) return out_.reply(member, id, rpc::CopyEnded());
  const Transfer& transfer = found->second;
  // The only copy of a put that waits for it is published from here.
  const bool publishes = transfer.origin && done.code == Code::ok;
  if (publishes && transfer.key->change) return defer(*transfer.key, member, {id, done});
  member.orders.erase(done.order);
  if (!publishes) return copyEnded(member, id, done.order, done.code, now);
  const Put& put = transfer.origin->puts.at(transfer.put);
  publish(*transfer.origin, put.done, transfer.put, now, {member, done.order, id});
}

void MasterCore::copyEnded(Member& member, OperationId request, TransferId id, Code code, Time now) {
  const auto found = member.transfers.find(id);
  if (found == member.transfers.end()) return out_.reply(member, request, rpc::CopyEnded());
  Transfer& transfer = found->second;
  KeyEntry& entry = *transfer.key;
  rpc::CopyEnded answer{transfer.putId, false, {}};
  if (code == Code::ok && transfer.durable && entry.putId == transfer.putId && !entry.change && !has(entry, member)) {
    routes_.add(entry, {member, transfer.offset});
    answer.published = true;
    answer.lease = entry.lease;
    ++counters_.replicasMade;
    if (transfer.spread) ++transfer.spread->answer.replicas;
  } else {
    if (code == Code::ok && entry.putId != transfer.putId) FLUXON_MARK("master: a transfer brings an older value");
    if (code == Code::ok && entry.change) FLUXON_MARK("master: a transfer ends during a change");
    if (code != Code::ok) FLUXON_MARK("master: a transfer fails");
    if (code != Code::ok && transfer.ssd && transfer.source == member) loadFailed(member, transfer, code);
    member.space.unroute(transfer.offset);
    counters_.transfersFailed += code != Code::ok;
  }
  const MemberRef source = transfer.source;
  dropTransfer(member, id);
  out_.reply(member, request, answer);
  if (source.living() && source->draining && !source->toMove.empty()) {
    source->retryMove = now;
    moveOut(*source, now);
  }
}

// Orders a copy of a readable value, or of what the source has exported there. No order: there is no way to it.
OrderId MasterCore::replicate(const KeyEntry& entry, Member& source, Member& to, std::optional<rpc::Exported> exported, uint64_t timeLeftMs,
                              Transfer transfer) {
  if (!reachable(source, to)) return {};
  const OrderId id = out_.order(to, rpc::Replicate{{}, std::string(entry.key), transfer.putId, transfer.bytes, transfer.offset, peerOf(source),
                                             exported, timeLeftMs});
  transfer.key->transfers.emplace_back(to, id);
  to.transfers.emplace(id, std::move(transfer));
  return id;
}

// The writer has filled its place of a put whose value shall lie at another member, who now comes for it.
void MasterCore::sendHome(Member& member, Put& put, OperationId request, Time now) {
  if (put.done) return out_.refuse(member, request, Code::protocol, "the put is done already");
  put.done = request;
  Transfer transfer{put.key, put.putId, put.homeOffset, put.bytes};
  transfer.source = member;
  transfer.origin = member;
  transfer.since = now;
  transfer.put = put.operation;
  put.copy = replicate(*put.key, member, *put.home, rpc::Exported{ExportId(put.putId.value), put.offset}, kCopyMs, std::move(transfer));
  if (!put.copy) {
    abandonPut(member, put.operation);
    out_.refuse(member, request, Code::unavailable, "this node has no link");
  }
}

// A put that is done is to be on more owners: answered when the copies are made, or cannot be.
void MasterCore::on(Member& member, OperationId id, const rpc::Spread& request, Time now) {
  const auto spread = std::make_shared<Spread>(Spread{member, id, {}});
  KeyEntry* const entry = routes_.find(request.value.key);
  const bool current = entry && !entry->change && entry->putId == request.value.putId;
  Member* source = nullptr;
  uint64_t copies = 0;
  for (const Replica& replica : current ? entry->replicas : std::vector<Replica>()) {
    if (replica.ssd || !replica.readable()) continue;
    ++copies;
    if (!source || replica.member == member) source = replica.member.get();
  }
  spread->answer.replicas = copies;
  std::vector<Member*> others = source ? candidates(*source, extentBytes(entry->bytes), now) : std::vector<Member*>();
  // A copy on another host outlives more.
  std::stable_partition(others.begin(), others.end(), [&](const Member* other) { return !sameHost(*other, *source); });
  for (Member* other : others) {
    if (copies >= request.replicas) break;
    if (has(*entry, *other)) continue;
    const std::optional<Extent> extent = other->space.allocate(entry->bytes, Use::inFlight);
    if (!extent) {
      space_.wantCopy(*other, extentBytes(entry->bytes), now);
      continue;
    }
    Transfer transfer{entry, entry->putId, extent->offset, entry->bytes};
    transfer.durable = true;
    transfer.source = *source;
    transfer.since = now;
    transfer.spread = spread;
    if (replicate(*entry, *source, *other, {}, request.timeLeftMs, std::move(transfer))) {
      ++copies;
    } else {
      other->space.free(extent->offset);
    }
  }
  if (spread.use_count() == 1) out_.reply(member, id, spread->answer);
}

Error MasterCore::drain(const std::string& node, Time now) {
  const auto found = members_.find(node);
  if (found != members_.end() && found->second->lives()) {
    Member& member = *found->second;
    member.draining = true;
    moveOut(member, now);
    return {};
  }
  if (!record_.has(node)) return {Code::unavailable, "no node '" + node + "'"};
  // It may be serving under a lease of the last term, which this term and a next one must wait for.
  if (window_.open()) return {Code::unavailable, "node " + node + " may still be serving: the recovery window of this term is open"};
  membership_.removeAbsent(node);
  return {};
}

Error MasterCore::undrain(const std::string& node) {
  const auto found = members_.find(node);
  if (found == members_.end() || !found->second->draining || found->second->state == MemberState::left)
    return {Code::unavailable, "node '" + node + "' is not being drained"};
  found->second->draining = found->second->finishing = false;
  found->second->toMove.clear();
  return {};
}

// A draining member: values that nobody else has go to others, a few at a time; then it may leave. What is on its SSD alone goes with it.
void MasterCore::moveOut(Member& member, Time now) {
  if (now < member.retryMove || member.state != MemberState::joined) return;
  member.retryMove = now + kMovePause;
  const auto elsewhere = [&](const KeyEntry& entry) {
    return std::any_of(entry.replicas.begin(), entry.replicas.end(),
                       [](const Replica& r) { return r.readable() && !r.member->draining; });
  };
  // What its clients put goes elsewhere by itself.
  size_t moving = 0;
  for (const auto& [node, other] : members_) {
    for (const auto& [id, transfer] : other->transfers) moving += transfer.source == member && !transfer.origin;
  }
  if (member.toMove.empty()) {
    for (const auto& [offset, record] : member.space.records()) {
      if (record.key && !elsewhere(*record.key)) member.toMove.push_back(offset);
    }
    member.retryMove = now + kCollectPause;
    if (member.toMove.empty() && moving == 0) letLeave(member, now);
  }
  // Values that find no place now are tried again when the others have been.
  std::vector<uint64_t> later;
  while (moving < kMovesAtOnce && later.size() < kMovesAtOnce && !member.toMove.empty()) {
    const uint64_t offset = member.toMove.back();
    member.toMove.pop_back();
    const MemberSpace::Record* record = member.space.find(offset);
    if (!record || !record->key || record->key->change || elsewhere(*record->key)) continue;
    if (moveAway(*record->key, member, now)) {
      ++moving;
    } else {
      later.push_back(offset);
    }
  }
  member.toMove.insert(member.toMove.begin(), later.begin(), later.end());
}

// False: nobody has room for it now. The best of those whom evictions could give room is to have some soon.
bool MasterCore::moveAway(KeyEntry& entry, Member& from, Time now) {
  const uint64_t size = extentBytes(entry.bytes);
  std::vector<Member*> others = candidates(from, size, now);
  std::erase(others, &from);
  for (Member* to : others) {
    const std::optional<Extent> extent = to->space.allocate(entry.bytes, Use::inFlight);
    if (!extent) continue;
    if (to != others.front()) FLUXON_MARK("master: a value is moved to another than the best node");
    Transfer transfer{&entry, entry.putId, extent->offset, entry.bytes};
    transfer.durable = true;
    transfer.source = from;
    transfer.since = now;
    if (replicate(entry, from, *to, {}, kCopyMs, std::move(transfer))) return true;
    to->space.free(extent->offset);
  }
  const auto able = std::find_if(others.begin(), others.end(), [&](const Member* to) { return size <= to->space.reachable(); });
  if (able != others.end()) space_.wantCopy(**able, size, now);
  return false;
}

// Nothing is left to move. From here on no put begins at the node; it leaves when those under way have ended or are past their deadline.
void MasterCore::letLeave(Member& member, Time now) {
  member.finishing = true;
  const auto open = [now](const auto& put) { return put.second.done || now < put.second.deadline; };
  if (std::any_of(member.puts.begin(), member.puts.end(), open)) {
    FLUXON_MARK("master: a drained node waits for puts under way");
    return;
  }
  member.leaving = true;
  member.retryMove = now + kLeavePause;
  out_.tell(member, rpc::Leave());
}

}  // namespace fluxon::master
