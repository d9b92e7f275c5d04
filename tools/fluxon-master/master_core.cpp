#include "master_core.h"

#include <algorithm>

#include "base/mark.h"
#include "request_rules.h"

namespace fluxon::master {
MasterCore::MasterCore(Identity identity, Settings settings, std::map<std::string, Incarnation> members, Time windowEnd, Outbox& outbox)
    : identity_(std::move(identity)),
      settings_(settings),
      out_(outbox),
      putIds_(identity_.term),
      bounds_(Bounds::State::open),
      routes_(bounds_),
      record_(outbox, std::move(members)),
      window_(identity_.term, windowEnd, out_, routes_, bounds_, record_, members_,
              {[this](const std::vector<Deferred>& requests, Time now) { goOn(requests, now); },
               [this](Member& member, Time now) { membership_.fence(member, now); }}),
      membership_(
          settings.lease, out_, record_, routes_, window_, members_,
          {[this](Member& member, Time) { memberEnded(member); }, [this](Member& member, Time now) { changes_.fenceOnDisk(member, now); },
           [this](Member& member, Member& next) { changes_.tellInstead(member, next); }}),
      invalidations_(out_),
      inventory_(identity_.term, settings.lease, out_, routes_, bounds_, record_, window_, membership_, invalidations_),
      space_(settings.putWait, out_, routes_, membership_, [this](const Waiting& waiting, Time now) { return retry(waiting, now); }),
      ssds_(out_, routes_, membership_, space_),
      listings_(out_, routes_),
      changes_(putIds_, out_, routes_, window_, membership_, invalidations_,
               {[this](Member& member, OperationId put) { puts_.end(member, put); },
                [this](Member& member, OperationId put) { puts_.abandon(member, put); }, &Puts::overtaken,
                [this](Member& home, OrderId copy) { transfers_.taken(home, copy); },
                [this](Member& home, OrderId copy) { transfers_.drop(home, copy, Transfers::Place::written); },
                [this](const std::vector<Deferred>& requests, Time now) { goOn(requests, now); }}),
      puts_(putIds_, out_, routes_, membership_, space_, changes_, transfers_),
      transfers_(out_, routes_, membership_, space_,
                 {[this](const OfPut& put, const Copied& copy, Time now) { puts_.arrived(put, copy, now); },
                  [this](const OfPut& put, const std::string& node) { puts_.cannotArrive(put, node); },
                  [this](KeyEntry& entry, Member& member, rpc::Request request) { changes_.defer(entry, member, std::move(request)); },
                  [this](Member& source, const StagedAt& stage) { staging_.notWanted(source, stage); },
                  [this](Member& member, const Transfer& transfer, Code code) { ssds_.loadFailed(member, transfer, code); },
                  [this](Member& from, Time now) { drains_.copyEnded(from, now); }}),
      staging_(
          out_, space_, transfers_, ssds_,
          [this](const StagedGet& get, Time now) { gets_.find(*get.member, get.id, get.request, Gets::Rank::first, get.stagings, now); }),
      gets_(out_, routes_, space_, changes_, transfers_, staging_),
      drains_(out_, record_, window_, membership_, space_, transfers_),
      leases_(identity_.term, {settings.minimumKeyLease, settings.mostKeyLeases}, out_, routes_, changes_) {}

// Members that live name each other.
MasterCore::~MasterCore() {
  for (const auto& [node, member] : members_) {
    puts_.forget(*member);
    transfers_.forget(*member);
    member->shortage = {};
  }
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

// The member's own operations end first, then those of others that involve it, then those that wait for its answers.
void MasterCore::memberEnded(Member& member) {
  puts_.memberEnded(member);
  transfers_.memberEnded(member);
  staging_.memberEnded(member);
  space_.memberEnded(member);
  window_.memberEnded(member);
  invalidations_.memberEnded(member);
  inventory_.memberEnded(member);
  Outgoing::memberEnded(member);
  Drains::memberEnded(member);
  changes_.memberEnded(member);
}

void MasterCore::handle(Member& member, std::vector<rpc::Request> requests, OperationId lowestUnanswered, Time now,
                        const std::vector<OperationId>& stragglers) {
  Outgoing::forgetBelow(member, lowestUnanswered, stragglers);
  for (rpc::Request& request : requests) {
    // The end of an ordered copy is carried out once: its record is kept while the transfer is open; after that it changes nothing.
    const rpc::ReplicateDone* const copied = request.as<rpc::ReplicateDone>();
    switch (Outgoing::begin(member, request.id, copied && member.transfers->count(copied->order) > 0)) {
      case AnswerLog::Seen::running: FLUXON_MARK("master: a request comes twice, the first one is under way"); continue;
      case AnswerLog::Seen::forgotten:
        out_.refuse(member, request.id, Code::protocol, "request id below the lowest unanswered one");
        continue;
      case AnswerLog::Seen::far:
        if (repeatable(request) || copied) break;
        out_.refuse(member, request.id, Code::protocol, "request id far beyond the lowest unanswered one");
        continue;
      case AnswerLog::Seen::answered:
        FLUXON_MARK("master: a request comes twice, the first one was answered");
        out_.again(member, request.id);
        continue;
      case AnswerLog::Seen::fresh: break;
    }
    const std::string* const key = keyOf(request);
    if (!member.lives()) {
      FLUXON_MARK("master: a request of a life that has ended");
      out_.refuse(member, request.id, Code::fenced);
    } else if (key && key->size() > kMaxKeyBytes) {
      out_.refuse(member, request.id, Code::invalidKey, "longer than " + std::to_string(kMaxKeyBytes) + " bytes");
    } else {
      dispatch(member, request, now);
    }
  }
  if (member.state == MemberState::joined) {
    space_.askVictims(member, now);
    drains_.goOn(member, now);
  }
}

void MasterCore::dispatch(Member& member, const rpc::Request& request, Time now) {
  if (member.state == MemberState::reporting && !beforeItHasJoined(request))
    return out_.refuse(member, request.id, Code::protocol, "request before the inventory is complete");
  if (window_.open() && window_.holds(member, request, now)) return;
  struct Carry {
    MasterCore& core;
    Member& member;
    OperationId id;
    Time now;
    void operator()(const rpc::Heartbeat& beat) const {
      for (const uint64_t offset : beat.touched) member.space.touch(offset);
      core.membership_.heartbeat(member, beat.serving, now);
      core.out_.reply(member, id, rpc::Done());
    }
    void operator()(const rpc::PutStart& start) const { core.puts_.start(member, id, start, now); }
    void operator()(const rpc::PutDone& done) const { core.puts_.done(member, id, done, now); }
    void operator()(const rpc::PutReserved& put) const { core.puts_.reserved(member, id, put, now); }
    void operator()(const rpc::PutAbort& abort) const { core.puts_.abort(member, id, abort); }
    void operator()(const rpc::Reserve& reserve) const { core.space_.reserve(member, id, reserve); }
    void operator()(const rpc::Release& release) const { core.space_.release(member, id, release, now); }
    void operator()(const rpc::ReclaimDone& done) const { core.space_.reclaimDone(member, id, done, now); }
    void operator()(const rpc::Dropped& dropped) const { core.ssds_.dropped(member, id, dropped, now); }
    void operator()(const rpc::SsdLife& life) const { core.ssds_.life(member, id, life); }
    void operator()(const rpc::SsdCommit& commit) const { core.ssds_.commit(member, id, commit, now); }
    void operator()(const rpc::SsdEvicted& evicted) const { core.ssds_.evicted(member, id, evicted); }
    void operator()(const rpc::GetStart& get) const { core.gets_.start(member, id, get, now); }
    void operator()(const rpc::GetDone& done) const { core.transfers_.getDone(member, id, done, now); }
    void operator()(const rpc::ReplicateDone& done) const { core.transfers_.replicateDone(member, id, done, now); }
    void operator()(const rpc::Spread& spread) const { core.transfers_.spread(member, id, spread, now); }
    void operator()(const rpc::Staged& staged) const { core.staging_.staged(member, id, staged, now); }
    void operator()(const rpc::Unstaged& unstaged) const { core.staging_.unstaged(member, id, unstaged, now); }
    void operator()(const rpc::StatKey& stat) const {
      KeyEntry* const entry = core.routes_.find(stat.key);
      if (entry && entry->change) return core.changes_.defer(*entry, member, {id, stat});
      core.listings_.stat(member, id, stat);
    }
    void operator()(const rpc::CountKeys& count) const { core.listings_.count(member, id, count); }
    void operator()(const rpc::ListKeys& list) const { core.listings_.list(member, id, list); }
    void operator()(const rpc::RemoveKey& remove) const { core.changes_.remove(member, id, remove, now); }
    void operator()(const rpc::InvalidateDone& done) const { core.changes_.invalidateDone(member, id, done, now); }
    void operator()(const rpc::LeaseGrant& grant) const { core.leases_.grant(member, id, grant, now); }
    void operator()(const rpc::LeaseKeepAlive& keepAlive) const { core.leases_.keepAlive(member, id, keepAlive, now); }
    void operator()(const rpc::LeaseRevoke& revoke) const { core.leases_.revoke(member, id, revoke, now); }
    void operator()(const rpc::InventoryPage& page) const { core.inventory_.page(member, id, page, now); }
  };
  std::visit(Carry{*this, member, request.id, now}, request.body);
}

// Tries requests again; those that still cannot be answered wait again.
void MasterCore::goOn(const std::vector<Deferred>& requests, Time now) {
  for (const Deferred& each : requests) {
    if (each.member.living()) dispatch(*each.member, each.request, now);
  }
}

Member* MasterCore::retry(const Waiting& waiting, Time now) {
  Member& member = *waiting.member;
  if (const auto* const put = std::get_if<rpc::PutStart>(&waiting.request)) return puts_.retry(member, waiting.id, *put, now);
  return gets_.retry(member, waiting.id, std::get<rpc::GetStart>(waiting.request), Gets::Rank::first, waiting.stagings, now);
}

void MasterCore::work() {
  if (routes_.sweeping()) return routes_.sweepSlice();
  listings_.countSlice();
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
    drains_.goOn(*member, now);
  }
  leases_.tick(now, heard);
}

Time MasterCore::nextWake() const {
  if (heardUntil_.ns != 0) return heardUntil_;
  Time next = routes_.leases().nextEnd();
  if (window_.open()) next = std::min(next, window_.nextWake());
  for (const auto& [node, member] : members_) {
    next = std::min(next, Membership::nextWake(*member));
    if (!member->lives()) continue;
    next = std::min({next, SpaceQueue::nextWake(*member), Drains::nextWake(*member)});
  }
  return next;
}

MasterCounters MasterCore::counters() const {
  MasterCounters all{{puts_.counters(), changes_.counters(), space_.counters(), gets_.counters(), transfers_.counters(), ssds_.counters(),
                      membership_.counters(), leases_.counters(), inventory_.counters(), CoreCounters{invalidations_.total()}}};
  all.putsRefused += all.putsRefusedAtEnd;
  return all;
}

}  // namespace fluxon::master
