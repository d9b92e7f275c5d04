// Gets without a message: with every daemon stopped, without a system call, without a copy.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cluster.h"

using namespace fluxon::test;

namespace {

double secondsSince(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// Private memory of this process, bytes.
uint64_t privateBytes() {
  std::ifstream smaps("/proc/self/smaps_rollup");
  uint64_t sum = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with("Private_Dirty:") || line.starts_with("Private_Clean:")) sum += std::stoull(line.substr(14)) * 1024;
  }
  return sum;
}

// The mapping of /proc/self/maps that contains a pointer.
std::string mappingOf(const void* pointer) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t dash = line.find('-');
    const uint64_t from = std::stoull(line.substr(0, dash), nullptr, 16), to = std::stoull(line.substr(dash + 1), nullptr, 16);
    const auto at = reinterpret_cast<uint64_t>(pointer);
    if (at >= from && at < to) return line;
  }
  return "";
}

}  // namespace

TEST_CASE("an attached client hits with every daemon stopped until the serving lease ends, then misses, then hits again") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto client = cluster.client("n0");
  auto other = cluster.client("n1");
  client.put("mine", valueOf(1, 100'000));
  other.put("theirs", valueOf(2, 100'000));
  REQUIRE(client.get("theirs")->source() == fluxon::Source::neighbour);
  cluster.stop();
  const auto stopped = std::chrono::steady_clock::now();
  uint64_t hits = 0;
  double lastHit = 0;
  // A get that is not local asks the stopped owner and ends by its timeout.
  for (;;) {
    try {
      const auto mine = client.get("mine", 50);
      const auto theirs = client.get("theirs", 50);
      REQUIRE(mine);
      REQUIRE(theirs);
      REQUIRE(mine->text() == valueOf(1, 100'000));
      REQUIRE(theirs->text() == valueOf(2, 100'000));
      ++hits;
      lastHit = secondsSince(stopped);
    } catch (const fluxon::Exception& error) {
      CHECK(error.code() == FLUXON_TIMED_OUT);
      break;
    }
  }
  CHECK(hits > 10);
  CHECK(lastHit < 1.0);  // the lease; heartbeats come every fifth of it
  CHECK(secondsSince(stopped) < 1.5);
  cluster.resume();
  // Whether its lease held or not, the owner serves again; what it dropped when it was fenced is a miss.
  CHECK(eventually([&] {
    try {
      client.get("mine", 500);
      return bool(client.put("after", "x"));
    } catch (const fluxon::Exception&) {
      return false;
    }
  }));
}

TEST_CASE("holders point into the mapped segment and cost no private memory") {
  Cluster cluster({.owner = "segment_size = \"256MiB\"\n"});
  auto client = cluster.client();
  constexpr size_t kValue = 4 << 20;
  const std::string value = valueOf(3, kValue);
  for (int i = 0; i < 50; ++i) client.put("v" + std::to_string(i), value);
  [[maybe_unused]] const uint64_t before = privateBytes();
  std::vector<fluxon::Holder> holders;
  for (int i = 0; i < 50; ++i) {
    holders.push_back(*client.get("v" + std::to_string(i)));
    REQUIRE(std::memcmp(holders.back().data(), value.data(), kValue) == 0);
  }
#ifndef FLUXON_SANITIZED                       // a sanitizer shadows what it checks
  CHECK(privateBytes() < before + (8 << 20));  // 200 MiB are held
#endif
  const std::string mapping = mappingOf(holders.front().data());
  CHECK(mapping.find("/segment") != std::string::npos);
  CHECK(mapping.find("r--s") != std::string::npos);
  CHECK(mapping == mappingOf(holders.back().data() + kValue - 1));
}

#ifndef FLUXON_SANITIZED
TEST_CASE("a million hits make no system call") {
  std::string output;
  if (run("strace -V", output) != 0) {
    MESSAGE("SKIPPED: no strace");
    return;
  }
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", valueOf(1, 4096));
  const std::string trace = cluster.folder() + "/trace";
  const std::string command = "strace -f -o " + trace + " " FLUXON_HITS " " + cluster.root() + " t n0 key 1000000";
  REQUIRE(run(command, output) == 0);
  CHECK(output.find("1000000 hits") != std::string::npos);
  // Between the program's two marks there is nothing.
  std::ifstream lines(trace);
  int calls = -1;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("begin hits") != std::string::npos) {
      calls = 0;
    } else if (line.find("end hits") != std::string::npos) {
      break;
    } else if (calls >= 0) {
      ++calls;
    }
  }
  CHECK(calls == 0);
}
#endif

TEST_CASE("a value of another owner of the host is read in place") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  const std::string value = valueOf(5, 3 << 20);
  zero.put("key", value);
  const auto holder = one.get("key");
  REQUIRE(holder);
  CHECK(holder->source() == fluxon::Source::neighbour);
  CHECK(holder->text() == value);
  CHECK(mappingOf(holder->data()).find("/n0/segment") != std::string::npos);
  // The second one needs no message: the directory of n0 is attached now.
  cluster.stop();
  CHECK(one.get("key")->text() == value);
}

TEST_CASE("counters of clients appear in metrics, also of clients that have died") {
  Cluster cluster;
  {
    auto client = cluster.client();
    client.put("key", valueOf(1, 1000));
  }
  const pid_t child = inChild([&] {
    auto client = cluster.client();
    for (int i = 0; i < 640; ++i) client.get("key");
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  CHECK(waitFor(child) == -SIGKILL);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_clients") == 0; }));
  CHECK(cluster.metric("n0", "fluxon_owner_client_events_total", "event=\"hits\"") == 640);
  CHECK(cluster.metric("n0", "fluxon_owner_client_events_total", "event=\"hitBytes\"") == 640'000);
  CHECK(cluster.metric("n0", "fluxon_owner_local_get_seconds_count") >= 10);
}
