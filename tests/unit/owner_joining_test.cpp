// Joining: which master is talked to, which life registers, and who hears what the master says.
#include "joining.h"
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

// A node that has not joined, and its master.
struct World {
  World() {
    rpc::Registration place;
    place.node = "n";
    joining = std::make_unique<Joining>(n.core, n.header(), "c", place);
  }
  Error met(uint64_t term, uint64_t master) { return joining->met({"c1", "c", Term(term), Incarnation(master)}, n.now); }
  Incarnation begin(uint64_t fresh) {
    n.scanAll();
    REQUIRE(joining->ready());
    return joining->begin(Incarnation(fresh), n.now).incarnation;
  }
  rpc::Registered answer(Code code, bool inventory) const {
    rpc::Registered answer;
    answer.code = code;
    answer.leaseMs = 10'000;
    answer.inventory = inventory;
    return answer;
  }
  Joining::Answered answered(bool inventory = false) {
    const Result<Joining::Answered> result = joining->answered(answer(Code::ok, inventory), n.now);
    REQUIRE(result.ok());
    return result.value();
  }
  void heard(uint64_t life) { joining->heard(Incarnation(life), rpc::Invalidate{OrderId(++orders), {{"k", PutId(9)}}}, n.now); }
  size_t carriedOut() const { return n.sent<rpc::InvalidateDone>(); }

  Node n{64, false};
  std::unique_ptr<Joining> joining;
  uint64_t orders = 0;
};

TEST_CASE("owner enrolment: orders that overtake the answer to their registration are carried out after it") {
  World w;
  REQUIRE(w.met(1, 50).ok());
  CHECK(w.begin(7).value == 7);
  w.heard(7);
  CHECK(w.carriedOut() == 0);
  CHECK(w.answered() == Joining::Answered::joined);
  CHECK(w.carriedOut() == 1);
  w.heard(7);
  CHECK(w.carriedOut() == 2);
}

TEST_CASE("owner enrolment: a master of another version of the protocol is refused with both versions, and leaves no trace") {
  World w;
  const Error error = w.joining->met({"c1", "c", Term(9), Incarnation(50), rpc::kProtocolVersion + 1}, w.n.now);
  CHECK(error.code == Code::protocol);
  CHECK(error.detail == rpc::otherProtocol("the master", rpc::kProtocolVersion + 1));
  CHECK(error.detail.find("version " + std::to_string(rpc::kProtocolVersion + 1)) != std::string::npos);
  CHECK(error.detail.find("version " + std::to_string(rpc::kProtocolVersion) + ":") != std::string::npos);
  CHECK(w.n.header().highestTerm.load() == 0);
  REQUIRE(w.met(1, 51).ok());
  CHECK(w.begin(7).value == 7);
}

TEST_CASE("owner enrolment: what the master says to a life that it has refused is not heard by the next one") {
  World w;
  REQUIRE(w.met(1, 50).ok());
  w.begin(7);
  CHECK(w.answered() == Joining::Answered::joined);
  w.n.put("k", 1, 8192);
  w.joining->lost();
  REQUIRE(w.met(2, 51).ok());
  w.begin(8);
  CHECK(w.joining->registration().adopts.value == 7);
  w.heard(8);
  CHECK(w.answered() == Joining::Answered::again);
  CHECK(w.n.slots(shm::SlotState::committed) == 0);
  w.heard(8);  // before the next life registers
  w.n.host.sent.clear();
  CHECK(w.begin(9).value == 9);
  w.heard(8);  // and after
  CHECK(w.answered() == Joining::Answered::joined);
  CHECK(w.carriedOut() == 0);
}

TEST_CASE("owner enrolment: a lost connection keeps the life, a fence ends it") {
  World w;
  REQUIRE(w.met(1, 50).ok());
  w.begin(7);
  w.answered();
  w.joining->lost();
  CHECK_FALSE(w.joining->joined());
  REQUIRE(w.met(1, 50).ok());
  CHECK(w.begin(8).value == 7);
  CHECK(w.joining->answered(w.answer(Code::fenced, false), w.n.now).error().code == Code::fenced);
  REQUIRE(w.met(1, 50).ok());
  CHECK(w.begin(9).value == 9);
}

TEST_CASE("owner enrolment: it names the lives that serve no more: that of its directory, and those as which it has registered since") {
  World w;
  w.n.directory.setContent(Incarnation(5));
  w.joining = std::make_unique<Joining>(w.n.core, w.n.header(), "c", rpc::Registration{.node = "n"});
  using Lives = std::vector<Incarnation>;
  const auto& ends = w.joining->registration().ends;
  REQUIRE(w.met(1, 50).ok());
  w.begin(7);
  CHECK(ends == Lives{Incarnation(5)});
  w.joining->lost();  // before the answer
  REQUIRE(w.met(1, 50).ok());
  w.begin(8);
  CHECK(ends == Lives{Incarnation(5), Incarnation(7)});
  w.answered();
  w.joining->lost();
  REQUIRE(w.met(2, 51).ok());
  w.begin(9);
  CHECK(ends == Lives{Incarnation(8)});
}

TEST_CASE("owner enrolment: what an ssdd has from another cluster is not taken") {
  World w;
  REQUIRE(w.met(5, 50).ok());
  w.n.header().ssdLife = 9;  // of the last life, and it comes only now
  REQUIRE(w.joining->met({"c2", "c", Term(1), Incarnation(60)}, w.n.now).ok());
  CHECK_FALSE(w.n.core.takesSsd(Incarnation(9), false));
}

TEST_CASE("owner enrolment: whatever of a new master an ended life had written down, the next life talks to that master") {
  // The words as met() leaves them one after the other: a term that is new, and one of another cluster.
  struct Left {
    uint64_t cluster, term, master;
  };
  for (const Left left : {Left{0xc1, 5, 50}, Left{0xc1, 5, 60}, Left{0xc1, 6, 60}}) {
    World w;
    REQUIRE(w.met(5, 50).ok());
    w.n.header().highestTerm = left.term;
    w.n.header().highestMaster = left.master;
    CHECK(w.met(6, 60).ok());
    CHECK_FALSE(w.met(5, 50).ok());
  }
  for (const Left left : {Left{0xc1, 0, 50}, Left{0xc2, 0, 50}, Left{0xc2, 0, 60}, Left{0xc2, 9, 60}}) {
    World w;
    REQUIRE(w.met(5, 50).ok());
    w.n.header().clusterId = left.cluster;
    w.n.header().highestTerm = left.term;
    w.n.header().highestMaster = left.master;
    CHECK(w.joining->met({"c2", "c", Term(9), Incarnation(60)}, w.n.now).ok());
    CHECK(w.met(5, 50).ok());  // the first cluster is another one again
  }
}

TEST_CASE("owner enrolment: a master of an earlier term, or another one of the same term, is not talked to") {
  World w;
  REQUIRE(w.met(5, 50).ok());
  CHECK(w.met(4, 49).code == Code::unavailable);
  CHECK(w.met(5, 51).code == Code::unavailable);
  CHECK(w.met(5, 50).ok());
  CHECK(w.met(6, 52).ok());
  CHECK(w.joining->met({"c1", "d", Term(7), Incarnation(53)}, w.n.now).code == Code::badConfig);
}

}  // namespace
}  // namespace fluxon::owner
