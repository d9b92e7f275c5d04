// A master without network and clock, and owners that say to it what a test says. The lease is 10 s, segments are 1 MiB.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "master_core.h"
#include "shm/client_format.h"

namespace fluxon::master {

constexpr uint64_t kSegment = 1 << 20;
constexpr uint64_t kPageBytes = 4096;

struct Outboxes final : Outbox {
  std::map<const Member*, std::vector<rpc::MasterMessage>> sent;
  void send(Member& member, rpc::MasterMessage message) override {
    CHECK(member.connected);
    sent[&member].push_back(std::move(message));
  }
  void persist() override { wanted = true; }
  bool wanted = false;
};

struct World;

// One incarnation of one owner. It answers orders only when told to.
class Owner {
 public:
  Owner(World& world, std::shared_ptr<Member> joinedAs) : member(std::move(joinedAs)), world_(&world) {}

  OperationId ask(rpc::Request);
  OperationId ask(rpc::RequestKind kind, std::string key = {});
  // The same request once more, as after a lost connection.
  void askAgain(OperationId);
  bool answered(OperationId) const;
  size_t answers(OperationId) const;
  rpc::Reply answer(OperationId) const;

  OperationId start(std::string key, uint64_t bytes = 100, uint32_t flags = 0, KeyLeaseId lease = {}, uint64_t timeLeftMs = 60'000);
  OperationId done(OperationId put);
  OperationId abort(OperationId put);
  OperationId reserve(uint64_t bytes, uint64_t count);
  OperationId putReserved(std::string key, uint64_t bytes, uint64_t offset, KeyLeaseId lease = {});
  Code release(std::vector<uint64_t> offsets);
  OperationId remove(std::string key) { return ask(rpc::RequestKind::remove, std::move(key)); }
  OperationId get(std::string key) { return ask(rpc::RequestKind::getStart, std::move(key)); }
  Code heartbeat(std::vector<uint64_t> touched = {});
  KeyLeaseId grantLease(uint64_t ttlMs);
  // start and done, published at once; the extent's offset.
  uint64_t put(const std::string& key, uint64_t bytes = 100, KeyLeaseId lease = {});

  // Orders sent and not yet answered by this stub, each once.
  std::vector<rpc::MasterMessage> orders(rpc::CommandKind) const;
  // Answers all invalidations, or reclaims; gives what they were about.
  std::vector<rpc::Version> invalidateDone();
  std::vector<rpc::Version> reclaimDone(rpc::ReclaimResult);
  void reclaimDone(OperationId command, std::vector<rpc::ReclaimResult>);
  // Answers one order by a request of that kind.
  OperationId answerOrder(rpc::RequestKind, OperationId command, Code code = Code::ok);
  uint64_t bytes(Use use) const { return member->space.bytes(use); }

  std::shared_ptr<Member> member;

 private:
  World* world_;
  std::map<OperationId, rpc::Request> asked_;
  std::set<OperationId> ordersDone_;
  uint64_t ids_ = 0;
};

struct World {
  // `members`: nodes that the last term has left, with a life of 1000 each.
  explicit World(const std::set<std::string>& members = {}, Settings settings = {})
      : core({"cluster", "id", Term(3), Incarnation(77)}, settings, recordOf(members), now + seconds(20), outbox) {}
  static std::map<std::string, Incarnation> recordOf(const std::set<std::string>& nodes) {
    std::map<std::string, Incarnation> record;
    for (const std::string& node : nodes) record[node] = Incarnation(1000);
    return record;
  }
  std::set<std::string> durableMembers() const {
    std::set<std::string> nodes;
    for (const auto& [node, life] : core.durable().members) nodes.insert(node);
    return nodes;
  }

