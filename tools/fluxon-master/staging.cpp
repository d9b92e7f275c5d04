#include "staging.h"

#include "base/mark.h"

namespace fluxon::master {
namespace {

constexpr unsigned kStagings = 3;  // sources that one get tries

// The id of an export of a staged value: not 0 and no put_id, which other exports have.
ExportId exportOf(OrderId stage) { return ExportId(stage.value | rpc::kStagedExport); }

}  // namespace

void Staging::begin(Member& member, OperationId get, const rpc::GetStart& request, Transfer& transfer, uint64_t offset, unsigned stagings) {
  Member& source = *transfer.source;
  const rpc::Exported to{exportOf(out_.nextOrder()), offset};
  const OrderId order =
      out_.order(source, rpc::Stage{{}, std::string(transfer.key->key), transfer.putId, transfer.bytes, to, request.timeLeftMs});
  transfer.stage = StagedAt{order, offset};
  waiting_.emplace(order, Waits{source, {member, get, request, stagings}});
}

void Staging::staged(Member& member, OperationId id, const rpc::Staged& staged, Time now) {
  out_.reply(member, id, rpc::Done());
  const std::optional<rpc::Stage> order = out_.answered<rpc::Stage>(member, staged.order);
  if (!order) return;
  const auto waiting = waiting_.find(staged.order);
  if (waiting == waiting_.end()) {
    FLUXON_MARK("master: what is staged is not wanted any more");
    if (staged.code == Code::ok) return unstage(member, {staged.order, order->to.offset});
    member.space.free(order->to.offset);
    return space_.serve(member, now);
  }
  StagedGet get = std::move(waiting->second.get);
  waiting_.erase(waiting);
  const Transfer& transfer = get.member->transfers->at(get.id);
  if (staged.code == Code::ok)
    return out_.reply(*get.member, get.id, rpc::FetchFrom{transfer.putId, transfer.bytes, transfer.offset, peerOf(member), order->to});
  ssds_.loadFailed(member, transfer, staged.code);
  member.space.free(order->to.offset);
  drop(get);
  if (++get.stagings == kStagings) {
    out_.refuse(*get.member, get.id, Code::unavailable, "no node could bring the value from its SSD, at last " + member.node());
  } else {
    get.request.avoid = member.node();
    again_(get, now);
  }
  space_.serve(member, now);
  space_.serve(*get.member, now);
}

// The get goes on without this staging. The asker has not been told of the target extent, and there is nothing to unstage.
void Staging::drop(const StagedGet& get) { transfers_.drop(*get.member, get.id, Transfers::Place::unheardOf); }

void Staging::notWanted(Member& source, const StagedAt& stage) {
  if (waiting_.erase(stage.order) == 0) unstage(source, stage);
}

void Staging::unstage(Member& source, const StagedAt& stage) {
  places_.emplace(out_.order(source, rpc::Unstage{{}, exportOf(stage.order)}), Place{source, stage.offset});
}

void Staging::unstaged(Member& member, OperationId id, const rpc::Unstaged& unstaged, Time now) {
  out_.reply(member, id, rpc::Done());
  if (!out_.answered<rpc::Unstage>(member, unstaged.order)) return;
  const auto place = places_.extract(unstaged.order);
  member.space.free(place.mapped().offset);
  space_.serve(member, now);
}

void Staging::memberEnded(Member& member) {
  std::vector<StagedGet> gets;
  std::erase_if(waiting_, [&](auto& each) {
    if (!(each.second.source == member)) return false;
    gets.push_back(std::move(each.second.get));
    return true;
  });
  for (const StagedGet& get : gets) {
    FLUXON_MARK("master: a member ends under a get that waits for what is on its SSD");
    drop(get);
    out_.refuse(*get.member, get.id, Code::unavailable, "node " + member.node() + " ended");
  }
  std::erase_if(places_, [&](const auto& each) { return each.second.source == member; });
}

}  // namespace fluxon::master
