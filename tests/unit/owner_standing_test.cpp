// Standing: registered, reporting, joined, and the lease.
#include "owner_parts.h"

namespace fluxon::owner {
namespace {

using State = Standing::State;

// Not registered yet.
struct Apart : Parts {
  Apart() {
    standing.endTerm();
    directory.setLease(0);
    directory.setServing(Incarnation());
    directory.setContent(Incarnation());
  }
  const shm::DirectoryHeader& header() const { return *reinterpret_cast<const shm::DirectoryHeader*>(directoryPages.data()); }
  uint64_t serving() const { return header().servingIncarnation.load(); }
  Time leaseEnd() const { return Time{directory.leaseUntilNs()}; }
  OperationId beat() {
    REQUIRE(standing.heartbeat({}, now));
    return host.sent.back().id;
  }
};

TEST_CASE("standing: who reports sends requests, and is nothing that clients find; who has joined serves them") {
  Apart p;
  CHECK_FALSE(p.standing.listening());
  CHECK_FALSE(p.standing.heartbeat({}, p.now));
  p.standing.setMaster(Incarnation(4));
  p.standing.registered(Incarnation(9), seconds(10), p.now);
  CHECK(p.standing.reporting());
  CHECK(p.standing.listening());
  CHECK_FALSE(p.standing.takesRequests(p.now));
  CHECK(p.serving() == 0);
  CHECK(p.directory.content().value == 0);
  CHECK(p.leaseEnd().ns == 0);
  p.standing.serve(p.now);
  CHECK(p.standing.joined());
  CHECK(p.standing.takesRequests(p.now));
  CHECK(p.serving() == 9);
  CHECK(p.header().servingMaster.load() == 4);
  CHECK(p.directory.content().value == 9);
  CHECK_FALSE(p.standing.takesRequests(p.now + seconds(10)));
}

TEST_CASE("standing: the lease begins with serving, and runs from before the last answered heartbeat of the report was sent") {
  Apart p;
  p.standing.registered(Incarnation(9), seconds(10), p.now);
  const Time first = p.now = p.now + seconds(1);
  const OperationId beat = p.beat();
  p.now = p.now + seconds(1);
  const OperationId refused = p.beat();
  p.now = p.now + seconds(1);
  p.standing.beatAnswered(beat, Code::ok, p.now);
  p.standing.beatAnswered(refused, Code::unavailable, p.now);
  CHECK(p.leaseEnd().ns == 0);
  p.standing.serve(p.now);
  CHECK(p.leaseEnd() == first + seconds(10));
}

TEST_CASE("standing: serving that begins after its lease has run out has lapsed, and an answer brings it back") {
  Apart p;
  p.standing.registered(Incarnation(9), seconds(10), p.now);
  p.now = p.now + seconds(10);
  p.standing.serve(p.now);
  CHECK_FALSE(p.standing.serving(p.now));
  CHECK_FALSE(p.standing.lapses(p.now));
  CHECK(p.standing.nextWake() == Time::never());
  p.standing.beatAnswered(p.beat(), Code::ok, p.now);
  CHECK(p.standing.serving(p.now));
  CHECK(p.standing.nextWake() == p.now + seconds(10));
}

TEST_CASE("standing: a lapse is seen once, until the lease lives again") {
  Apart p;
  p.join();
  CHECK_FALSE(p.standing.lapses(p.now));
  p.now = p.now + seconds(10);
  CHECK(p.standing.lapses(p.now));
  CHECK_FALSE(p.standing.lapses(p.now));
  p.standing.beatAnswered(p.beat(), Code::ok, p.now);
  CHECK_FALSE(p.standing.lapses(p.now));
  CHECK(p.standing.lapses(p.now + seconds(10)));
}

TEST_CASE("standing: the end of a term leaves the lease to its readers, and the answer of an earlier heartbeat extends nothing") {
  Apart p;
  p.join();
  const Time end = p.leaseEnd();
  p.standing.fence();
  p.now = p.now + seconds(1);
  const OperationId beat = p.beat();
  p.now = p.now + seconds(4);
  CHECK(p.standing.endTerm());
  CHECK_FALSE(p.standing.fenced());
  CHECK(p.standing.serving(p.now));
  CHECK_FALSE(p.standing.takesRequests(p.now));
  p.standing.beatAnswered(beat, Code::ok, p.now);
  CHECK(p.leaseEnd() == end);
  CHECK_FALSE(p.standing.endTerm());
}

TEST_CASE("standing: another connection of the same life extends the lease of who serves, and only the report of who reports") {
  Apart p;
  p.join();
  p.now = p.now + seconds(3);
  p.standing.reconnected(seconds(10), p.now);
  CHECK(p.standing.joined());
  CHECK(p.leaseEnd() == p.now + seconds(10));
  p.standing.endTerm();
  p.standing.registered(Incarnation(9), seconds(10), p.now);
  p.now = p.now + seconds(3);
  p.standing.reconnected(seconds(20), p.now);
  CHECK(p.standing.reporting());
  CHECK(p.leaseEnd() == p.now + seconds(7));
  p.standing.serve(p.now);
  CHECK(p.leaseEnd() == p.now + seconds(20));
}

}  // namespace
}  // namespace fluxon::owner
