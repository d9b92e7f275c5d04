// Deaths, stops and restarts: any process at any moment, nothing wrong and nothing leaked.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cluster.h"

using namespace fluxon::test;

namespace {

// Nothing of any put or holder is left.
bool atRest(const Cluster& cluster, const std::string& node = "n0") {
  return cluster.metric("master", "fluxon_master_puts_inflight") == 0 &&
         cluster.metric("master", "fluxon_master_segment_inflight_bytes") == 0 &&
         cluster.metric("master", "fluxon_master_segment_retired_bytes") == 0 && cluster.metric(node, "fluxon_owner_grants") == 0 &&
         cluster.metric(node, "fluxon_owner_directory_slots", "granted") == 0 &&
         cluster.metric(node, "fluxon_owner_directory_slots", "retired") == 0 && cluster.metric(node, "fluxon_owner_ring_holds") == 0;
}

// Shuts the stream socket that `from` has to the process `to`. False: not permitted.
bool breakConnection(pid_t from, pid_t to) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, from, 0));
  bool broken = false;
  for (int number = 3; process >= 0 && number < 64; ++number) {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_getfd, process, number, 0));
    ucred peer{};
    socklen_t length = sizeof peer;
    if (fd >= 0 && ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == to) {
      broken |= ::shutdown(fd, SHUT_RDWR) == 0;
    }
    ::close(fd);
  }
  ::close(process);
  return broken;
}

[[noreturn]] void dieNow() {
  ::kill(::getpid(), SIGKILL);
  ::_exit(1);
}

}  // namespace

TEST_CASE("a client killed at any step of a put leaves nothing behind, and its key can be put again") {
  Cluster cluster;
  auto client = cluster.client();
  const fluxon::PutOptions alone{.onInFlight = fluxon::OnInFlight::reject};
  const std::string value = valueOf(4, 1 << 20);
  for (const std::string step : {"attached", "granted", "half", "filled", "committed", "inline", "holding"}) {
    CAPTURE(step);
    int reached[2];
    REQUIRE(::pipe(reached) == 0);
    const pid_t child = inChild([&] {
      auto mine = cluster.client();
      const auto at = [&](const std::string& here) {
        if (step != here) return;
        [[maybe_unused]] const ssize_t told = ::write(reached[1], "x", 1);
        ::pause();
      };
      at("attached");
      if (step == "inline") mine.put("key", "small", alone), at("inline");
      if (step == "holding") {
        mine.put("key", value);
        const auto holder = mine.get("key");
        at("holding");
      }
      auto grant = mine.putStart("key", value.size(), alone);
      if (!grant) return 3;
      at("granted");
      std::memcpy(grant->bytes().data(), value.data(), value.size() / 2);
      at("half");
      std::memcpy(grant->bytes().data(), value.data(), value.size());
      at("filled");
      std::move(*grant).commit();
      at("committed");
      return 4;
    });
    char byte;
    REQUIRE(::read(reached[0], &byte, 1) == 1);
    ::close(reached[0]);
    ::close(reached[1]);
    const bool open = step == "granted" || step == "half" || step == "filled";
    if (open) CHECK(client.put("key", "x", alone).outcome == fluxon::PutOutcome::inFlight);
    ::kill(child, SIGKILL);
    CHECK(waitFor(child) == -SIGKILL);
    CHECK(eventually([&] { return bool(client.put("key", "again " + step, alone)); }));
    CHECK(client.get("key")->text() == "again " + step);
    client.remove("key");
    CHECK(eventually([&] { return atRest(cluster); }));
  }
}

TEST_CASE("clients killed at random moments of puts and gets leave nothing behind") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  const int rounds = std::getenv("FLUXON_LONG") ? 200 : 20;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = inChild([&] {
      auto mine = cluster.client(round % 2 ? "n0" : "n1");
      for (uint64_t i = 0;; ++i) {
        const std::string key = "k" + std::to_string(i % 10);
        mine.put(key, valueOf(i, (i * 9973) % 300'000));
        const auto one = mine.get(key), two = mine.get("k" + std::to_string((i + 5) % 10));
      }
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + round % 7 * 13));
    ::kill(child, SIGKILL);
    CHECK(waitFor(child) == -SIGKILL);
  }
  CHECK(eventually([&] { return atRest(cluster, "n0") && atRest(cluster, "n1"); }, 20));
  auto client = cluster.client("n0");
  client.list("", "", 0, [&](const fluxon::ListedKey& entry) { return client.exists(entry.key); });
  CHECK(bool(client.put("k0", "still works")));
}

