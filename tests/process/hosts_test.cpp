// Three hosts, each in a network namespace of its own: values move between them, over good links and bad ones, and a host that is cut
// off serves nothing that it may not.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <set>

#include "cluster.h"
#include "workload.h"

using namespace fluxon::test;

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLeaseNs = kSecondNs;

void judge(const Workload& load) {
  load.judge();
  const History::Counts counts = load.history().counts();
  CHECK(counts.puts > 0);
  CHECK(counts.hitsBySource.contains(static_cast<uint8_t>(fluxon::Source::local)));
  CHECK(counts.hitsBySource.contains(static_cast<uint8_t>(fluxon::Source::remote)));
}

}  // namespace

TEST_CASE("hosts: every value of every host is got at every other, bit for bit, first from afar and then at home") {
  Hosts hosts({.hosts = 3, .namespaces = true});
  std::vector<fluxon::Client> clients;
  for (size_t i = 0; i < 3; ++i) clients.push_back(hosts.client(i));
  const std::vector<size_t> sizes = {0, 1, 511, 4095, 4096, 4097, 65'537, 1'000'003};
  const auto key = [&](size_t host, size_t size) { return "of " + std::to_string(host) + " " + std::to_string(size); };
  for (size_t from = 0; from < 3; ++from) {
    for (const size_t size : sizes) REQUIRE(clients[from].put(key(from, size), valueOf(from, size)));
  }
  std::map<fluxon::Source, size_t> sources;
  for (int round = 0; round < 2; ++round) {
    for (size_t to = 0; to < 3; ++to) {
      for (size_t from = 0; from < 3; ++from) {
        for (const size_t size : sizes) {
          const auto holder = clients[to].get(key(from, size));
          REQUIRE(holder);
          CHECK(bool(holder->text() == valueOf(from, size)));
          ++sources[holder->source()];
        }
      }
    }
  }
  CHECK(sources[fluxon::Source::remote] == 6 * sizes.size());
  CHECK(sources[fluxon::Source::local] == 12 * sizes.size());
  CHECK(sources[fluxon::Source::neighbour] == 0);
  // An overwrite at one host is what all the others see next.
  for (size_t at = 0; at < 3; ++at) {
    REQUIRE(clients[at].put("of 0 4096", valueOf(100 + at, 5000)));
    for (size_t to = 0; to < 3; ++to) {
      const auto holder = clients[to].get("of 0 4096");
      REQUIRE(holder);
      CHECK(bool(holder->text() == valueOf(100 + at, 5000)));
    }
  }
  clients.clear();
  hosts.rest();
}

TEST_CASE("hosts: a put that asks for replicas is on as many hosts when it returns") {
  Hosts hosts({.hosts = 3, .namespaces = true});
  auto client = hosts.client(1);
  for (int round = 0; round < 10; ++round) {
    const std::string key = "k" + std::to_string(round);
    client.put(key, valueOf(static_cast<uint64_t>(round), 300'000), {.replicas = 3});
    for (size_t host = 0; host < 3; ++host) {
      const auto holder = hosts.client(host).get(key);
      REQUIRE(holder);
      CHECK_MESSAGE(holder->source() == fluxon::Source::local, hosts.log(Hosts::owner(host)));
      CHECK(bool(holder->text() == valueOf(static_cast<uint64_t>(round), 300'000)));
    }
  }
}

TEST_CASE("hosts: packets lost and a narrow link slow things down, and nothing else") {
  Hosts hosts({.hosts = 3, .namespaces = true});
  for (size_t i = 0; i < 3; ++i) hosts.lose(i, 5);
  hosts.queue(2, "tbf rate 50mbit burst 64kb latency 50ms");
  Workload load(hosts, {});
  for (size_t i = 0; i < 6; ++i) load.start(i % 3);
  load.hit(1000, 15);
  for (size_t i = 0; i < 3; ++i) hosts.lose(i, 0);
  hosts.queue(2, "");
  load.hit(200, 10);
  load.finish();
  judge(load);
  hosts.rest();
}

TEST_CASE("hosts: one that is cut off gives hits until its lease ends and no longer, the others go on, and all is well when it is back") {
  for (const Hosts::Cut how : {Hosts::Cut::link, Hosts::Cut::silence}) {
    CAPTURE(static_cast<int>(how));
    Hosts hosts({.hosts = 3, .namespaces = true});
    const int64_t joinedNs = bootNs();
    {
      // What it has is overwritten meanwhile.
      auto far = hosts.client(1), here = hosts.client(2);
      for (int i = 0; i < 8; ++i) REQUIRE(far.put("mine " + std::to_string(i), "old"));
      for (int i = 0; i < 8; ++i) REQUIRE(here.get("mine " + std::to_string(i))->text() == "old");
      // The lease of its join is over: the one that it has now is by a heartbeat.
      CHECK(eventually([&] { return bootNs() > joinedNs + kLeaseNs; }));
      CHECK(hosts.serving(2));
      hosts.cut(2, how);
      const int64_t cutNs = bootNs();
      int64_t lastHitNs = 0;
      uint64_t hits = 0;
      for (int i = 0; i < 8; ++i) {
        const std::string key = "mine " + std::to_string(i);
        if (const auto holder = here.get(key, 200)) hits += holder->text() == "old";
      }
      // Gets of the cut host go on in another process while the put waits for its lease.
      int told[2];
      REQUIRE(::pipe(told) == 0);
      const pid_t child = inChild([&] {
        auto client = hosts.client(2);
        int64_t last = 0;
        while (bootNs() < cutNs + 3 * kSecondNs) {
          const int64_t begin = bootNs();
          bool hit = false;
          codeOf([&] { hit = client.get("mine 7", 200).has_value(); });
          if (hit) last = begin;
          if (bootNs() - begin > kSecondNs + kSecondNs / 5) return 2;
        }
        return ::write(told[1], &last, sizeof last) == sizeof last ? 0 : 3;
      });
      for (int i = 0; i < 8; ++i) REQUIRE(far.put("mine " + std::to_string(i), "new", {.timeoutMs = 5000}));
      const int64_t overwrittenNs = bootNs();
      CHECK(waitFor(child) == 0);
      REQUIRE(::read(told[0], &lastHitNs, sizeof lastHitNs) == sizeof lastHitNs);
      ::close(told[0]);
      ::close(told[1]);
      MESSAGE("last hit " << (lastHitNs - cutNs) / 1'000'000 << " ms after the cut, overwritten after "
                          << (overwrittenNs - cutNs) / 1'000'000 << " ms");
      CHECK(hits == 8);
      CHECK(lastHitNs > cutNs);
      CHECK(lastHitNs < cutNs + kLeaseNs);
      CHECK(overwrittenNs > lastHitNs);
      CHECK(overwrittenNs < cutNs + 3 * kSecondNs);
      CHECK(codeOf([&] { here.get("mine 0", 200); }) == FLUXON_UNAVAILABLE);
      hosts.heal(2);
      CHECK(eventually([&] { return hosts.serving(2); }, 20));
      for (int i = 0; i < 8; ++i) {
        const auto holder = here.get("mine " + std::to_string(i));
        CHECK((!holder || holder->text() == "new"));
      }
    }
    hosts.rest();
  }
}

TEST_CASE("hosts: a host cut off and healed again and again under load, nothing stale is ever read") {
  Hosts hosts({.hosts = 3, .namespaces = true});
  Workload load(hosts, {});
  for (size_t i = 0; i < 6; ++i) load.start(i % 3);
  load.hit(200, 10);
  const int rounds = std::getenv("FLUXON_LONG") ? 60 : 4;
  for (int i = 0; i < rounds; ++i) {
    CAPTURE(i);
    const size_t victim = static_cast<size_t>(i + 2) % 3;  // the one with the master too
    hosts.cut(victim, i % 2 ? Hosts::Cut::link : Hosts::Cut::silence);
    // Shorter than the lease, and longer.
    ::usleep(i % 4 == 3 ? 300'000 : 1'800'000);
    if (victim != 0) load.hit(50, 10);
    hosts.heal(victim);
    for (size_t host = 0; host < 3; ++host) CHECK(eventually([&] { return hosts.serving(host); }, 20));
    load.hit(100, 10);
  }
  load.finish();
  judge(load);
  hosts.rest();
}

int main(int argc, char** argv) {
  const std::string lacking = Hosts::lacking();
  if (!lacking.empty()) {
    std::printf("SKIPPED: %s\n", lacking.c_str());
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
