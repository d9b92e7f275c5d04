#include "puts.h"

#include <algorithm>

#include "base/check.h"
#include "base/mark.h"
#include "reach.h"

namespace fluxon::master {

Puts::Refusal Puts::refusal(const std::string& key, PutMode mode, KeyLeaseId lease, Time now) const {
  if (key.empty()) return {Code::invalidKey, "empty"};
  if (lease && !routes_.leases().find(lease)) return {Code::noLease, {}};
  const KeyEntry* const entry = routes_.find(key);
  if (!entry) return {Code::ok, {}};
  const bool published = entry->change && entry->change->value;
  if (mode.onExisting == PutMode::OnExisting::reject && (readable(*entry) || published)) return {Code::exists, {}};
  if (mode.onInFlight == PutMode::OnInFlight::reject) {
    for (const auto& [other, operation] : entry->puts) {
      if (other->puts->at(operation).deadline > now) return {Code::inFlight, {}};
    }
    if (published) return {Code::inFlight, {}};
  }
  return {Code::ok, {}};
}

// Decides where the value will be, and where the writer fills it.
Puts::Plan Puts::decide(Member& member, const rpc::PutStart& request, Time now) const {
  if (Refusal refused = refusal(request.key, request.mode, request.lease, now); refused.code != Code::ok) return refused;
  const auto leaves = [&] { return Refusal{Code::unavailable, "node " + member.node() + " is being drained and is about to leave"}; };
  const uint64_t size = extentBytes(request.bytes);
  Member* asker = &member;
  if (!request.onBehalfOf.empty()) {
    // Another owner of the host has sent the writer here: this member's segment only takes the bytes.
    asker = membership_.find(request.onBehalfOf);
    if (!asker || asker->state != MemberState::joined || !sameHost(*asker, member))
      return Refusal{Code::invalidArgument, "node '" + request.onBehalfOf + "' is no owner of this host"};
  }
  const bool placedHere = request.mode.home == PutMode::Home::here;
  if (member.finishing() && (asker != &member || placedHere)) return leaves();
  // While no owner has an SSD, a member with room for the value keeps it itself.
  Member* home = &member;
  if (asker != &member || member.draining() || size > member.space.capacity() || (membership_.anySsd() && !*member.ssdLife)) {
    const std::vector<Member*> others = candidates(membership_, *asker, size, now);
    if (others.empty()) return withoutHome(request, size);
    home = others.front();
  }
  // The asker's clients can reach that owner too: they fill the value right there.
  if (home != &member && asker == &member && !placedHere && sameHost(*home, member)) return Elsewhere{*home};
  if (member.finishing()) return leaves();
  if (home != &member && size > member.space.capacity()) {
    return Refusal{Code::tooLarge, std::to_string(request.bytes) + " bytes, the segment that they pass through holds " +
                                       std::to_string(member.space.capacity())};
  }
  return Fill{*home};
}

// The plan when no member can have the value.
Puts::Plan Puts::withoutHome(const rpc::PutStart& request, uint64_t size) const {
  uint64_t largest = 0;
  bool drained = true;
  for (const auto& [node, other] : membership_.all()) {
    if (other->state != MemberState::joined || (membership_.anySsd() && !*other->ssdLife)) continue;
    largest = std::max(largest, other->space.capacity());
    drained &= other->draining();
  }
  if (size > largest)
    return Refusal{Code::tooLarge, std::to_string(request.bytes) + " bytes, the largest segment holds " + std::to_string(largest)};
  return Refusal{Code::unavailable, drained ? "all nodes are being drained" : "no node that is not being drained can have the value"};
}

Member* Puts::carryOut(const Plan& plan, Member& member, OperationId id, const rpc::PutStart& request, Time now) {
  if (const auto* const refused = std::get_if<Refusal>(&plan)) {
    ++counters_.putsRefused;
    out_.refuse(member, id, refused->code, refused->detail);
    return nullptr;
  }
  if (const auto* const elsewhere = std::get_if<Elsewhere>(&plan)) {
    ++counters_.placedElsewhere;
    out_.reply(member, id, rpc::PutElsewhere{peerOf(elsewhere->neighbour)});
    return nullptr;
  }
  return fill(member, std::get<Fill>(plan).home, id, request, now);
}

Member* Puts::fill(Member& member, Member& home, OperationId id, const rpc::PutStart& request, Time now) {
  const std::optional<Extent> extent = member.space.allocate(request.bytes, Use::inFlight);
  if (!extent) return &member;
  std::optional<Extent> there;
  if (&home != &member && !(there = home.space.allocate(request.bytes, Use::inFlight))) {
    FLUXON_MARK("master: the home of a put has no room");
    member.space.free(extent->offset);
    return &home;
  }
  KeyEntry& entry = routes_.at(request.key);
  entry.puts.emplace_back(member, id);
  Put& put = member.puts.own()[id];
  put = {id, &entry, putIds_.next(), extent->offset, request.bytes, request.mode, request.lease, now + timeLeft(request.timeLeftMs), now};
  ++counters_.putsStarted;
  rpc::PutGranted granted{put.putId, put.offset, {}};
  if (there) {
    ++counters_.placedElsewhere;
    put.home = PutHome{home, there->offset};
    granted.home = peerOf(home);
  }
  out_.reply(member, id, std::move(granted));
  return nullptr;
}

Member* Puts::retry(Member& member, OperationId id, const rpc::PutStart& request, Time now) {
  return carryOut(decide(member, request, now), member, id, request, now);
}

void Puts::start(Member& member, OperationId id, const rpc::PutStart& request, Time now) {
  // Requests that wait already come first, except those that cannot fit.
  Member* const lacks = SpaceQueue::hasLine(member) ? &member : retry(member, id, request, now);
  if (!lacks) return;
  const Refusal refused = refusal(request.key, request.mode, request.lease, now);
  if (refused.code != Code::ok) return out_.refuse(member, id, refused.code, refused.detail);
  space_.wait(*lacks, {member, id, request, request.bytes}, request.timeLeftMs, now);
}

void Puts::done(Member& member, OperationId id, const rpc::PutDone& done, Time now) {
  const auto found = member.puts.own().find(done.put);
  if (found == member.puts->end()) return out_.refuse(member, id, Code::unavailable, "the put has been given up");
  Put& put = found->second;
  if (put.home && !put.home->member.living()) {
    FLUXON_MARK("master: the member ended that was to have a put");
    abandon(member, done.put);
    return out_.refuse(member, id, Code::unavailable, "the node which was to have the value ended");
  }
  if (put.home && put.home->done) return out_.refuse(member, id, Code::protocol, "the put is done already");
  if (put.home) {
    put.home->done = id;
    if (transfers_.bringHome(member, put, now)) return;
    abandon(member, done.put);
    return out_.refuse(member, id, Code::unavailable, "this node has no link");
  }
  if (put.key->change) return changes_.defer(*put.key, member, {id, done});
  changes_.publish(member, id, put, now);
}

void Puts::reserved(Member& member, OperationId id, const rpc::PutReserved& request, Time now) {
  // The reserved extent becomes a put first, so that a request that was deferred and comes again finds a put as usual.
  if (!member.puts->count(id)) {
    const MemberSpace::Record* const record = member.space.find(request.offset);
    if (!record || record->use != Use::reserved || record->extent.length != extentBytes(request.bytes))
      return out_.refuse(member, id, Code::protocol, "not a reserved extent of that size");
    if (const Refusal refused = refusal(request.key, request.mode, request.lease, now); refused.code != Code::ok) {
      member.space.unroute(request.offset);
      return out_.refuse(member, id, refused.code, refused.detail);
    }
    member.space.use(request.offset, Use::inFlight);
    KeyEntry& entry = routes_.at(request.key);
    entry.puts.emplace_back(member, id);
    ++counters_.putsStarted;
    member.puts.own()[id] = {id, &entry, PutId(), request.offset, request.bytes, request.mode, request.lease, Time::never(), now};
  }
  Put& put = member.puts.own().at(id);
  if (put.key->change) return changes_.defer(*put.key, member, {id, request});
  put.putId = putIds_.next();
  changes_.publish(member, id, put, now);
}

void Puts::abort(Member& member, OperationId id, const rpc::PutAbort& abort) {
  if (member.puts->count(abort.put)) {
    ++counters_.putsAborted;
    abandon(member, abort.put);
  }
  out_.reply(member, id, rpc::Done());
}

void Puts::end(Member& member, OperationId put) {
  KeyEntry& entry = *member.puts->at(put).key;
  std::erase(entry.puts, std::pair(MemberRef(member), put));
  member.puts.own().erase(put);
}

void Puts::abandon(Member& member, OperationId operation) {
  const Put put = member.puts->at(operation);
  KeyEntry& entry = *put.key;
  member.space.unroute(put.offset);
  if (put.home && !put.home->member.living()) FLUXON_MARK("master: the home of a put ends");
  if (Member* const home = put.home ? put.home->member.living() : nullptr) {
    if (put.home->copy) {
      transfers_.unwanted(*home, put.home->copy);
    } else {
      home->space.free(put.home->offset);  // nobody there has heard of it
    }
  }
  end(member, operation);
  routes_.forgetIfIdle(entry);
}

void Puts::arrived(const OfPut& of, const Copied& copy, Time now) {
  const Put& put = of.origin->puts->at(of.put);
  changes_.publish(*of.origin, put.home->done, put, now, copy);
}

void Puts::cannotArrive(const OfPut& of, const std::string& node) {
  FLUXON_MARK("master: a put cannot be brought to its home");
  Member& origin = *of.origin;
  const auto its = origin.puts.own().find(of.put);
  FLUXON_CHECK(its != origin.puts->end(), "a transfer of a put that is over");
  const OperationId done = its->second.home->done;
  its->second.home.reset();  // nothing there to give up
  abandon(origin, of.put);   // of the same key: forgets the entry if nothing is left of it
  out_.refuse(origin, done, Code::unavailable, "the value could not be brought to node " + node);
}

void Puts::memberEnded(Member& member) {
  while (!member.puts->empty()) abandon(member, member.puts->begin()->first);
}

void Puts::overtaken(KeyEntry& entry, Overtaken by) {
  for (const auto& [member, operation] : entry.puts) {
    Put& put = member->puts.own().at(operation);
    put.overtaken = std::max(put.overtaken, by);
  }
}

uint64_t Puts::inFlight() const {
  uint64_t puts = 0;
  for (const auto& [node, member] : membership_.all()) puts += member->puts->size();
  return puts;
}

Duration Puts::oldest(Time now) const {
  Duration age{0};
  for (const auto& [node, member] : membership_.all()) {
    for (const auto& [id, put] : *member->puts) age = std::max(age, now - put.since);
  }
  return age;
}

}  // namespace fluxon::master
