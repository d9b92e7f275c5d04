// Changes by themselves: what a publish and a delete wait for. Puts and copies are the test's.
#include "changes.h"

#include "master_parts.h"

namespace fluxon::master {
namespace {

PutId id(uint64_t sequence) { return PutId(kTerm, sequence); }

struct Changing : Base {
  using Base::Base;
  // A put of the key by that member, with its extent. Nobody else knows of it.
  Put put(Member& member, const std::string& key, PutId putId, PutMode mode = {}) {
    Put put;
    put.operation = OperationId(putId.value);
    put.key = &routes.at(key);
    put.putId = putId;
    put.offset = member.space.allocate(100, Use::inFlight)->offset;
    put.bytes = 100;
    put.mode = mode;
    return put;
  }
  void retired(Member& member, uint64_t request) {
    changes.invalidateDone(member, OperationId(request), {{}, outbox.to<rpc::Invalidate>(member).back().order}, now);
  }
  PutId route(const std::string& key) {
    const KeyEntry* const entry = routes.find(key);
    return entry ? entry->putId : PutId();
  }
  PutIds putIds{kTerm};
  Invalidations invalidations{out};
  std::vector<OperationId> putsEnded, putsGivenUp;
  std::vector<Overtaken> told;
  std::vector<OrderId> taken, unwanted;
  Changes changes{
      putIds,
      out,
      routes,
      window,
      membership,
      invalidations,
      {[this](Member&, OperationId put) { putsEnded.push_back(put); }, [this](Member&, OperationId put) { putsGivenUp.push_back(put); },
       [this](KeyEntry&, Overtaken by) { told.push_back(by); }, [this](Member&, OrderId copy) { taken.push_back(copy); },
       [this](Member&, OrderId copy) { unwanted.push_back(copy); },
       [this](const std::vector<Deferred>& requests, Time) { wentOn.insert(wentOn.end(), requests.begin(), requests.end()); }}};
};

TEST_CASE("changes: a put of a key that nobody has is published at once") {
  Changing w;
  Member& a = w.join("a");
  const Put put = w.put(a, "k", id(1));
  w.changes.publish(a, OperationId(1), put, w.now);
  CHECK(w.outbox.answer<rpc::PutEnded>(a, 1).published);
  CHECK((w.route("k") == id(1)));
  CHECK(w.putsEnded == std::vector{put.operation});
  CHECK(w.told == std::vector{Overtaken::byPut});
  CHECK(w.changes.counters().putsPublished == 1);
  CHECK(a.space.bytes(Use::routed) == extentBytes(100));
}

TEST_CASE("changes: a put is acknowledged when every other owner has retired its replica, and the old route stays until then") {
  Changing w;
  Member& a = w.join("a");
  Member& b = w.join("b", 60);
  w.value("k", id(1), b);
  w.routes.add(w.routes.at("k"), onSsd(b));
  w.changes.publish(a, OperationId(1), w.put(a, "k", id(2)), w.now);
  CHECK_FALSE(w.outbox.answered(a, 1));
  CHECK((w.route("k") == id(1)));
  const rpc::Invalidate order = w.outbox.one<rpc::Invalidate>(b);
  CHECK((order.below.front().putId == id(2)));
  w.retired(b, 7);
  CHECK(w.outbox.answer<rpc::PutEnded>(a, 1).published);
  CHECK((w.route("k") == id(2)));
  CHECK(w.routes.at("k").replicas.size() == 1);
  CHECK(b.space.bytes(Use::unrouted) == extentBytes(100));
  CHECK(b.ssdReplicas() == 0);
}

TEST_CASE("changes: whoever has a copy of the key under way is told of a delete") {
  Changing w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  KeyEntry& entry = w.value("k", id(1), a);
  entry.transfers.emplace_back(b, OperationId(1));
  w.changes.remove(a, OperationId(2), {{}, "k"}, w.now);
  CHECK(w.outbox.to<rpc::Invalidate>(a).size() == 1);
  CHECK(w.outbox.to<rpc::Invalidate>(b).size() == 1);
  w.retired(a, 3);
  CHECK_FALSE(w.outbox.answered(a, 2));
  w.retired(b, 4);
  CHECK(w.outbox.code(a, 2) == Code::ok);
  CHECK(w.changes.counters().removes == 1);
}

TEST_CASE("changes: a route never goes to a smaller put_id, and its put succeeds as overwritten") {
  Changing w;
  Member& a = w.join("a");
  w.value("k", id(5), a);
  const Put put = w.put(a, "k", id(4));
  w.changes.publish(a, OperationId(1), put, w.now);
  CHECK_FALSE(w.outbox.answer<rpc::PutEnded>(a, 1).published);
  CHECK((w.route("k") == id(5)));
  CHECK(w.putsGivenUp == std::vector{put.operation});
  CHECK(w.changes.counters().putsOverwritten == 1);
}

TEST_CASE("changes: a put that was overtaken by a delete is overwritten, one that rejects an existing key is refused after either") {
  Changing w;
  Member& a = w.join("a");
  Put deleted = w.put(a, "k", id(4));
  deleted.overtaken = Overtaken::byDelete;
  w.changes.publish(a, OperationId(1), deleted, w.now);
  CHECK_FALSE(w.outbox.answer<rpc::PutEnded>(a, 1).published);
  uint64_t request = 1;
  for (const Overtaken by : {Overtaken::byPut, Overtaken::byDelete}) {
    Put rejects = w.put(a, "k", id(10), {PutMode::OnExisting::reject});
    rejects.overtaken = by;
    w.changes.publish(a, OperationId(++request), rejects, w.now);
    CHECK(w.outbox.code(a, request) == Code::exists);
  }
  CHECK_FALSE(bool(w.route("k")));
  CHECK(w.changes.counters().putsRefusedAtEnd == 2);
}

TEST_CASE("changes: what waits for the change of its key goes on after it, in its order") {
  Changing w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.value("k", id(1), b);
  w.changes.publish(a, OperationId(1), w.put(a, "k", id(2)), w.now);
  w.changes.remove(a, OperationId(2), {{}, "k"}, w.now);
  w.changes.defer(w.routes.at("k"), b, {OperationId(3), rpc::StatKey{{}, "k"}});
  CHECK(w.wentOn.empty());
  CHECK(w.outbox.to<rpc::Invalidate>(a).empty());
  w.retired(b, 4);
  REQUIRE(w.wentOn.size() == 2);
  CHECK(w.wentOn[0].request.id == OperationId(2));
  CHECK(w.wentOn[1].request.id == OperationId(3));
}

TEST_CASE("changes: a delete of what is not there is a miss, a delete overtakes the puts under way") {
  Changing w;
  Member& a = w.join("a");
  w.changes.remove(a, OperationId(1), {{}, "none"}, w.now);
  CHECK(w.outbox.code(a, 1) == Code::miss);
  w.value("k", id(1), a);
  w.changes.remove(a, OperationId(2), {{}, "k"}, w.now);
  CHECK(w.told == std::vector{Overtaken::byDelete});
}

TEST_CASE("changes: a put of a lease that has ended is refused, and the value before it goes too") {
  Changing w;
  Member& a = w.join("a");
  w.value("k", id(1), a);
  Put put = w.put(a, "k", id(2));
  put.lease = KeyLeaseId(77);
  w.changes.publish(a, OperationId(1), put, w.now);
  CHECK(w.outbox.code(a, 1) == Code::noLease);
  w.retired(a, 2);
  CHECK_FALSE(bool(w.route("k")));
}

TEST_CASE("changes: who revoked a lease is answered when the last of its keys has ended") {
  Changing w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.value("k", id(1), b);
  w.value("l", id(2), b);
  auto revoke = std::make_shared<Revoke>(Revoke{a, OperationId(1)});
  w.changes.endLeased(w.routes.at("k"), revoke, w.now);
  w.changes.endLeased(w.routes.at("l"), revoke, w.now);
  revoke.reset();
  w.retired(b, 2);
  CHECK_FALSE(w.outbox.answered(a, 1));
  w.retired(b, 3);
  CHECK(w.outbox.code(a, 1) == Code::ok);
}

TEST_CASE("changes: the copy of a put becomes the value at its home, and where it was filled comes back") {
  Changing w;
  Member& a = w.join("a");
  Member& home = w.join("home");
  Put put = w.put(a, "k", id(1));
  put.home = PutHome{home, home.space.allocate(100, Use::inFlight)->offset};
  w.changes.publish(a, OperationId(1), put, w.now, {home, OrderId(9), OperationId(2)});
  CHECK(w.taken == std::vector{OrderId(9)});
  CHECK(w.outbox.answer<rpc::PutEnded>(a, 1).published);
  CHECK(w.outbox.answer<rpc::CopyEnded>(home, 2).published);
  CHECK(a.space.bytes(Use::unrouted) == extentBytes(100));
  CHECK(home.space.bytes(Use::routed) == extentBytes(100));
}

TEST_CASE("changes: the copy of a put that is overwritten is not wanted") {
  Changing w;
  Member& a = w.join("a");
  Member& home = w.join("home");
  w.value("k", id(5), a);
  Put put = w.put(a, "k", id(1));
  put.home = PutHome{home, 0};
  w.changes.publish(a, OperationId(1), put, w.now, {home, OrderId(9), OperationId(2)});
  CHECK(w.unwanted == std::vector{OrderId(9)});
  CHECK_FALSE(w.outbox.answer<rpc::CopyEnded>(home, 2).published);
}

TEST_CASE("changes: one that waits for a member that has ended goes on when the fence of that is on disk") {
  Changing w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.onDisk();
  w.value("k", id(1), b);
  w.changes.publish(a, OperationId(1), w.put(a, "k", id(2)), w.now);
  w.membership.fence(b, w.now);
  w.changes.memberEnded(b);
  CHECK_FALSE(w.outbox.answered(a, 1));
  CHECK((w.record.lifeOf("b") == Incarnation()));
  w.onDisk();
  REQUIRE(w.fencedOnDisk == std::vector<std::string>{"b"});
  w.changes.fenceOnDisk(b, w.now);
  CHECK(w.outbox.answer<rpc::PutEnded>(a, 1).published);
}

TEST_CASE("changes: a put whose home ends before it is the route becomes a delete, and who asked is told that it failed") {
  Changing w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  Member& home = w.join("home");
  w.onDisk();
  w.value("k", id(1), b);
  Put put = w.put(a, "k", id(2));
  put.home = PutHome{home, home.space.allocate(100, Use::inFlight)->offset};
  w.changes.publish(a, OperationId(1), put, w.now, {home, OrderId(9), OperationId(2)});
  w.membership.fence(home, w.now);
  w.changes.memberEnded(home);
  CHECK(w.outbox.code(a, 1) == Code::unavailable);
  CHECK(home.space.bytes(Use::unrouted) == extentBytes(100));
  w.retired(b, 3);
  CHECK_FALSE(bool(w.route("k")));
}

TEST_CASE("changes: what waits for a life waits for the next one of its directory instead") {
  Changing w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.value("k", id(1), b);
  w.changes.remove(a, OperationId(1), {{}, "k"}, w.now);
  const std::shared_ptr<Member> next = memberOf("b", 99);
  w.changes.tellInstead(b, *next);
  w.retired(b, 2);
  CHECK_FALSE(w.outbox.answered(a, 1));
  w.retired(*next, 3);
  CHECK(w.outbox.code(a, 1) == Code::ok);
}

TEST_CASE("changes: a node that lists its values is told of every change, though nothing of the key is known there") {
  Changing w({{"c", Incarnation(1)}});
  Member& a = w.join(registrationOf("a", 50));
  rpc::Registration lists = registrationOf("c", 51);
  lists.adopts = Incarnation(1);
  lists.ends = {Incarnation(1)};
  Member& c = w.join(lists);
  w.changes.publish(a, OperationId(1), w.put(a, "k", id(1)), w.now);
  CHECK_FALSE(w.outbox.answered(a, 1));
  w.retired(c, 2);
  CHECK(w.outbox.answer<rpc::PutEnded>(a, 1).published);
}

}  // namespace
}  // namespace fluxon::master
