#include "transfers.h"

#include <algorithm>

#include "base/mark.h"
#include "reach.h"

namespace fluxon::master {

Transfer& Transfers::begin(Member& to, OperationId get, Transfer transfer) {
  transfer.key->transfers.emplace_back(to, get);
  return to.transfers.own().emplace(get, std::move(transfer)).first->second;
}

OrderId Transfers::replicate(const KeyEntry& entry, Member& source, Member& to, std::optional<rpc::Exported> exported, uint64_t timeLeftMs,
                             Transfer transfer) {
  if (!reachable(source, to)) return {};
  const OrderId id = out_.order(
      to,
      rpc::Replicate{{}, std::string(entry.key), transfer.putId, transfer.bytes, transfer.offset, peerOf(source), exported, timeLeftMs});
  transfer.key->transfers.emplace_back(to, id);
  to.transfers.own().emplace(id, std::move(transfer));
  return id;
}

bool Transfers::bringHome(Member& member, Put& put, Time now) {
  Transfer transfer{put.key, put.putId, put.home->offset, put.bytes, member, now};
  transfer.purpose = OfPut{member, put.operation};
  const rpc::Exported filled{ExportId(put.putId.value), put.offset};
  put.home->copy = replicate(*put.key, member, *put.home->member, filled, kCopyMs, std::move(transfer));
  return bool(put.home->copy);
}

void Transfers::unwanted(Member& home, OrderId copy) {
  const auto found = home.transfers.own().find(copy);
  if (found == home.transfers->end()) return;
  FLUXON_MARK("master: a put is given up whose copy is under way");
  found->second.purpose = std::monostate();
}

void Transfers::taken(Member& home, OrderId copy) {
  const auto found = home.transfers.own().find(copy);
  std::erase(found->second.key->transfers, std::pair(MemberRef(home), TransferId(copy)));
  home.transfers.own().erase(found);
}

void Transfers::drop(Member& member, TransferId id, Place place) {
  const auto found = member.transfers.own().find(id);
  const Transfer transfer = std::move(found->second);
  member.transfers.own().erase(found);
  std::erase(transfer.key->transfers, std::pair(MemberRef(member), id));
  if (place == Place::written) member.space.unroute(transfer.offset);
  if (place == Place::unheardOf) member.space.free(transfer.offset);
  Member* const source = transfer.source.living();
  if (!source) FLUXON_MARK("master: the source of a transfer ends");
  if (transfer.stage && source && place != Place::unheardOf) events_.notStaged(*source, *transfer.stage);
  if (const auto* const put = std::get_if<OfPut>(&transfer.purpose)) return events_.cannotArrive(*put, member.node());
  if (const auto* const spread = std::get_if<std::shared_ptr<Spread>>(&transfer.purpose)) {
    const Spread& asked = **spread;
    if (spread->use_count() == 1 && asked.origin.living()) out_.reply(*asked.origin, asked.request, asked.answer);
  }
  routes_.forgetIfIdle(*transfer.key);
}

void Transfers::getDone(Member& member, OperationId id, const rpc::GetDone& done, Time now) { ended(member, id, done.get, done.code, now); }

void Transfers::replicateDone(Member& member, OperationId id, const rpc::ReplicateDone& done, Time now) {
  const auto found = member.transfers->find(done.order);
  if (found == member.transfers->end()) return out_.reply(member, id, rpc::CopyEnded());
  const Transfer& transfer = found->second;
  // A put waits for this copy, its only one: it is published now.
  const auto* const put = done.code == Code::ok ? std::get_if<OfPut>(&transfer.purpose) : nullptr;
  if (put && transfer.key->change) return events_.defer(*transfer.key, member, {id, done});
  Outgoing::over(member, done.order);
  if (!put) return ended(member, id, done.order, done.code, now);
  const OfPut its = *put;
  events_.arrived(its, {member, done.order, id}, now);
}

void Transfers::ended(Member& member, OperationId request, TransferId id, Code code, Time now) {
  const auto found = member.transfers->find(id);
  if (found == member.transfers->end()) return out_.reply(member, request, rpc::CopyEnded());
  const Transfer& transfer = found->second;
  KeyEntry& entry = *transfer.key;
  const MemberRef source = transfer.source;
  rpc::CopyEnded answer{transfer.putId, false, {}};
  if (code == Code::ok && transfer.durable && entry.putId == transfer.putId && !entry.change && !replicaOf(entry, member, Medium::memory)) {
    routes_.add(entry, {member, transfer.offset});
    answer.published = true;
    answer.lease = entry.lease;
    ++counters_.replicasMade;
    if (const auto* const asked = std::get_if<std::shared_ptr<Spread>>(&transfer.purpose)) ++(*asked)->answer.replicas;
    drop(member, id, Place::kept);
  } else {
    if (code == Code::ok && entry.putId != transfer.putId) FLUXON_MARK("master: a transfer brings an older value");
    if (code == Code::ok && entry.change) FLUXON_MARK("master: a transfer ends during a change");
    if (code != Code::ok) FLUXON_MARK("master: a transfer fails");
    if (code != Code::ok && transfer.ssd && source == member) events_.loadFailed(member, transfer, code);
    counters_.transfersFailed += code != Code::ok;
    drop(member, id, Place::written);
  }
  out_.reply(member, request, answer);
  if (Member* const from = source.living()) events_.ended(*from, now);
}

// Copies a published value to more owners, and answers when the copies are made or cannot be.
void Transfers::spread(Member& member, OperationId id, const rpc::Spread& request, Time now) {
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
  std::vector<Member*> others = source ? candidates(membership_, *source, extentBytes(entry->bytes), now) : std::vector<Member*>();
  // A copy on another host survives more failures.
  std::stable_partition(others.begin(), others.end(), [&](const Member* other) { return !sameHost(*other, *source); });
  for (Member* other : others) {
    if (copies >= request.replicas) break;
    if (replicaOf(*entry, *other, Medium::memory)) continue;
    const std::optional<Extent> extent = other->space.allocate(entry->bytes, Use::inFlight);
    if (!extent) {
      space_.wantCopy(*other, extentBytes(entry->bytes), now);
      continue;
    }
    Transfer transfer{entry, entry->putId, extent->offset, entry->bytes, *source, now, true};
    transfer.purpose = spread;
    if (replicate(*entry, *source, *other, {}, request.timeLeftMs, std::move(transfer))) {
      ++copies;
    } else {
      other->space.free(extent->offset);
    }
  }
  if (spread.use_count() == 1) out_.reply(member, id, spread->answer);
}

void Transfers::memberEnded(Member& member) {
  while (!member.transfers->empty()) drop(member, member.transfers->begin()->first, Place::kept);
}

size_t Transfers::durable(const KeyEntry& entry) {
  size_t durable = 0;
  for (const auto& [member, id] : entry.transfers) durable += member->transfers->at(id).durable;
  return durable;
}

size_t Transfers::movingFrom(const Member& member) const {
  size_t moving = 0;
  for (const auto& [node, other] : membership_.all()) {
    for (const auto& [id, transfer] : *other->transfers)
      moving += transfer.source == member && !std::holds_alternative<OfPut>(transfer.purpose);
  }
  return moving;
}

uint64_t Transfers::underWay() const {
  uint64_t sum = 0;
  for (const auto& [node, member] : membership_.all()) sum += member->transfers->size();
  return sum;
}

Duration Transfers::oldest(Time now) const {
  Duration age{0};
  for (const auto& [node, member] : membership_.all()) {
    for (const auto& [id, transfer] : *member->transfers) age = std::max(age, now - transfer.since);
  }
  return age;
}

}  // namespace fluxon::master
