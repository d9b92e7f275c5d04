// KeyControls: bounds, and who waits for what.
#include "key_controls.h"
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

struct Controls {
  KeyControls controls{[this](Caller caller, Command, Time) { again.push_back(caller.slot); }};
  std::vector<uint32_t> again;
  Time now{1};
  uint32_t next = 0;
  Command get(bool alone = false) const { return {.kind = shm::CommandKind::get, .key = "k", .alone = alone}; }
  Caller caller() { return {ClientId(1 + next % 2), next++}; }
  // It is the one that asks.
  bool asks(bool alone = false) { return controls.joinOrAsk(caller(), get(alone)).has_value(); }
};

TEST_CASE("key controls: a bound lasts as long as anything of its key is open, and never falls") {
  Controls c;
  c.controls.invalidated("k", PutId(9));  // nothing is open
  c.controls.open("k");
  CHECK(c.controls.bound("k").value == 0);
  c.controls.invalidated("k", PutId(9));
  c.controls.invalidated("k", PutId(5));
  c.controls.raise("k", PutId(7));
  CHECK(c.controls.bound("k").value == 9);
  c.controls.open("k");
  c.controls.close("k", c.now);
  CHECK(c.controls.bound("k").value == 9);
  c.controls.close("k", c.now);
  c.controls.open("k");
  CHECK(c.controls.bound("k").value == 0);
}

TEST_CASE("key controls: one get asks, others wait for its answer; when there is no flight each asks by itself") {
  Controls c;
  CHECK(c.asks());
  CHECK_FALSE(c.asks());
  CHECK(c.asks(true));
  c.controls.asked("k");
  c.controls.askAlone("k");
  c.controls.close("k", c.now);
  CHECK(c.again == std::vector<uint32_t>{1});
}

TEST_CASE("key controls: a flight takes on who comes while its put_id is not below the bound, and gives all of them back once") {
  Controls c;
  CHECK(c.asks());
  CHECK_FALSE(c.asks());
  c.controls.asked("k");
  const Interests others = c.controls.beginFlight("k", 5, PutId(7), c.caller(), c.get());
  REQUIRE(others.size() == 1);
  CHECK(others[0].caller.slot == 1);
  CHECK_FALSE(c.asks());
  CHECK(c.controls.joinedFlights() == 1);
  c.controls.invalidated("k", PutId(9));
  CHECK(c.asks());
  CHECK(c.controls.endFlight("k", 4).empty());
  const Interests waited = c.controls.endFlight("k", 5);
  REQUIRE(waited.size() == 2);
  CHECK(waited[0].caller.slot == 2);
  CHECK(waited[1].caller.slot == 3);
  CHECK(c.controls.endFlight("k", 5).empty());
}

TEST_CASE("key controls: a wake lets everybody run again, those of a flight, too") {
  Controls c;
  CHECK(c.asks());
  c.controls.asked("k");
  CHECK(c.controls.beginFlight("k", 5, PutId(7), c.caller(), c.get()).empty());
  c.controls.wait("k", c.caller(), c.get());
  c.controls.wake("k", c.now);
  CHECK(c.again == std::vector<uint32_t>{1, 2});
  c.controls.wake("other", c.now);
  CHECK(c.again.size() == 2);
}

TEST_CASE("key controls: a client takes its gets along, and a lapse gives back all that wait") {
  Controls c;
  c.controls.wait("k", {ClientId(1), 0}, c.get());
  c.controls.wait("k", {ClientId(2), 1}, c.get());
  c.controls.wait("l", {ClientId(2), 2}, c.get());
  c.controls.clientGone(ClientId(1));
  const Interests all = c.controls.lapse();
  CHECK(all.size() == 2);
  for (const Interest& each : all) CHECK(each.caller.client == ClientId(2));
  CHECK(c.controls.lapse().empty());
}

}  // namespace
}  // namespace fluxon::owner
