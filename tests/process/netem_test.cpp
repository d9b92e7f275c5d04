// Three hosts over links whose packets are late, overtake each other and get lost: what the kernel's netem does. Deadlines and the
// lease suit an emulated machine.
#include <doctest/doctest.h>

#include "cluster.h"
#include "workload.h"

using namespace fluxon::test;

TEST_CASE("hosts: packets late, out of order and lost, and a host cut off meanwhile: nothing stale, and no call outlives its deadline") {
  constexpr int kLeaseMs = 4000;
  constexpr int64_t kLeastRoundTripNs = 20'000'000;
  Hosts hosts({.hosts = 3, .namespaces = true, .leaseMs = kLeaseMs});
  for (size_t i = 0; i < 3; ++i) hosts.queue(i, "netem delay 20ms 10ms loss 2%");
  {
    auto client = hosts.client(1);
    client.put("far", "value", {.timeoutMs = 10'000});
    const int64_t beginNs = bootNs();
    const auto holder = hosts.client(2).get("far", 10'000);
    CHECK(bootNs() - beginNs >= kLeastRoundTripNs);
    REQUIRE(holder);
    CHECK(holder->text() == "value");
    CHECK(holder->source() == fluxon::Source::remote);
  }
  Workload load(hosts, {.keys = 12, .putDeadlineMs = kLeaseMs + 1500, .getDeadlineMs = 1000, .pauseUs = 20'000});
  for (size_t i = 0; i < 3; ++i) load.start(i);
  // What the cut host has is overwritten at others meanwhile: these would see it.
  for (int i = 0; i < 3; ++i) load.start(2, Workload::Role::reader);
  load.hit(100, 30);
  hosts.cut(2, Hosts::Cut::silence);
  CHECK(eventually([&] { return !hosts.serving(2); }, 3 * kLeaseMs / 1000));
  load.hit(20, 30);
  hosts.heal(2);
  CHECK(eventually([&] { return hosts.serving(2); }, 30));
  load.hit(50, 30);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(hosts.dropped(i) > 0);
    CHECK(hosts.early(i) > 0);
    MESSAGE("host " << i << ": " << hosts.dropped(i) << " packets dropped, " << hosts.early(i) << " early");
    hosts.queue(i, "");
  }
  load.hit(50, 30);
  load.finish();
  load.judge();
  const History::Counts counts = load.history().counts();
  CHECK(counts.puts > 0);
  CHECK(counts.hitsBySource.contains(static_cast<uint8_t>(fluxon::Source::remote)));
  hosts.rest(60);
}
