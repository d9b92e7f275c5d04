// A master without network and clock, and owners that say to it what a test says. The lease is 10 s, segments are 1 MiB.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "master_core.h"

namespace fluxon::master {

constexpr uint64_t kSegment = 1 << 20;
constexpr uint64_t kPageBytes = 4096;

struct Outboxes final : Outbox {
  std::map<const Member*, std::vector<rpc::MasterMessage>> sent;
  void send(Member& member, rpc::MasterMessage message) override {
    CHECK(member.connected());
    sent[&member].push_back(std::move(message));
  }
  void persist() override { wanted = true; }
  bool wanted = false;
};

struct World;

constexpr PutMode kRejectExisting{PutMode::OnExisting::reject};
constexpr PutMode kRejectInFlight{PutMode::OnExisting::replace, PutMode::OnInFlight::reject};

// What a get was told: who has the value, and whether it is to be brought here (`fetch`), from an SSD (`ssd`: by this owner from its own,
// or by the other one).
struct Route {
  Code code = Code::ok;
  std::string node;
  std::string link;
  PutId putId;
  uint64_t bytes = 0;
  bool fetch = false, ssd = false;
  uint64_t offset = 0;
  std::optional<rpc::Exported> exported;
};

// One incarnation of one owner. It answers orders only when told to.
class Owner {
 public:
  Owner(World& world, std::shared_ptr<Member> joinedAs) : member(std::move(joinedAs)), world_(&world) {}

  OperationId ask(rpc::Request::Body);
  // Under an id of the test's choice, as after one that was lost.
  void askAs(OperationId, rpc::Request::Body, OperationId lowestUnanswered = OperationId(1), std::vector<OperationId> stragglers = {});
  // The same request once more, as after a lost connection.
  void askAgain(OperationId);

  bool answered(OperationId) const;
  size_t answers(OperationId) const;
  rpc::Reply answer(OperationId) const;
  template <class T>
  T answer(OperationId id) const {
    const rpc::Reply reply = answer(id);
    REQUIRE(reply.code == Code::ok);
    REQUIRE(reply.as<T>());
    return *reply.as<T>();
  }
  Code code(OperationId id) const { return answer(id).code; }
  // Asks, and must be answered at once.
  Code say(rpc::Request::Body body) { return code(ask(std::move(body))); }

