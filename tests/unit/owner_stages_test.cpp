// Stages: values that come from the SSD for another owner.
#include "owner_parts.h"
#include "stages.h"

namespace fluxon::owner {
namespace {

using shm::SlotState;

constexpr ExportId kExport{rpc::kStagedExport | 5};

struct Staging : Parts {
  Staging() { ssd.attached(Incarnation(21)), host.sent.clear(); }
  rpc::Stage order(uint64_t number = 5) const {
    return {.order = OrderId(number),
            .key = "k",
            .putId = PutId(9),
            .bytes = 100,
            .to = {ExportId(rpc::kStagedExport | number), 4096},
            .timeLeftMs = 1000};
  }
  // Its slot.
  uint32_t begin() {
    stages.begin(order(), now);
    CHECK(sentOne<rpc::Staged>().code == Code::ok);
    REQUIRE(host.fetches.size() == 1);
    CHECK(host.fetches[0].ssd);
    uint32_t granted = shape.buckets * shm::kSlotsPerBucket;
    directory.forEach("k", keyHash("k"), [&](uint32_t slot) { granted = slot; });
    CHECK(state(granted) == SlotState::granted);
    return granted;
  }
  uint64_t load() const { return host.fetches[0].id; }
  Stages stages{directory, kSegmentBytes, host, calls, retirement, ssd};
};

TEST_CASE("stages: readers have what is loaded; the extent is free when none reads and nothing writes, and the master hears that once") {
  for (const bool readersFirst : {true, false}) {
    CAPTURE(readersFirst);
    Staging p;
    const uint32_t slot = p.begin();
    CHECK(p.host.ready_.at(kExport) == 0);
    CHECK(p.stages.loading(p.load(), 64, p.now));
    CHECK(p.host.ready_.at(kExport) == 64);
    p.stages.end({OrderId(6), kExport});
    CHECK(p.host.exported.empty());
    const auto loaded = [&] { CHECK(p.stages.loaded(p.load(), Code::ok, p.now)); };
    if (readersFirst)
      p.stages.unexported(kExport);
    else
      loaded();
    CHECK(p.state(slot) == SlotState::granted);
    CHECK(p.sent().empty());
    if (readersFirst)
      loaded();
    else
      p.stages.unexported(kExport);
    CHECK(p.state(slot) == SlotState::free);
    CHECK(p.sentOne<rpc::Unstaged>().order == OrderId(6));
    p.retirement.tell();
    CHECK(p.sent().empty());  // no release: the master has it from that answer
    CHECK(p.stages.count() == 0);
    CHECK(p.stages.loads() == 0);
    p.stages.end({OrderId(6), kExport});  // once more, or late
    CHECK(p.sentOne<rpc::Unstaged>().order == OrderId(6));
  }
}

TEST_CASE("stages: a load that fails fails its readers, and the stage stays until the master ends it") {
  Staging p;
  const uint32_t slot = p.begin();
  CHECK(p.stages.loaded(p.load(), Code::corrupt, p.now));
  CHECK(p.host.failed.count(kExport) == 1);
  CHECK(p.state(slot) == SlotState::granted);
  CHECK(p.host.toSsd.back().kind == ssd::MessageKind::drop);
  p.ssd.tellNews(p.now);
  CHECK(p.sentOne<rpc::SsdEvicted>().values.at(0).putId.value == 9);
  p.stages.end({OrderId(6), kExport});
  p.stages.unexported(kExport);
  CHECK(p.state(slot) == SlotState::free);
}

TEST_CASE("stages: a load that outlasts its term keeps its extent, which is told to the next one when it is free") {
  Staging p;
  const uint32_t slot = p.begin();
  p.endTerm();
  CHECK(p.stages.slots() == std::set<uint32_t>{slot});
  p.stages.endTerm();
  p.stages.unexported(kExport);
  CHECK(p.stages.count() == 0);
  CHECK(p.stages.loads() == 1);
  CHECK(p.state(slot) == SlotState::granted);
  p.join();
  p.stages.begin(p.order(), p.now);  // of the new term, under a number that comes again
  CHECK(p.stages.count() == 1);
  p.host.sent.clear();
  CHECK(p.stages.loading(p.load(), 64, p.now));
  CHECK(p.host.ready_.at(kExport) == 0);  // of the other one
  CHECK(p.stages.loaded(p.load(), Code::ok, p.now));
  CHECK(p.state(slot) == SlotState::free);
  p.retirement.tell();
  CHECK(p.sentOne<rpc::Release>().offsets == std::vector<uint64_t>{4096});
  CHECK_FALSE(p.stages.loaded(p.load(), Code::ok, p.now));
}

TEST_CASE("stages: the end of a term fails nobody again, and names no entry of the SSD to the next one") {
  Staging p;
  p.begin();
  p.endTerm();
  p.stages.endTerm();
  CHECK(p.stages.loaded(p.load(), Code::corrupt, p.now));
  CHECK(p.host.failed.empty());
  CHECK(p.sent().empty());
  CHECK(p.host.toSsd.empty());
}

TEST_CASE("stages: an order that cannot be is refused, and nothing is granted, exported or loaded") {
  Staging p;
  const auto refused = [&](auto change, Code code) {
    rpc::Stage order = p.order();
    change(order);
    p.stages.begin(order, p.now);
    CHECK(p.sentOne<rpc::Staged>().code == code);
    CHECK(p.stages.count() == 0);
  };
  refused([](rpc::Stage& order) { order.key.clear(); }, Code::protocol);
  refused([](rpc::Stage& order) { order.to.offset = kSegmentBytes; }, Code::protocol);
  refused([](rpc::Stage& order) { order.to.offset = UINT64_MAX - 63; }, Code::protocol);
  refused([](rpc::Stage& order) { order.bytes = kSegmentBytes + 1; }, Code::protocol);
  refused([](rpc::Stage& order) { order.to.id = ExportId(5); }, Code::protocol);
  p.ssd.gone(p.now);
  p.host.sent.clear();
  refused([](rpc::Stage&) {}, Code::miss);
  CHECK(p.host.fetches.empty());
  CHECK(p.host.exported.empty());
  CHECK(p.directory.count(SlotState::granted) == 0);
  CHECK(p.stages.counters().staged == 0);
}

TEST_CASE("stages: progress beyond the value, or backwards, ends the trust in ssdd") {
  for (const uint64_t bytes : {uint64_t{101}, uint64_t{63}}) {
    Staging p;
    p.begin();
    p.stages.loading(p.load(), 64, p.now);
    CHECK_FALSE(p.host.startedOver);
    p.stages.loading(p.load(), bytes, p.now);
    CHECK(p.host.startedOver);
    CHECK(p.host.ready_.at(kExport) == 64);
  }
}

}  // namespace
}  // namespace fluxon::owner
