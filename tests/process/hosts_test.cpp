// Three hosts: network namespaces with an owner each, joined by a bridge in a fourth; one has the master. The test makes and removes
// them. Clients attach through shared memory, which is no matter of the network.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "cluster.h"
#include "workload.h"

using namespace fluxon::test;
namespace fs = std::filesystem;

namespace {

constexpr int kHosts = 3;
constexpr int kPort = 7450;

// What the test needs of the machine, or why it cannot be.
std::string lacking() {
  if (::geteuid() != 0) return "root";
  std::string output;
  for (const char* tool : {"ip -V", "nft --version", "tc -V"}) {
    if (run(tool, output) != 0) return tool;
  }
  const std::string probe = "fx" + std::to_string(::getpid()) + "p";
  if (run("ip netns add " + probe, output) != 0) return "network namespaces (" + output + ")";
  const bool veth = run("ip -n " + probe + " link add va type veth peer name vb", output) == 0;
  run("ip netns del " + probe, output);
  return veth ? "" : "veth devices (" + output + ")";
}

bool able() {
  static const std::string what = lacking();
  if (!what.empty()) MESSAGE("SKIPPED: no ", what);
  return what.empty();
}

class Network {
 public:
  Network() : prefix_("fx" + std::to_string(::getpid())) {
    must("ip netns add " + hub());
    must("ip -n " + hub() + " link add bridge type bridge");
    must("ip -n " + hub() + " link set bridge up");
    for (int i = 0; i < kHosts; ++i) {
      must("ip netns add " + host(i));
      must("ip -n " + host(i) + " link add eth type veth peer name port" + std::to_string(i) + " netns " + hub());
      must("ip -n " + hub() + " link set port" + std::to_string(i) + " master bridge up");
      must("ip -n " + host(i) + " addr add " + address(i) + "/24 dev eth");
      must("ip -n " + host(i) + " link set eth up");
      must("ip -n " + host(i) + " link set lo up");
    }
  }
  ~Network() {
    std::string output;
    for (int i = 0; i < kHosts; ++i) run("ip netns del " + host(i), output);
    run("ip netns del " + hub(), output);
  }
  std::string host(int i) const { return prefix_ + "h" + std::to_string(i); }
  static std::string address(int i) { return "10.77.0." + std::to_string(i + 1); }
  // The cable of a host.
  void cut(int i) { must("ip -n " + hub() + " link set port" + std::to_string(i) + " down"); }
  void heal(int i) { must("ip -n " + hub() + " link set port" + std::to_string(i) + " up"); }
  // Of what each host receives, this share is lost.
  void lose(int percent) {
    for (int i = 0; i < kHosts; ++i) {
      in(i, "nft add table ip t");
      in(i, "nft add chain ip t in '{ type filter hook input priority 0; }'");
      in(i, "nft add rule ip t in iifname eth numgen random mod 100 '<' " + std::to_string(percent) + " drop");
    }
  }
  void limit(const std::string& rate) {
    for (int i = 0; i < kHosts; ++i) in(i, "tc qdisc add dev eth root tbf rate " + rate + " burst 256kb latency 100ms");
  }

 private:
  std::string hub() const { return prefix_ + "hub"; }
  static void must(const std::string& command) {
    std::string output;
    if (run(command, output) != 0) FAIL(command, ": ", output);
  }
  void in(int i, const std::string& command) { must("ip netns exec " + host(i) + " " + command); }
  std::string prefix_;
};

struct Hosts {
  Hosts() {
    const std::string secret = place.folder() + "/secret";
    std::ofstream(secret) << "the secret of this cluster";
    fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write);
    const std::string master = Network::address(0) + ":" + std::to_string(kPort);
    for (int i = 0; i < kHosts; ++i) {
      Cluster::Shape shape;
      shape.nodes = {node(i)};
      shape.owner = "segment_size = \"64MiB\"\nlink = \"" + Network::address(i) + ":0\"\n";
      shape.common = "secret_file = \"" + secret + "\"\n" + (i == 0 ? "" : "master = \"" + master + "\"\n");
      shape.master = i == 0 ? "listen = \"" + master + "\"\n" : "";
      shape.withMaster = i == 0;
      shape.network = network.host(i);
      hosts.push_back(std::make_unique<Cluster>(shape));
    }
  }
  static std::string node(int i) { return "n" + std::to_string(i); }
  fluxon::Client client(int i) const { return hosts[static_cast<size_t>(i)]->client(node(i)); }
  fluxon::ConnectOptions options(int i) const { return hosts[static_cast<size_t>(i)]->options(node(i)); }
  // Sum of a metric of a process, asked for in its namespace.
  double metric(int i, const std::string& process, const std::string& name) const {
    std::string page;
    const std::string& config = hosts[static_cast<size_t>(i)]->config();
    const std::string ask = "ip netns exec " + network.host(i) + " " FLUXON_BIN "/fluxonctl --config " + config + " metrics " + process;
    REQUIRE_MESSAGE(run(ask, page) == 0, page);
    double sum = 0;
    bool found = false;
    for (size_t at = 0; at < page.size();) {
      const size_t end = std::min(page.find('\n', at), page.size());
      const std::string line = page.substr(at, end - at);
      at = end + 1;
      if (!line.starts_with(name) || (line[name.size()] != ' ' && line[name.size()] != '{')) continue;
      sum += std::stod(line.substr(line.rfind(' ')));
      found = true;
    }
    REQUIRE_MESSAGE(found, "no metric ", name);
    return sum;
  }
  bool atRest() const {
    for (int i = 0; i < kHosts; ++i) {
      for (const char* gauge : {"flights", "exports", "grants", "ring_holds"}) {
        if (metric(i, node(i), std::string("fluxon_owner_") + gauge) != 0) return false;
      }
    }
    return metric(0, "master", "fluxon_master_transfers_inflight") == 0 && metric(0, "master", "fluxon_master_puts_inflight") == 0;
  }
  void sound(const Workload& load) const {
    const std::vector<std::string> wrong = load.history().check();
    for (size_t i = 0; i < wrong.size() && i < 10; ++i) FAIL_CHECK(wrong[i]);
    const History& history = load.history();
    MESSAGE(history.size(), " operations; puts ", history.count(Did::put, Outcome::done), ", hits ", history.count(Did::get, Outcome::done),
            ", misses ", history.count(Did::get, Outcome::miss), ", refused gets ", history.count(Did::get, Outcome::refused));
    CHECK(history.count(Did::get, Outcome::done) > history.size() / 20);
    CHECK(eventually([&] { return atRest(); }, 20));
  }

