// The SSD tier with real daemons, on a file system of its own: what is not in memory any more comes back bit for bit, whatever is killed.
// Exit status 77: skipped aloud. FLUXON_FS: the kind of the file system.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "../ssd/loop_device.h"
#include "cluster.h"
#include "ssd/record.h"
#include "ssd_steps.h"
#include "workload.h"

using namespace fluxon::test;
using fluxon::Source;

namespace {

std::string disk;  // a folder of the file system
bool isLong() { return std::getenv("FLUXON_LONG") != nullptr; }

// A folder of the disk for one test.
class Folder {
 public:
  Folder() : path(disk + "/" + std::to_string(++count_)) { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  const std::string path;

 private:
  static inline int count_ = 0;
};

// Turns a bit of the record of `value` on its way past the page cache, as ssdd reads and writes there.
void damage(const std::string& folder, const std::string& value) {
  const std::string path = folder + "/t_cluster_kv_ssd_storage/n0/shard-000";
  const int fd = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  REQUIRE(fd >= 0);
  constexpr size_t kPiece = fluxon::ssd::kMostBlockBytes;
  const std::unique_ptr<char, decltype(&std::free)> block(static_cast<char*>(std::aligned_alloc(kPiece, kPiece)), &std::free);
  bool found = false;
  for (off_t at = 0; !found && ::pread(fd, block.get(), kPiece, at) == static_cast<ssize_t>(kPiece); at += kPiece) {
    // A payload begins with a block.
    for (size_t from = 0; !found && from < kPiece; from += fluxon::ssd::kLeastBlockBytes) {
      if (std::memcmp(block.get() + from, value.data(), fluxon::ssd::kLeastBlockBytes) != 0) continue;
      found = true;
      block.get()[from + 100] ^= 1;
      CHECK(::pwrite(fd, block.get(), kPiece, at) == static_cast<ssize_t>(kPiece));
    }
  }
  ::close(fd);
  REQUIRE(found);
}

const std::vector<size_t> kSizes = {0,    1,      63,     64,     511,           512,           513,     4095,          4096,
                                    4097, 65'535, 65'536, 65'537, (1 << 20) - 1, (1 << 20) + 1, 4 << 20, (4 << 20) + 1, 9'000'001};

}  // namespace

TEST_CASE("ssd: values of every awkward size come back from the SSD bit for bit, and are in memory then") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"64MiB\"\n" + ssdLines(folder.path, "256MiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  for (const size_t size : kSizes) REQUIRE(client.put(std::to_string(size), valueOf(size, size)));
  persisted(cluster, "n0");
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_persists_taken_total") == static_cast<double>(kSizes.size()));
  evictAll(cluster);
  for (const Source source : {Source::ssd, Source::local}) {
    for (const size_t size : kSizes) {
      const auto holder = client.get(std::to_string(size));
      REQUIRE_MESSAGE(holder, size);
      CHECK_MESSAGE(bool(holder->text() == valueOf(size, size)), size);
      CHECK_MESSAGE(holder->source() == source, size);
      CHECK(reinterpret_cast<uintptr_t>(holder->data()) % (size >= 4096 ? 4096 : 64) == 0);
    }
    // A copy becomes readable for all when the master has decided about it.
    const auto readable = [&] { return cluster.metric("n0", "fluxon_owner_directory_slots", "committed"); };
    CHECK(eventually([&] { return readable() == static_cast<double>(kSizes.size()); }));
  }
}

TEST_CASE("ssd: a value of more than 2 GiB comes back from the SSD bit for bit, and costs the others nothing") {
  if (!isLong()) {
    MESSAGE("SKIPPED: (long) FLUXON_LONG is not set");
    return;
  }
  const fluxon::ssd::TemporaryFolder folder;
  Cluster cluster({.owner = "segment_size = \"2100MiB\"\n" + ssdLines(folder.path, "17GiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  for (int n = 0; n < 20; ++n) REQUIRE(client.put(std::to_string(n), valueOf(static_cast<uint64_t>(n), 1 << 20)));
  persisted(cluster, "n0");
  std::string large((size_t{2} << 30) + 4096, '\0');
  for (size_t at = 0; at < large.size(); at += 8) {
    const uint64_t word = at * 0x9e3779b97f4a7c15;
    std::memcpy(large.data() + at, &word, 8);
  }
  REQUIRE(client.put("large", large, {.timeoutMs = 60'000}));
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_ssd_persists") == 0; }, 600));
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_persists_taken_total") == 21);
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_lost_total") == 0);
  evictAll(cluster);
  {
    const auto holder = client.get("large", 300'000);
    REQUIRE(holder);
    CHECK(holder->source() == Source::ssd);
    CHECK(bool(holder->text() == large));
  }
  for (int n = 0; n < 20; ++n) {
    const auto holder = client.get(std::to_string(n));
    REQUIRE(holder);
    CHECK(holder->source() == Source::ssd);
  }
}

TEST_CASE("ssd: what lies on the SSD of one host is got at another, bit for bit") {
  const Folder folder;
  Hosts hosts({.owner = "segment_size = \"64MiB\"\nmax_keys = 1024\n", .disks = folder.path, .limit = "256MiB"});
  auto here = hosts.client(0), there = hosts.client(1);
  for (const size_t size : kSizes) REQUIRE(here.put(std::to_string(size), valueOf(size, size)));
  persisted(hosts, "h0");
  std::string said;
  REQUIRE_MESSAGE(hosts.ctl(0, "evict --to 0", said) == 0, said);
  REQUIRE(eventually([&] { return hosts.metric("h0", "fluxon_owner_directory_slots", "committed") == 0; }));
  for (const size_t size : kSizes) {
    const auto holder = there.get(std::to_string(size));
    REQUIRE_MESSAGE(holder, size);
    CHECK_MESSAGE(bool(holder->text() == valueOf(size, size)), size);
    CHECK_MESSAGE(holder->source() == Source::remoteSsd, size);
  }
  CHECK(hosts.metric("h0", "fluxon_owner_ssd_staged_total") == static_cast<double>(kSizes.size()));
  hosts.rest();
}

TEST_CASE("ssd: five times as much data as memory is hit in full, and each hit has a source") {
  const Folder folder;
  constexpr uint64_t kKeys = 640;
  constexpr size_t kBytes = 128 << 10;  // 80 MiB in all
  Cluster cluster({.owner = "segment_size = \"16MiB\"\nmax_keys = 1024\n" + ssdLines(folder.path, "256MiB")});
  cluster.start("ssdd-n0");
  {
    auto client = cluster.client();
    for (uint64_t key = 0; key < kKeys; ++key) REQUIRE(client.put("k" + std::to_string(key), valueOf(key, kBytes)));
  }
  persisted(cluster, "n0");
  std::map<Source, uint64_t> sources;
  std::mutex mutex;
  std::vector<std::thread> threads;
  const int gets = isLong() ? 20'000 : 2000;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto client = cluster.client();
      std::mt19937_64 random(t);
      std::map<Source, uint64_t> mine;
      for (int i = 0; i < gets; ++i) {
        // Zipf with exponent 1, by its inverse.
        const double u = std::uniform_real_distribution<double>(0, 1)(random);
        const auto key = static_cast<uint64_t>(std::pow(static_cast<double>(kKeys), u)) % kKeys;
        const auto holder = client.get("k" + std::to_string(key));
        if (!holder) {
          ++mine[Source{}];
          continue;
        }
        if (!(holder->text() == valueOf(key, kBytes))) ++mine[Source{99}];
        ++mine[holder->source()];
      }
      const std::lock_guard lock(mutex);
      for (const auto& [source, count] : mine) sources[source] += count;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sources.count(Source{}) == 0);
  CHECK(sources.count(Source{99}) == 0);
  CHECK(sources[Source::local] > 0);
  CHECK(sources[Source::ssd] > 0);
  CHECK(sources[Source::local] + sources[Source::ssd] == static_cast<uint64_t>(gets) * 4);
}

TEST_CASE("ssd: a value that was overwritten or deleted does not come back from the SSD") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  REQUIRE(client.put("over", valueOf(1, 100'000)));
  REQUIRE(client.put("gone", valueOf(2, 100'000)));
  persisted(cluster, "n0");
  REQUIRE(client.put("over", valueOf(3, 50'000)));
  CHECK(client.remove("gone"));
  persisted(cluster, "n0");
  evictAll(cluster);
  CHECK_FALSE(client.get("gone"));
  const auto holder = client.get("over");
  REQUIRE(holder);
  CHECK(bool(holder->text() == valueOf(3, 50'000)));
  CHECK(holder->source() == Source::ssd);
}

TEST_CASE("ssd: what is on the SSD alone survives the death of the owner, and of the master, and of both") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  const auto check = [&](const char* what) {
    CAPTURE(what);
    auto client = cluster.client();
    // The owner joins the next term within a lease.
    CHECK(eventually([&] { return codeOf([&] { client.get("k0"); }) == FLUXON_OK; }));
    for (uint64_t i = 0; i < 20; ++i) {
      const auto holder = client.get("k" + std::to_string(i));
      REQUIRE_MESSAGE(holder, i);
      CHECK(bool(holder->text() == valueOf(i, 100'000)));
    }
    evictAll(cluster);
  };
  {
    auto client = cluster.client();
    for (uint64_t i = 0; i < 20; ++i) REQUIRE(client.put("k" + std::to_string(i), valueOf(i, 100'000)));
  }
  persisted(cluster, "n0");
  evictAll(cluster);
  check("before");
  cluster.kill("n0");
  cluster.start("n0");
  check("the owner was killed");
  cluster.kill("master");
  cluster.start("master");
  check("the master was killed");
  cluster.kill("master");
  cluster.kill("n0");
  cluster.start("master");
  cluster.start("n0");
  check("both were killed");
  cluster.signal("n0", SIGTERM);
  CHECK(cluster.wait("n0") == 0);
  cluster.start("n0");
  check("the owner was stopped");
}

TEST_CASE("ssd: an ssdd that dies takes what it had with it, and the next one serves") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  for (uint64_t i = 0; i < 20; ++i) REQUIRE(client.put("k" + std::to_string(i), valueOf(i, 100'000)));
  persisted(cluster, "n0");
  for (uint64_t i = 10; i < 20; ++i) REQUIRE(client.get("k" + std::to_string(i)));
  evictAll(cluster);
  cluster.kill("ssdd-n0");
  REQUIRE(eventually([&] { return cluster.metric("n0", "fluxon_owner_ssd_attached") == 0; }));
  for (uint64_t i = 0; i < 20; ++i) CHECK_FALSE(client.get("k" + std::to_string(i)));
  REQUIRE(client.put("k0", valueOf(100, 100'000)));
  CHECK(bool(client.get("k0")->text() == valueOf(100, 100'000)));
  cluster.start("ssdd-n0");
  REQUIRE(client.put("k1", valueOf(101, 100'000)));
  persisted(cluster, "n0");
  evictAll(cluster);
  CHECK(client.get("k1")->source() == Source::ssd);
}

TEST_CASE("ssd: an ssdd that is stopped does not hold up memory: overwrites go on without it, and it starts over") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  REQUIRE(client.put("k", valueOf(1, 100'000)));
  persisted(cluster, "n0");
  cluster.signal("ssdd-n0", SIGSTOP);
  CHECK(client.get("k"));
  REQUIRE(client.put("k", valueOf(2, 100'000)));
  CHECK(bool(client.get("k")->text() == valueOf(2, 100'000)));
  cluster.signal("ssdd-n0", SIGCONT);
  REQUIRE(eventually([&] { return cluster.metric("n0", "fluxon_owner_ssd_attached") == 1; }));
  REQUIRE(client.put("k", valueOf(3, 100'000)));
  persisted(cluster, "n0");
  evictAll(cluster);
  const auto holder = client.get("k");
  REQUIRE(holder);
  CHECK(bool(holder->text() == valueOf(3, 100'000)));
  CHECK(holder->source() == Source::ssd);
}

TEST_CASE("ssd: gets from an ssdd that stands still are misses after some seconds, whatever their deadline") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  REQUIRE(client.put("k", valueOf(1, 100'000)));
  persisted(cluster, "n0");
  evictAll(cluster);
  cluster.signal("ssdd-n0", SIGSTOP);
  CHECK_FALSE(client.get("k", 60'000));
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_loads_adrift") == 1);
  CHECK_FALSE(client.get("k", 60'000));
  REQUIRE(client.put("k", valueOf(2, 100'000)));
  cluster.signal("ssdd-n0", SIGCONT);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_ssd_loads_adrift") == 0; }));
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_ssd_attached") == 1; }));
  CHECK(bool(client.get("k")->text() == valueOf(2, 100'000)));
}

TEST_CASE("ssd: two ssdds for one node, one without its shards' space, one without configuration: one line each") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "16MiB")});
  cluster.start("ssdd-n0");
  std::string said;
  CHECK(run("timeout 5 " FLUXON_BIN "/fluxon-ssdd --config " + cluster.config() + " --node n0", said) != 0);
  CHECK_MESSAGE(said.find("shard-000") != std::string::npos, said);
  const Place place;
  const std::string none = place.configure();
  CHECK(run(FLUXON_BIN "/fluxon-ssdd --config " + none, said) == 78);
  CHECK_MESSAGE(said.find("large_limit_size") != std::string::npos, said);
  const std::string much = place.configure(ssdLines(folder.path + "/much", "900GB"));
  CHECK(run(FLUXON_BIN "/fluxon-ssdd --config " + much, said) != 0);
  CHECK_MESSAGE(said.find("free") != std::string::npos, said);
}

TEST_CASE("ssd: an operator sees the pages of an ssdd while it runs, and that it has gone") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  const auto ctl = [&](const std::string& line) { return execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " " + line).out; };
  const auto says = [&](const std::string& line, const std::string& part) { return ctl(line).find(part) != std::string::npos; };
  CHECK(says("metrics n0/ssdd", "\nfluxon_ssdd_attached 1\n"));
  CHECK(says("ssd", "metrics http://127.0.0.1:"));
  CHECK(says("ssd", "ssdd    runs, pid "));
  CHECK_FALSE(says("ssd", "not any more"));
  CHECK_FALSE(says("doctor", "without their SSD"));
  cluster.kill("ssdd-n0");
  CHECK(eventually([&] { return says("ssd", "ssdd    has ended, pid ") && says("ssd", " ago, not any more\n"); }));
  CHECK(eventually([&] { return says("doctor", "without their SSD: n0"); }));
  CHECK(says("status", "SSD REPLICAS"));
  CHECK(execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " metrics n0/ssdd").err ==
        "fluxonctl: invalid argument: process 'n0/ssdd' (running: master, n0)\n");

  cluster.start("ssdd-n0");
  CHECK(eventually([&] { return says("ssd", "ssdd    runs, pid ") && !says("ssd", "not any more"); }));
  cluster.kill("n0");  // as it stood, the directory names the life of the ssdd still
  CHECK(says("ssd", "ssdd    runs, pid "));
  CHECK(says("ssd", " ago, not any more\n"));
  CHECK(says("metrics n0/ssdd", "\nfluxon_ssdd_entries 0\n"));
}

TEST_CASE("ssd: a scrub finds the one record that is damaged: it is told, and never given to anybody; its neighbours are served") {
  const Folder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  const auto scrub = [&] { return execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " scrub"); };
  const auto shows = [&](const std::string& line) {
    return eventually([&] {
      std::string said;
      run(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " ssd", said);
      return said.find(line) != std::string::npos;
    });
  };
  auto client = cluster.client();
  constexpr size_t kBytes = 100'000;
  for (uint64_t i = 0; i < 20; ++i) REQUIRE(client.put("k" + std::to_string(i), valueOf(i, kBytes)));
  persisted(cluster, "n0");
  const Ended good = scrub();
  CHECK(good.status == 0);
  CHECK_MESSAGE(good.out.ends_with("node n0: 20 entries checked, 0 damaged\n"), good.out);
  CHECK(shows("20 of 20 entries checked, 0 damaged\n"));

  damage(folder.path, valueOf(3, kBytes));
  const Ended bad = scrub();
  CHECK(bad.status == 1);
  CHECK_MESSAGE(bad.out.ends_with("node n0: 20 entries checked, 1 damaged\n"), bad.out);
  CHECK(shows("20 of 20 entries checked, 1 damaged\n"));
  CHECK(cluster.metric("ssdd-n0", "fluxon_ssdd_damaged_total") == 1);
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_evicted_total") == 1);
  CHECK(bool(client.get("k3")->text() == valueOf(3, kBytes)));  // from memory
  const Ended again = scrub();
  CHECK(again.status == 0);
  CHECK_MESSAGE(again.out.ends_with("node n0: 19 entries checked, 0 damaged\n"), again.out);

  // What nobody has looked for is found by the one who reads it.
  damage(folder.path, valueOf(4, kBytes));
  evictAll(cluster);
  for (uint64_t i = 0; i < 20; ++i) {
    const auto holder = client.get("k" + std::to_string(i));
    CHECK(bool(holder) == (i != 3 && i != 4));
    if (!holder) continue;
    CHECK(bool(holder->text() == valueOf(i, kBytes)));
    CHECK(holder->source() == Source::ssd);
  }
  CHECK(cluster.metric("ssdd-n0", "fluxon_ssdd_damaged_total") == 2);
}

TEST_CASE("ssd: small rings under writers and readers wrap many times, and what is read is what was written last") {
  const Folder folder;
  Hosts hosts({.owner = "segment_size = \"4MiB\"\nmax_keys = 1024\n", .disks = folder.path, .limit = "6MiB"});
  Workload load(hosts, {.keys = 300, .largest = 120'000, .putPercent = 33, .removePercent = 1});
  for (size_t i = 0; i < 4; ++i) load.start(i % 2);
  for (size_t i = 0; i < 8; ++i) load.start(i % 2, Workload::Role::reader);
  const double wraps = isLong() ? 20 : 2, bytes = wraps * 6 * (1 << 20);
  for (const char* const owner : {"h0", "h1"})
    CHECK(eventually([&] { return hosts.metric(owner, "fluxon_owner_ssd_persisted_bytes_total") > bytes; }, isLong() ? 600 : 120));
  load.finish();
  load.judge();
  const History::Counts counts = load.history().counts();
  CHECK(counts.hitsBySource.contains(static_cast<uint8_t>(Source::ssd)));
  CHECK(counts.hitsBySource.contains(static_cast<uint8_t>(Source::remoteSsd)));
  CHECK(hosts.metric("h0", "fluxon_owner_ssd_evicted_total") > 0);
  hosts.rest();
}

TEST_CASE("ssd: processes killed and stopped at random under load: nothing stale, foreign or torn, nothing hangs, nothing is left") {
  const int rounds = isLong() ? 200 : 20;
  const char* const seed = std::getenv("FLUXON_SEED");
  std::mt19937 random(seed ? static_cast<uint32_t>(std::atoi(seed)) : 1);
  const Folder folder;
  Hosts hosts({.owner = "segment_size = \"4MiB\"\nmax_keys = 1024\n", .disks = folder.path, .limit = "16MiB"});
  Workload load(hosts, {.keys = 150, .largest = 120'000, .putPercent = 25, .removePercent = 2});
  for (size_t i = 0; i < 6; ++i) load.start(i % 2);
  for (int i = 0; i < rounds; ++i) {
    CAPTURE(i);
    const uint64_t hits = load.hits();
    const std::string owner = Hosts::owner(random() % 2), ssdd = "ssdd-" + owner;
    const useconds_t pauseUs = random() % 300'000;
    switch (random() % 6) {
      case 0:
      case 1: hosts.kill(ssdd), hosts.start(ssdd); break;
      case 2: hosts.kill(owner), hosts.kill(ssdd), hosts.start(owner), hosts.start(ssdd); break;
      case 3: hosts.kill(owner), ::usleep(pauseUs), hosts.start(owner); break;
      case 4:
        hosts.signal(ssdd, SIGSTOP);
        ::usleep(pauseUs * 6);
        hosts.signal(ssdd, SIGCONT);
        break;
      case 5: hosts.kill("master"), ::usleep(pauseUs), hosts.start("master"); break;
    }
    CHECK(eventually([&] { return load.hits() > hits + 20; }, 10));
    const std::string gone = hosts.ended();
    REQUIRE_MESSAGE(gone.empty(), gone);
  }
  load.finish();
  load.judge();
  const History::Counts counts = load.history().counts();
  CHECK(counts.hitsBySource.contains(static_cast<uint8_t>(Source::ssd)));
  hosts.rest();
}

int main(int argc, char** argv) {
  const char* const kind = std::getenv("FLUXON_FS");
  if (const std::string why = fluxon::ssd::whyNoLoopDevices(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 77;
  }
  const fluxon::ssd::TemporaryFolder folder;
  const std::string why = fluxon::ssd::mountFileSystem(folder.path, uint64_t{1} << 30, kind ? kind : "ext4");
  if (!why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 77;
  }
  disk = folder.path + "/mounted";
  return doctest::Context(argc, argv).run();
}
