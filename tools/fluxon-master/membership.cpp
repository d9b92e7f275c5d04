#include "membership.h"

#include <algorithm>

#include "base/check.h"
#include "base/mark.h"
#include "succession.h"

namespace fluxon::master {
namespace {

constexpr uint64_t kExpected = uint64_t{1} << 24;  // values of a node that room is made for ahead
constexpr Duration kRemember = seconds(600);       // how long the replicas of a fenced owner wait for its next life

// What is wrong with a registration, whatever the master knows of its node.
Error senseless(const rpc::Registration& registration) {
  if (registration.protocol != rpc::kProtocolVersion) return {Code::protocol, rpc::otherProtocol("the owner", registration.protocol)};
  if (!validName(registration.node)) return {Code::protocol, "node name"};
  if (!registration.label.empty() && !validName(registration.label)) return {Code::protocol, "label"};
  if (!registration.incarnation) return {Code::protocol, "no incarnation"};
  return {};
}

}  // namespace

rpc::Registered Membership::add(const rpc::Registration& registration, Time now, std::shared_ptr<Member>& member) {
  rpc::Registered result;
  result.leaseMs = static_cast<uint64_t>(lease_.ms());
  const auto refuse = [&](Error error) {
    result.code = error.code;
    result.detail = std::move(error.detail);
    return result;
  };
  const auto found = members_.find(registration.node);
  const std::shared_ptr<Member> known = found == members_.end() ? nullptr : found->second;
  if (Error error = refusal(registration, known.get()); !error.ok()) return refuse(std::move(error));
  if (known && known->incarnation() == registration.incarnation) {
    reconnected(*known, registration.sent, now);
    result.inventory = known->state == MemberState::reporting;
    member = known;
    return result;
  }
  // The registration is checked in full before anything changes: a senseless one costs nobody anything.
  // A drain holds until the node has left, whatever becomes of its owner meanwhile.
  const bool drained = known && known->draining() && known->state != MemberState::left;
  auto fresh = std::make_shared<Member>(registration, leaseEnd(lease_, now), MemberState::reporting, drained ? Drain::moving : Drain::no);
  for (const Extent& extent : registration.occupied) {
    if (!fresh->space.adopt(extent, Use::unrouted)) return refuse({Code::protocol, "occupied extents overlap or are none"});
  }
  succeed(known.get(), *fresh, now);
  result.inventory = fresh->listing != Listing::none;
  members_[registration.node] = member = std::move(fresh);
  admit(*member, now);
  return result;
}

// Why an owner may not join; ok: it may. `known`: the member of that node, if there is one.
Error Membership::refusal(const rpc::Registration& registration, const Member* known) const {
  if (Error error = senseless(registration); !error.ok()) return error;
  if (ended_.count(registration.incarnation)) {
    FLUXON_MARK("master: a life that has ended registers");
    return {Code::fenced, "incarnation " + toString(registration.incarnation)};
  }
  if (!known) return {};
  const bool sameHost = known->registration().hostId == registration.hostId;
  // It comes by a connection that the owner has given up since. If the master took it, it would end the life that came after it and serves.
  if (known->lives() && sameHost && registration.sent < known->registered) {
    FLUXON_MARK("master: a registration arrives after a later one");
    return {Code::unavailable, "a later registration of node " + registration.node + " is here"};
  }
  if (known->incarnation() == registration.incarnation) {
    return known->lives() ? Error{} : Error{Code::fenced, "incarnation " + toString(registration.incarnation)};
  }
  if (known->lives() && !(sameHost && succeeds(registration, *known))) {
    FLUXON_MARK("master: a node that is alive is not replaced");
    return {Code::unavailable, "node " + registration.node + " is alive " +
                                   (sameHost ? "as process " + std::to_string(known->registration().pid) + " of its host"
                                             : "on " + known->registration().from + "; give this one another owner.node")};
  }
  return {};
}

// The same life again, by a new connection.
void Membership::reconnected(Member& member, Time sent, Time now) {
  member.connection = Connection::there;
  member.registered = sent;
  prolong(member, leaseEnd(lease_, now));
  if (!member.orders->empty()) FLUXON_MARK("master: orders are sent again");
  out_.ordersAgain(member);
}

// Decides which values the new life may list, and ends the life before it. `known`: the latest life of the node in this term, if any.
void Membership::succeed(Member* known, Member& fresh, Time now) {
  const rpc::Registration& registration = fresh.registration();
  const bool inWindow = window_.offersLastTerm(registration) && !(known && known->listing == Listing::complete);
  if (inWindow) {
    FLUXON_MARK("master: values of the last term are to be taken");
    fresh.listing = Listing::ofLastTerm;
  }
  if (!known) return;
  const bool sameHost = known->registration().hostId == registration.hostId;
  if (known->lives()) {
    FLUXON_MARK("master: a life is replaced by the next");
    if (inWindow) events_.replaced(*known, fresh);
    end(*known, MemberState::fenced, now);
  }
  if (inWindow) {
    // The new life lists the same values again, and the record goes on naming the life of the last term that both have them from.
    known->fence = Fence::onDisk;
  } else if (registration.adopts && sameHost && known->remains == Remains::dormant && hasValuesOf(*known, registration.adopts)) {
    FLUXON_MARK("master: dormant values are to be revived");
    if (*known->before) FLUXON_MARK("master: a life that had not revived all its values is followed by another");
    fresh.listing = Listing::ofBefore;
    fresh.before = MemberRef(*known);
    known->remains = Remains::adopted;  // its replicas are revived or forgotten when the inventory is complete
  }
  if (fresh.listing != Listing::ofBefore) forget(*known);
}

// A new life takes part: it lists its values first, or drops those that the master does not know, or joins at once.
void Membership::admit(Member& member, Time now) {
  const rpc::Registration& registration = member.registration();
  if (member.listing != Listing::none) {
    // Tables that grow while the values come would stop everything else each time.
    const uint64_t values = std::min({registration.values, registration.maxKeys, kExpected});
    member.space.expect(values);
    if (member.listing == Listing::ofLastTerm) routes_.expect(values);
    registeredInWindow(member, now);
    if (!record_.has(registration.node)) setRecord(registration.node, Incarnation());
    return;
  }
  if (registration.adopts) {
    // The owner still has values that the master does not know. It drops them and registers anew; this life never joins.
    FLUXON_MARK("master: values that it does not know are refused as a whole");
    setRecord(registration.node, Incarnation());
    registeredInWindow(member, now);
    return;
  }
  join(member);
  record(member);
  confirm(member, now);
  registeredInWindow(member, now);
}

void Membership::prolong(Member& member, Time end) { member.leaseEnd = std::max(*member.leaseEnd, end); }

// A lease of the last term may end later than the first one of this term.
void Membership::registeredInWindow(Member& member, Time now) {
  if (window_.open()) prolong(member, window_.leasesEnd());
  window_.registered(member, now);
}

void Membership::disconnected(Member& member) { member.connection = Connection::lost; }

void Membership::heartbeat(Member& member, bool serving, Time now) {
  prolong(member, leaseEnd(lease_, now));
  if (serving && member.state == MemberState::joined) confirm(member, now);
}

void Membership::join(Member& member) {
  member.state = MemberState::joined;
  member.listing = Listing::complete;
  ssds_ += bool(*member.ssdLife);
  forgetBefore(member);
}

void Membership::record(Member& member) { setRecord(member.node(), member.incarnation()); }

// The owner now knows which of its values were refused. Until then it may have served them under the lease of the last term.
void Membership::confirm(Member& member, Time now) {
  if (member.joinedAt->has_value()) return;
  member.joinedAt = now;
  window_.over(member, now);
}

void Membership::fence(Member& member, Time now) {
  if (member.lives()) end(member, MemberState::fenced, now);
}

void Membership::leave(Member& member, Time now) {
  if (!member.lives()) return;
  FLUXON_MARK("master: a member leaves");
  end(member, MemberState::left, now);
  forget(member);
  record_.erase(member.node());
  window_.over(member, now);
}

void Membership::tick(Member& member, Time now, Time heard) {
  if (member.remains == Remains::dormant && now >= member.forgetAt) forget(member);
  if (!member.lives() || heard < member.leaseEnd) return;
  FLUXON_MARK("master: a lease runs out");
  end(member, MemberState::fenced, now);
}

Time Membership::nextWake(const Member& member) {
  return member.lives() ? *member.leaseEnd : member.remains == Remains::dormant ? *member.forgetAt : Time::never();
}

void Membership::end(Member& member, MemberState to, Time now) {
  ssds_ -= member.state == MemberState::joined && bool(*member.ssdLife);
  member.state = to;
  ended_.insert(member.incarnation());
  if (to == MemberState::fenced) {
    ++counters_.fenced;
    member.remains = Remains::dormant;
    member.forgetAt = now + kRemember;
  }
  // Values that this life has not revived yet wait, with its own, for its next life.
  if (to != MemberState::fenced) forgetBefore(member);
  events_.ended(member, now);
  if (member.fence == Fence::onDisk) events_.fenceOnDisk(member, now);
}

// Takes the member's replicas out of the routes when it is on disk that the next term takes none of them. Readers ignore them already. A
// put or delete that finds no route goes on at once.
void Membership::forget(Member& member) {
  FLUXON_CHECK(!member.lives(), "forgetting a member that lives");
  forgetBefore(member);
  if (member.remains == Remains::forgotten) return;
  member.remains = Remains::forgotten;
  askFence(member);
  if (member.fence == Fence::onDisk) return routes_.sweep(member, Routes::Sweep::everything);
  FLUXON_MARK("master: routes are not forgotten before that is durable");
}

// Ends the replicas of the life before that the member has not revived.
void Membership::forgetBefore(Member& member) {
  if (member.listing == Listing::ofBefore) member.listing = Listing::none;
  if (const MemberRef before = std::exchange(member.before.own(), {})) forget(*before);
}

void Membership::askFence(Member& member) {
  if (member.fence != Fence::none) return;
  if (const Incarnation life = record_.lifeOf(member.node()); life && hasValuesOf(member, life)) setRecord(member.node(), Incarnation());
  if (record_.onDisk()) {
    member.fence = Fence::onDisk;
    return;
  }
  member.fence = Fence::asked;
  record_.whenOnDisk([this, named = MemberRef(member)](Time now) { fenced(*named, now); });
}

void Membership::fenced(Member& member, Time now) {
  member.fence = Fence::onDisk;
  events_.fenceOnDisk(member, now);
  if (member.remains == Remains::forgotten) routes_.sweep(member, Routes::Sweep::everything);
}

// While the window is open, a node whose values are refused may still serve under a lease of the last term.
void Membership::setRecord(const std::string& node, Incarnation life) {
  if (!life && window_.open()) FLUXON_MARK("master: a node whose values are refused may still serve");
  record_.set(node, life || !window_.open() ? life : kNobody);
}

void Membership::removeAbsent(const std::string& node) {
  if (Member* const member = find(node)) {
    member->state = MemberState::left;
    forget(*member);
  }
  FLUXON_MARK("master: a node is drained that is not there");
  record_.erase(node);
}

void Membership::setSsdLife(Member& member, Incarnation life) {
  if (member.state == MemberState::joined) ssds_ = ssds_ - bool(*member.ssdLife) + bool(life);
  member.ssdLife = life;
}

}  // namespace fluxon::master
