// MasterCore: where a put goes, and its grant.
#include <algorithm>

#include "base/mark.h"
#include "master_core.h"

namespace fluxon::master {

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

}  // namespace fluxon::master
