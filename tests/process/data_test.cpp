// Values, keys and space: what goes in comes out, bit for bit, or is refused with the reason.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <set>
#include <thread>

#include "base/hash.h"
#include "cluster.h"
#include "shm/directory_format.h"

using namespace fluxon::test;

namespace {

std::string messageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const fluxon::Exception& error) {
    return error.what();
  }
  return "";
}

bool isLong() { return std::getenv("FLUXON_LONG") != nullptr; }

}  // namespace

TEST_CASE("a thousand values round trip byte for byte across two owners") {
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"256MiB\"\n"});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  const auto sizeOf = [](int i) { return static_cast<size_t>((i * 7919) % 200'000); };
  for (int i = 0; i < 1000; ++i) (i % 2 ? one : zero).put("file/" + std::to_string(i), valueOf(static_cast<uint64_t>(i), sizeOf(i)));
  for (int i = 0; i < 1000; ++i) {
    const auto holder = (i % 3 ? zero : one).get("file/" + std::to_string(i));
    REQUIRE(holder);
    REQUIRE(holder->text() == valueOf(static_cast<uint64_t>(i), sizeOf(i)));
  }
  CHECK(zero.countPrefix("file/") == 1000);
}

TEST_CASE("values of every awkward size and user pointers of every alignment come back unchanged") {
  Cluster cluster;
  auto client = cluster.client();
  const std::string source = valueOf(7, (4 << 20) + 65);
  for (const size_t size : {0, 1, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20, (4 << 20) + 1}) {
    for (const size_t skew : {0, 1, 64}) {
      const std::string_view value(source.data() + skew, size);
      const std::string key = std::to_string(size) + "+" + std::to_string(skew);
      client.put(key, value);
      const auto holder = client.get(key);
      REQUIRE(holder);
      REQUIRE(holder->text() == value);
      CHECK(holder->data() != nullptr);
      CHECK(reinterpret_cast<uintptr_t>(holder->data()) % (size >= 4096 ? 4096 : 64) == 0);
    }
  }
  CHECK(client.stat("0+0")->length == 0);
  CHECK(client.exists("0+0"));
  CHECK_FALSE(client.exists("never"));
}

TEST_CASE("a value larger than the segment is too large, one that fills it goes in") {
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n"});
  auto client = cluster.client();
  CHECK(codeOf([&] { client.putStart("k", (16 << 20) + 1); }) == FLUXON_TOO_LARGE);
  CHECK(codeOf([&] { client.putStart("k", UINT64_MAX); }) == FLUXON_TOO_LARGE);
  const std::string all = valueOf(1, 16 << 20);
  client.put("k", all);
  CHECK(client.get("k")->text() == all);
}

TEST_CASE("keys of any bytes up to 4096 round trip, others are refused") {
  Cluster cluster;
  auto client = cluster.client();
  using namespace std::string_literals;
  const std::set<std::string> keys = {"a",   std::string(4096, 'k'), "with\0nul"s,  "new\nline", "quote\"s'", "../x",
                                      "%00", "\xff\xfe\x80",         "{\"json\":1}"};
  for (const std::string& key : keys) client.put(key, key);
  for (const std::string& key : keys) CHECK(client.get(key)->text() == key);
  std::set<std::string> listed;
  client.list("", "", 0, [&](const fluxon::ListedKey& entry) { return listed.insert(std::string(entry.key)).second; });
  CHECK(listed == keys);
  for (const std::string& bad : {std::string(), std::string(4097, 'k')}) {
    CHECK(codeOf([&] { client.put(bad, "x"); }) == FLUXON_INVALID_KEY);
    CHECK(codeOf([&] { client.putStart(bad, 1 << 20); }) == FLUXON_INVALID_KEY);
    CHECK(codeOf([&] { client.get(bad); }) == FLUXON_INVALID_KEY);
  }
}

TEST_CASE("a listing is paged, in byte order, and begins after a key") {
  Cluster cluster;
  auto client = cluster.client();
  for (int i = 0; i < 3000; ++i) client.put("k/" + std::to_string(10000 + i), "v");
  client.put("other", "v");
  std::vector<std::string> keys;
  client.list("k/", "k/10009", 0, [&](const fluxon::ListedKey& entry) { return keys.emplace_back(entry.key), true; });
  REQUIRE(keys.size() == 2990);
  CHECK(keys.front() == "k/10010");
  CHECK(std::is_sorted(keys.begin(), keys.end()));
  keys.clear();
  client.list("", "", 7, [&](const fluxon::ListedKey& entry) { return keys.emplace_back(entry.key), true; });
  CHECK(keys.size() == 7);
  CHECK(client.countPrefix("") == 3001);
}

TEST_CASE("sixteen threads put one key: one version wins, readers see whole values of growing versions only") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  const int rounds = isLong() ? 1000 : 100;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, reads{0}, backwards{0}, failed{0};
  // A value is its writer's number and round, repeated; sizes differ from writer to writer.
  const auto write = [&](fluxon::Client& client, int writer) {
    for (int round = 0; round < rounds; ++round) {
      std::string value;
      const std::string unit = std::to_string(writer) + ":" + std::to_string(round) + ";";
      while (value.size() < static_cast<size_t>(100 + writer * 700)) value += unit;
      failed += codeOf([&] { client.put("key", value); }) != FLUXON_OK;
    }
  };
  const auto read = [&](fluxon::Client& client) {
    uint64_t last = 0;
    while (!stop) {
      std::optional<fluxon::Holder> holder;
      failed += codeOf([&] { holder = client.get("key"); }) != FLUXON_OK;
      if (!holder) continue;
      const std::string_view text = holder->text();
      const std::string_view unit = text.substr(0, text.find(';') + 1);
      for (size_t at = 0; at < text.size(); at += unit.size()) wrong += text.substr(at, unit.size()) != unit;
      backwards += holder->putId() < last;
      last = holder->putId();
      ++reads;
    }
  };
  std::thread readers[2] = {std::thread(read, std::ref(zero)), std::thread(read, std::ref(one))};
  std::vector<std::thread> writers;
  for (int i = 0; i < 16; ++i) writers.emplace_back(write, std::ref(i % 4 ? zero : one), i);
  for (std::thread& thread : writers) thread.join();
  stop = true;
  for (std::thread& thread : readers) thread.join();
  CHECK(wrong == 0);
  CHECK(failed == 0);
  CHECK(backwards == 0);
  CHECK(reads > 0);
  const auto final = zero.get("key"), same = one.get("key");
  REQUIRE(final);
  REQUIRE(same);
  CHECK(final->putId() == same->putId());
  CHECK(final->text() == same->text());
  CHECK(zero.stat("key")->putId == final->putId());
}

