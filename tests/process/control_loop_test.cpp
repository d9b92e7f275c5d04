// The control loops of the daemons: whatever there is to do, they look at their sockets in time, and no peer keeps others out.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "cluster.h"
#include "texts.h"

using namespace fluxon::test;

namespace {

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Threads that call something until they are told to stop. What they throw fails the test.
class Crowd {
 public:
  Crowd(size_t threads, const std::function<void(size_t thread)>& call) {
    for (size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i, call] {
        try {
          for (; !stop_; ++calls_) call(i);
        } catch (const std::exception& error) {
          ++failed_;
          MESSAGE(std::string(error.what()));
        }
      });
    }
  }
  ~Crowd() { end(); }
  void end() {
    stop_ = true;
    for (std::thread& each : threads_) {
      if (each.joinable()) each.join();
    }
  }
  uint64_t calls() const { return calls_; }
  uint64_t failed() const { return failed_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> calls_{0}, failed_{0};
  std::vector<std::thread> threads_;
};

void putMany(const Cluster& cluster, size_t keys) {
  fluxon::Client client = cluster.client();
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      for (size_t n; (n = next++) < keys;) client.put("key-" + std::to_string(n), "v", {.timeoutMs = 60'000});
    });
  }
  for (std::thread& each : threads) each.join();
}

