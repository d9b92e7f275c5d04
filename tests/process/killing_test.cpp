// Two hosts under a recorded workload while master, owners and clients are killed, stopped and started again.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "cluster.h"
#include "workload.h"

using namespace fluxon::test;

namespace {

// Stops or kills one process, and brings it back.
void round(Hosts& hosts, Workload& load, std::mt19937& random) {
  const useconds_t pauseUs = 20'000 + random() % 400'000;
  if (random() % 4 == 0) {
    const std::vector<uint32_t> clients = load.clients();
    const uint32_t victim = clients[random() % clients.size()];
    if (random() % 2) {
      load.stop(victim);
      ::usleep(pauseUs * 3);  // beyond the lease at times
      if (random() % 2) {
        load.resume(victim);
        return;
      }
    }
    load.kill(victim);
    load.start(random() % hosts.size());
    return;
  }
  const size_t which = random() % (hosts.size() + 1);
  const std::string victim = which == hosts.size() ? "master" : Hosts::owner(which);
  if (random() % 2) {
    hosts.signal(victim, SIGSTOP);
    ::usleep(random() % 2 ? pauseUs : 1'000'000 + pauseUs);
    if (random() % 3) return hosts.signal(victim, SIGCONT);
  }
  hosts.kill(victim);
  if (random() % 2) ::usleep(pauseUs);
  hosts.start(victim);
}

}  // namespace

TEST_CASE("processes killed and stopped at random under load: no stale, foreign or torn value, no hung call, nothing left behind") {
  const int rounds = std::getenv("FLUXON_LONG") ? 200 : 20;
  const char* const seed = std::getenv("FLUXON_SEED");
  std::mt19937 random(seed ? static_cast<uint32_t>(std::atoi(seed)) : 1);
  Hosts hosts({});
  Workload load(hosts, {});
  for (int i = 0; i < 6; ++i) load.start(static_cast<size_t>(i) % 2);
  for (int i = 0; i < rounds; ++i) {
    CAPTURE(i);
    const uint64_t hits = load.hits();
    round(hosts, load, random);
    // The cache serves again before the next one.
    CHECK(eventually([&] { return load.hits() > hits + 20; }, 10));
    const std::string gone = hosts.ended();
    REQUIRE_MESSAGE(gone.empty(), gone);
  }
  CHECK(eventually([&] { return hosts.metric("h0", "fluxon_owner_serving") == 1 && hosts.metric("h1", "fluxon_owner_serving") == 1; }));
  load.finish();
  load.judge();
  const History::Counts counts = load.history().counts();
  CHECK(counts.hits > 0);
  for (const fluxon::Source source : {fluxon::Source::local, fluxon::Source::remote}) {
    CHECK(counts.hitsBySource.contains(static_cast<uint8_t>(source)));
  }
  std::string unrest;
  CHECK_MESSAGE(eventually([&] { return (unrest = hosts.unrest()).empty(); }, 15), unrest);

  // One owner gives its values to the other; the other keeps them, ends, and is cleaned away.
  std::string said;
  CHECK_MESSAGE(hosts.ctl(0, "drain h1", said) == 0, said);
  CHECK(hosts.wait("h1") == 0);
  hosts.signal("h0", SIGTERM);
  CHECK(hosts.wait("h0") == 0);
  hosts.signal("master", SIGTERM);
  CHECK(hosts.wait("master") == 0);
  CHECK_MESSAGE(hosts.ctl(0, "clean", said) == 0, said);
  for (size_t i = 0; i < hosts.size(); ++i) {
    std::string left;
    if (std::filesystem::exists(hosts.root(i))) {
      for (const auto& each : std::filesystem::recursive_directory_iterator(hosts.root(i))) {
        // The file that a master locks stays where it is.
        if (!each.is_directory() && !each.path().native().ends_with("/.master/lock")) left += each.path().string() + "\n";
      }
    }
    CHECK_MESSAGE(left.empty(), left);
  }
}