  Network network;
  Place place;
  std::vector<std::unique_ptr<Cluster>> hosts;
};

TEST_CASE("three hosts: every value is read on each, bit for bit, brought once and then local") {
  if (!able()) return;
  Hosts hosts;
  std::vector<fluxon::Client> clients;
  for (int i = 0; i < kHosts; ++i) clients.push_back(hosts.client(i));
  const std::vector<size_t> sizes = {0, 1, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537, (1 << 20) + 1, 20'000'000};
  for (size_t s = 0; s < sizes.size(); ++s) clients[s % kHosts].put("v" + std::to_string(s), valueOf(s, sizes[s]));
  size_t remote = 0, local = 0;
  for (int round = 0; round < 2; ++round) {
    for (size_t s = 0; s < sizes.size(); ++s) {
      for (size_t i = 0; i < kHosts; ++i) {
        const auto holder = clients[i].get("v" + std::to_string(s));
        REQUIRE(holder);
        CHECK(holder->text() == valueOf(s, sizes[s]));
        (holder->source() == fluxon::Source::remote ? remote : local) += 1;
      }
    }
  }
  CHECK(remote == sizes.size() * (kHosts - 1));
  CHECK(local == sizes.size() * (kHosts + 1));
  clients[2].put("v12", "anew");
  for (fluxon::Client& client : clients) CHECK(client.get("v12")->text() == "anew");
  clients[1].remove("v12");
  for (fluxon::Client& client : clients) CHECK_FALSE(client.get("v12"));
  CHECK(eventually([&] { return hosts.atRest(); }));
}

TEST_CASE("three hosts: a put that asks for replicas is on as many hosts when it returns") {
  if (!able()) return;
  Hosts hosts;
  fluxon::Client client = hosts.client(1);
  client.put("k", valueOf(1, 3'000'000), {.replicas = 3});
  const std::string nodes = client.stat("k")->nodes;
  for (const char* node : {"n0\n", "n1\n", "n2\n"}) CHECK(nodes.find(node) != std::string::npos);
  for (int i = 0; i < kHosts; ++i) CHECK(hosts.client(i).get("k")->source() == fluxon::Source::local);
}

TEST_CASE("three hosts: one in twenty packets is lost, and nothing else") {
  if (!able()) return;
  Hosts hosts;
  hosts.network.lose(5);
  Workload load({.timeoutMs = 4000});
  for (int i = 0; i < kHosts; ++i) load.add(hosts.options(i));
  std::this_thread::sleep_for(std::chrono::seconds(8));
  CHECK(load.finish());
  hosts.sound(load);
}

TEST_CASE("three hosts: over a slow network calls are slow, and end") {
  if (!able()) return;
  Hosts hosts;
  hosts.network.limit("20mbit");
  Workload load({.timeoutMs = 4000});
  for (int i = 0; i < kHosts; ++i) load.add(hosts.options(i));
  std::this_thread::sleep_for(std::chrono::seconds(6));
  CHECK(load.finish());
  hosts.sound(load);
}

TEST_CASE("three hosts: one is cut off and healed, again and again: no stale value is ever read") {
  if (!able()) return;
  Hosts hosts;
  Workload load({.timeoutMs = 2000});
  for (int i = 0; i < kHosts; ++i) load.add(hosts.options(i));
  for (const int host : {1, 2, 0, 1}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    hosts.network.cut(host);
    std::this_thread::sleep_for(std::chrono::milliseconds(host == 2 ? 500 : 2500));  // within the lease, or past it
    hosts.network.heal(host);
  }
  std::this_thread::sleep_for(std::chrono::seconds(3));
  CHECK(load.finish());
  hosts.sound(load);
}

TEST_CASE("three hosts: a host that is cut off serves its own until its lease ends, then nothing; others go on") {
  if (!able()) return;
  Hosts hosts;
  fluxon::Client near = hosts.client(0), far = hosts.client(2);
  far.put("k", "old");
  CHECK(near.get("k")->text() == "old");
  hosts.network.cut(2);
  CHECK(far.get("k")->text() == "old");
  near.put("k", "new", {.timeoutMs = 5000});  // waits for the lease of the silent owner
  CHECK(codeOf([&] { far.get("k", 500); }) != FLUXON_OK);
  CHECK(near.get("k")->text() == "new");
  hosts.network.heal(2);
  CHECK(eventually([&] { return codeOf([&] { far.get("k", 1000); }) == FLUXON_OK; }, 20));
  CHECK(far.get("k")->text() == "new");
}

}  // namespace
