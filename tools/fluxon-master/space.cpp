// MasterCore: room for puts. Puts without space wait in order; victims are asked of the owner, who knows the readers.
//
// Nothing is evicted in vain: for a value that is larger than all that is not leased, read or retired (MemberSpace::reachable) only those
// are asked that were being read the last time, since without one of them it cannot fit. It waits until its deadline, and those who may
// fit pass it.
#include <algorithm>

#include "base/mark.h"
#include "master_core.h"

namespace fluxon::master {
namespace {

constexpr size_t kVictimsAtOnce = 256;
constexpr Duration kLeastBackOff = milliseconds(5), kMostBackOff = milliseconds(100);
// With fewer replicas one victim is worth more than the space kept ahead: what was acknowledged stays until it must go.
constexpr size_t kReplicasToKeepAhead = 32;

}  // namespace

// nullptr: answered. Else whose segment has no room now.
Member* MasterCore::lacksSpaceForPut(Member& member, OperationId id, const rpc::PutStart& request, Time now) {
  const auto refuse = [&](Code code, std::string detail) -> Member* {
    ++counters_.putsRefused;
    out_.refuse(member, id, code, std::move(detail));
    return nullptr;
  };
  std::string detail;
  if (const Code code = refusePut(request.key, request.mode, request.lease, detail, now); code != Code::ok)
    return refuse(code, std::move(detail));
  const uint64_t size = extentBytes(request.bytes);
  Member* home = &member;
  Member* asker = &member;
  if (!request.onBehalfOf.empty()) {
    // Only filled here: the request is that of another owner of the host.
    const auto named = members_.find(request.onBehalfOf);
    if (named == members_.end() || named->second->state != MemberState::joined ||
        named->second->registration().hostId != member.registration().hostId)
      return refuse(Code::invalidArgument, "node '" + request.onBehalfOf + "' is no owner of this host");
    asker = named->second.get();
  }
  const bool placedHere = request.mode.home == PutMode::Home::here;
  if (member.finishing && (asker != &member || placedHere)) {
    return refuse(Code::unavailable, "node " + member.node() + " is being drained and is about to leave");
  }
  // While no owner has an SSD, one that has room for the value has it itself.
  if (asker != &member || member.draining || size > member.space.capacity() || (membership_.anySsd() && !member.ssdLife)) {
    const std::vector<Member*> others = candidates(*asker, size, now);
    if (others.empty()) {
      uint64_t largest = 0;
      bool drained = true;
      for (const auto& [node, other] : members_) {
        if (other->state != MemberState::joined || (membership_.anySsd() && !other->ssdLife)) continue;
        largest = std::max(largest, other->space.capacity());
        drained &= other->draining;
      }
      if (size > largest) {
        return refuse(Code::tooLarge, std::to_string(request.bytes) + " bytes, the largest segment holds " + std::to_string(largest));
      }
      return refuse(Code::unavailable, drained ? "all nodes are being drained" : "no node that is not being drained can have the value");
    }
    home = others.front();
  }
  const bool sameHost = home->registration().hostId == member.registration().hostId;
  if (home != &member && asker == &member && !placedHere && sameHost) {
    // Its clients reach that one as well: they fill the value in its place.
    ++counters_.placedElsewhere;
    out_.reply(member, id, rpc::PutElsewhere{peerOf(*home)});
    return nullptr;
  }
  if (member.finishing) return refuse(Code::unavailable, "node " + member.node() + " is being drained and is about to leave");
  if (home != &member && size > member.space.capacity()) {
    return refuse(Code::tooLarge, std::to_string(request.bytes) + " bytes, the segment that they pass through holds " +
                                      std::to_string(member.space.capacity()));
  }
  const std::optional<Extent> extent = member.space.allocate(request.bytes, Use::inFlight);
  if (!extent) return &member;
  std::optional<Extent> there;
  if (home != &member && !(there = home->space.allocate(request.bytes, Use::inFlight))) {
    FLUXON_MARK("master: the home of a put has no room");
    member.space.free(extent->offset);
    return home;
  }
  KeyEntry& entry = routes_.at(request.key);
  entry.puts.emplace_back(member, id);
  Put& put = member.puts[id];
  const Time deadline = now + timeLeft(request.timeLeftMs);
  put = {id, &entry, nextPutId(), extent->offset, request.bytes, request.mode, request.lease, deadline};
  put.since = now;
  ++counters_.putsStarted;
  rpc::PutGranted granted{put.putId, put.offset, {}};
  if (there) {
    ++counters_.placedElsewhere;
    put.home = *home;
    put.homeOffset = there->offset;
    granted.home = peerOf(*home);
  }
  out_.reply(member, id, std::move(granted));
  return nullptr;
}

void MasterCore::waitForSpace(Member& at, Waiting waiting, uint64_t timeLeftMs, Time now) {
  waiting.deadline = now + std::min(settings_.putWait, timeLeft(timeLeftMs));
  at.waiting.push_back(std::move(waiting));
  askVictims(at, now);
}

void MasterCore::serveWaiting(Member& member, Time now) {
  for (size_t i = 0; i < member.waiting.size();) {
    const auto at = member.waiting.begin() + static_cast<ptrdiff_t>(i);
    if (!member.mayFit(*at)) {
      FLUXON_MARK("master: who cannot fit is passed");
      ++i;
      continue;
    }
    Waiting next = std::move(*at);
    member.waiting.erase(at);
    const auto* const put = std::get_if<rpc::PutStart>(&next.request);
    Member* const lacks = put ? lacksSpaceForPut(*next.member, next.id, *put, now)
                              : lacksSpaceForGet(*next.member, next.id, std::get<rpc::GetStart>(next.request), Turn::first,
                                                 next.stagings, now);
    if (!lacks) continue;
    if (lacks == &member) {
      member.waiting.insert(member.waiting.begin() + static_cast<ptrdiff_t>(i), std::move(next));
      return;
    }
    lacks->waiting.push_back(std::move(next));
    askVictims(*lacks, now);
  }
}

// Everybody has been asked: asking again at once would ask the same ones. The pauses grow while rounds follow each other in vain.
void MasterCore::backOff(Member& member, Time now) {
  if (now - std::exchange(member.roundEnded, now) > kMostBackOff * 2) member.busyBackOff = Duration{0};
  member.busyBackOff = std::clamp(member.busyBackOff * 2, kLeastBackOff, kMostBackOff);
  member.retryVictims = now + member.busyBackOff;
}

// Victims alone do not make room: what the owner has ahead of puts is to come back.
void MasterCore::askReserve(Member& member) {
  if (!member.wantsSpace() || !member.connected || member.space.bytes(Use::reserved) == 0) return;
  FLUXON_MARK("master: a reserve is asked back");
  out_.tell(member, rpc::Shrink());
}

// A copy to here found no room.
void MasterCore::wantCopy(Member& member, uint64_t size, Time now) {
  member.copyWanted = std::max(member.copyWanted, size);
  askVictims(member, now);
}

// What victims are to make of the space: bytes that are free, or about to be; of that for one who waits and finds the free ones in
// pieces; bytes that somebody lacks who cannot fit, which only those can give who were being read.
MasterCore::Lacking MasterCore::lacking(const Member& member) const {
  const MemberSpace& space = member.space;
  Lacking lacking{space.freeAhead(), member.waiting.size() + std::min<uint64_t>(space.maxExtents() / 50, 256), 0};
  uint64_t first = member.copyWanted;
  if (first > space.reachable()) first = 0;
  lacking.bytes += first;
  for (const Waiting& waiting : member.waiting) {
    const uint64_t size = extentBytes(waiting.bytes);
    if (member.mayFit(waiting)) {
      lacking.bytes += size;
      if (first == 0) first = size;
    } else if (lacking.ofBusy == 0) {
      lacking.ofBusy = size - space.reachable();
    }
  }
  if (member.evictTo != UINT64_MAX) {
    lacking.bytes = std::max(lacking.bytes, std::min(space.capacity() - member.evictTo, space.freeBytes() + member.evictLeft));
  }
  lacking.bytes = std::min(lacking.bytes, space.capacity());
  // Enough free, but in pieces: more has to go until the first one fits.
  if (first > 0 && space.bytes(Use::reclaiming) == 0 && space.freeBytes() >= lacking.bytes) {
    lacking.bytes = std::min(space.capacity(), space.freeBytes() + first);
  }
  return lacking;
}

void MasterCore::askVictims(Member& member, Time now) {
  MemberSpace& space = member.space;
  if (member.retryVictims.ns != 0 && now >= member.retryVictims) {
    member.retryVictims = Time{0};
    member.roundOver = false;
    space.retryBusy();
  }
  if (member.evictTo != UINT64_MAX && (member.evictLeft == 0 || space.capacity() - space.freeBytes() <= member.evictTo)) {
    member.evictTo = UINT64_MAX;
  }
  if (member.copyWanted > 0 && space.largestFree() >= member.copyWanted) member.copyWanted = 0;
  if (!member.wantsSpace() && space.replicas() < kReplicasToKeepAhead) return;
  const Lacking lacks = lacking(member);
  std::vector<uint64_t> victims = space.takeVictims(lacks.bytes, lacks.extents, kVictimsAtOnce);
  if (lacks.ofBusy > 0 && victims.size() < kVictimsAtOnce) {
    FLUXON_MARK("master: only those that are read could make room");
    const std::vector<uint64_t> busy = space.takeBusy(lacks.ofBusy, kVictimsAtOnce - victims.size());
    victims.insert(victims.end(), busy.begin(), busy.end());
  }
  if (victims.empty()) {
    // What may go has gone, and each of the others has been asked.
    if (member.wantsSpace() && space.bytes(Use::reclaiming) == 0 && !std::exchange(member.roundOver, true)) {
      askReserve(member);
      member.evictTo = UINT64_MAX, member.copyWanted = 0;
      backOff(member, now);
    }
    return;
  }
  std::vector<rpc::MemoryReplica> items;
  for (const uint64_t offset : victims) {
    const KeyEntry& entry = *space.find(offset)->key;
    items.push_back({std::string(entry.key), entry.putId, offset});
  }
  out_.order(member, rpc::Reclaim{{}, std::move(items)});
}

void MasterCore::on(Member& member, OperationId id, const rpc::ReclaimDone& done, Time now) {
  out_.reply(member, id, rpc::Done());
  const std::optional<rpc::Reclaim> order = out_.answered<rpc::Reclaim>(member, done.order);
  if (!order) return;
  const std::vector<rpc::MemoryReplica>& items = order->replicas;
  size_t busy = 0;
  bool letGo = false;
  for (size_t i = 0; i < items.size(); ++i) {
    // An answer that is too short counts as busy: nothing is freed without the owner's word.
    const rpc::ReclaimResult result = i < done.results.size() ? done.results[i] : rpc::ReclaimResult::busy;
    MemberSpace::Record* record = member.space.find(items[i].offset);
    if (!record || (record->use != Use::reclaiming && record->use != Use::unrouted)) continue;
    // The place may have been released and given out again since: then this answer is about what was there before.
    if (record->use == Use::reclaiming && record->key->putId != items[i].putId) {
      FLUXON_MARK("master: a reclaim is answered after its place was given out again");
      continue;
    }
    if (result == rpc::ReclaimResult::ok) {
      letGo = letGo || record->busy;
      member.evictLeft -= std::min(member.evictLeft, record->extent.length);
      ++member.evictions;
      ++counters_.evictions;
      if (record->use == Use::unrouted) {
        member.space.free(items[i].offset);
        continue;
      }
      KeyEntry& entry = *record->key;
      member.space.reclaimed(items[i].offset);
      routes_.loseFreed(entry, member);
    } else if (result == rpc::ReclaimResult::busy) {
      ++busy;
      ++counters_.evictionsBusy;
      if (record->use == Use::reclaiming) member.space.reclaimBusy(items[i].offset);
    } else if (record->use == Use::reclaiming) {
      // The owner has given the version up; its release follows.
      FLUXON_MARK("master: a victim is gone already");
      KeyEntry& entry = *record->key;
      routes_.lose(entry, member, Medium::memory);
    }
  }
  // One that was read when it was asked before: asking the busy ones pays.
  if (letGo) member.busyBackOff = Duration{0};
  if (busy > 0 && member.retryVictims.ns == 0) member.retryVictims = now + kMostBackOff;
  serveWaiting(member, now);
  askVictims(member, now);
}

Error MasterCore::evictTo(const std::string& node, uint64_t percent, Time now) {
  bool any = false;
  for (const auto& [name, member] : members_) {
    if (member->state != MemberState::joined || (!node.empty() && name != node)) continue;
    any = true;
    const uint64_t used = member->space.capacity() - member->space.freeBytes();
    member->evictTo = member->space.capacity() / 100 * percent;
    member->evictLeft = used - std::min(used, member->evictTo);
    member->retryVictims = now;
    askVictims(*member, now);
  }
  return any ? Error{} : Error{Code::unavailable, node.empty() ? "no node has joined" : "no node '" + node + "' has joined"};
}

}  // namespace fluxon::master
