// MasterCore: membership. Joining, fencing, leaving, lost connections, the recovery window; key leases.
#include "master_fixture.h"

namespace fluxon::master {
namespace {

TEST_CASE("master members: an owner is fenced when its lease and the margin have passed, not before") {
  World w;
  Owner a = w.join("a");
  a.put("k");
  w.pass(milliseconds(10'149));  // 10 s, 1 %, 50 ms
  CHECK(a.heartbeat() == Code::ok);
  w.pass(milliseconds(10'149));
  CHECK(w.core.keys() == 1);
  CHECK(w.core.nextWake() == w.now + milliseconds(1));
  w.pass(milliseconds(1));
  CHECK(*a.member->state == MemberState::fenced);
  Owner b = w.join("b");
  CHECK(b.route("k").code == Code::miss);
  CHECK(w.core.counters().fenced == 1);
  CHECK(a.heartbeat() == Code::fenced);
}

TEST_CASE("master members: a fenced incarnation may not come back, a new one joins empty") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  a.put("k");
  w.pass(seconds(11));
  CHECK(w.tryJoin(w.registration("a", 5)) == Code::fenced);
  Owner again = w.join(w.registration("a", 6));
  CHECK(again.route("k").code == Code::miss);
  CHECK(again.member->space.freeBytes() == kSegment);
  CHECK(a.heartbeat() == Code::fenced);
}

TEST_CASE("master members: the fencing of an owner ends its puts, grants and waiting puts") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.start("k");
  w.pass(seconds(8), {&b});
  const OperationId waiting = a.start("large", kSegment);
  CHECK(w.core.inFlightPuts() == 1);
  w.pass(seconds(3), {&b});
  CHECK(w.core.inFlightPuts() == 0);
  CHECK(a.code(waiting) == Code::fenced);
  CHECK(b.code(b.start("k", 1, kRejectInFlight)) == Code::ok);
}

TEST_CASE("master members: a change that waits for a silent owner goes on when that one is fenced") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId done = b.done(b.start("k"));
  const OperationId get = b.get("k");
  w.pass(seconds(10), {&b});
  CHECK_FALSE(b.answered(done));
  w.pass(seconds(1), {&b});
  CHECK(b.published(done));
  CHECK(b.route(get).node == "b");
}

TEST_CASE("master members: the key of a publish whose origin is fenced ends as a miss") {
  World w;
  Owner a = w.join("a"), b = w.join("b"), c = w.join("c");
  a.put("k");
  const OperationId done = b.done(b.start("k"));
  const OperationId get = c.get("k");
  w.pass(seconds(11), {&a, &c});
  CHECK(*b.member->state == MemberState::fenced);
  CHECK_FALSE(c.answered(get));
  a.invalidateDone();
  CHECK(c.code(get) == Code::miss);
  CHECK_FALSE(b.answered(done));
  CHECK(w.core.keys() == 0);
  CHECK(w.bytesAddUp());
}

TEST_CASE("master members: a delete goes on when the owner that asked for it is fenced") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  b.remove("k");
  w.pass(seconds(11), {&a});
  CHECK(w.core.keys() == 1);
  a.invalidateDone();
  CHECK(w.core.keys() == 0);
}

TEST_CASE("master members: requests of a fenced owner that waited behind a change are forgotten") {
  World w;
  Owner a = w.join("a"), b = w.join("b"), c = w.join("c");
  a.put("k");
  const OperationId put = c.start("k"), done = b.done(b.start("k"));
  c.done(put);
  c.remove("k");
  w.pass(seconds(11), {&a, &b});
  a.invalidateDone();
  CHECK(b.published(done));
  CHECK(b.route("k").node == "b");
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("master members: an owner that leaves takes its routes with it and stays out") {
  World w;
  Owner a = w.join(w.registration("a", 5)), b = w.join("b");
  a.put("k");
  const OperationId done = b.done(b.start("k"));
  w.core.leave(*a.member, MasterCore::Content::gone, w.now);
  CHECK_FALSE(b.answered(done));
  w.persisted();
  CHECK(b.published(done));
  CHECK(*a.member->state == MemberState::left);
  CHECK(w.durableMembers() == std::set<std::string>{"b"});
  CHECK(w.tryJoin(w.registration("a", 5)) == Code::fenced);
  CHECK(w.tryJoin(w.registration("a", 6)) == Code::ok);
  CHECK(w.core.counters().fenced == 0);
}

TEST_CASE("master members: an owner that joins again after a lost connection keeps its values") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  a.put("k");
  w.core.disconnected(*a.member);
  Owner again = w.join(w.registration("a", 5));
  CHECK(again.member == a.member);
  CHECK(a.route("k").code == Code::ok);
}

TEST_CASE("master members: a registration that arrives after a later one of its host ends nothing") {
  World w;
  const auto sentAt = [&](uint64_t life, int64_t at) {
    rpc::Registration r = w.registration("a", life);
    r.sent = Time{at};
    return r;
  };
  Owner a = w.join(sentAt(6, 20));
  a.put("k");
  CHECK(w.tryJoin(sentAt(5, 10)) == Code::unavailable);
  CHECK(*a.member->state == MemberState::joined);
  CHECK(w.tryJoin(sentAt(6, 30)) == Code::ok);
  CHECK(w.tryJoin(sentAt(6, 25)) == Code::unavailable);
  CHECK(a.heartbeat() == Code::ok);
  CHECK(w.tryJoin(sentAt(7, 40)) == Code::ok);
  CHECK(*a.member->state == MemberState::fenced);
}

TEST_CASE("master members: an owner of another version of the protocol is refused with both versions, and the one that lives stays") {
  World w;
  Owner a = w.join("a");
  a.put("k");
  rpc::Registration other = w.registration("a", 77);
  other.protocol = rpc::kProtocolVersion + 1;
  std::shared_ptr<Member> none;
  const rpc::Registered refused = w.core.registerOwner(other, w.now, none);
  CHECK(refused.code == Code::protocol);
  CHECK(refused.detail == rpc::otherProtocol("the owner", rpc::kProtocolVersion + 1));
  CHECK_FALSE(none);
  CHECK(a.heartbeat() == Code::ok);
  CHECK(a.route("k").code == Code::ok);
}

TEST_CASE("master members: joining again extends the lease") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  w.pass(seconds(9));
  w.join(w.registration("a", 5));
  w.pass(seconds(9));
  CHECK(*a.member->state == MemberState::joined);
}

TEST_CASE("master members: orders that are not answered are sent again on a new connection") {
  World w;
  Owner a = w.join(w.registration("a", 5)), b = w.join("b");
  a.put("k");
  w.core.disconnected(*a.member);
  const OperationId done = b.done(b.start("k"));
  CHECK(a.orders<rpc::Invalidate>().empty());
  w.join(w.registration("a", 5));
  CHECK(a.orders<rpc::Invalidate>().size() == 1);
  w.join(w.registration("a", 5));
  a.invalidateDone();
  CHECK(b.published(done));
  w.outbox.sent.clear();
  w.join(w.registration("a", 5));
  CHECK(w.outbox.sent.empty());
}

TEST_CASE("master members: an answer given while the owner was away is there when it asks again") {
  World w;
  Owner a = w.join(w.registration("a", 5)), b = w.join("b");
  b.put("k");
  const OperationId done = a.done(a.start("k"));
  w.core.disconnected(*a.member);
  b.invalidateDone();
  CHECK_FALSE(a.answered(done));
  w.join(w.registration("a", 5));
  a.askAgain(done);
  CHECK(a.published(done));
}

TEST_CASE("master members: one batch of invalidations is in flight per owner, the next follows its answer") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  for (const char* key : {"1", "2", "3"}) a.put(key);
  std::vector<OperationId> removes;
  for (const char* key : {"1", "2", "3"}) removes.push_back(b.remove(key));
  CHECK(a.orders<rpc::Invalidate>().size() == 1);
  CHECK(a.invalidateDone().size() == 1);
  CHECK(b.answered(removes[0]));
  CHECK_FALSE(b.answered(removes[1]));
  CHECK(a.invalidateDone().size() == 2);
  CHECK(b.answered(removes[1]));
  CHECK(b.answered(removes[2]));
}

