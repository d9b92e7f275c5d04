// Every kernel buffer is small and every peer is slow, on every channel there is: messages that do not fit, writes that wait, peers that
// read nothing for 100 ms. Nothing is lost, nobody connects anew, and nothing hangs.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cluster.h"

using namespace fluxon::test;

namespace {

constexpr size_t kKeys = 12'000;
constexpr uint32_t kPatient = 60'000;  // ms

void withSmallBuffers() { ::setenv("LD_PRELOAD", FLUXON_SMALL_BUFFERS, 1); }

// Of 400 bytes.
std::string keyOf(size_t i) {
  std::string key = "key-" + std::to_string(i) + "-";
  return key.append(400 - key.size(), 'x');
}

// Stops one process after the other for 100 ms each, until it is destroyed.
class Stutter {
 public:
  explicit Stutter(std::vector<pid_t> pids) : pids_(std::move(pids)), thread_([this] { run(); }) {}
  ~Stutter() {
    end_ = true;
    thread_.join();
  }

 private:
  void run() {
    for (size_t i = 0; !end_; ++i) {
      const pid_t pid = pids_[i % pids_.size()];
      ::kill(pid, SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ::kill(pid, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  }
  std::vector<pid_t> pids_;
  std::atomic<bool> end_{false};
  std::thread thread_;
};

// `call` for each number below `count`, from many threads over a few clients: rings and connections are full of requests.
void inParallel(std::vector<fluxon::Client>& clients, size_t count, const std::function<void(fluxon::Client&, size_t)>& call) {
  std::atomic<size_t> next{0}, failed{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 256; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (size_t n; (n = next++) < count;) call(clients[t % clients.size()], n);
      } catch (const std::exception& error) {
        ++failed;
        MESSAGE(std::string(error.what()));
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(failed == 0);
}

void put(fluxon::Client& client, size_t n) { client.put(keyOf(n), "v" + std::to_string(n), {.timeoutMs = kPatient}); }

std::string ctl(const std::string& config) {
  return "LD_PRELOAD=" FLUXON_SMALL_BUFFERS " " FLUXON_BIN "/fluxonctl --config " + config + " --timeout 60 ";
}

std::vector<fluxon::Client> clientsOf(const Cluster& cluster, const std::string& node) {
  std::vector<fluxon::Client> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(cluster.client(node));
  return clients;
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A page, of which a little is taken at a time.
std::string sip(const std::string& address, const std::string& path) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ::inet_pton(AF_INET, address.substr(0, address.rfind(':')).c_str(), &to.sin_addr);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int few = 2048;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
  REQUIRE(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  REQUIRE(::write(socket, request.data(), request.size()) == static_cast<ssize_t>(request.size()));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::string text;
  char buffer[1024];
  for (ssize_t n; (n = ::read(socket, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::close(socket);
  return text;
}

size_t listed(fluxon::Client& client) {
  size_t count = 0;
  std::string after;
  for (bool more = true; more;) {
    more = false;
    client.list(
        "key-", after, 0,
        [&](const fluxon::ListedKey& key) {
          ++count;
          after = key.key;
          more = true;
          return true;
        },
        kPatient);
  }
  return count;
}

}  // namespace

TEST_CASE("slow peers: on one host, 12,000 keys of 400 bytes are put, listed, and kept over a master that is killed") {
#ifdef FLUXON_SANITIZED
  MESSAGE("SKIPPED: (machine) a sanitizer wants to be loaded first");
  return;
#endif
  Cluster cluster({.nodes = {}, .owner = "segment_size = \"128MiB\"\n", .leaseMs = 5000});
  cluster.kill("master");
  cluster.start("master", withSmallBuffers);
  cluster.start("n0", withSmallBuffers);
  cluster.start("n1", withSmallBuffers);
  const auto connections = [&](const char* node) { return cluster.metric(node, "fluxon_owner_master_connections_total"); };
  {
    std::vector<fluxon::Client> clients = clientsOf(cluster, "n0");
    const Stutter stutter({cluster.pid("master"), cluster.pid("n0"), cluster.pid("n1")});
    inParallel(clients, kKeys, put);
    CHECK(clients[0].countPrefix("key-", kPatient) == kKeys);
    CHECK(listed(clients[1]) == kKeys);
    for (const std::string process : {"master", "n0"}) {
      const std::string page = sip(cluster.pages(process), "/metrics");
      CHECK(page.size() > 4096);
      CHECK(page.ends_with('\n'));
    }
    const Ended routes = execute(ctl(cluster.config()) + "routes");
    CHECK(routes.status == 0);
    CHECK(occurrences(routes.out, "key-") == kKeys);
    const Ended list = execute(ctl(cluster.config()) + "list");
    CHECK(list.status == 0);
    CHECK(occurrences(list.out, "key-") == kKeys);
  }
  CHECK(connections("n0") == 1);
  CHECK(connections("n1") == 1);
  CHECK(occurrences(cluster.log("master"), "is lost") == 0);

  cluster.kill("master");
  cluster.start("master", withSmallBuffers);
  {
    const Stutter stutter({cluster.pid("n0"), cluster.pid("master")});
    CHECK(eventually([&] { return cluster.metric("master", "fluxon_master_recovering") == 0; }, 60));
  }
  CHECK(cluster.metric("master", "fluxon_master_inventory_taken_total") == kKeys);
  CHECK(cluster.metric("master", "fluxon_master_inventory_refused_total") == 0);
  CHECK(cluster.metric("master", "fluxon_master_keys") == kKeys);
  CHECK(connections("n0") == 2);
  CHECK(occurrences(cluster.log("master"), "is lost") == 0);
  fluxon::Client client = cluster.client("n1");
  for (size_t n = 0; n < kKeys; n += 997) {
    const auto holder = client.get(keyOf(n), kPatient);
    REQUIRE(holder);
    CHECK(holder->text() == "v" + std::to_string(n));
  }
}

TEST_CASE("slow peers: between hosts, requests and values go by tcp with windows of a few KiB") {
#ifdef FLUXON_SANITIZED
  MESSAGE("SKIPPED: (machine) a sanitizer wants to be loaded first");
  return;
#endif
  const std::string linked = "segment_size = \"128MiB\"\nlink = \"127.0.0.1:0\"\n";
  Cluster cluster({.nodes = {}, .owner = linked, .master = "listen = \"127.0.0.1:0\"\n", .leaseMs = 5000});
  cluster.kill("master");
  cluster.start("master", withSmallBuffers);
  cluster.start("n0", withSmallBuffers);
  // Another root stands for another host.
  Place there;
  const std::string config = there.configure(linked, "", "", "master = \"" + cluster.listens() + "\"\n");
  const pid_t far = inChild([&] {
    withSmallBuffers();
    if (!::freopen((there.folder() + "/far.log").c_str(), "w", stderr)) return 126;
    ::execl(FLUXON_BIN "/fluxon-owner", "fluxon-owner", "--config", config.c_str(), "--node", "far", nullptr);
    return 127;
  });
  fluxon::ConnectOptions options;
  options.cluster = "t";
  options.node = "far";
  options.shmRoot = there.root();
  REQUIRE(eventually([&] { return codeOf([&] { fluxon::Client(options).countPrefix(""); }) == FLUXON_OK; }, 20));
  {
    std::vector<fluxon::Client> here = clientsOf(cluster, "n0"), elsewhere;
    for (int i = 0; i < 4; ++i) elsewhere.emplace_back(options);
    const Stutter stutter({cluster.pid("master"), cluster.pid("n0"), far});
    // Thousands of requests by tcp, and values that come by the link.
    inParallel(elsewhere, 4000, put);
    CHECK(listed(elsewhere[0]) == 4000);
    inParallel(here, 500, [](fluxon::Client& client, size_t n) {
      const auto holder = client.get(keyOf(n), kPatient);
      if (!holder || holder->text() != "v" + std::to_string(n)) throw std::runtime_error("a value is not what it was");
    });
    const std::string large = valueOf(1, 4 << 20);
    here[0].put("large", large, {.timeoutMs = kPatient});
    const auto holder = elsewhere[0].get("large", kPatient);
    REQUIRE(holder);
    CHECK(holder->text() == large);
    const Ended routes = execute(ctl(config) + "routes");
    CHECK(routes.status == 0);
    CHECK(occurrences(routes.out, "key-") == 4000);
  }
  CHECK(cluster.metric("n0", "fluxon_owner_master_connections_total") == 1);
  CHECK(occurrences(cluster.log("master"), "is lost") == 0);
  CHECK(cluster.metric("master", "fluxon_master_owners_fenced_total") == 0);
  ::kill(far, SIGKILL);
  waitFor(far);
}