  rpc::Registration registration(const std::string& node, uint64_t incarnation) {
    rpc::Registration r;
    r.node = node;
    r.hostId = "host";
    r.incarnation = Incarnation(incarnation);
    r.segmentBytes = kSegment;
    r.maxKeys = 100'000;
    // A process with the directory of the last one.
    std::vector<Incarnation>& before = lives[node];
    r.ends = before;
    r.ends.push_back(Incarnation(1000));
    before.push_back(r.incarnation);
    return r;
  }
  Owner join(const rpc::Registration& r) {
    std::shared_ptr<Member> member;
    const rpc::Registered result = core.registerOwner(r, now, member);
    if (diskWorks) persisted();
    REQUIRE(result.code == Code::ok);
    REQUIRE(member);
    return {*this, member};
  }
  Owner join(const std::string& node) { return join(registration(node, ++incarnations)); }
  Code tryJoin(const rpc::Registration& r) {
    std::shared_ptr<Member> member;
    const Code code = core.registerOwner(r, now, member).code;
    if (diskWorks) persisted();
    CHECK((code == Code::ok) == bool(member));
    return code;
  }
  // The disk is as fast as a test wants.
  void persisted() {
    while (std::exchange(outbox.wanted, false)) core.persisted(core.durable().version, now);
  }
  void pass(Duration d) {
    now = now + d;
    core.tick(now, now);
    if (diskWorks) persisted();
  }
  // Time goes on in steps while these owners send heartbeats.
  void pass(Duration d, std::vector<Owner*> alive) {
    for (const Time end = now + d; now < end;) {
      pass(std::min(milliseconds(500), end - now));
      for (Owner* owner : alive) owner->heartbeat();
    }
  }
  void work() {
    for (int slices = 0; core.hasWork(); ++slices) {
      REQUIRE(slices < 1000);
      core.work();
    }
  }
  // Every byte of a member's segment is accounted for, once.
  bool bytesAddUp() const {
    for (const auto& [node, member] : core.members()) {
      uint64_t used = 0;
      for (size_t use = 0; use < kUses; ++use) used += member->space.bytes(static_cast<Use>(use));
      if (used + member->space.freeBytes() != member->space.capacity()) return false;
    }
    return true;
  }