TEST_CASE("master members: a new incarnation on the same host replaces the old one at once") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  a.put("k");
  Owner next = w.join(w.registration("a", 6));
  CHECK(*a.member->state == MemberState::fenced);
  CHECK(next.route("k").code == Code::miss);
  CHECK(w.tryJoin(w.registration("a", 5)) == Code::fenced);
}

TEST_CASE("master members: the same node name on another host is refused while the first one lives") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  rpc::Registration elsewhere = w.registration("a", 6);
  elsewhere.hostId = "other";
  CHECK(w.tryJoin(elsewhere) == Code::unavailable);
  CHECK(a.heartbeat() == Code::ok);
  w.pass(seconds(11));
  CHECK(w.tryJoin(elsewhere) == Code::ok);
}

TEST_CASE("master members: who is refused is told where the node of that name is") {
  World w;
  rpc::Registration here = w.registration("a", 5);
  here.from = "192.0.2.7 (pid 4711, since 2026-12-01T23:45:01Z)";
  w.join(here);
  rpc::Registration elsewhere = w.registration("a", 6);
  elsewhere.hostId = "other";
  std::shared_ptr<Member> none;
  CHECK(w.core.registerOwner(elsewhere, w.now, none).detail ==
        "node a is alive on 192.0.2.7 (pid 4711, since 2026-12-01T23:45:01Z); give this one another owner.node");
}

