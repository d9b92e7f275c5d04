// Any process killed or stopped at any moment, under a checked load: two hosts, each with a shared memory root of its own, one master.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "cluster.h"
#include "workload.h"

using namespace fluxon::test;
namespace fs = std::filesystem;

namespace {

// Host 0 has the master and nodes n0 and n1, host 1 has n2.
struct TwoHosts {
  TwoHosts() {
    const std::string secret = place.folder() + "/secret";
    std::ofstream(secret) << "the secret of this cluster";
    fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write);
    const std::string common = "secret_file = \"" + secret + "\"\n", owner = "segment_size = \"16MiB\"\nlink = \"127.0.0.1:0\"\n";
    // A port that stays over a restart of the master.
    const uint16_t port = freePort();
    const std::string address = "127.0.0.1:" + std::to_string(port);
    near = std::make_unique<Cluster>(Cluster::Shape{{"n0", "n1"}, owner, "listen = \"" + address + "\"\n", common});
    far = std::make_unique<Cluster>(Cluster::Shape{{"n2"}, owner, "", common + "master = \"" + address + "\"\n", false});
  }
  Cluster& of(const std::string& process) { return process == "n2" ? *far : *near; }

  Place place;
  std::unique_ptr<Cluster> near, far;
};

bool atRest(TwoHosts& hosts) {
  for (const std::string node : {"n0", "n1", "n2"}) {
    for (const char* gauge : {"flights", "exports", "grants", "ring_holds"}) {
      if (hosts.of(node).metric(node, std::string("fluxon_owner_") + gauge) != 0) return false;
    }
    if (hosts.of(node).metric(node, "fluxon_owner_directory_slots", "retired") != 0) return false;
  }
  return hosts.near->metric("master", "fluxon_master_transfers_inflight") == 0 &&
         hosts.near->metric("master", "fluxon_master_puts_inflight") == 0 && hosts.near->metric("master", "fluxon_master_recovering") == 0;
}

TEST_CASE("any process is killed or stopped at any moment: no wrong byte, no call that hangs, nothing left behind") {
  const int rounds = std::getenv("FLUXON_LONG") ? 200 : 20;
  TwoHosts hosts;
  Workload load({});
  for (const std::string node : {"n0", "n1", "n2"}) {
    for (int i = 0; i < 2; ++i) load.add(hosts.of(node).options(node));
  }
  std::mt19937 random(1);
  const auto pause = [&](int leastMs, int mostMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(leastMs + static_cast<int>(random() % static_cast<unsigned>(mostMs - leastMs))));
  };
  const std::vector<std::string> victims = {"master", "n0", "n1", "n2", "client"};
  for (int round = 0; round < rounds; ++round) {
    const std::string& victim = victims[static_cast<size_t>(round) % victims.size()];
    CAPTURE(round);
    CAPTURE(victim);
    pause(200, 600);
    if (victim == "client") {
      load.replace(random() % load.clients());
      continue;
    }
    Cluster& cluster = hosts.of(victim);
    if (round / victims.size() % 2 == 0) {
      cluster.kill(victim);
      if (random() % 2) pause(1, 1500);  // past the lease, or not
      cluster.start(victim);
    } else {
      cluster.signal(victim, SIGSTOP);
      pause(50, 1600);
      cluster.signal(victim, SIGCONT);
    }
  }
  CHECK(load.finish());
  const std::vector<std::string> wrong = load.history().check();
  for (size_t i = 0; i < wrong.size() && i < 10; ++i) FAIL_CHECK(wrong[i]);
  CHECK(wrong.empty());
  const History& history = load.history();
  MESSAGE(history.size(), " operations; puts ", history.count(Did::put, Outcome::done), ", hits ",
          history.count(Did::get, Outcome::done), ", misses ", history.count(Did::get, Outcome::miss), ", refused gets ", history.count(Did::get, Outcome::refused));
  CHECK(history.count(Did::get, Outcome::done) > history.size() / 20);
  CHECK(history.count(Did::put, Outcome::done) > history.size() / 20);
  CHECK(eventually([&] { return atRest(hosts); }, 20));

  for (const std::string process : {"n0", "n1", "n2", "master"}) {
    hosts.of(process).signal(process, SIGTERM);
    CHECK(hosts.of(process).wait(process) == 0);
  }
  for (const Cluster* cluster : {hosts.near.get(), hosts.far.get()}) {
    std::string output;
    CHECK(run(std::string(FLUXON_BIN) + "/fluxonctl --config " + cluster->config() + " clean", output) == 0);
    for (const auto& entry : fs::directory_iterator(cluster->root() + "/t")) CHECK(entry.path().filename().string().starts_with("."));
  }
}

}  // namespace
