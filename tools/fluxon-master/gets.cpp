#include "gets.h"

#include <climits>

#include "base/mark.h"
#include "reach.h"

namespace fluxon::master {
namespace {

constexpr size_t kDurableAtOnce = 2;  // copies of one version that are to become replicas; more readers get temporary ones

// The asker's clients can read the value where it is.
bool inPlace(const Member& source, const Member& asker, rpc::NeighbourUse neighbours) {
  return &source == &asker || (sameHost(source, asker) && neighbours == rpc::NeighbourUse::read);
}
// A transfer can bring the value from there. A value on an SSD can only come over the link.
bool fetchable(const Replica& replica, const Member& asker, rpc::NeighbourUse neighbours) {
  const bool copied = sameHost(*replica.member, asker) && neighbours == rpc::NeighbourUse::copy && !replica.ssd;
  return copied || !replica.member->registration().link.empty();
}

}  // namespace

// Chooses a readable replica, in memory rather than on an SSD: at the asker, else on its host, else in its sub-cluster, else anywhere,
// rotating among equals. It avoids the source that has just failed the asker while there is another, and those that it cannot reach.
const Replica* Gets::chooseSource(const KeyEntry& entry, const Member& asker, const rpc::GetStart& request) const {
  const Replica* best = nullptr;
  int bestRank = INT_MIN;
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

Gets::Plan Gets::decide(const KeyEntry* entry, const Member& member, const rpc::GetStart& request, Rank rank) const {
  const Replica* const replica = entry ? chooseSource(*entry, member, request) : nullptr;
  if (!replica) return Miss();
  const Member& source = *replica->member;
  const bool own = &source == &member, near = inPlace(source, member, request.neighbours);
  if (near && !(own && replica->ssd)) return Read{replica};
  if (!near && !fetchable(*replica, member, request.neighbours))
    return Refusal{Code::unavailable, "node " + source.node() + ", which has the value, has no link"};
  if (extentBytes(entry->bytes) > member.space.capacity()) {
    return Refusal{Code::tooLarge, std::to_string(entry->bytes) + " bytes, the segment holds " + std::to_string(member.space.capacity())};
  }
  if (rank == Rank::last && SpaceQueue::hasLine(member)) return Behind();
  return Bring{replica, own ? Bring::Way::load : replica->ssd ? Bring::Way::stage : Bring::Way::fetch};
}

Member* Gets::bring(KeyEntry& entry, Member& member, OperationId id, const rpc::GetStart& request, const Bring& plan, unsigned stagings,
                    Time now) {
  Member& source = *plan.from->member;
  const bool stages = plan.way == Bring::Way::stage;
  const std::optional<Extent> extent = member.space.allocate(entry.bytes, Use::inFlight);
  if (!extent) return &member;
  const std::optional<Extent> staging = stages ? source.space.allocate(entry.bytes, Use::inFlight) : std::nullopt;
  if (stages && !staging) {
    FLUXON_MARK("master: there is no room to stage what is on an SSD");
    member.space.free(extent->offset);
    return &source;
  }
  Transfer transfer{&entry, entry.putId, extent->offset, entry.bytes, source, now};
  transfer.durable = Transfers::durable(entry) < kDurableAtOnce && !member.draining() && !replicaOf(entry, member, Medium::memory);
  transfer.ssd = plan.from->ssd;
  counters_.fetches += plan.way != Bring::Way::load;
  counters_.ssdLoads += bool(plan.from->ssd);
  Transfer& begun = transfers_.begin(member, id, std::move(transfer));
  switch (plan.way) {
    case Bring::Way::stage: staging_.begin(member, id, request, begun, staging->offset, stagings); break;
    case Bring::Way::load: out_.reply(member, id, rpc::LoadHere{begun.putId, begun.bytes, begun.offset}); break;
    case Bring::Way::fetch: out_.reply(member, id, rpc::FetchFrom{begun.putId, begun.bytes, begun.offset, peerOf(source), {}}); break;
  }
  return nullptr;
}

Member* Gets::retry(Member& member, OperationId id, const rpc::GetStart& request, Rank rank, unsigned stagings, Time now) {
  KeyEntry* const entry = routes_.find(request.key);
  if (entry && entry->change) {
    changes_.defer(*entry, member, {id, request});
    return nullptr;
  }
  rotate_ += entry != nullptr;
  const Plan plan = decide(entry, member, request, rank);
  if (const auto* const brought = std::get_if<Bring>(&plan)) return bring(*entry, member, id, request, *brought, stagings, now);
  if (std::holds_alternative<Behind>(plan)) return &member;
  if (const auto* const read = std::get_if<Read>(&plan)) {
    out_.reply(member, id, rpc::ReadAt{entry->putId, entry->bytes, peerOf(*read->where->member), bool(read->where->ssd)});
  } else if (const auto* const refused = std::get_if<Refusal>(&plan)) {
    out_.refuse(member, id, refused->code, refused->detail);
  } else {
    ++counters_.getMisses;
    out_.refuse(member, id, Code::miss);
  }
  return nullptr;
}

void Gets::find(Member& member, OperationId id, const rpc::GetStart& request, Rank rank, unsigned stagings, Time now) {
  Member* const lacks = retry(member, id, request, rank, stagings, now);
  if (!lacks) return;
  const KeyEntry* const entry = routes_.find(request.key);
  space_.wait(*lacks, {member, id, request, entry ? entry->bytes : 0, {}, stagings}, request.timeLeftMs, now);
}

void Gets::start(Member& member, OperationId id, const rpc::GetStart& request, Time now) {
  ++counters_.gets;
  find(member, id, request, Rank::last, 0, now);
}

}  // namespace fluxon::master