// The heartbeats may lie in sockets while the master works.
TEST_CASE("master members: a lease that has ended is judged when all that was sent by then has been handled") {
  World w;
  Owner a = w.join("a");
  const Time end = *a.member->leaseEnd;
  w.now = end + seconds(5);
  w.core.tick(w.now, end + Duration{-1});
  CHECK(a.member->lives());
  CHECK(w.core.nextWake() <= w.now);
  rpc::Registration elsewhere = w.registration("a", 99);
  elsewhere.hostId = "other";
  CHECK(w.tryJoin(elsewhere) == Code::unavailable);
  CHECK(a.heartbeat() == Code::ok);
  w.core.tick(w.now, end);
  CHECK(a.member->lives());
  w.now = *a.member->leaseEnd;
  w.core.tick(w.now, w.now);
  CHECK(*a.member->state == MemberState::fenced);
}

TEST_CASE("master members: what a joining owner still has held is not given out until it is released") {
  World w;
  rpc::Registration r = w.registration("a", 5);
  r.occupied = {{0, 4096}, {8192, 128}};
  Owner a = w.join(r);
  CHECK(a.bytes(Use::unrouted) == 4096 + 128);
  CHECK(a.reserved(a.reserve(4096, 256)).size() == 254);
  CHECK(a.release({0, 8192}) == Code::ok);
  CHECK(a.reserved(a.reserve(4096, 1)).size() == 1);
}

TEST_CASE("master members: a registration that makes no sense is refused and the master lives on") {
  World w;
  rpc::Registration r = w.registration("a", 5);
  r.occupied = {{0, 4096}, {0, 64}};
  CHECK(w.tryJoin(r) == Code::protocol);
  w.core.tick(w.now, w.now);
  CHECK(w.core.inFlightPuts() == 0);
  CHECK(w.core.nextWake() == Time::never());
  r.occupied = {{0, 63}};
  CHECK(w.tryJoin(r) == Code::protocol);
  r.occupied = {{kSegment, 4096}};
  CHECK(w.tryJoin(r) == Code::protocol);
  r.occupied.clear();
  r.node = "../x";
  CHECK(w.tryJoin(r) == Code::protocol);
  r.node = "a";
  r.incarnation = Incarnation();
  CHECK(w.tryJoin(r) == Code::protocol);
  CHECK(w.tryJoin(w.registration("a", 5)) == Code::ok);
}

TEST_CASE("master members: a senseless registration does not cost the living incarnation its place") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  rpc::Registration r = w.registration("a", 6);
  r.occupied = {{0, 63}};
  CHECK(w.tryJoin(r) == Code::protocol);
  CHECK(a.heartbeat() == Code::ok);
}

