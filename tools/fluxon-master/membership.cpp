// MasterCore: who takes part. Registration, fencing, farewell, what is forgotten.
#include <algorithm>

#include "base/check.h"
#include "base/mark.h"
#include "master_core.h"

namespace fluxon::master {
namespace {

constexpr uint64_t kExpected = uint64_t{1} << 24;  // values of a node that room is made for ahead
constexpr Duration kRemember = seconds(600);  // how long the replicas of a fenced owner wait for its next life

}  // namespace

rpc::Registered MasterCore::registerOwner(const rpc::Registration& registration, Time now, std::shared_ptr<Member>& member) {
  rpc::Registered result;
  result.leaseMs = static_cast<uint64_t>(settings_.lease.ms());
  const auto refuse = [&](Code code, std::string detail) {
    result.code = code;
    result.detail = std::move(detail);
    return result;
  };
  if (registration.protocol != rpc::kProtocolVersion) return refuse(Code::protocol, rpc::otherProtocol("the owner", registration.protocol));
  if (!validName(registration.node)) return refuse(Code::protocol, "node name");
  if (!registration.label.empty() && !validName(registration.label)) return refuse(Code::protocol, "label");
  if (!registration.incarnation) return refuse(Code::protocol, "no incarnation");
  if (ended_.count(registration.incarnation)) FLUXON_MARK("master: a life that has ended registers");
  if (ended_.count(registration.incarnation)) return refuse(Code::fenced, "incarnation " + toString(registration.incarnation));
  const auto found = members_.find(registration.node);
  const std::shared_ptr<Member> known = found == members_.end() ? nullptr : found->second;
  // By a connection that the owner has given up since: taken, it would end the life that has come after it, which serves.
  if (known && known->lives() && known->registration().hostId == registration.hostId && registration.sent < known->registered) {
    FLUXON_MARK("master: a registration arrives after a later one");
    return refuse(Code::unavailable, "a later registration of node " + registration.node + " is here");
  }
  if (known && known->incarnation() == registration.incarnation) {
    if (!known->lives()) return refuse(Code::fenced, "incarnation " + toString(registration.incarnation));
    known->connected = true;
    known->registered = registration.sent;
    known->leaseEnd = std::max(known->leaseEnd, leaseEnd(settings_.lease, now));
    result.inventory = known->state == MemberState::reporting;
    if (!known->orders.empty()) FLUXON_MARK("master: orders are sent again");
    out_.ordersAgain(*known);
    member = known;
    return result;
  }
  // Who has the directory of the life that is here has ended that one's lease in it, or was it itself. A lock or a folder proves nothing:
  // both are names, which can be removed under a process that lives.
  const bool sameHost = known && known->registration().hostId == registration.hostId;
  if (known && known->lives() && !(sameHost && succeeds(registration, *known))) {
    FLUXON_MARK("master: a node that is alive is not replaced");
    return refuse(Code::unavailable, "node " + registration.node + " is alive " +
                                         (sameHost ? "as process " + std::to_string(known->registration().pid) + " of its host"
                                                   : "on " + known->registration().from + "; give this one another owner.node"));
  }
  // Checked in full before anything changes: a senseless registration costs nobody anything.
  auto fresh = std::make_shared<Member>(registration, leaseEnd(settings_.lease, now));
  for (const Extent& extent : registration.occupied) {
    if (!fresh->space.adopt(extent, Use::unrouted)) return refuse(Code::protocol, "occupied extents overlap or are none");
  }
  fresh->inWindow = offersLastTerm(registration) && !(known && known->complete);
  if (known && known->lives()) {
    FLUXON_MARK("master: a life is replaced by the next");
    if (fresh->inWindow) tellInstead(*known, *fresh);
    end(*known, MemberState::fenced, now);
  }
  // Its routes are listed again, and the record goes on naming what both have.
  if (known && fresh->inWindow) known->fenceAsked = known->fenceDurable = true;
  if (fresh->inWindow) {
    FLUXON_MARK("master: values of the last term are to be taken");
  } else if (registration.adopts && sameHost && known->state == MemberState::fenced && known->forgetAt != Time::never() &&
             hasValuesOf(*known, registration.adopts)) {
    FLUXON_MARK("master: dormant values are to be revived");
    if (known->before) FLUXON_MARK("master: a life that had not revived all its values is followed by another");
    fresh->before = *known;
    known->forgetAt = Time::never();  // its replicas are revived or forgotten when the inventory is complete
  }
  // A drain holds until the node has left, whatever becomes of its owner meanwhile.
  fresh->draining = known && known->draining && known->state != MemberState::left;
  result.inventory = fresh->before || fresh->inWindow;
  if (known && !fresh->before) forget(*known);
  members_[registration.node] = member = std::move(fresh);
  if (result.inventory) {
    // Tables that grow while the values come would stop everything else each time.
    const uint64_t values = std::min({registration.values, registration.maxKeys, kExpected});
    member->space.expect(values);
    if (member->inWindow) routes_.expect(values);
    registeredInWindow(*member, now);
    if (!durable_.members.count(registration.node)) record(registration.node, Incarnation());
    return result;
  }
  if (registration.adopts) {
    // Values that it offers and we do not know are still there: it drops them and comes again. This life is never joined.
    FLUXON_MARK("master: values that it does not know are refused as a whole");
    record(registration.node, Incarnation());
    registeredInWindow(*member, now);
    return result;
  }
  join(*member);
  record(registration.node, registration.incarnation);
  confirm(*member, now);
  registeredInWindow(*member, now);
  return result;
}

void MasterCore::leave(Member& member, Content content, Time now) {
  if (!member.lives()) return;
  if (content == Content::kept) FLUXON_MARK("master: a member stops and keeps its values");
  if (content == Content::gone) FLUXON_MARK("master: a member leaves");
  const MemberState to = content == Content::kept ? MemberState::fenced : MemberState::left;
  end(member, to, now);
  if (to == MemberState::fenced) return;
  forget(member);
  remove(member.node());
  windowEndsFor(member, now);
}

Incarnation MasterCore::recorded(const std::string& node) const {
  const auto found = durable_.members.find(node);
  return found == durable_.members.end() ? Incarnation() : found->second;
}
void MasterCore::record(const std::string& node, Incarnation life) {
  if (!life && recovering_) FLUXON_MARK("master: a node whose values are refused may still serve");
  durable_.members[node] = life || !recovering_ ? life : kNobody;
  ++durable_.version;
  outbox_.persist();
}
// The node is no member any more, and serves nothing.
void MasterCore::remove(const std::string& node) {
  durable_.members.erase(node);
  ++durable_.version;
  outbox_.persist();
}

// The next term takes nothing of that life any more. For changes that go on without it, and before its routes are forgotten.
void MasterCore::fenceOnDisk(Member& member) {
  if (std::exchange(member.fenceAsked, true)) return;
  if (const Incarnation life = recorded(member.node()); life && hasValuesOf(member, life)) record(member.node(), Incarnation());
  if (durable_.version <= persisted_) {
    member.fenceDurable = true;
  } else {
    settling_.push_back({durable_.version, member, std::nullopt});
  }
}

void MasterCore::persisted(uint64_t version, Time now) {
  persisted_ = std::max(persisted_, version);
  const auto later = std::find_if(settling_.begin(), settling_.end(), [&](const Settling& each) { return each.version > version; });
  const std::vector<Settling> settled(std::make_move_iterator(settling_.begin()), std::make_move_iterator(later));
  settling_.erase(settling_.begin(), later);
  for (const Settling& each : settled) {
    if (each.answer) {
      out_.reply(*each.member, *each.answer);
      continue;
    }
    each.member->fenceDurable = true;
    settleChanges(*each.member, now);
    if (each.member->forgotten) routes_.sweep(*each.member, Routes::Sweep::everything);
  }
  if (recovering_) givenUp(version, now);
}

// Nothing is asked of the member any more. Changes wait for it until its fence is durable.
void MasterCore::end(Member& member, MemberState to, Time now) {
  ssds_ -= member.state == MemberState::joined && bool(member.ssdLife);
  member.state = to;
  ended_.insert(member.incarnation());
  if (to == MemberState::fenced) {
    ++counters_.fenced;
    member.forgetAt = now + kRemember;
  }
  while (!member.puts.empty()) abandonPut(member, member.puts.begin()->first);
  while (!member.transfers.empty()) dropTransfer(member, member.transfers.begin()->first);
  for (const auto& [stage, get] : std::exchange(member.staging, {})) {
    FLUXON_MARK("master: a member ends under a get that waits for what is on its SSD");
    dropStaged(get);
    out_.refuse(*get.member, get.id, Code::unavailable, "node " + member.node() + " ended");
  }
  for (const auto& [node, other] : members_) {
    std::erase_if(other->waiting, [&](const Waiting& waiting) {
      const bool own = waiting.member == member;
      if (other.get() != &member && !own) return false;
      FLUXON_MARK("master: a member ends under a request that waits for space");
      out_.refuse(*waiting.member, waiting.id, own ? Code::fenced : Code::unavailable, own ? "" : "node " + member.node() + " ended");
      return true;
    });
  }
  windowed_.forget(member);
  member.orders.clear();
  member.unstaging.clear();
  member.invalidations.clear();
  member.toMove.clear();
  // What it has not revived waits with what it has: for its next life.
  if (member.before && to != MemberState::fenced) forget(*std::exchange(member.before, {}));

  for (const std::string& key : changing()) {
    KeyEntry* const entry = routes_.find(key);
    if (!entry || !entry->change) continue;
    Change& change = *entry->change;
    if (change.waiting.count(member)) FLUXON_MARK("master: a change goes on without a fenced member");
    if (change.waiting.count(member)) fenceOnDisk(member);
    if (change.home != member) continue;
    // The new value is gone, and others may have dropped the old one already: the key ends as a miss. Nobody was told that the put
    // is done.
    FLUXON_MARK("master: a new value ends with its owner before it is the route");
    member.space.unroute(change.offset);
    change.home = {};
    change.removal = true;
    if (change.origin.living()) {
      out_.refuse(*change.origin, change.request, Code::unavailable, "node " + member.node() + ", which was to have the value, ended");
      change.origin = {};
    }
    for (const Replica& replica : entry->replicas) {
      if (replica.member->lives() && change.waiting.insert(replica.member).second)
        invalidate(*replica.member, {std::string(entry->key), change.below});
    }
  }
  if (member.fenceDurable) settleChanges(member, now);
}

// By name: ending one change may end others, and begin new ones.
std::vector<std::string> MasterCore::changing() const {
  std::vector<std::string> keys;
  for (const KeyEntry* entry : changing_) keys.emplace_back(entry->key);
  return keys;
}

// Changes need not wait for the member any more.
void MasterCore::settleChanges(Member& member, Time now) {
  for (const std::string& key : changing()) {
    KeyEntry* const entry = routes_.find(key);
    if (!entry || !entry->change) continue;
    entry->change->waiting.erase(member);
    if (entry->change->waiting.empty()) finish(*entry, now);
  }
}

// Its replicas are no replicas any more: readers ignore them already, and they leave the routes when it is on disk that the next term
// takes none of them. A put or delete that finds no route goes on at once.
void MasterCore::forget(Member& member) {
  FLUXON_CHECK(!member.lives(), "forgetting a member that lives");
  member.forgetAt = Time::never();
  if (member.before) forget(*std::exchange(member.before, {}));
  if (std::exchange(member.forgotten, true)) return;
  fenceOnDisk(member);
  if (member.fenceDurable) return routes_.sweep(member, Routes::Sweep::everything);
  FLUXON_MARK("master: routes are not forgotten before that is durable");
}

}  // namespace fluxon::master
