// MasterCore: room for puts. Puts without space wait in order; victims are asked of the owner, who knows the readers.
#include <algorithm>

#include "master_core.h"

namespace fluxon::master {
namespace {

constexpr size_t kVictimsAtOnce = 256;
constexpr Duration kLeastBackOff = milliseconds(5), kMostBackOff = milliseconds(100);
// With fewer replicas one victim is worth more than the space kept ahead: what was acknowledged stays until it must go.
constexpr size_t kReplicasToKeepAhead = 32;

}  // namespace

bool MasterCore::tryPutStart(Member& member, const rpc::Request& request, Time now) {
  std::string detail;
  if (const Code code = refusePut(member, request, detail, now); code != Code::ok) {
    ++counters_.putsRefused;
    replyCode(member, request.id, code, std::move(detail));
    return true;
  }
  const std::optional<Extent> extent = member.space.allocate(request.bytes, Use::inFlight);
  if (!extent) return false;
  KeyEntry& entry = table_.at(request.key);
  entry.puts.emplace_back(&member, request.id);
  const Time deadline = now + milliseconds(static_cast<int64_t>(std::min<uint64_t>(request.timeLeftMs, 86'400'000)));
  const Put put{request.id, &entry, nextPutId(), extent->offset, request.bytes, request.flags, request.lease, deadline, false};
  member.puts.emplace(request.id, put);
  ++counters_.putsStarted;
  rpc::Reply answer;
  answer.id = request.id;
  answer.putId = put.putId;
  answer.offset = put.offset;
  reply(member, std::move(answer));
  return true;
}

void MasterCore::serveWaiting(Member& member, Time now) {
  while (!member.waiting.empty() && tryPutStart(member, member.waiting.front().request, now)) member.waiting.pop_front();
}

// All victims were being read, or there was none: asking again at once would ask the same ones.
void MasterCore::backOff(Member& member, Time now) {
  member.busyBackOff = std::clamp(member.busyBackOff * 2, kLeastBackOff, kMostBackOff);
  member.retryVictims = now + member.busyBackOff;
}

void MasterCore::askVictims(Member& member, Time now) {
  if (now < member.retryVictims) return;
  MemberSpace& space = member.space;
  if (member.waiting.empty() && space.replicas() < kReplicasToKeepAhead) return;
  uint64_t wanted = space.reserveAhead();
  for (const WaitingPut& put : member.waiting) wanted += extentBytes(put.request.bytes);
  wanted = std::min(wanted, space.capacity());
  // Enough free, but in pieces: more has to go until the first one fits.
  if (!member.waiting.empty() && space.bytes(Use::reclaiming) == 0 && space.freeBytes() >= wanted) {
    wanted = std::min(space.capacity(), space.freeBytes() + extentBytes(member.waiting.front().request.bytes));
  }
  const uint64_t extentsAhead = std::min<uint64_t>(space.maxExtents() / 50, 256);
  const std::vector<uint64_t> victims = space.takeVictims(wanted, member.waiting.size() + extentsAhead, kVictimsAtOnce);
  if (victims.empty()) {
    if (!member.waiting.empty()) backOff(member, now);
    return;
  }
  std::vector<rpc::Version> items;
  for (const uint64_t offset : victims) {
    const KeyEntry& entry = *space.find(offset)->key;
    items.push_back({std::string(entry.key), entry.putId, offset});
  }
  order(member, rpc::CommandKind::reclaim, std::move(items));
}

void MasterCore::reclaimDone(Member& member, const rpc::Request& request, Time now) {
  replyCode(member, request.id, Code::ok);
  const auto found = member.orders.find(request.command);
  if (found == member.orders.end() || found->second.kind != rpc::CommandKind::reclaim) return;
  const std::vector<rpc::Version> items = std::move(found->second.items);
  member.orders.erase(found);
  size_t freed = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    // An answer that is too short counts as busy: nothing is freed without the owner's word.
    const rpc::ReclaimResult result = i < request.results.size() ? request.results[i] : rpc::ReclaimResult::busy;
    MemberSpace::Record* record = member.space.find(items[i].offset);
    if (!record || (record->use != Use::reclaiming && record->use != Use::unrouted)) continue;
    // The place may have been released and given out again since: then this answer is about what was there before.
    if (record->use == Use::reclaiming && record->key->putId != items[i].putId) continue;
    if (result == rpc::ReclaimResult::ok) {
      ++freed;
      ++member.evictions;
      ++counters_.evictions;
      if (record->use == Use::unrouted) {
        member.space.free(items[i].offset);
        continue;
      }
      KeyEntry& entry = *record->key;
      std::erase_if(entry.replicas, [&](const Replica& replica) { return replica.member == &member; });
      member.space.reclaimed(items[i].offset);
      if (entry.replicas.empty() && !entry.change) dropRoute(entry);
      table_.settle(entry);
    } else if (result == rpc::ReclaimResult::busy) {
      ++counters_.evictionsBusy;
      if (record->use == Use::reclaiming) member.space.reclaimBusy(items[i].offset);
    } else if (record->use == Use::reclaiming) {
      // The owner has given the version up; its release follows.
      KeyEntry& entry = *record->key;
      dropReplica(entry, member);
      if (entry.replicas.empty() && !entry.change) dropRoute(entry);
      table_.settle(entry);
    }
  }
  if (freed == 0) {
    backOff(member, now);
  } else {
    member.busyBackOff = Duration{0};
  }
  serveWaiting(member, now);
  askVictims(member, now);
}

}  // namespace fluxon::master
