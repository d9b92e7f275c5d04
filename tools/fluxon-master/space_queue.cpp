#include "space_queue.h"

#include <algorithm>

#include "base/mark.h"

namespace fluxon::master {
namespace {

constexpr uint64_t kLargestReserve = 256;  // extents of one reserve
constexpr size_t kVictimsAtOnce = 256;
constexpr Duration kLeastBackOff = milliseconds(5), kMostBackOff = milliseconds(100);
// With fewer replicas, one victim costs more than space kept ahead is worth: acknowledged values stay until a request needs their space.
constexpr size_t kReplicasToKeepAhead = 32;

}  // namespace

void SpaceQueue::reserve(Member& member, OperationId id, const rpc::Reserve& request) {
  rpc::Reserved reserved;
  // Space that waiting puts need is not reserved; nor is any at a member that takes no puts.
  const bool none = hasLine(member) || member.draining() || (membership_.anySsd() && !*member.ssdLife);
  for (uint64_t n = std::min(request.count, kLargestReserve); n > 0 && !none; --n) {
    const std::optional<Extent> extent = member.space.allocate(request.extentBytes, Use::reserved);
    if (!extent) break;
    reserved.offsets.push_back(extent->offset);
  }
  out_.reply(member, id, std::move(reserved));
}

void SpaceQueue::release(Member& member, OperationId id, const rpc::Release& release, Time now) {
  Code code = Code::ok;
  for (const uint64_t offset : release.offsets) {
    const MemberSpace::Record* record = member.space.find(offset);
    if (record && (record->use == Use::unrouted || record->use == Use::reserved)) {
      member.space.free(offset);
    } else {
      // The owner may release only extents that the master has told it are over. Anything else is a mistake of the owner, and must not cost
      // a live extent.
      code = Code::protocol;
    }
  }
  out_.refuse(member, id, code, code == Code::ok ? "" : "release of an extent that is not over");
  serve(member, now);
}

bool SpaceQueue::mayFit(const Member& member, const Waiting& each) { return extentBytes(each.bytes) <= member.space.reachable(); }

bool SpaceQueue::hasLine(const Member& member) {
  const std::deque<Waiting>& waiting = member.shortage.waiting_;
  return std::any_of(waiting.begin(), waiting.end(), [&](const Waiting& each) { return mayFit(member, each); });
}

void SpaceQueue::wait(Member& at, Waiting waiting, uint64_t timeLeftMs, Time now) {
  waiting.deadline = now + std::min(patience_, timeLeft(timeLeftMs));
  at.shortage.waiting_.push_back(std::move(waiting));
  askVictims(at, now);
}

void SpaceQueue::serve(Member& member, Time now) {
  for (size_t i = 0; i < member.shortage.waiting_.size();) {
    const auto at = member.shortage.waiting_.begin() + static_cast<ptrdiff_t>(i);
    if (!mayFit(member, *at)) {
      FLUXON_MARK("master: who cannot fit is passed");
      ++i;
      continue;
    }
    Waiting next = std::move(*at);
    member.shortage.waiting_.erase(at);
    Member* const lacks = retry_(next, now);
    if (!lacks) continue;
    if (lacks == &member) {
      member.shortage.waiting_.insert(member.shortage.waiting_.begin() + static_cast<ptrdiff_t>(i), std::move(next));
      return;
    }
    lacks->shortage.waiting_.push_back(std::move(next));
    askVictims(*lacks, now);
  }
}

// Victims alone do not make room: asks the owner to return the extents that it has reserved for puts.
void SpaceQueue::askReserve(Member& member) {
  if (!member.shortage.any() || !member.connected() || member.space.bytes(Use::reserved) == 0) return;
  FLUXON_MARK("master: a reserve is asked back");
  out_.tell(member, rpc::Shrink());
}

void SpaceQueue::wantCopy(Member& member, uint64_t size, Time now) {
  member.shortage.copyWanted_ = std::max(member.shortage.copyWanted_, size);
  askVictims(member, now);
}

// What evictions should achieve: bytes that are free or about to be, more of them if the first request that waits finds free space only in
// pieces; and bytes that a request that cannot fit lacks, which only busy replicas can give.
SpaceQueue::Lacking SpaceQueue::lacking(const Member& member) {
  const Shortage& shortage = member.shortage;
  const MemberSpace& space = member.space;
  Lacking lacking{space.freeAhead(), shortage.waiting_.size() + std::min<uint64_t>(space.maxExtents() / 50, 256), 0};
  uint64_t first = shortage.copyWanted_;
  if (first > space.reachable()) first = 0;
  lacking.bytes += first;
  for (const Waiting& waiting : shortage.waiting_) {
    const uint64_t size = extentBytes(waiting.bytes);
    if (mayFit(member, waiting)) {
      lacking.bytes += size;
      if (first == 0) first = size;
    } else if (lacking.ofBusy == 0) {
      lacking.ofBusy = size - space.reachable();
    }
  }
  if (shortage.evictTo_ != UINT64_MAX) {
    const uint64_t asked = space.freeBytes() + shortage.evictLeft_;
    lacking.bytes = std::max(lacking.bytes, std::min(space.capacity() - shortage.evictTo_, asked));
  }
  lacking.bytes = std::min(lacking.bytes, space.capacity());
  // Enough bytes are free, but in pieces: evicts more until the first request fits.
  if (first > 0 && space.bytes(Use::reclaiming) == 0 && space.freeBytes() >= lacking.bytes) {
    lacking.bytes = std::min(space.capacity(), space.freeBytes() + first);
  }
  return lacking;
}

void SpaceQueue::askVictims(Member& member, Time now) {
  Shortage& shortage = member.shortage;
  MemberSpace& space = member.space;
  if (shortage.round_ != Shortage::Round::asking && now >= shortage.until_) {
    shortage.round_ = Shortage::Round::asking;
    space.retryBusy();
  }
  const uint64_t used = space.capacity() - space.freeBytes();
  if (shortage.evicting() && (shortage.evictLeft_ == 0 || used <= shortage.evictTo_)) {
    shortage.evictTo_ = UINT64_MAX;
  }
  if (shortage.copyWanted_ > 0 && space.largestFree() >= shortage.copyWanted_) shortage.copyWanted_ = 0;
  if (!shortage.any() && space.replicas() < kReplicasToKeepAhead) return;
  const Lacking lacks = lacking(member);
  std::vector<uint64_t> victims = space.takeVictims(lacks.bytes, lacks.extents, kVictimsAtOnce);
  if (lacks.ofBusy > 0 && victims.size() < kVictimsAtOnce) {
    FLUXON_MARK("master: only those that are read could make room");
    const std::vector<uint64_t> busy = space.takeBusy(lacks.ofBusy, kVictimsAtOnce - victims.size());
    victims.insert(victims.end(), busy.begin(), busy.end());
  }
  if (victims.empty()) {
    // All that may go has gone, and each of the others has been asked.
    if (shortage.any() && space.bytes(Use::reclaiming) == 0 &&
        std::exchange(shortage.round_, Shortage::Round::over) != Shortage::Round::over) {
      askReserve(member);
      shortage.evictTo_ = UINT64_MAX, shortage.copyWanted_ = 0;
      // Asking again at once would ask the same ones: retry with backoff. The pauses grow while rounds follow each other in vain.
      Duration& pause = shortage.busyBackOff_;
      if (now - std::exchange(shortage.roundEnded_, now) > kMostBackOff * 2) pause = Duration{0};
      pause = std::clamp(pause * 2, kLeastBackOff, kMostBackOff);
      shortage.until_ = now + pause;
    }
    return;
  }
  std::vector<rpc::MemoryReplica> items;
  for (const uint64_t offset : victims) {
    MemberSpace::Record& record = *space.find(offset);
    record.asked = out_.nextOrder();
    items.push_back({std::string(record.key->key), record.key->putId, offset});
  }
  out_.order(member, rpc::Reclaim{{}, std::move(items)});
}

void SpaceQueue::reclaimDone(Member& member, OperationId id, const rpc::ReclaimDone& done, Time now) {
  out_.reply(member, id, rpc::Done());
  const std::optional<rpc::Reclaim> order = out_.answered<rpc::Reclaim>(member, done.order);
  if (!order) return;
  const std::vector<rpc::MemoryReplica>& items = order->replicas;
  size_t busy = 0;
  bool letGo = false;
  for (size_t i = 0; i < items.size(); ++i) {
    // An item that a short answer does not cover counts as busy: the master frees nothing without the owner's word.
    const rpc::ReclaimResult result = i < done.results.size() ? done.results[i] : rpc::ReclaimResult::busy;
    MemberSpace::Record* record = member.space.find(items[i].offset);
    if (!record || (record->use != Use::reclaiming && record->use != Use::unrouted)) continue;
    // The owner may have released the extent since, and the master given it out again, even for the same version: then this answer is
    // about what lay there before, and another order may be under way.
    if (record->asked != done.order) {
      FLUXON_MARK("master: a reclaim is answered after its place was given out again");
      continue;
    }
    if (result == rpc::ReclaimResult::ok) {
      letGo = letGo || record->busy;
      member.shortage.evictLeft_ -= std::min(member.shortage.evictLeft_, record->extent.length);
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
  // A replica that was busy before has been given up: asking busy ones again pays, so the backoff starts anew.
  if (letGo) member.shortage.busyBackOff_ = Duration{0};
  if (busy > 0 && member.shortage.round_ == Shortage::Round::asking) {
    member.shortage.round_ = Shortage::Round::pausing;
    member.shortage.until_ = now + kMostBackOff;
  }
  serve(member, now);
  askVictims(member, now);
}

void SpaceQueue::evictTo(Member& member, uint64_t percent, Time now) {
  const uint64_t used = member.space.capacity() - member.space.freeBytes();
  Shortage& shortage = member.shortage;
  shortage.evictTo_ = member.space.capacity() / 100 * percent;
  shortage.evictLeft_ = used - std::min(used, shortage.evictTo_);
  if (shortage.round_ == Shortage::Round::asking) shortage.round_ = Shortage::Round::pausing;
  shortage.until_ = now;  // those that were busy are asked again, too
  askVictims(member, now);
}

Error SpaceQueue::evictTo(const std::string& node, uint64_t percent, Time now) {
  bool any = false;
  for (const auto& [name, member] : membership_.all()) {
    if (member->state != MemberState::joined || (!node.empty() && name != node)) continue;
    any = true;
    evictTo(*member, percent, now);
  }
  return any ? Error{} : Error{Code::unavailable, node.empty() ? "no node has joined" : "no node '" + node + "' has joined"};
}

void SpaceQueue::tick(Member& member, Time now) {
  std::erase_if(member.shortage.waiting_, [&](const Waiting& waiting) {
    if (now < waiting.deadline) return false;
    FLUXON_MARK("master: a request has waited too long for space");
    ++counters_.noSpace;
    out_.refuse(*waiting.member, waiting.id, Code::noSpace, member.space.describe(waiting.bytes));
    return true;
  });
  serve(member, now);
  askVictims(member, now);
}

Time SpaceQueue::nextWake(const Member& member) {
  const Shortage& shortage = member.shortage;
  Time next = Time::never();
  for (const Waiting& waiting : shortage.waiting_) next = std::min(next, waiting.deadline);
  return shortage.any() && shortage.round_ != Shortage::Round::asking ? std::min(next, shortage.until_) : next;
}

void SpaceQueue::memberEnded(Member& member) {
  for (const auto& [node, other] : membership_.all()) {
    std::erase_if(other->shortage.waiting_, [&](const Waiting& waiting) {
      const bool own = waiting.member == member;
      if (other.get() != &member && !own) return false;
      FLUXON_MARK("master: a member ends under a request that waits for space");
      out_.refuse(*waiting.member, waiting.id, own ? Code::fenced : Code::unavailable, own ? "" : "node " + member.node() + " ended");
      return true;
    });
  }
}

}  // namespace fluxon::master
