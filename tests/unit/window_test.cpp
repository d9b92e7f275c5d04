// The recovery window by itself: who is expected, what waits, and until when.
#include "master_parts.h"

namespace fluxon::master {
namespace {

const PutId kOfThisTerm(kTerm, 1), kOfLastTerm(Term(2), 9);

// Node a is expected with its life 1; members register when a test says so.
struct Expecting : Base {
  Expecting() : Base({{"a", Incarnation(1)}}) {}
  // A life of node a, which has the directory of its life 1, and lists what it has.
  Member& registers(uint64_t adopts = 1) {
    rpc::Registration registration = registrationOf("a", 2);
    registration.adopts = Incarnation(adopts);
    registration.ends = {Incarnation(1)};
    return join(registration);
  }
  bool holds(rpc::Request::Body body) { return window.holds(*asker, {OperationId(++requests), std::move(body)}, now); }
  std::shared_ptr<Member> asker = memberOf("b", 7);
  uint64_t requests = 0;
};

TEST_CASE("window: it is open while a node is expected that the record names a life of, and bounds are kept as long") {
  CHECK_FALSE(Base().window.open());
  CHECK_FALSE(Base({{"a", Incarnation()}}).window.open());
  Expecting w;
  CHECK(w.window.open());
  w.bounds.add("k", kOfThisTerm);
  Member& a = w.registers();
  w.window.over(a, w.now);
  CHECK_FALSE(w.window.open());
  CHECK_FALSE(bool(w.bounds.of("k")));
}

TEST_CASE("window: a change waits until each expected node has registered, a question about the key until the window ends") {
  Expecting w;
  CHECK(w.holds(rpc::LeaseRevoke{}));
  CHECK(w.holds(rpc::GetStart{{}, "k"}));
  CHECK_FALSE(w.holds(rpc::PutStart{{}, "k"}));
  CHECK(w.wentOn.empty());
  Member& a = w.registers();
  CHECK(w.wentOn.size() == 2);
  CHECK_FALSE(w.holds(rpc::LeaseRevoke{}));
  CHECK(w.holds(rpc::GetStart{{}, "k"}));
  CHECK(w.holds(rpc::RemoveKey{{}, "k"}));
  w.window.over(a, w.now);
  CHECK(w.wentOn.size() == 4);
}

TEST_CASE("window: a question about a key does not wait when the key is readable, of this term, or was deleted in it") {
  Expecting w;
  w.value("readable", kOfLastTerm, *w.asker);
  w.bounds.add("deleted", kOfThisTerm);
  w.bounds.add("deleted before", kOfLastTerm);
  CHECK_FALSE(w.holds(rpc::StatKey{{}, "readable"}));
  CHECK_FALSE(w.holds(rpc::StatKey{{}, "deleted"}));
  CHECK(w.holds(rpc::StatKey{{}, "deleted before"}));
  CHECK(w.holds(rpc::CountKeys{}));
  CHECK(w.holds(rpc::ListKeys{}));
}

TEST_CASE("window: a put that rejects an existing key waits until it is known whether there is one, another put for the nodes alone") {
  Expecting w;
  w.registers();
  rpc::PutReserved put;
  put.key = "k";
  CHECK_FALSE(w.holds(put));
  put.mode.onExisting = PutMode::OnExisting::reject;
  CHECK(w.holds(put));
}

TEST_CASE("window: exactly the life that the record names is offered, and one without its directory ends nothing") {
  Expecting w;
  rpc::Registration registration = registrationOf("a", 2);
  CHECK_FALSE(w.window.offersLastTerm(registration));
  registration.adopts = Incarnation(5);
  CHECK_FALSE(w.window.offersLastTerm(registration));
  registration.adopts = Incarnation(1);
  CHECK(w.window.offersLastTerm(registration));
  registration.node = "c";
  CHECK_FALSE(w.window.offersLastTerm(registration));
  w.window.over(w.join(registrationOf("a", 3)), w.now);
  CHECK(w.window.open());
  CHECK(w.holds(rpc::LeaseRevoke{}));
}

TEST_CASE("window: a node that does not come is given up when its lease has ended, and waited for until that is on disk") {
  Expecting w;
  w.window.tick(w.leasesEnd + milliseconds(-1), w.leasesEnd + milliseconds(-1));
  CHECK((w.record.lifeOf("a") == Incarnation(1)));
  CHECK(w.window.nextWake() == w.leasesEnd);
  w.window.tick(w.leasesEnd, w.leasesEnd);
  CHECK((w.record.lifeOf("a") == Incarnation()));
  CHECK(w.window.open());
  CHECK(w.window.nextWake() == Time::never());
  rpc::Registration late = registrationOf("a", 2);
  late.adopts = Incarnation(1);
  CHECK_FALSE(w.window.offersLastTerm(late));
  w.onDisk();
  CHECK_FALSE(w.window.open());
}

TEST_CASE("window: a node is expected as long as its pages come, and ended when they do not") {
  Expecting w;
  Member& a = w.registers();
  const Time until = w.leasesEnd + seconds(7);
  w.window.listed(a, until);
  w.window.listed(a, until + seconds(-1));
  w.window.tick(until + milliseconds(-1), until + milliseconds(-1));
  CHECK(w.givenUp.empty());
  w.window.tick(until, until);
  CHECK(w.givenUp == std::vector<std::string>{"a"});
  w.onDisk();
  CHECK_FALSE(w.window.open());
}

TEST_CASE("window: what waits is refused at the deadline of who asked, goes with its member, and can be had by its key") {
  Expecting w;
  CHECK(w.holds(rpc::GetStart{{}, "late", {}, {}, 100}));
  CHECK(w.holds(rpc::RemoveKey{{}, "k"}));
  CHECK(w.holds(rpc::RemoveKey{{}, "other"}));
  CHECK(w.window.nextWake() == w.now + milliseconds(100));
  w.window.tick(w.now + milliseconds(100), w.now);
  CHECK(w.outbox.code(*w.asker, 1) == Code::unavailable);
  CHECK(w.window.take("k").size() == 1);
  CHECK(w.window.take("k").empty());
  w.window.memberEnded(*w.asker);
  CHECK(w.window.take("other").empty());
}

}  // namespace
}  // namespace fluxon::master
