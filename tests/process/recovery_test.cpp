// A cluster of many small values whose master is killed: all of them are served again, however long that takes; and two processes that
// are both started as owner of one node.
#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "cluster.h"

using namespace fluxon::test;
using fluxon::Client;

namespace {

constexpr int kThreads = 16;
std::string nameOf(uint64_t n) { return "recovery-" + std::to_string(n); }

// Puts, or looks for, each of `count` keys, by some threads.
void all(const Cluster& cluster, uint64_t count, const std::function<bool(Client&, const std::string&)>& each, uint64_t& failed) {
  std::atomic<uint64_t> next = 0, bad = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Client client = cluster.client();
      for (uint64_t n; (n = next++) < count;) {
        if (codeOf([&] { bad += !each(client, nameOf(n)); }) != FLUXON_OK) ++bad;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  failed = bad;
}

}  // namespace

TEST_CASE("a master that is killed over many small values: all are taken back, none is refused, and puts go on") {
  const uint64_t count = std::getenv("FLUXON_LONG") ? 1'500'000 : 200'000;
  Cluster cluster({.owner = "segment_size = \"512MiB\"\nmax_keys = 2000000\npopulate = false\n", .leaseMs = 1000});
  uint64_t failed = 0;
  all(
      cluster, count, [](Client& client, const std::string& key) { return bool(client.put(key, key)); }, failed);
  REQUIRE(failed == 0);
  cluster.kill("master");
  cluster.start("master");
  const auto taken = [&] { return cluster.metric("master", "fluxon_master_inventory_taken_total"); };
  CHECK(eventually([&] { return taken() == static_cast<double>(count); }, 120));
  CHECK(cluster.metric("master", "fluxon_master_inventory_refused_total") == 0);
  CHECK(eventually([&] { return cluster.metric("master", "fluxon_master_recovering") == 0; }));
  CHECK(cluster.metric("master", "fluxon_master_keys") == static_cast<double>(count));
  Client client = cluster.client();
  CHECK(client.put("after", "x"));
  all(
      cluster, count,
      [](Client& reader, const std::string& key) {
        const auto value = reader.get(key);
        return value && value->bytes().size() == key.size();
      },
      failed);
  CHECK(failed == 0);
}

TEST_CASE("an owner whose folder is removed while it is stopped is not replaced before its lease has run out, and nothing old is read") {
  Cluster cluster({.leaseMs = 3000});
  Client old = cluster.client();
  REQUIRE(old.put("k", "one"));
  REQUIRE(old.get("k"));
  const pid_t first = cluster.pid("n0");
  ::kill(first, SIGSTOP);
  std::filesystem::remove_all(cluster.root() + "/t/n0");
  cluster.start("n0");
  CHECK(cluster.client().put("k", "newer"));
  (void)codeOf([&] {
    const auto value = old.get("k", 100);
    CHECK((!value || value->bytes().size() == 5));
  });
  CHECK(cluster.metric("master", "fluxon_master_owners_fenced_total") == 1);
  // It goes on, finds that its files are gone, and ends; the other one serves.
  ::kill(first, SIGCONT);
  CHECK(waitFor(first) == 71);
  CHECK(cluster.client().get("k")->bytes().size() == 5);
  CHECK(cluster.metric("master", "fluxon_master_owners_fenced_total") == 1);
}
