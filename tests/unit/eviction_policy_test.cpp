// The eviction order of the master, by what it proposes; no traces here, bench/eviction_traces.cpp measures hit ratios.
#include "eviction_policy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

using fluxon::master::EvictionPolicy;
using Id = EvictionPolicy::Id;
using Redundancy = EvictionPolicy::Redundancy;

namespace {

constexpr std::uint64_t kPage = 4096;

// A pool of 100 pages whose key hashes equal the ids.
struct Pool {
  EvictionPolicy policy{100 * kPage};

  void insert(Id from, Id to) {
    for (Id id = from; id < to; ++id) policy.insert(id, id, kPage);
  }
  Id evict() {
    const std::optional<Id> victim = policy.nextVictim();
    REQUIRE(victim.has_value());
    policy.evicted(*victim);
    return *victim;
  }
  std::vector<Id> evictAll() {
    std::vector<Id> order;
    while (policy.size() > 0) order.push_back(evict());
    return order;
  }
  // The cache at work: makes room first, then admits.
  void put(Id id) {
    while (policy.bytes() + kPage > 100 * kPage) evict();
    policy.insert(id, id, kPage);
  }
};

// Whether `first` was evicted before `second`.
bool goesBefore(const std::vector<Id>& order, Id first, Id second) {
  return std::find(order.begin(), order.end(), first) < std::find(order.begin(), order.end(), second);
}

}  // namespace

TEST_CASE("eviction: an empty policy proposes nothing") {
  Pool pool;
  CHECK_FALSE(pool.policy.nextVictim().has_value());
  CHECK(pool.policy.size() == 0);
  CHECK(pool.policy.bytes() == 0);
}

TEST_CASE("eviction: untouched replicas go in the order they came") {
  Pool pool;
  pool.insert(0, 50);
  const std::vector<Id> order = pool.evictAll();
  for (Id id = 0; id < 50; ++id) CHECK(order[id] == id);
}

TEST_CASE("eviction: a touched replica outlives untouched ones that came later") {
  Pool pool;
  pool.insert(0, 50);
  pool.policy.touch(0);
  const std::vector<Id> order = pool.evictAll();
  CHECK(order.front() == 1);
  CHECK(goesBefore(order, 45, 0));
}

TEST_CASE("eviction: a prefix touched tail first loses its tail before its head") {
  Pool pool;
  for (Id block = 10; block-- > 0;) pool.policy.insert(block, block, kPage);  // block 0 is the head
  CHECK(pool.evict() == 9);
  CHECK(pool.evict() == 8);
}

TEST_CASE("eviction: the replica inserted last is spared while another is left") {
  Pool pool;
  pool.insert(0, 1);
  pool.evict();
  pool.insert(1, 2);
  pool.policy.touch(1);
  pool.policy.insert(0, 0, kPage);  // returns, so it starts among the reused
  CHECK(pool.evict() == 1);
  CHECK(pool.evict() == 0);
}

TEST_CASE("eviction: a key that returns after eviction counts as reused") {
  Pool pool;
  pool.insert(0, 50);
  CHECK(pool.evict() == 0);
  pool.policy.insert(1000, 0, kPage);  // another replica id, the same key
  pool.insert(50, 90);
  const std::vector<Id> order = pool.evictAll();
  CHECK(goesBefore(order, 70, 1000));
}

TEST_CASE("eviction: a removed replica leaves no ghost") {
  Pool pool;
  pool.insert(0, 50);
  pool.policy.remove(0);
  CHECK(pool.policy.ghosts() == 0);
  pool.policy.insert(1000, 0, kPage);
  pool.insert(50, 60);
  const std::vector<Id> order = pool.evictAll();
  CHECK(goesBefore(order, 1000, 50));
}

TEST_CASE("eviction: a candidate is not proposed again until its owner answers") {
  Pool pool;
  pool.insert(0, 3);
  CHECK(pool.policy.nextVictim() == Id{0});
  CHECK(pool.policy.nextVictim() == Id{1});
  CHECK(pool.policy.nextVictim() == Id{2});
  CHECK_FALSE(pool.policy.nextVictim().has_value());
  CHECK(pool.policy.bytes() == 3 * kPage);
  pool.policy.evicted(1);
  CHECK(pool.policy.bytes() == 2 * kPage);
  pool.policy.busy(2);
  CHECK_FALSE(pool.policy.nextVictim().has_value());
  pool.policy.retryBusy();
  CHECK(pool.policy.nextVictim() == Id{2});
}

TEST_CASE("eviction: a busy replica goes behind the others") {
  Pool pool;
  pool.insert(0, 50);
  CHECK(pool.policy.nextVictim() == Id{0});
  pool.policy.busy(0);
  pool.policy.retryBusy();
  CHECK(goesBefore(pool.evictAll(), 45, 0));
}

