// MasterCore: owners that come back with values, and the recovery window of a term.
//
// The window of a term
//   Each node that the durable record names a life of is expected: that life may be serving under a lease of the last term until
//   windowEnd_, and its values are taken if it lists them.
//
//   expected ──registers with that life──► reporting ──complete, and the owner knows what was refused──► over
//      │ ▲                                    │  │
//      │ └───────────────ended────────────────┘  └──no page for a lease and its margin──► given up
//      └──windowEnd_, or a lease and its margin after its last page──► given up ──that is on disk──► over
//   The window ends when no node is expected any more. So a slow node keeps it open as long as its pages come, however long that takes.
//
// Why a change may be acknowledged while the window is open (W1 to W5 are what could go wrong)
//   W1. A node that has not registered serves an older value under a lease of the last term. So nothing is acknowledged before each
//       expected node has registered, or been given up, which is not before windowEnd_. Registering, an owner goes on with its local
//       hits under that lease, but it carries out invalidations from then on.
//   W2. A node that has registered, but not listed the key yet, has an older value and serves it under that lease, or would serve it when
//       its inventory is complete. So a change goes to every expected node as if it had a replica, and waits for its answer: what the
//       owner has retired it does not serve, and neither this nor a later life or term may serve it again.
//   W3. A page that was sent before that names the older value, or one that was made later names the slot that was retired. The page is
//       handled before, during or after the change: before, the change ends the replica; during, the value is refused; after, the route
//       has a put_id of this term, which is above all of earlier ones, or it has ended, and then its bound is the put_id below which
//       nothing of the key is taken (bounds.h).
//   W4. The node ends before it has answered. If it is replaced by a process that has its directory, that one is told instead
//       (tellInstead): it may be the same process, still serving. Else its lease runs out, not before windowEnd_, and the change goes
//       on when the record on disk names that life no more: a next term takes nothing of it. This term does, if it comes back: it knows
//       all changes since it began.
//   W5. Two terms on: the record names the life that has listed its values and was told of all changes since, or none.
//   What asks whether a key exists is answered when that is known: it is readable, it has a put_id of this term, it was deleted in this
//   term, or the window has ended. Until then a get or stat of it waits, a delete that finds no route does, and a put with rejectIfExists;
//   at most to the deadline of who asked. Counts and listings wait for the end of the window.
#include <algorithm>

#include "base/mark.h"
#include "master_core.h"