TEST_CASE("a read after a put or delete anywhere on the host never returns an older value") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  for (int round = 0; round < (isLong() ? 2000 : 200); ++round) {
    fluxon::Client& writer = round % 2 ? zero : one;
    fluxon::Client& reader = round % 3 ? zero : one;
    const std::string value = "round " + std::to_string(round);
    writer.put("key", value);
    const auto holder = reader.get("key");
    REQUIRE(holder);
    REQUIRE(holder->text() == value);
    if (round % 5 != 0) continue;
    REQUIRE(reader.remove("key"));
    REQUIRE_FALSE(zero.get("key"));
    REQUIRE_FALSE(one.get("key"));
  }
}

TEST_CASE("a holder stays unchanged while its key is overwritten, deleted and evicted") {
  Cluster cluster({.owner = "segment_size = \"32MiB\"\n"});
  auto client = cluster.client();
  const std::string first = valueOf(1, 1 << 20), second = valueOf(2, 1 << 20), third = valueOf(3, 1 << 20);
  client.put("key", first);
  const auto overwritten = client.get("key");
  client.put("key", second);
  const auto deleted = client.get("key");
  client.remove("key");
  client.put("key", third);
  auto evicted = client.get("key");
  // Far more than the segment: everything that can go goes.
  for (int i = 0; i < 100; ++i) client.put("fill" + std::to_string(i), valueOf(static_cast<uint64_t>(i), 1 << 20));
  CHECK(overwritten->text() == first);
  CHECK(deleted->text() == second);
  CHECK(evicted->text() == third);
  CHECK(cluster.metric("master", "fluxon_master_evictions_total") > 50);
}