TEST_CASE("eviction: whoever asks on after busy ones comes through all replicas once, the one inserted last too") {
  Pool pool;
  pool.insert(0, 50);
  std::set<Id> asked;
  while (const auto victim = pool.policy.nextVictim()) {
    CHECK(asked.insert(*victim).second);
    pool.policy.busy(*victim);
  }
  CHECK(asked.size() == 50);
  CHECK(pool.policy.bytes() == 50 * kPage);
  pool.policy.remove(7);
  pool.policy.retryBusy();
  CHECK(pool.evictAll().size() == 49);
}

TEST_CASE("eviction: one that is named is proposed out of its turn, unless it is a candidate or set aside") {
  Pool pool;
  pool.insert(0, 50);
  CHECK(pool.policy.propose(30));
  CHECK_FALSE(pool.policy.propose(30));
  pool.policy.busy(30);
  CHECK_FALSE(pool.policy.propose(30));
  CHECK_FALSE(pool.policy.propose(77));
  pool.policy.retryBusy();
  CHECK(pool.policy.propose(30));
  CHECK(pool.policy.nextVictim() == Id{0});
}

TEST_CASE("eviction: a touch does not take a candidate back") {
  Pool pool;
  pool.insert(0, 2);
  CHECK(pool.policy.nextVictim() == Id{0});
  pool.policy.touch(0);
  CHECK(pool.policy.nextVictim() == Id{1});
  CHECK_FALSE(pool.policy.nextVictim().has_value());
}

TEST_CASE("eviction: a redundant replica near the end goes before the only copy at the end") {
  Pool pool;
  pool.insert(0, 50);
  pool.policy.setRedundancy(3, Redundancy::HasOtherCopy);
  CHECK(pool.evict() == 3);
  CHECK(pool.evict() == 0);
}

TEST_CASE("eviction: a redundant replica far from the end waits its turn") {
  Pool pool;
  pool.insert(0, 50);
  pool.policy.setRedundancy(40, Redundancy::HasOtherCopy);
  CHECK(pool.evict() == 0);
}

TEST_CASE("eviction: a redundant replica that was touched keeps its further turn") {
  Pool pool;
  pool.insert(0, 50);
  pool.policy.setRedundancy(3, Redundancy::HasOtherCopy);
  pool.policy.touch(3);
  CHECK(pool.evict() == 0);
}

TEST_CASE("eviction: the replica inserted last is spared even when redundant") {
  Pool pool;
  pool.insert(0, 2);
  pool.policy.setRedundancy(1, Redundancy::HasOtherCopy);
  CHECK(pool.evict() == 0);
}

TEST_CASE("eviction: ids that are not present are ignored") {
  Pool pool;
  pool.insert(0, 2);
  pool.policy.touch(7);
  pool.policy.remove(7);
  pool.policy.evicted(7);
  pool.policy.busy(7);
  pool.policy.busy(1);  // present, but no candidate
  pool.policy.setRedundancy(7, Redundancy::HasOtherCopy);
  CHECK(pool.policy.size() == 2);
  CHECK(pool.evict() == 0);
}

TEST_CASE("eviction: an id inserted again replaces the first") {
  Pool pool;
  pool.policy.insert(1, 1, 10);
  pool.policy.insert(1, 1, 30);
  CHECK(pool.policy.size() == 1);
  CHECK(pool.policy.bytes() == 30);
}

TEST_CASE("eviction: a working set read again survives a scan of many times the capacity") {
  Pool pool;
  for (int round = 0; round < 3; ++round) {
    for (Id id = 0; id < 40; ++id) round == 0 ? pool.put(id) : pool.policy.touch(id);
  }
  for (Id id = 1000; id < 1150; ++id) pool.put(id);
  std::set<Id> left;
  for (const Id id : pool.evictAll()) left.insert(id);
  for (Id id = 0; id < 40; ++id) CHECK(left.contains(id));
}

TEST_CASE("eviction: keys that return having been used once lower the weight, having been reused they raise it") {
  Pool pool;
  for (Id id = 0; id < 130; ++id) pool.put(id);
  const double before = pool.policy.weight();
  for (Id id = 0; id < 25; ++id) pool.put(id);  // evicted once, never reused
  const double afterOnce = pool.policy.weight();
  CHECK(afterOnce < before);
  std::vector<Id> evictedReused;
  while (pool.policy.size() > 0) {
    const Id id = pool.evict();
    if (id < 25) evictedReused.push_back(id);
    if (evictedReused.size() == 5) break;
  }
  for (const Id id : evictedReused) pool.policy.insert(id, id, kPage);
  CHECK(pool.policy.weight() > afterOnce);
}