TEST_CASE("a late commit of a put whose writer was taken for dead is refused") {
  Cluster cluster;
  auto client = cluster.client();
  auto grant = client.putStart("key", 100'000);
  REQUIRE(grant);
  cluster.kill("master");
  cluster.start("master");
  // The owner has joined the new term: the put belongs to the old one.
  CHECK(eventually(
      [&] { return cluster.metric("n0", "fluxon_owner_rejoins_total") == 1 && cluster.metric("n0", "fluxon_owner_serving") == 1; }));
  const fluxon_code code = codeOf([&] { std::move(*grant).commit(); });
  CHECK((code == FLUXON_TERM_CHANGED || code == FLUXON_UNAVAILABLE));
  CHECK(eventually([&] { return codeOf([&] { client.get("key"); }) == FLUXON_OK; }));
  CHECK_FALSE(client.get("key"));
  CHECK(eventually([&] { return atRest(cluster); }));
}

TEST_CASE("a put that begins while there is no master waits for the next one, at most until its deadline") {
  Cluster cluster;
  auto client = cluster.client();
  cluster.kill("master");
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_serving") == 0; }));
  CHECK(codeOf([&] { client.put("late", valueOf(1, 100'000), {.timeoutMs = 300}); }) == FLUXON_UNAVAILABLE);
  std::jthread put([&] { CHECK(codeOf([&] { client.put("key", valueOf(2, 100'000), {.timeoutMs = 30'000}); }) == FLUXON_OK); });
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_puts_total") == 2; }));
  cluster.start("master");
  put.join();
  CHECK(client.get("key")->text() == valueOf(2, 100'000));
}

TEST_CASE("SIGTERM under load: every daemon exits with 0 within five seconds, and an owner's values wait for its next life") {
  for (const std::string victim : {"n0", "master"}) {
    CAPTURE(victim);
    Cluster cluster;
    std::atomic<bool> stop{false};
    std::vector<std::thread> load;
    auto client = cluster.client();
    std::atomic<int> done[64] = {};
    for (int i = 0; i < 64; ++i) {
      load.emplace_back([&, i] {
        const std::string value = valueOf(static_cast<uint64_t>(i), 100'000);
        while (!stop) {
          done[i] += codeOf([&] { client.put("k" + std::to_string(i), value, {.timeoutMs = 2000}); }) == FLUXON_OK;
        }
      });
    }
    CHECK(eventually([&] { return std::all_of(std::begin(done), std::end(done), [](const auto& n) { return n > 1; }); }, 30));
    const auto asked = std::chrono::steady_clock::now();
    cluster.signal(victim, SIGTERM);
    CHECK(cluster.wait(victim) == 0);
    CHECK(std::chrono::steady_clock::now() - asked < std::chrono::seconds(5));
    stop = true;
    for (std::thread& thread : load) thread.join();
    if (victim == "n0") {
      CHECK_FALSE(std::filesystem::exists(cluster.root() + "/t/n0/socket"));
      cluster.start("n0");
      auto next = cluster.client();
      for (int i = 0; i < 64; ++i) {
        const auto holder = next.get("k" + std::to_string(i));
        REQUIRE_MESSAGE(holder, "k", i, ": ", cluster.log("n0"));
        CHECK(holder->text() == valueOf(static_cast<uint64_t>(i), 100'000));
      }
    }
  }
}

TEST_CASE("a stopped master: local hits go on while the lease holds, every other call ends by its deadline") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  cluster.signal("master", SIGSTOP);
  CHECK(client.get("key")->text() == "value");
  const auto begun = std::chrono::steady_clock::now();
  const fluxon_code code = codeOf([&] { client.put("other", "x", {.timeoutMs = 3000}); });
  CHECK((code == FLUXON_OUTCOME_UNKNOWN || code == FLUXON_UNAVAILABLE));
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(3500));
  CHECK(eventually([&] { return codeOf([&] { client.get("key", 1000); }) == FLUXON_UNAVAILABLE; }));
  cluster.signal("master", SIGCONT);
  CHECK(eventually([&] { return codeOf([&] { client.put("after", "x"); }) == FLUXON_OK; }));
  CHECK(eventually([&] { return atRest(cluster); }));
}

TEST_CASE("a master that dies comes back in a new term: the owners' values are served again, and puts work") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  for (int i = 0; i < 100; ++i) (i % 2 ? zero : one).put("k" + std::to_string(i), valueOf(static_cast<uint64_t>(i), 10'000));
  const auto held = zero.get("k1");
  for (int round = 0; round < 3; ++round) {
    cluster.kill("master");
    cluster.start("master");
    CHECK(eventually([&] { return codeOf([&] { zero.put("again", "x", {.timeoutMs = 2000}); }) == FLUXON_OK; }));
    CHECK(eventually([&] { return codeOf([&] { one.put("again", "y", {.timeoutMs = 2000}); }) == FLUXON_OK; }));
    for (int i = 0; i < 100; ++i) {
      const auto holder = zero.get("k" + std::to_string(i));
      REQUIRE(holder);
      CHECK(holder->text() == valueOf(static_cast<uint64_t>(i), 10'000));
    }
    CHECK(held->text() == valueOf(1, 10'000));
    CHECK(zero.get("again")->text() == "y");
    for (int i = 0; i < 100; ++i) zero.put("k" + std::to_string(i), valueOf(static_cast<uint64_t>(i), 10'000));
  }
}

TEST_CASE("an owner that is killed: its keys are misses within the lease, no call hangs, and it comes back with them") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  zero.put("on zero", valueOf(1, 100'000));
  one.put("on one", valueOf(2, 100'000));
  REQUIRE(one.get("on zero"));
  const auto held = one.get("on zero");
  cluster.kill("n0");
  CHECK(eventually(
      [&] {
        try {
          return !one.get("on zero", 1000);
        } catch (const fluxon::Exception&) {
          return false;
        }
      },
      5));
  CHECK(held->text() == valueOf(1, 100'000));
  CHECK(codeOf([&] { zero.get("on one", 1000); }) == FLUXON_UNAVAILABLE);
  CHECK(one.get("on one")->text() == valueOf(2, 100'000));
  cluster.start("n0");
  CHECK(zero.get("on zero")->text() == valueOf(1, 100'000));
  CHECK(cluster.metric("n0", "fluxon_owner_adopted_total") == 1);
  zero.put("on zero", "anew");
  CHECK(one.get("on zero")->text() == "anew");
  CHECK(zero.get("on one")->text() == valueOf(2, 100'000));
  CHECK(held->text() == valueOf(1, 100'000));
}

TEST_CASE("an owner stopped past its lease and continued serves nothing old") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  zero.put("key", "old");
  REQUIRE(zero.get("key"));
  const auto held = zero.get("key");
  cluster.signal("n0", SIGSTOP);
  // The overwrite waits until the stopped owner certainly serves nothing any more.
  const auto begun = std::chrono::steady_clock::now();
  CHECK(eventually([&] { return codeOf([&] { one.put("key", "new", {.timeoutMs = 5000}); }) == FLUXON_OK; }));
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(4));
  CHECK(codeOf([&] { zero.get("key", 200); }) != FLUXON_OK);
  cluster.signal("n0", SIGCONT);
  CHECK(eventually([&] {
    try {
      const auto now = zero.get("key", 1000);
      if (now) CHECK(now->text() == "new");
      return bool(now);
    } catch (const fluxon::Exception&) {
      return false;
    }
  }));
  CHECK(held->text() == "old");
  CHECK(cluster.metric("n0", "fluxon_owner_rejoins_total") >= 1);
}

TEST_CASE("an order that a stopped owner has not heard reaches it over a new connection") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  for (int round = 0; round < 5; ++round) {
    zero.put("key", "old");
    cluster.signal("n0", SIGSTOP);
    std::jthread overwrite([&] { CHECK(codeOf([&] { one.put("key", "new", {.timeoutMs = 8000}); }) == FLUXON_OK); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    // The owner finds the connection dead when it goes on, within its lease.
    if (!breakConnection(cluster.pid("master"), cluster.pid("n0"))) {
      MESSAGE("SKIPPED: this process may not take the master's descriptors");
      cluster.signal("n0", SIGCONT);
      overwrite.join();
      return;
    }
    cluster.signal("n0", SIGCONT);
    overwrite.join();
    CHECK(one.get("key")->text() == "new");
    CHECK(zero.get("key")->text() == "new");
  }
  CHECK(eventually([&] { return atRest(cluster, "n0") && atRest(cluster, "n1"); }));
}

TEST_CASE("an owner whose files are removed says which and ends with 71; the next one serves what is left") {
  for (const std::string gone : {"socket", "lock", "directory", "all"}) {
    CAPTURE(gone);
    Cluster cluster;
    auto client = cluster.client();
    client.put("key", "value");
    const std::string node = cluster.root() + "/t/n0";
    if (gone == "all") {
      std::filesystem::remove_all(node);
    } else {
      std::filesystem::remove(node + "/" + gone);
    }
    CHECK(cluster.wait("n0") == 71);
    CHECK(cluster.log("n0").find(node + "/" + (gone == "all" ? "lock" : gone) + " has been removed") != std::string::npos);
    cluster.start("n0");
    auto next = cluster.client();
    const auto holder = next.get("key");
    CHECK(bool(holder) == (gone == "socket" || gone == "lock"));
    CHECK(bool(next.put("key", "anew")));
    CHECK(next.get("key")->text() == "anew");
  }
}

TEST_CASE("an owner whose place another one has taken leaves it alone when it ends") {
  Cluster cluster;
  cluster.client().put("key", "value");
  const pid_t first = cluster.pid("n0");
  ::kill(first, SIGSTOP);
  std::filesystem::remove_all(cluster.root() + "/t/n0");
  cluster.start("n0");
  ::kill(first, SIGCONT);
  CHECK(waitFor(first) == 71);
  auto client = cluster.client();
  CHECK(eventually([&] { return codeOf([&] { client.put("key", "new", {.timeoutMs = 1000}); }) == FLUXON_OK; }));
  CHECK(client.get("key")->text() == "new");
  CHECK(std::filesystem::exists(cluster.root() + "/t/n0/socket"));
}

TEST_CASE("a client's file that is removed beneath it ends the owner, and the next life gives away nothing that the client holds") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", valueOf(1, 100'000));
  const auto holder = client.get("key");
  for (const auto& entry : std::filesystem::directory_iterator(cluster.root() + "/t/n0")) {
    if (entry.path().filename().string().starts_with("client-")) std::filesystem::remove(entry.path());
  }
  CHECK(cluster.wait("n0") == 71);
  cluster.start("n0");
  auto next = cluster.client();
  for (uint64_t i = 0; i < 100; ++i) next.put("k" + std::to_string(i), valueOf(i + 10, 1'000'000));
  CHECK(holder->text() == valueOf(1, 100'000));
}

TEST_CASE("a master whose socket is removed ends with 71; one whose state folder is removed makes it anew, as it was") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  const std::string state = cluster.folder() + "/state";
  REQUIRE(std::filesystem::exists(state + "/state"));
  std::filesystem::remove_all(state);
  CHECK(eventually([&] { return std::filesystem::exists(state + "/state") && std::filesystem::exists(state + "/lock"); }));
  CHECK(cluster.log("master").find(state + "/lock has been removed or replaced") != std::string::npos);
  std::filesystem::remove(state + "/state");
  CHECK(eventually([&] { return std::filesystem::exists(state + "/state"); }));
  CHECK(bool(client.put("other", "value")));
  std::filesystem::remove(cluster.root() + "/t/.master/socket");
  CHECK(cluster.wait("master") == 71);
  CHECK(cluster.log("master").find("/.master/socket has been removed") != std::string::npos);
  cluster.start("master");
  // The same cluster, so the values go on.
  CHECK(eventually([&] { return codeOf([&] { client.put("again", "x", {.timeoutMs = 1000}); }) == FLUXON_OK; }));
  CHECK(cluster.client().get("key")->text() == "value");
  CHECK(cluster.metric("n0", "fluxon_owner_adopted_total") >= 2);
}

TEST_CASE("after a fork the client is the parent's: the child is told so and cannot harm it") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  auto holder = client.get("key");
  auto grant = client.putStart("other", 10);
  const pid_t child = inChild([&] {
    if (codeOf([&] { client.get("key"); }) != FLUXON_FORKED) return 1;
    if (codeOf([&] { client.put("key", "x"); }) != FLUXON_FORKED) return 2;
    holder.reset();
    grant.reset();
    auto own = cluster.client();
    if (own.get("key")->text() != "value") return 3;
    return 0;
  });
  CHECK(waitFor(child) == 0);
  client.put("key", "newer");
  CHECK(holder->text() == "value");
  CHECK(std::move(*grant).commit());
}

TEST_CASE("a client lives on in a forked child that keeps its mapping; its holders end with the last of them") {
  Cluster cluster;
  int go[2];
  REQUIRE(::pipe(go) == 0);
  const pid_t parent = inChild([&] {
    auto client = cluster.client();
    client.put("key", valueOf(1, 100'000));
    auto holder = client.get("key");
    if (::fork() == 0) {
      char byte;
      [[maybe_unused]] const ssize_t told = ::read(go[0], &byte, 1);
      ::_exit(holder->text() == valueOf(1, 100'000) ? 0 : 1);
    }
    dieNow();
    return 0;
  });
  CHECK(waitFor(parent) == -SIGKILL);
  auto client = cluster.client();
  client.put("key", "new");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  CHECK(cluster.metric("n0", "fluxon_owner_clients") == 2);
  CHECK(cluster.metric("n0", "fluxon_owner_directory_slots", "retired") == 1);
  REQUIRE(::write(go[1], "x", 1) == 1);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_clients") == 1 && atRest(cluster); }));
}