  Time now{seconds(1000).ns};
  Outboxes outbox;
  bool diskWorks = true;
  MasterCore core;
  uint64_t incarnations = 0;
  std::map<std::string, std::vector<Incarnation>> lives;
};

inline OperationId Owner::ask(rpc::Request request) {
  request.id = OperationId(++ids_);
  asked_[request.id] = request;
  world_->core.handle(*member, {request}, OperationId(1), world_->now);
  if (world_->diskWorks) world_->persisted();
  return request.id;
}
inline OperationId Owner::ask(rpc::RequestKind kind, std::string key) {
  rpc::Request request;
  request.kind = kind;
  request.key = std::move(key);
  return ask(std::move(request));
}
inline void Owner::askAgain(OperationId id) { world_->core.handle(*member, {asked_.at(id)}, OperationId(1), world_->now); }
inline size_t Owner::answers(OperationId id) const {
  size_t count = 0;
  for (const rpc::MasterMessage& m : world_->outbox.sent[member.get()]) count += m.kind == rpc::CommandKind::reply && m.reply.id == id;
  return count;
}
inline bool Owner::answered(OperationId id) const { return answers(id) > 0; }
inline rpc::Reply Owner::answer(OperationId id) const {
  rpc::Reply last;
  for (const rpc::MasterMessage& m : world_->outbox.sent[member.get()]) {
    if (m.kind == rpc::CommandKind::reply && m.reply.id == id) last = m.reply;
  }
  INFO("request ", id.value);
  REQUIRE(last.id == id);
  return last;
}
inline OperationId Owner::start(std::string key, uint64_t bytes, uint32_t flags, KeyLeaseId lease, uint64_t timeLeftMs) {
  rpc::Request request;
  request.kind = rpc::RequestKind::putStart;
  request.key = std::move(key);
  request.bytes = bytes;
  request.flags = flags;
  request.lease = lease;
  request.timeLeftMs = timeLeftMs;
  return ask(std::move(request));
}
inline OperationId Owner::done(OperationId put) {
  rpc::Request request;
  request.kind = rpc::RequestKind::putDone;
  request.put = put;
  return ask(std::move(request));
}
inline OperationId Owner::abort(OperationId put) {
  rpc::Request request;
  request.kind = rpc::RequestKind::putAbort;
  request.put = put;
  return ask(std::move(request));
}
inline OperationId Owner::reserve(uint64_t bytes, uint64_t count) {
  rpc::Request request;
  request.kind = rpc::RequestKind::reserve;
  request.bytes = bytes;
  request.count = count;
  return ask(std::move(request));
}
inline OperationId Owner::putReserved(std::string key, uint64_t bytes, uint64_t offset, KeyLeaseId lease) {
  rpc::Request request;
  request.kind = rpc::RequestKind::putReserved;
  request.key = std::move(key);
  request.bytes = bytes;
  request.offset = offset;
  request.lease = lease;
  return ask(std::move(request));
}
inline Code Owner::release(std::vector<uint64_t> offsets) {
  rpc::Request request;
  request.kind = rpc::RequestKind::release;
  request.offsets = std::move(offsets);
  return answer(ask(std::move(request))).code;
}
inline Code Owner::heartbeat(std::vector<uint64_t> touched) {
  rpc::Request request;
  request.offsets = std::move(touched);
  return answer(ask(std::move(request))).code;
}
inline KeyLeaseId Owner::grantLease(uint64_t ttlMs) {
  rpc::Request request;
  request.kind = rpc::RequestKind::leaseGrant;
  request.ttlMs = ttlMs;
  return answer(ask(std::move(request))).lease;
}
inline uint64_t Owner::put(const std::string& key, uint64_t bytes, KeyLeaseId lease) {
  const OperationId started = start(key, bytes, 0, lease);
  const rpc::Reply grant = answer(started);
  REQUIRE(grant.code == Code::ok);
  REQUIRE(answer(done(started)).published);
  return grant.offset;
}
inline std::vector<rpc::MasterMessage> Owner::orders(rpc::CommandKind kind) const {
  std::map<OperationId, rpc::MasterMessage> open;
  for (const rpc::MasterMessage& m : world_->outbox.sent[member.get()]) {
    if (m.kind == kind && !ordersDone_.count(m.command)) open[m.command] = m;
  }
  std::vector<rpc::MasterMessage> all;
  for (auto& [id, message] : open) all.push_back(std::move(message));
  return all;
}
inline std::vector<rpc::Version> Owner::invalidateDone() {
  std::vector<rpc::Version> items;
  for (const rpc::MasterMessage& order : orders(rpc::CommandKind::invalidate)) {
    items.insert(items.end(), order.items.begin(), order.items.end());
    ordersDone_.insert(order.command);
    rpc::Request request;
    request.kind = rpc::RequestKind::invalidateDone;
    request.command = order.command;
    ask(std::move(request));
  }
  return items;
}
inline void Owner::reclaimDone(OperationId command, std::vector<rpc::ReclaimResult> results) {
  ordersDone_.insert(command);
  rpc::Request request;
  request.kind = rpc::RequestKind::reclaimDone;
  request.command = command;
  request.results = std::move(results);
  ask(std::move(request));
}
inline OperationId Owner::answerOrder(rpc::RequestKind kind, OperationId command, Code code) {
  ordersDone_.insert(command);
  rpc::Request request;
  request.kind = kind;
  request.command = command;
  request.code = code;
  return ask(std::move(request));
}
inline std::vector<rpc::Version> Owner::reclaimDone(rpc::ReclaimResult result) {
  std::vector<rpc::Version> items;
  for (const rpc::MasterMessage& order : orders(rpc::CommandKind::reclaim)) {
    items.insert(items.end(), order.items.begin(), order.items.end());
    reclaimDone(order.command, std::vector<rpc::ReclaimResult>(order.items.size(), result));
  }
  return items;
}

}  // namespace fluxon::master