// The longest that a page of the process took, over some time.
double slowestPage(const std::string& address, double seconds) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto end = now() + std::chrono::duration<double>(seconds);
  double slowest = 0;
  while (now() < end) {
    const auto begun = now();
    CHECK_FALSE(httpGet(address, "/health").empty());
    slowest = std::max(slowest, std::chrono::duration<double>(now() - begun).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return slowest;
}

// `from`: the address that they come from.
std::vector<int> idleConnections(const std::string& address, int count, const char* from = "127.0.0.1") {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ::inet_pton(AF_INET, address.substr(0, address.rfind(':')).c_str(), &to.sin_addr);
  std::vector<int> sockets;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &here.sin_addr);
    CHECK(::bind(sockets.back(), reinterpret_cast<sockaddr*>(&here), sizeof here) == 0);
    CHECK(::connect(sockets.back(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  return sockets;
}

size_t descriptorsOf(pid_t pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// The new process may not call io_uring_enter.
void refuseUringEnter() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(126);
}

}  // namespace

TEST_CASE("control loop: 400 calls that count without end fence nobody, and the master's pages answer meanwhile") {
  Cluster cluster({.owner = "segment_size = \"256MiB\"\n"});
  putMany(cluster, 20'000);
  std::vector<fluxon::Client> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(cluster.client());
  Crowd crowd(400, [&](size_t i) {
    if (clients[i % 4].countPrefix("", 120'000) != 20'000) throw std::runtime_error("keys are lost");
  });
  CHECK(slowestPage(cluster.pages("master"), 4) < 1);
  CHECK(cluster.metric("master", "fluxon_master_owners_fenced_total") == 0);
  crowd.end();
  CHECK(crowd.calls() > 0);
  CHECK(crowd.failed() == 0);
  CHECK(cluster.metric("master", "fluxon_master_keys") == 20'000);
}

TEST_CASE("control loop: routes that are forgotten leave in slices, and the other owners go on") {
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"256MiB\"\n"});
  putMany(cluster, 20'000);
  cluster.kill("n0");
  std::string output;
  REQUIRE(eventually([&] { return cluster.metric("master", "fluxon_master_owners_fenced_total") == 1; }));
  REQUIRE(run(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " drain n0", output) == 0);
  CHECK(slowestPage(cluster.pages("master"), 1) < 0.5);
  CHECK(eventually([&] { return cluster.metric("master", "fluxon_master_keys") == 0; }));
  CHECK(cluster.metric("n1", "fluxon_owner_serving") == 1);
  CHECK(cluster.metric("master", "fluxon_master_owners_fenced_total") == 1);
}

TEST_CASE("control loop: clients that ask their owner without a pause do not keep it from its heartbeats") {
  Cluster cluster;
  constexpr size_t kThreads = 24;
  std::vector<fluxon::Client> clients;
  for (size_t i = 0; i < kThreads; ++i) clients.push_back(cluster.client());
  clients[0].put("k", "v");
  Crowd crowd(kThreads, [&](size_t i) {
    if (!clients[i].exists("k", 60'000)) throw std::runtime_error("the value is gone");
  });
  CHECK(slowestPage(cluster.pages("n0"), 3) < 1);
  crowd.end();
  CHECK(crowd.failed() == 0);
  CHECK(cluster.metric("master", "fluxon_master_owners_fenced_total") == 0);
  CHECK(cluster.metric("n0", "fluxon_owner_serving") == 1);
}

TEST_CASE("control loop: its longest turn is shown, since the last look and since the start") {
  Cluster cluster;
  for (const std::string process : {"master", "owner"}) {
    const std::string from = process == "owner" ? "n0" : process, name = "fluxon_" + process + "_loop_longest";
    REQUIRE(cluster.metric(from, name + "_ever_seconds") >= cluster.metric(from, name + "_busy_seconds"));
    cluster.signal(from, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    cluster.signal(from, SIGCONT);
    // A stop is no work: it shows if it has met the loop on its way.
    CHECK(cluster.metric(from, name + "_busy_seconds") < 0.5);
    cluster.metric(from, name + "_seconds");
    CHECK(cluster.metric(from, name + "_seconds") < 0.5);
    CHECK(cluster.metric(from, name + "_ever_seconds") >= cluster.metric(from, name + "_seconds"));
  }
}

TEST_CASE("http: hundreds of idle connections cost a few descriptors, and keep out no client, operator or scraper") {
  Cluster cluster;
  std::vector<int> sockets;
  for (const std::string process : {"master", "n0"}) {
    const size_t before = descriptorsOf(cluster.pid(process));
    const std::vector<int> more = idleConnections(cluster.pages(process), 400);
    sockets.insert(sockets.end(), more.begin(), more.end());
    CHECK(has(httpGet(cluster.pages(process), "/metrics"), "fluxon_"));
    CHECK(descriptorsOf(cluster.pid(process)) <= before + 33);
  }
  cluster.client().put("k", "v");
  std::string output;
  CHECK(run(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " --timeout 5 status", output) == 0);
  cluster.start("n1");  // joins, which is durable
  for (const int socket : sockets) ::close(socket);
}

TEST_CASE("http: a query, a fragment and a last slash change nothing, and / lists the pages") {
  Cluster cluster({.nodes = {}});
  const std::string address = cluster.pages("master");
  for (const char* path : {"/metrics", "/metrics?", "/metrics?x=1", "/metrics/", "/metrics/?a=/b", "/metrics#top"}) {
    CAPTURE(path);
    CHECK(has(httpGet(address, path), "fluxon_master_term"));
  }
  for (const char* path : {"/health?verbose", "/health/"}) CHECK(has(httpGet(address, path), "\"healthy\":true"));
  CHECK(httpGet(address, "/") == "/health\n/metrics\n");
  CHECK(httpGet(address, "/?x") == "/health\n/metrics\n");
  for (const char* path : {"/metric", "/metrics/x", "/healthz"}) CHECK(httpGet(address, path) == "Not Found");
}

TEST_CASE("tcp: openings without end from one address end none of another, and leave the oldest of their own no time") {
  Cluster cluster({.nodes = {}, .master = "listen = \"127.0.0.1:0\"\n"});
  const auto ended = [](int socket, int ms) {
    pollfd waiting{socket, POLLIN, 0};
    char byte;
    return ::poll(&waiting, 1, ms) == 1 && ::recv(socket, &byte, 1, MSG_DONTWAIT) <= 0;
  };
  std::vector<int> sockets = idleConnections(cluster.listens(), 1, "127.0.0.2");
  const std::vector<int> flood = idleConnections(cluster.listens(), 300);
  CHECK(ended(flood.front(), 2000));
  CHECK(eventually([&] { return cluster.metric("master", "fluxon_master_connections_refused_total") >= 300 - 32; }, 4));
  CHECK_FALSE(ended(sockets.front(), 0));
  CHECK_FALSE(ended(flood.back(), 0));
  sockets.insert(sockets.end(), flood.begin(), flood.end());
  for (const int socket : sockets) ::close(socket);
}

TEST_CASE("join: an owner whose name lives on another host is refused with where that is, for its clients too, and said once") {
  Cluster cluster({.master = "listen = \"127.0.0.1:0\"\n"});
  // Another root stands for another host.
  Place there;
  const std::string config = there.configure("", "", "", "master = \"" + cluster.listens() + "\"\n");
  const pid_t owner = inChild([&] {
    if (!::freopen((there.folder() + "/log").c_str(), "w", stderr)) return 126;
    ::execl(FLUXON_BIN "/fluxon-owner", "fluxon-owner", "--config", config.c_str(), nullptr);
    return 127;
  });
  CHECK(eventually([&] { return cluster.metric("master", "fluxon_master_joins_refused_total") >= 4; }, 20));
  const std::string log = cluster.log("master"),
                    refusal = "node n0 is alive on the master's host (pid " + std::to_string(cluster.pid("n0")) + ", since 20";
  CHECK(occurrences(log, "may not join") == 1);
  CHECK(has(log, "node n0 on 127.0.0.1 (pid " + std::to_string(owner) + ") may not join: service unavailable: " + refusal));
  CHECK(has(log, "; give this one another owner.node"));
  const Ended put = execute("echo v | " FLUXON_BIN "/fluxonctl --config " + config + " --timeout 1 put k");
  CHECK(put.status == 69);
  CHECK(has(put.err, "no serving lease: service unavailable: " + refusal));
  const Ended logged = execute("cat " + there.folder() + "/log");
  CHECK(occurrences(logged.out, refusal) == 1);
  ::kill(owner, SIGKILL);
  waitFor(owner);
}

TEST_CASE("link: an owner listens on an IPv6 address") {
  Cluster cluster({.owner = "segment_size = \"16MiB\"\nlink = \"[::1]:0\"\n"});
  std::string output;
  CHECK(run(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " members --json", output) == 0);
  CHECK(has(output, "[::1]:"));
  for (const char* verb : {"status", "members --wide"}) {
    CHECK(run(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " " + verb, output) == 0);
    CHECK_MESSAGE(has(output, "[::1]:"), output);
    CHECK(has(output, " LINK "));
  }
}

TEST_CASE("link: a kernel that lets a ring be made and refuses its use is served by poll(), which is said once and shown") {
  Cluster cluster({.nodes = {}, .owner = "segment_size = \"16MiB\"\nlink = \"127.0.0.1:0\"\n"});
  cluster.start("n0", refuseUringEnter);
  CHECK(cluster.metric("n0", "fluxon_owner_link_engine", "engine=\"poll\"") == 1);
  CHECK(occurrences(cluster.log("n0"), "io_uring is refused (Operation not permitted): poll() serves") == 1);
  CHECK(occurrences(cluster.log("n0"), "poll()") == 1);
}
