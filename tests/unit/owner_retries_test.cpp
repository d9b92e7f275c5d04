// Retries: commands that are put off.
#include "owner_fixture.h"
#include "retries.h"

namespace fluxon::owner {
namespace {

struct PutOff {
  void putOff(uint32_t slot, unsigned attempts, Duration left = seconds(60)) {
    retries.putOff({ClientId(1 + slot % 2), slot}, {.deadline = now + left, .attempts = attempts}, "why", now);
  }
  std::vector<uint32_t> due(Time at) {
    std::vector<uint32_t> slots;
    while (const std::optional<Retries::Entry> entry = retries.takeDue(at)) slots.push_back(entry->caller.slot);
    return slots;
  }
  Retries retries;
  Time now{seconds(1000).ns};
};

using Slots = std::vector<uint32_t>;

TEST_CASE("retries: the pause doubles with each attempt, up to 128 ms, and never goes beyond the deadline") {
  PutOff p;
  CHECK(p.retries.nextWake() == Time::never());
  const std::pair<unsigned, int64_t> pauses[] = {{0, 1}, {1, 2}, {6, 64}, {7, 128}, {1000, 128}};
  for (const auto& [attempts, ms] : pauses) {
    p.putOff(0, attempts);
    CHECK(p.retries.nextWake() == p.now + milliseconds(ms));
    CHECK(p.due(p.now + milliseconds(ms - 1)).empty());
    const std::optional<Retries::Entry> entry = p.retries.takeDue(p.now + milliseconds(ms));
    REQUIRE(entry);
    CHECK(entry->command.attempts == attempts + 1);
    CHECK(entry->why == "why");
  }
  p.putOff(0, 7, milliseconds(10));
  CHECK(p.retries.nextWake() == p.now + milliseconds(10));
}

TEST_CASE("retries: those whose time has come are taken once, in the order of their times") {
  PutOff p;
  p.putOff(1, 3);
  p.putOff(2, 1);
  p.putOff(3, 7);
  CHECK(p.due(p.now + milliseconds(8)) == Slots{2, 1});
  CHECK(p.due(p.now + milliseconds(8)).empty());
  CHECK(p.due(p.now + seconds(1)) == Slots{3});
}

TEST_CASE("retries: those of a client that has ended are forgotten, all are given back at the end") {
  PutOff p;
  for (const uint32_t slot : {1, 2, 3, 4}) p.putOff(slot, 0);
  p.retries.clientGone(ClientId(1));
  CHECK(p.retries.takeAll().size() == 2);
  CHECK(p.due(p.now + seconds(1)).empty());
}

}  // namespace
}  // namespace fluxon::owner