  OperationId start(std::string key, uint64_t bytes = 100, PutMode mode = {}, KeyLeaseId lease = {}, uint64_t timeLeftMs = 60'000);
  rpc::PutGranted granted(OperationId put) const { return answer<rpc::PutGranted>(put); }
  OperationId done(OperationId put) { return ask(rpc::PutDone{{}, put}); }
  // Of a PutDone or PutReserved.
  rpc::PutEnded ended(OperationId done) const { return answer<rpc::PutEnded>(done); }
  bool published(OperationId done) const { return answer(done).code == Code::ok && ended(done).published; }
  OperationId abort(OperationId put) { return ask(rpc::PutAbort{{}, put}); }
  // start and done, published at once; the extent's offset.
  uint64_t put(const std::string& key, uint64_t bytes = 100, KeyLeaseId lease = {});

  OperationId reserve(uint64_t bytes, uint64_t count) { return ask(rpc::Reserve{{}, bytes, count}); }
  std::vector<uint64_t> reserved(OperationId id) const { return answer<rpc::Reserved>(id).offsets; }
  OperationId putReserved(std::string key, uint64_t bytes, uint64_t offset, KeyLeaseId lease = {});
  Code release(std::vector<uint64_t> offsets) { return say(rpc::Release{{}, std::move(offsets)}); }
  Code drop(const std::string& key, PutId id, uint64_t offset) { return say(rpc::Dropped{{}, {{key, id, offset}}}); }

  OperationId get(std::string key, rpc::NeighbourUse = rpc::NeighbourUse::read, std::string avoid = {}, uint64_t timeLeftMs = 0);
  Route route(OperationId get) const;
  Route route(const std::string& key) { return route(get(key)); }
  OperationId getDone(OperationId get, Code code = Code::ok) { return ask(rpc::GetDone{{}, get, code}); }
  OperationId replicateDone(OrderId order, Code code = Code::ok);
  // Of a GetDone or ReplicateDone: the copy is a replica now.
  bool copied(OperationId done) const { return answer<rpc::CopyEnded>(done).published; }

  OperationId stat(std::string key) { return ask(rpc::StatKey{{}, std::move(key)}); }
  PutId idOf(const std::string& key) { return answer<rpc::KeyStat>(stat(key)).putId; }
  std::vector<std::string> nodesOf(const std::string& key) { return answer<rpc::KeyStat>(stat(key)).nodes; }
  OperationId remove(std::string key) { return ask(rpc::RemoveKey{{}, std::move(key)}); }
  OperationId count(std::string prefix) { return ask(rpc::CountKeys{{}, std::move(prefix)}); }
  uint64_t counted(OperationId count) const { return answer<rpc::KeyCount>(count).keys; }
  OperationId list(std::string prefix = {}, std::string after = {}, uint64_t limit = 0);
  std::vector<std::string> listed(OperationId list) const;
  Code heartbeat(std::vector<uint64_t> touched = {}) { return say(rpc::Heartbeat{{}, false, std::move(touched)}); }
  KeyLeaseId grantLease(uint64_t ttlMs) { return answer<rpc::LeaseGranted>(ask(rpc::LeaseGrant{{}, ttlMs})).lease; }

  // Orders of that kind, sent and not yet answered by this stub, each once.
  template <class T>
  std::vector<T> orders() const;
  // The only one.
  template <class T>
  T order() const {
    const std::vector<T> all = orders<T>();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  // Has been told so (Leave, Shrink).
  template <class T>
  bool told() const;
  // Answers all invalidations, or reclaims; gives what they were about.
  std::vector<rpc::Version> invalidateDone();
  std::vector<rpc::MemoryReplica> reclaimDone(rpc::ReclaimResult);
  void reclaimDone(OrderId, std::vector<rpc::ReclaimResult>);
  void staged(OrderId, Code code = Code::ok);
  void unstaged(OrderId);
  uint64_t bytes(Use use) const { return member->space.bytes(use); }

  std::shared_ptr<Member> member;

 private:
  World* world_;
  std::map<OperationId, rpc::Request> asked_;
  std::set<OrderId> ordersDone_;
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

inline OperationId Owner::ask(rpc::Request::Body body) {
  const OperationId id(++ids_);
  askAs(id, std::move(body));
  if (world_->diskWorks) world_->persisted();
  return id;
}
inline void Owner::askAs(OperationId id, rpc::Request::Body body, OperationId lowestUnanswered, std::vector<OperationId> stragglers) {
  asked_[id] = {id, body};
  world_->core.handle(*member, {{id, std::move(body)}}, lowestUnanswered, world_->now, stragglers);
}
inline void Owner::askAgain(OperationId id) { world_->core.handle(*member, {asked_.at(id)}, OperationId(1), world_->now); }

inline size_t Owner::answers(OperationId id) const {
  size_t count = 0;
  for (const rpc::MasterMessage& m : world_->outbox.sent[member.get()]) {
    const auto* const reply = std::get_if<rpc::Reply>(&m);
    count += reply && reply->id == id;
  }
  return count;
}
inline bool Owner::answered(OperationId id) const { return answers(id) > 0; }
// The last one. Each fits the request that it answers.
inline rpc::Reply Owner::answer(OperationId id) const {
  rpc::Reply last;
  for (const rpc::MasterMessage& m : world_->outbox.sent[member.get()]) {
    const auto* const reply = std::get_if<rpc::Reply>(&m);
    if (reply && reply->id == id) last = *reply;
  }
  INFO("request ", id.value);
  REQUIRE(last.id == id);
  if (const auto asked = asked_.find(id); asked != asked_.end()) REQUIRE(rpc::fits(asked->second, last));
  return last;
}

inline OperationId Owner::start(std::string key, uint64_t bytes, PutMode mode, KeyLeaseId lease, uint64_t timeLeftMs) {
  return ask(rpc::PutStart{{}, std::move(key), bytes, mode, lease, timeLeftMs, {}});
}
inline uint64_t Owner::put(const std::string& key, uint64_t bytes, KeyLeaseId lease) {
  const OperationId started = start(key, bytes, {}, lease);
  const uint64_t offset = granted(started).offset;
  REQUIRE(published(done(started)));
  return offset;
}
inline OperationId Owner::putReserved(std::string key, uint64_t bytes, uint64_t offset, KeyLeaseId lease) {
  return ask(rpc::PutReserved{{}, std::move(key), bytes, offset, {}, lease});
}

inline OperationId Owner::get(std::string key, rpc::NeighbourUse neighbours, std::string avoid, uint64_t timeLeftMs) {
  return ask(rpc::GetStart{{}, std::move(key), neighbours, std::move(avoid), timeLeftMs});
}
inline Route Owner::route(OperationId get) const {
  const rpc::Reply reply = answer(get);
  if (reply.code != Code::ok) return {reply.code};
  if (const auto* at = reply.as<rpc::ReadAt>())
    return {Code::ok, at->owner.node, at->owner.link, at->putId, at->bytes, false, at->ssd, 0, {}};
  if (const auto* from = reply.as<rpc::FetchFrom>())
    return {Code::ok, from->source.node, from->source.link, from->putId, from->bytes, true, false, from->offset, from->exported};
  const auto here = answer<rpc::LoadHere>(get);
  return {Code::ok, member->node(), {}, here.putId, here.bytes, true, true, here.offset, {}};
}
inline OperationId Owner::replicateDone(OrderId order, Code code) {
  ordersDone_.insert(order);
  return ask(rpc::ReplicateDone{{}, order, code});
}
inline OperationId Owner::list(std::string prefix, std::string after, uint64_t limit) {
  return ask(rpc::ListKeys{{}, std::move(prefix), std::move(after), limit});
}
inline std::vector<std::string> Owner::listed(OperationId list) const {
  std::vector<std::string> keys;
  for (const rpc::ListedKey& each : answer<rpc::KeyPage>(list).keys) keys.push_back(each.key);
  return keys;
}

template <class T>
std::vector<T> Owner::orders() const {
  std::map<OrderId, T> open;
  for (const rpc::MasterMessage& m : world_->outbox.sent[member.get()]) {
    const T* const order = std::get_if<T>(&m);
    if (order && !ordersDone_.count(order->order)) open.insert_or_assign(order->order, *order);
  }
  std::vector<T> all;
  for (auto& [id, order] : open) all.push_back(std::move(order));
  return all;
}
template <class T>
bool Owner::told() const {
  const std::vector<rpc::MasterMessage>& sent = world_->outbox.sent[member.get()];
  return std::any_of(sent.begin(), sent.end(), [](const rpc::MasterMessage& m) { return std::holds_alternative<T>(m); });
}
inline std::vector<rpc::Version> Owner::invalidateDone() {
  std::vector<rpc::Version> items;
  for (const rpc::Invalidate& each : orders<rpc::Invalidate>()) {
    items.insert(items.end(), each.below.begin(), each.below.end());
    ordersDone_.insert(each.order);
    ask(rpc::InvalidateDone{{}, each.order});
  }
  return items;
}
inline void Owner::reclaimDone(OrderId order, std::vector<rpc::ReclaimResult> results) {
  ordersDone_.insert(order);
  ask(rpc::ReclaimDone{{}, order, std::move(results)});
}
inline std::vector<rpc::MemoryReplica> Owner::reclaimDone(rpc::ReclaimResult result) {
  std::vector<rpc::MemoryReplica> items;
  for (const rpc::Reclaim& each : orders<rpc::Reclaim>()) {
    items.insert(items.end(), each.replicas.begin(), each.replicas.end());
    reclaimDone(each.order, std::vector<rpc::ReclaimResult>(each.replicas.size(), result));
  }
  return items;
}
inline void Owner::staged(OrderId order, Code code) {
  ordersDone_.insert(order);
  ask(rpc::Staged{{}, order, code});
}
inline void Owner::unstaged(OrderId order) {
  ordersDone_.insert(order);
  ask(rpc::Unstaged{{}, order});
}

}  // namespace fluxon::master