TEST_CASE("of many clients that put a key at once if it does not exist, one is told that it did") {
  Cluster cluster;
  constexpr int kThreads = 16, kRounds = 40;
  auto client = cluster.client();
  for (const size_t bytes : {size_t{64}, size_t{64} << 10}) {
    const std::string value = valueOf(3, bytes);
    std::atomic<int> winners{0}, unexpected{0};
    std::barrier round(kThreads, [&]() noexcept {});
    std::vector<int> won(kRounds, 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int r = 0; r < kRounds; ++r) {
          const std::string key = "lock" + std::to_string(bytes) + "." + std::to_string(r);
          round.arrive_and_wait();
          fluxon::PutResult result;
          const fluxon_code code = codeOf([&] { result = client.put(key, value, {.onExisting = fluxon::OnExisting::reject}); });
          winners += code == FLUXON_OK && result.outcome == fluxon::PutOutcome::done;
          unexpected += code != FLUXON_OK || result.outcome == fluxon::PutOutcome::inFlight;
          round.arrive_and_wait();
          if (t == 0) won[static_cast<size_t>(r)] = winners.exchange(0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    INFO(bytes, " bytes");
    CHECK(unexpected == 0);
    CHECK(std::count(won.begin(), won.end(), 1) == kRounds);
  }
}

TEST_CASE("a full cache takes one more value; one that is held is full until a holder goes") {
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n", .master = "put_wait_ms = 1000\n"});
  auto client = cluster.client();
  for (int i = 0; i < 40; ++i) client.put("v" + std::to_string(i), valueOf(static_cast<uint64_t>(i), 1 << 20));
  std::vector<fluxon::Holder> holders;
  for (int i = 0; i < 40; ++i) {
    if (auto holder = client.get("v" + std::to_string(i))) holders.push_back(std::move(*holder));
  }
  REQUIRE(holders.size() >= 10);
  // The segment is full of what is held: fill the rest with values that are held too.
  std::string message;
  for (int i = 0; message.empty() && i < 20; ++i) {
    message = messageOf([&] {
      client.put("h" + std::to_string(i), valueOf(1, 1 << 20));
      holders.push_back(*client.get("h" + std::to_string(i)));
    });
  }
  CHECK(message.find("no space: 1 MiB wanted, ") == 0);
  CHECK(message.find(" are being read and cannot be evicted (fluxonctl pins), 0 B leased, 0 B retired") != std::string::npos);
  CHECK(message.find("; 0 values") == std::string::npos);
  // It waited without work.
  rusage before{}, after{};
  const auto begun = std::chrono::steady_clock::now();
  ::getrusage(RUSAGE_SELF, &before);
  CHECK(codeOf([&] { client.put("again", valueOf(1, 1 << 20)); }) == FLUXON_NO_SPACE);
  ::getrusage(RUSAGE_SELF, &after);
  const auto waited = std::chrono::steady_clock::now() - begun;
  CHECK(waited > std::chrono::milliseconds(900));
  CHECK(waited < std::chrono::milliseconds(3000));
  CHECK((after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1'000'000 + after.ru_utime.tv_usec - before.ru_utime.tv_usec < 200'000);
  // A waiting put gets the space of a holder that goes.
  std::jthread releaser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    holders.erase(holders.begin(), holders.begin() + 4);
  });
  CHECK(codeOf([&] { client.put("again", valueOf(1, 1 << 20)); }) == FLUXON_OK);
  releaser.join();
}

TEST_CASE("zero copy: a grant is filled in place, committed or aborted; its destruction aborts") {
  Cluster cluster;
  auto client = cluster.client();
  auto grant = client.putStart("key", 1 << 20);
  REQUIRE(grant);
  const std::string value = valueOf(9, 1 << 20);
  std::copy(value.begin(), value.end(), reinterpret_cast<char*>(grant->bytes().data()));
  CHECK_FALSE(client.get("key"));
  CHECK(std::move(*grant).commit());
  CHECK(client.get("key")->text() == value);
  {
    auto dropped = client.putStart("other", 1 << 20);
    REQUIRE(dropped);
  }
  CHECK_FALSE(client.get("other"));
  CHECK(eventually([&] { return cluster.metric("master", "fluxon_master_puts_inflight") == 0; }));
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_grants") == 0; }));
}

TEST_CASE("rejectIfExists and rejectIfInFlight refuse, and say which") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  using namespace fluxon;
  const PutOptions absent{.onExisting = OnExisting::reject}, alone{.onInFlight = OnInFlight::reject};
  CHECK(zero.put("key", "1", absent));
  CHECK(one.put("key", "2", absent).outcome == PutOutcome::exists);
  CHECK(zero.get("key")->text() == "1");
  auto grant = zero.putStart("busy", 100'000, alone);
  REQUIRE(grant);
  CHECK(one.put("busy", "x", alone).outcome == PutOutcome::inFlight);
  CHECK(one.put("busy", "x"));
  std::move(*grant).abort();
  CHECK(eventually([&] { return bool(one.put("busy", "y", alone)); }));  // the master hears of the abort a little later
  // Two that began before either was done: the second one is refused at its end.
  auto first = zero.putStart("race", 100, absent), second = one.putStart("race", 100, absent);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(std::move(*first).commit());
  CHECK(std::move(*second).commit().outcome == PutOutcome::exists);
}

TEST_CASE("a key lease keeps its values and takes them with it") {
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n", .master = "min_key_lease_ms = 50\n"});
  auto client = cluster.client();
  const uint64_t lease = client.leaseGrant(60'000), brief = client.leaseGrant(300);
  client.put("leased", valueOf(1, 1 << 20), {.lease = lease});
  client.put("brief", "x", {.lease = brief});
  for (int i = 0; i < 60; ++i) client.put("fill" + std::to_string(i), valueOf(2, 1 << 20));
  CHECK(client.get("leased")->text() == valueOf(1, 1 << 20));
  CHECK(eventually([&] { return !client.get("brief"); }, 5));
  client.leaseKeepAlive(lease);
  client.leaseRevoke(lease);
  CHECK_FALSE(client.get("leased"));
  CHECK(codeOf([&] { client.leaseKeepAlive(lease); }) == FLUXON_NO_LEASE);
  CHECK(codeOf([&] { client.put("k", "x", {.lease = lease}); }) == FLUXON_NO_LEASE);
  CHECK(codeOf([&] { client.leaseGrant(1); }) == FLUXON_INVALID_ARGUMENT);
}

TEST_CASE("keys whose buckets are full go by the ring and are held like all others") {
  Cluster cluster({.owner = "segment_size = \"64MiB\"\nmax_keys = 256\n"});
  auto client = cluster.client();
  // 256 keys have 64 buckets of 8: more keys than that with the same two buckets.
  std::vector<std::string> keys;
  for (int i = 0; keys.size() < 24; ++i) {
    const std::string key = "k" + std::to_string(i);
    const uint64_t hash = fluxon::keyHash(key);
    if (fluxon::shm::firstBucket(hash, 64) == 5 && fluxon::shm::secondBucket(hash, 64) == 9) keys.push_back(key);
  }
  std::vector<fluxon::Holder> holders;
  for (const std::string& key : keys) client.put(key, "value of " + key);
  CHECK(cluster.metric("n0", "fluxon_owner_directory_overflow_slots") == 8);
  for (const std::string& key : keys) {
    auto holder = client.get(key);
    REQUIRE(holder);
    CHECK(holder->text() == "value of " + key);
    holders.push_back(std::move(*holder));
  }
  for (const std::string& key : keys) client.put(key, "newer " + key);
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK(holders[i].text() == "value of " + keys[i]);
    CHECK(client.get(keys[i])->text() == "newer " + keys[i]);
  }
}

TEST_CASE("more keys than max_keys: the oldest go, as they do when bytes are short") {
  Cluster cluster({.owner = "segment_size = \"64MiB\"\nmax_keys = 64\n"});
  auto client = cluster.client();
  for (int i = 0; i < 1000; ++i) {
    client.put("k" + std::to_string(i), std::to_string(i));
    REQUIRE(client.get("k" + std::to_string(i))->text() == std::to_string(i));
  }
  CHECK(client.countPrefix("k") <= 64);
  CHECK(client.countPrefix("k") > 32);
}

TEST_CASE("more holders than a client has hazard words are kept by held words") {
  Cluster cluster({.owner = "segment_size = \"64MiB\"\nmax_keys = 16384\n"});
  auto client = cluster.client();
  constexpr int kHolders = 5000;  // 4096 words
  std::vector<fluxon::Holder> holders;
  for (int i = 0; i < kHolders; ++i) client.put("k" + std::to_string(i), std::to_string(i));
  for (int i = 0; i < kHolders; ++i) holders.push_back(*client.get("k" + std::to_string(i)));
  CHECK(cluster.metric("n0", "fluxon_owner_ring_holds") > 0);
  for (int i = 0; i < kHolders; ++i) client.put("k" + std::to_string(i), "new");
  for (int i = 0; i < kHolders; ++i) REQUIRE(holders[static_cast<size_t>(i)].text() == std::to_string(i));
  holders.clear();
  CHECK(cluster.metric("n0", "fluxon_owner_ring_holds") == 0);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_directory_slots", "retired") == 0; }));
}