namespace fluxon::master {
namespace {

// The requests that may have to wait while the window is open.
struct Question {
  std::string key;           // that is changed, or asked about
  bool changes = true;       // it is acknowledged when changes are
  bool asks = false;         // it is answered when it is known whether the key exists
  bool everyKey = false;     // it is answered when the window has ended
  uint64_t timeLeftMs = 0;   // of who asks; 0: it is kept until it is carried out
};

struct AskedInWindow {
  const Routes& routes;
  const Member& member;
  std::optional<Question> operator()(const rpc::GetStart& get) const { return Question{get.key, false, true, false, get.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::StatKey& stat) const { return Question{stat.key, false, true, false, stat.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::RemoveKey& remove) const {
    const KeyEntry* const entry = routes.find(remove.key);
    return Question{remove.key, true, !entry || !entry->routed(), false, remove.timeLeftMs};
  }
  std::optional<Question> operator()(const rpc::PutDone& done) const {
    const auto put = member.puts.find(done.put);
    if (put == member.puts.end()) return std::nullopt;
    return Question{std::string(put->second.key->key), true, put->second.mode.onExisting == PutMode::OnExisting::reject};
  }
  std::optional<Question> operator()(const rpc::PutReserved& put) const {
    return Question{put.key, true, put.mode.onExisting == PutMode::OnExisting::reject};
  }
  std::optional<Question> operator()(const rpc::LeaseRevoke& revoke) const { return Question{{}, true, false, false, revoke.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::CountKeys& count) const { return Question{{}, false, false, true, count.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::ListKeys& list) const { return Question{{}, false, false, true, list.timeLeftMs}; }
  template <class Other>
  std::optional<Question> operator()(const Other&) const {
    return std::nullopt;
  }
};

// Who registers has the directory of that life: it has ended its lease there, or was it itself.
bool vouches(const rpc::Registration& registration, Incarnation life) {
  return registration.adopts == life || std::count(registration.ends.begin(), registration.ends.end(), life) > 0;
}

}  // namespace

// Likewise of the life that the member is. One that was never heard to serve may not stand in the directory, but who it had followed does.
bool MasterCore::succeeds(const rpc::Registration& registration, const Member& member) {
  if (vouches(registration, member.incarnation())) return true;
  const std::vector<Incarnation>& ends = member.registration().ends;
  return member.joinedAt.ns == 0 && std::any_of(ends.begin(), ends.end(), [&](Incarnation life) { return vouches(registration, life); });
}

// The values of that life are those of the member: its own, or those that it has listed, or was to list.
bool MasterCore::hasValuesOf(const Member& member, Incarnation life) {
  if (life == member.incarnation()) return true;
  return member.joinedAt.ns == 0 && (member.before || member.inWindow || member.complete) && vouches(member.registration(), life);
}

// --- inventory

// One page of what an owner has. Extents are taken as used before anything is decided about the values in them: a value that is
// refused stays in use until its owner says that nobody reads it.
void MasterCore::on(Member& member, OperationId id, const rpc::InventoryPage& page, Time now) {
  if (member.state != MemberState::reporting) return out_.refuse(member, id, Code::protocol, "no inventory is expected");
  if (const auto expected = expected_.find(member.node()); expected != expected_.end())
    expected->second.until = std::max(expected->second.until, leaseEnd(settings_.lease, now));
  // The page does not count, so the inventory is never complete: the owner drops its values and registers anew. It is not ended here,
  // for it may still be serving under a lease of the last term.
  const auto senseless = [&] { out_.refuse(member, id, Code::protocol, "inventory: extents overlap or are none"); };
  const auto possible = [&](const auto& value) {
    return !value.key.empty() && value.key.size() <= kMaxKeyBytes && value.putId && extentBytes(value.bytes) <= member.space.capacity();
  };
  rpc::InventoryTaken taken;
  for (const rpc::MemoryValue& value : page.memory) {
    if (!possible(value) || !member.space.adopt({value.offset, extentBytes(value.bytes)}, Use::inFlight)) return senseless();
    if (take(member, {value.key, value.putId, value.bytes, value.lease, Medium::memory, value.offset})) continue;
    member.space.unroute(value.offset);
    taken.refused.push_back(value.offset);
  }
  for (uint32_t i = 0; i < page.ssd.size(); ++i) {
    const rpc::SsdValue& value = page.ssd[i];
    if (!possible(value)) return senseless();
    if (!take(member, {value.key, value.putId, value.bytes, {}, Medium::ssd})) taken.refusedSsd.push_back(i);
  }
  ++member.pages;
  if (page.pages != 0) member.pagesInAll = page.pages;
  if (member.pagesInAll == 0 || member.pages < member.pagesInAll) return out_.reply(member, id, std::move(taken));
  // With this answer the owner serves: the next term must know that it may.
  join(member);
  record(member.node(), member.incarnation());
  settling_.push_back({durable_.version, member, rpc::Reply{id, Code::ok, {}, std::move(taken)}});
}

bool MasterCore::take(Member& member, const Listed& item) {
  // An SSD without a life has no values.
  const bool somewhere = item.medium == Medium::memory || member.ssdLife;
  if (somewhere && (member.before ? takeDormant(member, item) : recovering_ && member.inWindow && takeOfTerm(member, item))) {
    ++counters_.revived;
    return true;
  }
  FLUXON_MARK("master: a value of an inventory is refused");
  ++counters_.inventoryRefused;
  return false;
}

// Of an earlier term: the highest put_id of a key is its latest completed put (invariant 6). Key leases have ended with their term.
bool MasterCore::takeOfTerm(Member& member, const Listed& item) {
  if (item.lease || item.putId.term() >= identity_.term.value) return false;
  if (item.putId < bounds_.of(item.key)) {
    FLUXON_MARK("master: an inventory lists what has ended in the window");
    return false;
  }
  KeyEntry& entry = routes_.at(item.key);
  const bool known = replicaOf(entry, member, item.medium);
  if (entry.change || known || entry.putId > item.putId || (entry.putId == item.putId && entry.bytes != item.bytes)) {
    routes_.forgetIfIdle(entry);
    return false;
  }
  if (entry.putId < item.putId) {
    // Nobody keeps an older value of a key whose later one was acknowledged; should one, it goes.
    for (const Replica& older : entry.replicas) {
      if (older.member->state == MemberState::fenced) fenceOnDisk(*older.member);
      if (older.member->lives()) invalidate(*older.member, {std::string(entry.key), item.putId});
    }
    routes_.replace(entry, item.putId, item.bytes);
  }
  routes_.add(entry, item.at(member));
  return true;
}

bool MasterCore::takeDormant(Member& member, const Listed& item) {
  KeyEntry* entry = routes_.find(item.key);
  if (!entry || entry->change || entry->putId != item.putId || entry->bytes != item.bytes) return false;
  const Replica taken = item.at(member);
  // With the last life, or with one before it that it had not taken over in full.
  for (const Member* before = member.before.get(); before; before = before->before.get()) {
    const Replica* const dormant = replicaOf(*entry, *before, item.medium);
    if (!dormant || dormant->ssd != taken.ssd || dormant->offset != taken.offset) continue;
    routes_.drop(*entry, *before, item.medium);
    routes_.add(*entry, taken);
    return true;
  }
  return false;
}

void MasterCore::join(Member& member) {
  member.state = MemberState::joined;
  member.complete = true;
  ssds_ += bool(member.ssdLife);
  if (member.before) forget(*std::exchange(member.before, {}));
}

// The owner knows which of its values are none any more. Until then it may have served them, under the lease of the last term.
void MasterCore::confirm(Member& member, Time now) {
  if (member.joinedAt.ns != 0) return;
  member.joinedAt = now;
  windowEndsFor(member, now);
}

// --- the window

bool MasterCore::offersLastTerm(const rpc::Registration& registration) const {
  const auto expected = expected_.find(registration.node);
  // Exactly that life: one that it has followed may have values that were refused when they were listed, and nobody told it otherwise.
  return registration.adopts && expected != expected_.end() && expected->second.givenUp == 0 &&
         registration.adopts == expected->second.life;
}

void MasterCore::registeredInWindow(Member& member, Time now) {
  if (!recovering_) return;
  // A lease of the last term may be longer than one of this.
  member.leaseEnd = std::max(member.leaseEnd, windowEnd_);
  if (const auto expected = expected_.find(member.node()); expected != expected_.end() && (member.inWindow || member.before))
    expected->second.until = std::max(expected->second.until, member.leaseEnd);
  settleWindow(now);
}

// Changes that wait for a member wait for the one that has its directory now.
void MasterCore::tellInstead(Member& member, Member& next) {
  for (KeyEntry* entry : changing_) {
    if (entry->change->waiting.erase(member) == 0) continue;
    FLUXON_MARK("master: the next life is told of a change instead");
    entry->change->waiting.insert(next);
    invalidate(next, {std::string(entry->key), entry->change->below});
  }
}

// Nothing of the last term is to come from the node any more, and nothing of it is served there.
void MasterCore::windowEndsFor(Member& member, Time now) {
  const auto expected = expected_.find(member.node());
  // Of the life that the record named a newcomer that does not have its directory proves nothing.
  if (expected == expected_.end() || !vouches(member.registration(), expected->second.life)) return;
  expected_.erase(expected);
  settleWindow(now);
  goOn(windowed_.takeAll(), now);
}

// Who has not come, or has come and makes no progress: first on disk, then it is waited for no more.
void MasterCore::tickWindow(Time now, Time heard) {
  std::vector<std::string> late;
  for (const auto& [node, expected] : expected_) {
    if (expected.givenUp == 0 && heard >= expected.until) late.push_back(node);
  }
  for (const std::string& node : late) {
    const auto found = members_.find(node);
    Member* const member = found == members_.end() ? nullptr : found->second.get();
    if (member && member->state == MemberState::reporting && member->inWindow) {
      FLUXON_MARK("master: a member whose inventory makes no progress is given up");
      end(*member, MemberState::fenced, now);
    }
    Expected& expected = expected_.at(node);
    expected.givenUp = durable_.version;
    const Incarnation life = recorded(node);
    if (life && !(member && member->complete && life == member->incarnation())) {
      FLUXON_MARK("master: the recovery window ends without a node");
      durable_.members[node] = Incarnation();
      expected.givenUp = ++durable_.version;
      outbox_.persist();
    }
  }
  if (!late.empty()) givenUp(persisted_, now);
  for (const Deferred& each : windowed_.expired(now)) {
    FLUXON_MARK("master: a request waits for the recovery window until its deadline");
    out_.refuse(*each.member, each.request.id, Code::unavailable, "the recovery window is open: not every node has listed its values yet");
  }
}

void MasterCore::givenUp(uint64_t persisted, Time now) {
  if (std::erase_if(expected_, [&](const auto& each) { return each.second.givenUp != 0 && each.second.givenUp <= persisted; }) > 0)
    settleWindow(now);
}

Time MasterCore::windowWake() const {
  Time next = windowed_.nextDeadline();
  for (const auto& [node, expected] : expected_) {
    if (expected.givenUp == 0) next = std::min(next, expected.until);
  }
  return next;
}

// After each event that may bring the window on.
void MasterCore::settleWindow(Time now) {
  if (!recovering_) return;
  const bool registered = std::all_of(expected_.begin(), expected_.end(), [&](const auto& each) {
    const auto member = members_.find(each.first);
    return each.second.givenUp == 0 && member != members_.end() && vouches(member->second->registration(), each.second.life);
  });
  const bool before = std::exchange(acknowledges_, registered);
  recovering_ = !expected_.empty();
  if (recovering_ && registered) FLUXON_MARK("master: changes are acknowledged while inventories come");
  if (!recovering_) bounds_.close();
  if (!recovering_ || (registered && !before)) goOn(windowed_.takeAll(), now);
}

// Those that still cannot be answered wait again.
void MasterCore::goOn(const std::vector<Deferred>& requests, Time now) {
  for (const Deferred& each : requests) {
    if (each.member.living()) dispatch(*each.member, each.request, now);
  }
}

// Whether a key exists is known though more inventories may come.
bool MasterCore::known(const std::string& key) {
  const KeyEntry* const entry = routes_.find(key);
  if (entry && (readable(*entry) || entry->change || entry->putId.term() == identity_.term.value)) return true;
  return bounds_.of(key).term() == identity_.term.value;
}

// What cannot be answered while the window is open waits.
bool MasterCore::waitsForWindow(Member& member, const rpc::Request& request, Time now) {
  const std::optional<Question> question = std::visit(AskedInWindow{routes_, member}, request.body);
  if (!question) return false;
  if (!question->everyKey && (acknowledges_ || !question->changes) && (!question->asks || known(question->key))) return false;
  FLUXON_MARK("master: a request waits for the recovery window");
  const Time deadline = question->timeLeftMs != 0 ? now + timeLeft(question->timeLeftMs) : Time::never();
  windowed_.add(question->key, deadline, {member, request});
  return true;
}

}  // namespace fluxon::master
