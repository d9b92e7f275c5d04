#include "master_core.h"

#include <algorithm>

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::master {
namespace {

constexpr uint64_t kLongestKeyLeaseMs = uint64_t{365} * 86'400'000;

// May be carried out more than once: a heartbeat, or an answer to an order, which is known by the order's id. So however far the ids of an
// owner have run ahead, its lease goes on, and nobody waits for it for ever.
bool repeatable(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InvalidateDone>() || request.is<rpc::ReclaimDone>() ||
         request.is<rpc::Staged>() || request.is<rpc::Unstaged>();
}

// What an owner that has not listed its values yet may say.
bool beforeItHasJoined(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InventoryPage>() || request.is<rpc::InvalidateDone>() ||
         request.is<rpc::Release>() || request.is<rpc::Dropped>() || request.is<rpc::SsdLife>() || request.is<rpc::SsdEvicted>();
}

// The key or prefix that a request is about.
const std::string* keyOf(const rpc::Request& request) {
  return std::visit(
      [](const auto& body) -> const std::string* {
        if constexpr (requires { body.key; }) {
          return &body.key;
        } else if constexpr (requires { body.prefix; }) {
          return &body.prefix;
        } else if constexpr (requires { body.value.key; }) {
          return &body.value.key;
        } else {
          return nullptr;
        }
      },
      request.body);
}

}  // namespace

MasterCore::MasterCore(Identity identity, Settings settings, std::map<std::string, Incarnation> members, Time windowEnd, Outbox& outbox)
    : identity_(std::move(identity)),
      settings_(settings),
      out_(outbox),
      bounds_(Bounds::State::open),
      routes_(bounds_),
      listings_(out_, routes_),
      record_(outbox, std::move(members)),
      window_(identity_.term, windowEnd, out_, routes_, bounds_, record_, members_,
              {[this](std::vector<Deferred> requests, Time now) { goOn(requests, now); },
               [this](Member& member, Time now) { membership_.fence(member, now); }}),
      invalidations_(out_),
      membership_(settings.lease, out_, record_, routes_, window_, members_,
                  {[this](Member& member, Time now) { memberEnded(member, now); },
                   [this](Member& member, Time now) { settleChanges(member, now); },
                   [this](Member& member, Member& next) { tellInstead(member, next); }}),
      space_(settings.putWait, out_, routes_, membership_, [this](const Waiting& waiting, Time now) { return retry(waiting, now); }),
      inventory_(identity_.term, settings.lease, out_, routes_, bounds_, record_, window_, membership_, invalidations_) {}

rpc::Registered MasterCore::registerOwner(const rpc::Registration& registration, Time now, std::shared_ptr<Member>& member) {
  return membership_.add(registration, now, member);
}

void MasterCore::leave(Member& member, Content content, Time now) {
  if (content == Content::gone) return membership_.leave(member, now);
  if (member.lives()) FLUXON_MARK("master: a member stops and keeps its values");
  membership_.fence(member, now);
}

void MasterCore::persisted(uint64_t version, Time now) {
  record_.persisted(version, now);
  window_.persisted(version, now);
}

void MasterCore::memberEnded(Member& member, Time) {
  while (!member.puts.empty()) abandonPut(member, member.puts.begin()->first);
  while (!member.transfers.empty()) dropTransfer(member, member.transfers.begin()->first);
  for (const auto& [stage, get] : std::exchange(member.staging, {})) {
    FLUXON_MARK("master: a member ends under a get that waits for what is on its SSD");
    dropStaged(get);
    out_.refuse(*get.member, get.id, Code::unavailable, "node " + member.node() + " ended");
  }
  space_.memberEnded(member);
  window_.memberEnded(member);
  Invalidations::memberEnded(member);
  member.orders.clear();
  member.unstaging.clear();
  member.toMove.clear();
  changesWithout(member);
}



MasterCore::~MasterCore() {
  // Members that live name each other.
  for (const auto& [node, member] : members_) {
    member->puts.clear();
    member->transfers.clear();
    member->shortage = {};
    member->staging.clear();
  }
}

void MasterCore::handle(Member& member, std::vector<rpc::Request> requests, OperationId lowestUnanswered, Time now,
                        const std::vector<OperationId>& stragglers) {
  member.answers.forgetBelow(lowestUnanswered, stragglers);
  for (rpc::Request& request : requests) {
    // The end of a copy by order is carried out once: of a transfer that is open it is kept, of one that is over it changes nothing.
    const rpc::ReplicateDone* const copied = request.as<rpc::ReplicateDone>();
    switch (member.answers.begin(request.id, copied && member.transfers.count(copied->order) > 0)) {
      case AnswerLog::Seen::running:
        FLUXON_MARK("master: a request comes twice, the first one is under way");
        continue;
      case AnswerLog::Seen::forgotten:
        out_.refuse(member, request.id, Code::protocol, "request id below the lowest unanswered one");
        continue;
      case AnswerLog::Seen::far:
        if (repeatable(request) || copied) break;
        out_.refuse(member, request.id, Code::protocol, "request id far beyond the lowest unanswered one");
        continue;
      case AnswerLog::Seen::answered: {
        FLUXON_MARK("master: a request comes twice, the first one was answered");
        out_.again(member, request.id);
        continue;
      }
      case AnswerLog::Seen::fresh: break;
    }
    const std::string* const key = keyOf(request);
    if (!member.lives()) {
      FLUXON_MARK("master: a request of a life that has ended");
      out_.refuse(member, request.id, Code::fenced);
    } else if (key && key->size() > kMaxKeyBytes) {
      out_.refuse(member, request.id, Code::invalidKey, "longer than 4096 bytes");
    } else {
      dispatch(member, request, now);
    }
  }
  if (member.state == MemberState::joined) {
    space_.askVictims(member, now);
    if (member.draining) moveOut(member, now);
  }
}

void MasterCore::dispatch(Member& member, const rpc::Request& request, Time now) {
  if (member.state == MemberState::reporting && !beforeItHasJoined(request))
    return out_.refuse(member, request.id, Code::protocol, "request before the inventory is complete");
  if (window_.open() && window_.holds(member, request, now)) return;
  std::visit([&](const auto& body) { on(member, request.id, body, now); }, request.body);
}

// Those that still cannot be answered wait again.
void MasterCore::goOn(const std::vector<Deferred>& requests, Time now) {
  for (const Deferred& each : requests) {
    if (each.member.living()) dispatch(*each.member, each.request, now);
  }
}

void MasterCore::on(Member& member, OperationId id, const rpc::InventoryPage& page, Time now) { inventory_.page(member, id, page, now); }

void MasterCore::on(Member& member, OperationId id, const rpc::Heartbeat& beat, Time now) {
  for (const uint64_t offset : beat.touched) member.space.touch(offset);
  membership_.heartbeat(member, beat.serving, now);
  out_.reply(member, id, rpc::Done());
}

Code MasterCore::refusePut(const std::string& key, PutMode mode, KeyLeaseId lease, std::string& detail, Time now) {
  if (key.empty()) return detail = "empty", Code::invalidKey;
  if (lease && !routes_.leases().find(lease)) return Code::noLease;
  const KeyEntry* entry = routes_.find(key);
  if (!entry) return Code::ok;
  const bool published = entry->change && !entry->change->removal;
  if (mode.onExisting == PutMode::OnExisting::reject && (readable(*entry) || published)) return Code::exists;
  if (mode.onInFlight == PutMode::OnInFlight::reject) {
    for (const auto& [other, operation] : entry->puts) {
      if (other->puts.at(operation).deadline > now) return Code::inFlight;
    }
    if (published) return Code::inFlight;
  }
  return Code::ok;
}

void MasterCore::on(Member& member, OperationId id, const rpc::PutStart& start, Time now) {
  // Those who wait already come first, but for those who cannot fit.
  Member* const lacks = !SpaceQueue::hasLine(member) ? lacksSpaceForPut(member, id, start, now) : &member;
  if (!lacks) return;
  std::string detail;
  if (const Code code = refusePut(start.key, start.mode, start.lease, detail, now); code != Code::ok)
    return out_.refuse(member, id, code, detail);
  space_.wait(*lacks, {member, id, start, start.bytes}, start.timeLeftMs, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::PutDone& done, Time now) {
  const auto put = member.puts.find(done.put);
  if (put == member.puts.end()) return out_.refuse(member, id, Code::unavailable, "the put has been given up");
  if (put->second.home && !put->second.home.living()) {
    FLUXON_MARK("master: the member ended that was to have a put");
    abandonPut(member, done.put);
    return out_.refuse(member, id, Code::unavailable, "the node which was to have the value ended");
  }
  if (put->second.home) return sendHome(member, put->second, id, now);
  if (put->second.key->change) return defer(*put->second.key, member, {id, done});
  publish(member, id, done.put, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::PutReserved& request, Time now) {
  // The reserved extent becomes a put first, so that a repetition after a deferral finds it like any other.
  if (!member.puts.count(id)) {
    const MemberSpace::Record* record = member.space.find(request.offset);
    if (!record || record->use != Use::reserved || record->extent.length != extentBytes(request.bytes)) {
      return out_.refuse(member, id, Code::protocol, "not a reserved extent of that size");
    }
    std::string detail;
    if (const Code code = refusePut(request.key, request.mode, request.lease, detail, now); code != Code::ok) {
      member.space.unroute(request.offset);
      return out_.refuse(member, id, code, detail);
    }
    member.space.use(request.offset, Use::inFlight);
    KeyEntry& entry = routes_.at(request.key);
    entry.puts.emplace_back(member, id);
    ++counters_.putsStarted;
    Put& put = member.puts[id];
    put = {id, &entry, PutId(), request.offset, request.bytes, request.mode, request.lease, Time::never()};
    put.since = now;
  }
  Put& put = member.puts.at(id);
  if (put.key->change) return defer(*put.key, member, {id, request});
  put.putId = nextPutId();
  publish(member, id, id, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::PutAbort& abort, Time) {
  if (member.puts.count(abort.put)) {
    ++counters_.putsAborted;
    abandonPut(member, abort.put);
  }
  out_.reply(member, id, rpc::Done());
}

void MasterCore::on(Member& member, OperationId id, const rpc::Reserve& request, Time) { space_.reserve(member, id, request); }
void MasterCore::on(Member& member, OperationId id, const rpc::Release& release, Time now) { space_.release(member, id, release, now); }
void MasterCore::on(Member& member, OperationId id, const rpc::ReclaimDone& done, Time now) { space_.reclaimDone(member, id, done, now); }

Member* MasterCore::retry(const Waiting& waiting, Time now) {
  if (const auto* const put = std::get_if<rpc::PutStart>(&waiting.request)) return lacksSpaceForPut(*waiting.member, waiting.id, *put, now);
  const auto& get = std::get<rpc::GetStart>(waiting.request);
  return lacksSpaceForGet(*waiting.member, waiting.id, get, Turn::first, waiting.stagings, now);
}

Error MasterCore::evictTo(const std::string& node, uint64_t percent, Time now) {
  bool any = false;
  for (const auto& [name, member] : members_) {
    if (member->state != MemberState::joined || (!node.empty() && name != node)) continue;
    any = true;
    space_.evictTo(*member, percent, now);
  }
  return any ? Error{} : Error{Code::unavailable, node.empty() ? "no node has joined" : "no node '" + node + "' has joined"};
}

// A place that the owner has given up. Its word may come late: a reclaim has been answered by `gone` before it, and a copy has brought the
// same version to another place since. That one is readable there, and stays.
void MasterCore::on(Member& member, OperationId id, const rpc::Dropped& dropped, Time now) {
  for (const rpc::MemoryReplica& item : dropped.replicas) {
    KeyEntry* entry = routes_.find(item.key);
    const Replica* const replica = entry && entry->putId == item.putId ? replicaOf(*entry, member, Medium::memory) : nullptr;
    if (!replica || replica->offset != item.offset) {
      FLUXON_MARK("master: a replica that it does not know is dropped");
      continue;
    }
    routes_.lose(*entry, member, Medium::memory);
  }
  out_.reply(member, id, rpc::Done());
  space_.serve(member, now);
}

void MasterCore::on(Member& member, OperationId id, const rpc::StatKey& stat, Time) {
  KeyEntry* const entry = routes_.find(stat.key);
  if (entry && entry->change) return defer(*entry, member, {id, stat});
  listings_.stat(member, id, stat);
}

void MasterCore::on(Member& member, OperationId id, const rpc::ListKeys& list, Time) { listings_.list(member, id, list); }
void MasterCore::on(Member& member, OperationId id, const rpc::CountKeys& count, Time) { listings_.count(member, id, count); }

void MasterCore::work() {
  if (routes_.sweeping()) return routes_.sweepSlice();
  listings_.countSlice();
}

void MasterCore::on(Member& member, OperationId id, const rpc::LeaseGrant& grant, Time now) {
  const auto least = static_cast<uint64_t>(settings_.minimumKeyLease.ms());
  if (grant.ttlMs < least || grant.ttlMs > kLongestKeyLeaseMs) {
    return out_.refuse(member, id, Code::invalidArgument,
                     "lease of " + std::to_string(grant.ttlMs) + " ms (accepted: " + std::to_string(least) + " to " +
                         std::to_string(kLongestKeyLeaseMs) + " ms)");
  }
  if (routes_.leases().size() >= settings_.mostKeyLeases) {
    FLUXON_MARK("master: there are too many key leases");
    return out_.refuse(member, id, Code::tooMany,
                     std::to_string(routes_.leases().size()) + " key leases live, no more at once: revoke some, or let them end");
  }
  out_.reply(member, id, rpc::LeaseGranted{routes_.leases().grant(identity_.term, milliseconds(static_cast<int64_t>(grant.ttlMs)), now)});
}

void MasterCore::on(Member& member, OperationId id, const rpc::LeaseKeepAlive& keepAlive, Time now) {
  out_.refuse(member, id, routes_.leases().keepAlive(keepAlive.lease, now) ? Code::ok : Code::noLease);
}

// Acknowledged like a delete: after every holder has retired its replicas.
void MasterCore::on(Member& member, OperationId id, const rpc::LeaseRevoke& request, Time now) {
  if (!routes_.leases().find(request.lease)) return out_.refuse(member, id, Code::noLease);
  const auto revoke = std::make_shared<Revoke>(Revoke{member, id});
  for (const std::string& key : routes_.leases().end(request.lease)) {
    KeyEntry* entry = routes_.find(key);
    if (!entry || entry->lease != request.lease) continue;
    removeKey(*entry, nullptr, OperationId(), now);
    entry = routes_.find(key);
    if (entry && entry->change) entry->change->revokes.push_back(revoke);
  }
  if (revoke.use_count() == 1) out_.reply(member, id, rpc::Done());
}

void MasterCore::tick(Time now, Time heard) {
  if (settings_.stopped.ns > 0 && heardUntil_.ns == 0) {
    if (const Time due = nextWake(); due < now && now - due > settings_.stopped) {
      FLUXON_MARK("master: it was stopped");
      heardUntil_ = now + settings_.stopped;
    }
  }
  if (now < heardUntil_) return;
  heardUntil_ = Time{0};
  if (window_.open()) window_.tick(now, heard);
  for (const auto& [node, member] : members_) {
    membership_.tick(*member, now, heard);
    if (!member->lives()) continue;
    space_.tick(*member, now);
    if (member->draining) moveOut(*member, now);
  }
  while (const KeyLeaseId lease = routes_.leases().expired(heard)) {
    FLUXON_MARK("master: a key lease ends");
    ++counters_.leasesExpired;
    for (const std::string& key : routes_.leases().end(lease)) {
      if (KeyEntry* entry = routes_.find(key); entry && entry->lease == lease) removeKey(*entry, nullptr, OperationId(), now);
    }
  }
}

Time MasterCore::nextWake() const {
  if (heardUntil_.ns != 0) return heardUntil_;
  Time next = routes_.leases().nextEnd();
  if (window_.open()) next = std::min(next, window_.nextWake());
  for (const auto& [node, member] : members_) {
    next = std::min(next, Membership::nextWake(*member));
    if (!member->lives()) continue;
    next = std::min(next, SpaceQueue::nextWake(*member));
    if (member->draining && member->state == MemberState::joined) next = std::min(next, member->retryMove);
  }
  return next;
}

MasterCounters MasterCore::counters() const {
  MasterCounters sum = counters_;
  sum.noSpace = space_.counters().noSpace;
  sum.evictions = space_.counters().evictions;
  sum.evictionsBusy = space_.counters().evictionsBusy;
  sum.fenced = membership_.counters().fenced;
  sum.invalidations = invalidations_.total();
  sum.revived = inventory_.counters().revived;
  sum.inventoryRefused = inventory_.counters().inventoryRefused;
  return sum;
}

uint64_t MasterCore::inFlightPuts() const {
  uint64_t puts = 0;
  for (const auto& [node, member] : members_) puts += member->puts.size();
  return puts;
}

uint64_t MasterCore::transfers() const {
  uint64_t sum = 0;
  for (const auto& [node, member] : members_) sum += member->transfers.size();
  return sum;
}

Duration MasterCore::oldestPut(Time now) const {
  Duration age{0};
  for (const auto& [node, member] : members_) {
    for (const auto& [id, put] : member->puts) age = std::max(age, now - put.since);
  }
  return age;
}

Duration MasterCore::oldestTransfer(Time now) const {
  Duration age{0};
  for (const auto& [node, member] : members_) {
    for (const auto& [id, transfer] : member->transfers) age = std::max(age, now - transfer.since);
  }
  return age;
}

}  // namespace fluxon::master