TEST_CASE("eviction: hits that come late lower the share retained for long") {
  Pool pool;
  for (Id id = 0; id < 110; ++id) pool.put(id);
  CHECK(pool.policy.retention() == 1.0);
  for (Id id = 15; id < 40; ++id) pool.policy.touch(id);  // the older half of what is left
  const double afterOld = pool.policy.retention();
  CHECK(afterOld < 1.0);
  for (Id id = 90; id < 105; ++id) pool.policy.touch(id);
  CHECK(pool.policy.retention() > afterOld);
}

TEST_CASE("eviction: a smaller capacity trims the ghosts at once") {
  Pool pool;
  for (Id id = 0; id < 300; ++id) pool.put(id);
  CHECK(pool.policy.ghosts() > 50);
  pool.policy.setCapacity(10 * kPage);
  CHECK(pool.policy.ghosts() <= 10);
}

namespace {

// A plain account of what the policy must know: who is live, with how many bytes, and who is a candidate.
struct Model {
  static constexpr std::uint64_t kCapacity = 64 * 1024;
  struct Replica {
    std::uint64_t sizeBytes;
    bool candidate;
    bool busy = false;
  };

  explicit Model(unsigned seed) : random(seed) {}

  std::uint64_t below(std::uint64_t bound) { return random() % bound; }
  Id anyId() { return below(200); }

  void step() {
    const std::uint64_t dice = below(100);
    if (dice < 35) {
      insert(anyId(), 1 + below(2048));
    } else if (dice < 55) {
      policy.touch(anyId());
    } else if (dice < 60) {
      const Id id = anyId();
      policy.remove(id);
      live.erase(id);
    } else if (dice < 80) {
      propose();
    } else if (dice < 90) {
      answer(anyId(), true);
    } else if (dice < 96) {
      answer(anyId(), false);
    } else if (dice < 97) {
      retry();
    } else {
      policy.setRedundancy(anyId(), dice == 97 ? Redundancy::OnlyCopy : Redundancy::HasOtherCopy);
    }
  }

  void insert(Id id, std::uint64_t sizeBytes) {
    policy.insert(id, id % 150, sizeBytes);  // some replicas share a key
    live[id] = {sizeBytes, false, false};
    lastInserted = id;
  }

  void propose() {
    std::size_t proposable = 0;
    for (const auto& [id, replica] : live) proposable += replica.candidate || replica.busy ? 0u : 1u;
    const std::optional<Id> victim = policy.nextVictim();
    REQUIRE(victim.has_value() == (proposable > 0));
    if (!victim) return;
    REQUIRE(live.contains(*victim));
    REQUIRE_FALSE(live[*victim].candidate);
    REQUIRE_FALSE(live[*victim].busy);
    if (proposable > 1) REQUIRE(*victim != lastInserted);
    live[*victim].candidate = true;
  }

  void retry() {
    policy.retryBusy();
    for (auto& [id, replica] : live) replica.busy = false;
  }

  void answer(Id id, bool freed) {
    const auto found = live.find(id);
    if (found == live.end() || !found->second.candidate) return;
    if (freed) {
      policy.evicted(id);
      live.erase(found);
    } else {
      policy.busy(id);
      found->second.candidate = false;
      found->second.busy = true;
    }
  }

  void check() const {
    std::uint64_t bytes = 0;
    for (const auto& [id, replica] : live) bytes += replica.sizeBytes;
    REQUIRE(policy.bytes() == bytes);
    REQUIRE(policy.size() == live.size());
    REQUIRE(policy.ghosts() <= live.size());
  }

  std::mt19937_64 random;
  EvictionPolicy policy{kCapacity};
  std::unordered_map<Id, Replica> live;
  Id lastInserted = 0;
};

}  // namespace

TEST_CASE("eviction: a random history keeps the books, proposes nobody twice and nobody who is gone") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Model model(seed);
    for (int i = 0; i < 5000; ++i) {
      model.step();
      model.check();
    }
    while (model.policy.size() > 0) {
      model.retry();
      model.propose();
      for (Id id = 0; id < 200; ++id) model.answer(id, true);
    }
    model.check();
    REQUIRE(model.policy.ghosts() == 0);
  }
}

TEST_CASE("eviction: one history gives one order of victims") {
  const auto history = [] {
    Model model(7);
    std::vector<Id> victims;
    for (int i = 0; i < 3000; ++i) {
      model.step();
      if (i % 3 != 0) continue;
      if (const auto victim = model.policy.nextVictim()) {
        victims.push_back(*victim);
        model.policy.evicted(*victim);
        model.live.erase(*victim);
      }
    }
    return victims;
  };
  CHECK(history() == history());
}
