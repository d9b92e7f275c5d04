#include "drains.h"

#include <algorithm>

#include "base/mark.h"
#include "reach.h"

namespace fluxon::master {
namespace {

constexpr size_t kMovesAtOnce = 8;
constexpr Duration kMovePause = milliseconds(20), kCollectPause = milliseconds(200), kLeavePause = seconds(1);

}  // namespace

Error Drains::begin(const std::string& node, Time now) {
  if (Member* const member = membership_.find(node); member && member->lives()) {
    if (!member->draining()) member->drain.own().state = Drain::moving;
    goOn(*member, now);
    return {};
  }
  if (!record_.has(node)) return {Code::unavailable, "no node '" + node + "'"};
  // The node may be serving under a lease of the last term. This term and a next one must wait for that lease.
  if (window_.open()) return {Code::unavailable, "node " + node + " may still be serving: the recovery window of this term is open"};
  membership_.removeAbsent(node);
  return {};
}

Error Drains::end(const std::string& node) {
  Member* const member = membership_.find(node);
  if (!member || !member->draining() || member->state == MemberState::left)
    return {Code::unavailable, "node '" + node + "' is not being drained"};
  member->drain = Draining();
  return {};
}

void Drains::goOn(Member& member, Time now) {
  Draining& drain = member.drain.own();
  if (!member.draining() || now < drain.retry || member.state != MemberState::joined) return;
  drain.retry = now + kMovePause;
  const auto elsewhere = [&](const KeyEntry& entry) {
    return std::any_of(entry.replicas.begin(), entry.replicas.end(),
                       [](const Replica& r) { return r.readable() && !r.member->draining(); });
  };
  size_t moving = transfers_.movingFrom(member);
  if (drain.toMove.empty()) {
    for (const auto& [offset, record] : member.space.records()) {
      if (record.key && !elsewhere(*record.key)) drain.toMove.push_back(offset);
    }
    drain.retry = now + kCollectPause;
    if (drain.toMove.empty() && moving == 0) letLeave(member, now);
  }
  // Values that find no place now are tried again after the others.
  std::vector<uint64_t> later;
  while (moving < kMovesAtOnce && later.size() < kMovesAtOnce && !drain.toMove.empty()) {
    const uint64_t offset = drain.toMove.back();
    drain.toMove.pop_back();
    const MemberSpace::Record* record = member.space.find(offset);
    if (!record || !record->key || record->key->change || elsewhere(*record->key)) continue;
    if (moveAway(*record->key, member, now)) {
      ++moving;
    } else {
      later.push_back(offset);
    }
  }
  drain.toMove.insert(drain.toMove.begin(), later.begin(), later.end());
}

// Orders a copy of one value. False: no member has room for it now; the best candidate is then asked to evict.
bool Drains::moveAway(KeyEntry& entry, Member& from, Time now) {
  const uint64_t size = extentBytes(entry.bytes);
  std::vector<Member*> others = candidates(membership_, from, size, now);
  std::erase(others, &from);
  for (Member* to : others) {
    const std::optional<Extent> extent = to->space.allocate(entry.bytes, Use::inFlight);
    if (!extent) continue;
    if (to != others.front()) FLUXON_MARK("master: a value is moved to another than the best node");
    if (transfers_.replicate(entry, from, *to, {}, kCopyMs, {&entry, entry.putId, extent->offset, entry.bytes, from, now, true}))
      return true;
    to->space.free(extent->offset);
  }
  const auto able = std::find_if(others.begin(), others.end(), [&](const Member* to) { return size <= to->space.reachable(); });
  if (able != others.end()) space_.wantCopy(**able, size, now);
  return false;
}

// Nothing is left to move. From here on no put begins at the node. The node leaves when the puts under way have ended or are past their
// deadline.
void Drains::letLeave(Member& member, Time now) {
  if (!member.finishing()) member.drain.own().state = Drain::finishing;
  const auto open = [now](const auto& put) { return (put.second.home && put.second.home->done) || now < put.second.deadline; };
  if (std::any_of(member.puts->begin(), member.puts->end(), open)) {
    FLUXON_MARK("master: a drained node waits for puts under way");
    return;
  }
  member.drain.own().state = Drain::toldToLeave;
  member.drain.own().retry = now + kLeavePause;
  out_.tell(member, rpc::Leave());
}

void Drains::copyEnded(Member& from, Time now) {
  if (!from.draining() || from.drain->toMove.empty()) return;
  from.drain.own().retry = now;
  goOn(from, now);
}

Time Drains::nextWake(const Member& member) {
  return member.draining() && member.state == MemberState::joined ? member.drain->retry : Time::never();
}

}  // namespace fluxon::master
