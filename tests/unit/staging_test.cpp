// What comes from an SSD of another host, by itself: the place at its source, and who waits for it.
#include "staging.h"

#include "master_parts.h"

namespace fluxon::master {
namespace {

const PutId kPut(kTerm, 1);

// A value on the SSD of `source`, which `asker` gets by request 1.
struct Staged : Base {
  Staged() : source(join("source", 50)), asker(join("asker")) {
    KeyEntry& entry = routes.at("k");
    routes.replace(entry, kPut, 100, {}, onSsd(source));
    begin(1);
  }
  void begin(uint64_t get, unsigned stagings = 0) {
    KeyEntry& entry = routes.at("k");
    Transfer transfer{&entry, kPut, asker.space.allocate(100, Use::inFlight)->offset, 100, source, now, true};
    transfer.ssd = source.ssdLife;
    Transfer& begun = transfers.begin(asker, OperationId(get), transfer);
    rpc::GetStart request;
    request.key = "k";
    staging.begin(asker, OperationId(get), request, begun, source.space.allocate(100, Use::inFlight)->offset, stagings);
  }
  rpc::Stage order() const { return outbox.to<rpc::Stage>(source).back(); }
  void staged(Code code = Code::ok) { staging.staged(source, OperationId(100 + ++answers), {{}, order().order, code}, now); }
  // Nothing is under way, and nothing in use at the source.
  bool over() const { return transfers.underWay() == 0 && source.space.bytes(Use::inFlight) == 0; }

  Member& source;
  Member& asker;
  uint64_t answers = 0;
  std::vector<StagedGet> again;
  SpaceQueue space{seconds(5), out, routes, membership, [](const Waiting&, Time) { return nullptr; }};
  SsdReplicas ssds{out, routes, membership, space};
  Transfers transfers{out,
                      routes,
                      membership,
                      space,
                      {{}, {}, {}, [this](Member& at, const StagedAt& stage) { staging.notWanted(at, stage); }, {}, [](Member&, Time) {}}};
  Staging staging{out, space, transfers, ssds, [this](const StagedGet& get, Time) { again.push_back(get); }};
};

TEST_CASE("staging: the get is answered when the value can be fetched, and its place is free when the source says so") {
  Staged w;
  CHECK_FALSE(w.outbox.answered(w.asker, 1));
  w.staged();
  const rpc::FetchFrom fetch = w.outbox.answer<rpc::FetchFrom>(w.asker, 1);
  CHECK(fetch.exported->id == w.order().to.id);
  CHECK(rpc::isStaged(fetch.exported->id));
  CHECK(w.outbox.to<rpc::Unstage>(w.source).empty());
  w.transfers.getDone(w.asker, OperationId(2), {{}, OperationId(1), Code::ok}, w.now);
  const rpc::Unstage unstage = w.outbox.one<rpc::Unstage>(w.source);
  CHECK(unstage.exportId == fetch.exported->id);
  CHECK_FALSE(w.over());
  w.staging.unstaged(w.source, OperationId(200), {{}, unstage.order}, w.now);
  CHECK(w.over());
  w.staging.unstaged(w.source, OperationId(201), {{}, unstage.order}, w.now);
  CHECK(w.outbox.code(w.source, 201) == Code::ok);
}

TEST_CASE("staging: an unstage is never under way beside its stage") {
  Staged w;
  w.transfers.memberEnded(w.asker);
  CHECK(w.outbox.to<rpc::Unstage>(w.source).empty());
  w.staged();
  w.staging.unstaged(w.source, OperationId(200), {{}, w.outbox.one<rpc::Unstage>(w.source).order}, w.now);
  CHECK(w.over());
}

TEST_CASE("staging: what is not wanted any more and could not be staged is free at once") {
  Staged w;
  w.transfers.memberEnded(w.asker);
  w.staged(Code::unavailable);
  CHECK(w.over());
  CHECK(w.outbox.to<rpc::Unstage>(w.source).empty());
}

TEST_CASE("staging: a source that fails is avoided from then on, and what its SSD has lost leaves the route") {
  Staged w;
  w.staged(Code::corrupt);
  REQUIRE(w.again.size() == 1);
  CHECK(w.again[0].request.avoid == "source");
  CHECK(w.again[0].stagings == 1);
  CHECK(w.ssds.counters().ssdLoadsFailed == 1);
  CHECK(w.routes.find("k") == nullptr);
  CHECK(w.over());
  CHECK(w.asker.space.freeBytes() == kSegment);
}

TEST_CASE("staging: a get tries three sources and no more") {
  Staged w;
  w.staged(Code::unavailable);
  w.begin(2, 2);
  w.staged(Code::unavailable);
  CHECK(w.again.size() == 1);
  CHECK(w.outbox.code(w.asker, 2) == Code::unavailable);
  CHECK(w.over());
}

TEST_CASE("staging: with the source the gets fail that wait for it, and nothing is unstaged there") {
  Staged w;
  w.membership.fence(w.source, w.now);
  w.staging.memberEnded(w.source);
  CHECK(w.outbox.code(w.asker, 1) == Code::unavailable);
  CHECK(w.transfers.underWay() == 0);
  CHECK(w.outbox.to<rpc::Unstage>(w.source).empty());
  CHECK(w.asker.space.freeBytes() == kSegment);
}

}  // namespace
}  // namespace fluxon::master