TEST_CASE("recovery: puts, deletes and gets are answered after the window, grants in it") {
  World w({"a", "b"});
  Owner a = w.join("a");
  CHECK(w.core.recovering());
  const OperationId put = a.start("k");
  CHECK(a.code(put) == Code::ok);
  const OperationId done = a.done(put), get = a.get("k"), remove = a.remove("x");
  w.pass(milliseconds(19'999), {&a});
  CHECK_FALSE(a.answered(done));
  CHECK_FALSE(a.answered(get));
  CHECK_FALSE(a.answered(remove));
  CHECK(w.core.nextWake() <= w.now + milliseconds(1));
  w.pass(milliseconds(1));
  CHECK_FALSE(w.core.recovering());
  CHECK(a.published(done));
  CHECK(a.route(get).node == "a");
  CHECK(a.code(remove) == Code::miss);
}

TEST_CASE("recovery: the window closes as soon as every durable member has joined") {
  World w({"a", "b"});
  Owner a = w.join("a");
  const OperationId get = a.get("k");
  w.join("c");
  CHECK_FALSE(a.answered(get));
  CHECK(w.durableMembers() == std::set<std::string>{"a", "b", "c"});
  w.join("b");
  CHECK_FALSE(w.core.recovering());
  CHECK(a.code(get) == Code::miss);
}

TEST_CASE("recovery: a first term has no window") {
  World w;
  CHECK_FALSE(w.core.recovering());
}

TEST_CASE("recovery: a repeated request does not run twice after the window") {
  World w({"b"});
  Owner a = w.join("a");
  const OperationId put = a.start("k"), done = a.done(put);
  a.askAgain(done);
  w.join("b");
  CHECK(a.answers(done) == 1);
}

TEST_CASE("recovery: requests of an owner that is replaced in the window are forgotten") {
  World w({"b"});
  Owner a = w.join(w.registration("a", 5));
  a.done(a.start("k"));
  a.remove("k");
  Owner next = w.join(w.registration("a", 6));
  w.join("b");
  CHECK(next.route("k").code == Code::miss);
  CHECK(w.core.inFlightPuts() == 0);
}

TEST_CASE("key lease: there are not more than the bound, and one that ends makes room for the next") {
  Settings settings;
  settings.mostKeyLeases = 2;
  World w({}, settings);
  Owner a = w.join("a");
  a.grantLease(1000);
  CHECK(a.grantLease(60'000));
  const rpc::LeaseGrant grant{{}, 1000};
  const rpc::Reply refused = a.answer(a.ask(grant));
  CHECK(refused.code == Code::tooMany);
  CHECK(refused.detail == "2 key leases live, no more at once: revoke some, or let them end");
  w.pass(milliseconds(1000), {&a});
  CHECK(a.code(a.ask(grant)) == Code::ok);
}

TEST_CASE("key lease: its keys are deleted when it runs out, others stay") {
  World w;
  Owner a = w.join("a");
  const KeyLeaseId lease = a.grantLease(1000);
  CHECK(PutId(lease.value).term() == 3);
  a.put("leased", 100, lease);
  a.put("free");
  CHECK(w.core.nextWake() == w.now + seconds(1));
  w.pass(milliseconds(999));
  CHECK(a.orders<rpc::Invalidate>().empty());
  w.pass(milliseconds(1));
  CHECK(a.invalidateDone().size() == 1);
  CHECK(a.route("leased").code == Code::miss);
  CHECK(a.route("free").code == Code::ok);
  CHECK(a.member->space.leasedBytes() == 0);
  CHECK(w.core.counters().leasesExpired == 1);
}

TEST_CASE("key lease: keep-alive starts its time anew, one that has ended is unknown") {
  World w;
  Owner a = w.join("a");
  const KeyLeaseId lease = a.grantLease(1000);
  const auto keepAlive = [&] { return a.say(rpc::LeaseKeepAlive{{}, lease}); };
  w.pass(milliseconds(900));
  CHECK(keepAlive() == Code::ok);
  w.pass(milliseconds(900));
  CHECK(keepAlive() == Code::ok);
  w.pass(milliseconds(1000));
  CHECK(keepAlive() == Code::noLease);
}

TEST_CASE("key lease: a revoke is acknowledged after its keys are deleted") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  const KeyLeaseId lease = a.grantLease(60'000);
  a.put("k", 100, lease);
  const rpc::LeaseRevoke request{{}, lease};
  const OperationId revoke = b.ask(request);
  CHECK_FALSE(b.answered(revoke));
  a.invalidateDone();
  CHECK(b.code(revoke) == Code::ok);
  CHECK(b.route("k").code == Code::miss);
  CHECK(b.code(b.ask(request)) == Code::noLease);
}

TEST_CASE("key lease: one below the minimum, and one longer than a year, is refused with what is accepted") {
  World w;
  Owner a = w.join("a");
  rpc::LeaseGrant request{{}, 99};
  const rpc::Reply reply = a.answer(a.ask(request));
  CHECK(reply.code == Code::invalidArgument);
  CHECK(reply.detail == "lease of 99 ms (accepted: 100 to 31536000000 ms)");
  request.ttlMs = 31'536'000'000;
  CHECK(a.code(a.ask(request)) == Code::ok);
  ++request.ttlMs;
  CHECK(a.code(a.ask(request)) == Code::invalidArgument);
}

TEST_CASE("key lease: a put under an unknown lease is refused, at its start and at its done") {
  World w;
  Owner a = w.join("a");
  CHECK(a.code(a.start("k", 100, {}, KeyLeaseId(42))) == Code::noLease);
  const OperationId put = a.start("k", 100, {}, a.grantLease(1000));
  w.pass(seconds(1));
  CHECK(a.code(a.done(put)) == Code::noLease);
  CHECK(a.release({a.granted(put).offset}) == Code::ok);
}

TEST_CASE("key lease: a key that was overwritten without the lease outlives it") {
  World w;
  Owner a = w.join("a");
  a.put("k", 100, a.grantLease(1000));
  a.put("k", 200);
  w.pass(seconds(1));
  CHECK(a.route("k").bytes == 200);
  CHECK(a.member->space.leasedBytes() == 0);
}

TEST_CASE("key lease: a publish under way when its lease ends is undone by a delete") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId done = b.done(b.start("k", 100, {}, b.grantLease(1000)));
  w.pass(seconds(1));
  a.invalidateDone();
  CHECK(b.published(done));
  b.invalidateDone();
  CHECK(b.route("k").code == Code::miss);
}

TEST_CASE("key lease: its end does not delete a put of the key that is under way without it") {
  World w;
  Owner a = w.join("a");
  a.put("k", 100, a.grantLease(1000));
  const OperationId put = a.start("k", 200);
  w.pass(seconds(1));
  a.invalidateDone();
  CHECK(a.published(a.done(put)));
}

}  // namespace
}  // namespace fluxon::master
