// The client library beside owners that die, stand still, are full, or have another clock: every call ends by its deadline, and nothing
// of one owner hides the end of it or holds up what needs another.
#include <doctest/doctest.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <regex>
#include <sstream>
#include <thread>

#include "cluster.h"
#include "texts.h"
#include "hosts.h"
#include "shm/client_format.h"

using namespace fluxon::test;

#ifndef FLUXON_SANITIZED
// The allocation after so many more of this thread fails; below 0: none. The library calls these as well.
static thread_local int failsIn = -1;
void* operator new(size_t bytes) {
  if (failsIn >= 0 && failsIn-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace {

double seconds(const std::function<void()>& call) {
  const auto begun = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// The socket of this process to another one, of which there is one.
int socketTo(pid_t owner) {
  for (int fd = 3; fd < 256; ++fd) {
    int type = 0;
    ucred peer{};
    socklen_t typeLength = sizeof type, peerLength = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &typeLength) == 0 && type == SOCK_SEQPACKET &&
        ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peerLength) == 0 && peer.pid == owner)
      return fd;
  }
  return -1;
}

bool maps(const std::string& what) {
  std::ostringstream all;
  all << std::ifstream("/proc/self/maps").rdbuf();
  return all.str().find(what) != std::string::npos;
}

int ctl(const Cluster& cluster, const std::string& arguments, std::string& said) {
  return run(std::string(FLUXON_BIN) + "/fluxonctl --config " + cluster.config() + " " + arguments, said);
}

// Stopped as long as it lives.
struct Stopped {
  Stopped(Cluster& of, std::string process) : cluster(of), name(std::move(process)) { cluster.signal(name, SIGSTOP); }
  ~Stopped() { cluster.signal(name, SIGCONT); }
  Cluster& cluster;
  std::string name;
};

// Runs a function in a child whose CLOCK_BOOTTIME is off by so many seconds; its result, or 99: such a thing cannot be had here.
int elsewhere(int64_t offset, const std::function<int()>& function) {
  return waitFor(inChild([&] {
    if (::unshare(CLONE_NEWTIME) != 0) return 99;
    std::ofstream("/proc/self/timens_offsets") << "boottime " << offset << " 0" << std::flush;
    return waitFor(inChild(function));
  }));
}

// A master of the same cluster name elsewhere: with a state of its own, reached by tcp.
class OtherMaster {
 public:
  OtherMaster() {
    std::ofstream(secret()) << "the secret of this test\n";
    REQUIRE(::chmod(secret().c_str(), 0600) == 0);
    const std::string config = place_.configure("", "listen = \"127.0.0.1:0\"\n", "", "secret_file = \"" + secret() + "\"\n");
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    pid_ = inChild([&] {
      ::dup2(::open(log().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
      ::dup2(ready[1], 9);
      ::fcntl(9, F_SETFD, 0);  // it may have been 9, with FD_CLOEXEC
      return ::execl(FLUXON_BIN "/fluxon-master", "fluxon-master", "--config", config.c_str(), "--ready-fd", "9", nullptr);
    });
    ::close(ready[1]);
    char byte;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
  }
  ~OtherMaster() {
    ::kill(pid_, SIGKILL);
    waitFor(pid_);
  }
  std::string secret() const { return place_.folder() + "/secret"; }
  std::string address() const {
    std::ostringstream text;
    text << std::ifstream(log()).rdbuf();
    const size_t from = text.str().find("listen ", text.str().find("info ready")) + 7;
    return text.str().substr(from, text.str().find_first_of(",\n", from) - from);
  }

 private:
  std::string log() const { return place_.folder() + "/master.log"; }
  Place place_;
  pid_t pid_ = 0;
};

const fluxon::PutOptions kSoon{.timeoutMs = 300};
const std::string kLarge = valueOf(7, 100'000);

}  // namespace

TEST_CASE("client: an answer that nobody waits for any more is nobody's answer, and does not hide the end of its owner") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  // What a put leaves that gives up while it asks for the segment.
  const int socket = socketTo(cluster.pid("n0"));
  REQUIRE(socket >= 0);
  fluxon::shm::AttachRequest request{};
  std::memcpy(request.magic, fluxon::shm::kAttachMagic, 8);
  request.version = fluxon::shm::kFormatVersion;
  request.kind = 77;
  for (int i = 0; i < 2; ++i) REQUIRE(::send(socket, &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
  REQUIRE(eventually([&] { return cluster.metric("n0", "fluxon_owner_clients_refused_total") == 2; }));
  SUBCASE("a put that asks for it itself") {
    CHECK(client.put("large", kLarge));
    CHECK(client.get("large")->text() == kLarge);
  }
  cluster.kill("n0");
  cluster.start("n0");
  CHECK(eventually([&] { return codeOf([&] { client.exists("unknown", 500); }) == FLUXON_OK; }, 5));
  CHECK(client.put("large", kLarge));
}

TEST_CASE("client: all clients of a full owner attach to its next life, whatever they hold of the last one") {
  Cluster cluster({.owner = "segment_size = \"16MiB\"\nmax_clients = 3\n"});
  auto one = cluster.client(), two = cluster.client(), three = cluster.client();
  one.put("key", kLarge);
  const auto held = two.get("key");
  for (int life = 0; life < 2; ++life) {
    cluster.kill("n0");
    cluster.start("n0");
    for (auto* client : {&one, &two, &three}) {
      fluxon_code code = FLUXON_OK;
      const bool attached = eventually([&] { return (code = codeOf([&] { client->put("mine", kLarge); })) == FLUXON_OK; }, 10);
      CAPTURE(code);
      CHECK(attached);
    }
    CHECK(cluster.metric("n0", "fluxon_owner_clients_refused_total") == 0);
  }
  CHECK(held->text() == kLarge);
}

TEST_CASE("client: a neighbour that stands still holds up only those who need it") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  cluster.client("n1").put("there", kLarge);
  auto client = cluster.client("n0");
  client.put("first", kLarge);
  const Stopped stopped(cluster, "n1");
  std::jthread waits([&] { codeOf([&] { client.get("there", 4000); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // that it waits is not to be seen; too early, this test asks for less
  CHECK(seconds([&] { CHECK(codeOf([&] { client.put("mine", kLarge, kSoon); }) == FLUXON_OK); }) < 1);
  CHECK(seconds([&] { CHECK(client.get("mine", 300)); }) < 1);
  CHECK(seconds([&] { codeOf([&] { client.get("unknown", 300); }); }) < 1);
  CHECK(seconds([&] { CHECK(codeOf([&] { client.get("there", 300); }) != FLUXON_OK); }) < 1);
  waits.join();
}

TEST_CASE("client: giving a grant back waits for nobody, and the owner hears of it when it goes on") {
  Cluster cluster({.leaseMs = 5000});
  auto client = cluster.client();
  auto one = client.putStart("one", 1 << 20), two = client.putStart("two", 1 << 20), three = client.putStart("three", 1 << 20);
  REQUIRE(one);
  REQUIRE(two);
  {
    const Stopped stopped(cluster, "n0");
    CHECK(seconds([&] { std::move(*one).abort(); }) < 0.2);
    CHECK(seconds([&] { two.reset(); }) < 0.2);
    CHECK(seconds([&] { CHECK(codeOf([&] { std::move(*three).commit(300); }) == FLUXON_OUTCOME_UNKNOWN); }) < 1);
    // More calls than there are command slots: grants go back when one is free.
    std::vector<std::thread> threads;
    for (int i = 0; i < 140; ++i) threads.emplace_back([&] { codeOf([&] { client.exists("key", 300); }); });
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_grants") == 0; }));
  CHECK(client.put("one", kLarge));
}

TEST_CASE("client: a grant that is given back while all command slots are taken goes back with the next free one") {
  Cluster cluster({.leaseMs = 5000});
  auto client = cluster.client();
  auto grant = client.putStart("one", 1 << 20);
  REQUIRE(grant);
  {
    const Stopped stopped(cluster, "n0");
    std::vector<std::thread> threads;
    for (int i = 0; i < 128; ++i) threads.emplace_back([&] { codeOf([&] { client.exists("key", 300); }); });
    for (std::thread& thread : threads) thread.join();
    CHECK(seconds([&] { grant.reset(); }) < 0.2);
  }
  CHECK(eventually([&] { return codeOf([&] { client.exists("key", 300); }) == FLUXON_OK; }));
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_grants") == 0; }));
}

TEST_CASE("client: first large puts at an owner that stands still end by their deadlines, each by its own") {
  Cluster cluster({.leaseMs = 5000});
  auto client = cluster.client();
  client.put("small", "x");
  const Stopped stopped(cluster, "n0");
  std::vector<std::thread> threads;
  std::vector<double> took(6);
  for (size_t i = 0; i < took.size(); ++i) {
    threads.emplace_back([&, i] {
      took[i] = seconds([&] { codeOf([&] { client.put("large", kLarge, {.timeoutMs = static_cast<uint32_t>(100 + 200 * i)}); }); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < took.size(); ++i) CHECK(took[i] < 0.1 + 0.2 * static_cast<double>(i) + 0.7);
}

TEST_CASE("client: what a drained neighbour had is unmapped") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  cluster.client("n1").put("there", kLarge);
  auto client = cluster.client("n0");
  CHECK(client.get("there")->source() == fluxon::Source::neighbour);
  REQUIRE(maps("/n1/segment"));
  std::string said;
  CHECK_MESSAGE(ctl(cluster, "drain n1", said) == 0, said);
  CHECK(cluster.wait("n1") == 0);
  client.exists("unknown");
  CHECK_FALSE(maps("/n1/"));
  CHECK(client.get("there")->text() == kLarge);
}

TEST_CASE("client: a value of a neighbour that is full of clients is brought here") {
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"16MiB\"\nmax_clients = 1\n"});
  auto there = cluster.client("n1"), here = cluster.client("n0");
  there.put("key", kLarge);
  for (int i = 0; i < 3; ++i) {
    const auto holder = here.get("key");
    REQUIRE(holder);
    CHECK(holder->text() == kLarge);
  }
  // Nobody was refused more often than a second needs.
  CHECK(cluster.metric("n1", "fluxon_owner_clients_refused_total") <= 1);
}

TEST_CASE("client: a put that is to lie at a neighbour which is full of clients goes there by the own owner") {
  char folder[] = "/tmp/fluxon-disks-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  {
    // Values lie where there is an SSD.
    Cluster cluster({.nodes = {"n0", "n1"},
                     .owner = "segment_size = \"16MiB\"\nmax_clients = 1\nlarge_file_paths = [\"" + std::string(folder) +
                              "\"]\nlarge_limit_size = [\"16MiB\"]\n"});
    cluster.start("ssdd-n1");
    auto there = cluster.client("n1"), here = cluster.client("n0");
    for (const std::string& value : {kLarge, std::string("small")}) {
      CAPTURE(value.size());
      fluxon::PutResult put;
      const std::string key = "key" + std::to_string(value.size());
      REQUIRE(codeOf([&] { put = here.put(key, value); }) == FLUXON_OK);
      CHECK(put.putId != 0);
      CHECK(bool(there.get(key)->text() == value));
      CHECK(there.stat(key)->nodes == "n1\n");
    }
    auto grant = here.putStart("filled", kLarge.size());
    REQUIRE(grant);
    std::memcpy(grant->bytes().data(), kLarge.data(), kLarge.size());
    CHECK(std::move(*grant).commit());
    CHECK(bool(there.get("filled")->text() == kLarge));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("client: a holder that was copied and released twice ends nobody's holder of another value") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("a", kLarge);
  client.put("b", valueOf(8, 100'000));
  fluxon_holder first = FLUXON_INIT(fluxon_holder), copy{};
  REQUIRE(fluxon_get(client.raw(), "a", 1, nullptr, &first) == FLUXON_OK);
  copy = first;
  fluxon_release(&first);
  // Until one of them takes the word that the first one had.
  const auto held = client.get("b");
  fluxon_release(&copy);
  client.put("a", "new");
  const auto again = client.get("a");
  client.put("b", "new");
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_directory_slots", "retired") == 1; }));
  CHECK(held->text() == valueOf(8, 100'000));
}

TEST_CASE("client: a listing after a key of a nonsensical length is refused like any other key") {
  Cluster cluster;
  auto client = cluster.client();
  const auto callback = [](void*, const fluxon_listed*) { return 1; };
  CHECK(fluxon_list(client.raw(), "", 0, "x", SIZE_MAX, 0, nullptr, callback, nullptr) == FLUXON_INVALID_KEY);
  CHECK(fluxon_list(client.raw(), "x", SIZE_MAX, "", 0, 0, nullptr, callback, nullptr) == FLUXON_INVALID_KEY);
}

TEST_CASE("client: a put whose copy takes longer than its deadline is no put of unknown outcome") {
  Cluster cluster({.owner = "segment_size = \"300MiB\"\n"});
  auto client = cluster.client();
  client.put("first", kLarge);  // maps the segment
  const std::string huge(200 << 20, 'x');
  CHECK(codeOf([&] { client.put("huge", huge, {.timeoutMs = 20}); }) == FLUXON_OK);
}

TEST_CASE("client: processes that attach and end one after the other leave no descriptors at their owner") {
  Cluster cluster({.nodes = {}});
  cluster.start("n0", [] {
    const rlimit few{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
  });
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = inChild([&] {
      auto client = cluster.client();
      ::_exit(0);  // closes nothing in order
      return 0;
    });
    refused += waitFor(child) != 0;
  }
  CHECK(refused == 0);
}

TEST_CASE("client: one in another time namespace is refused, whichever is ahead, and the shell says how far") {
  Cluster cluster;
  auto here = cluster.client();
  here.put("key", "value");
  for (const int64_t offset : {-500, 100'000}) {
    CAPTURE(offset);
    const int status = elsewhere(offset, [&] {
      try {
        cluster.client();
      } catch (const fluxon::Exception& error) {
        // As exact as the answer was quick.
        static const std::regex kOff("(499\\.9|500\\.[01]|99999\\.9|100000\\.[01])");
        const std::string what = error.what();
        const bool says = what.find("time namespace") != std::string::npos && std::regex_search(what, kOff);
        return error.code() == FLUXON_PROTOCOL && says ? 0 : 1;
      }
      return 2;
    });
    if (status == 99) {
      MESSAGE("SKIPPED: (machine) no time namespaces here");
      return;
    }
    CHECK(status == 0);
    std::string said;
    const std::string ctl = "unshare -T --boottime " + std::to_string(offset) + " " FLUXON_BIN "/fluxonctl --config " + cluster.config();
    CHECK(run(ctl + " get key", said) == 76);
    CHECK(said.find("another time namespace") != std::string::npos);
    // What reads the files alone judges by the owner's clock.
    CHECK(run(ctl + " --json stat --local key", said) == 0);
    CHECK_MESSAGE(said.find("\"serving\":true") != std::string::npos, said);
    CHECK(here.get("key")->text() == "value");
  }
}

TEST_CASE("client: an owner that comes back in another time namespace loses its clients, who are told why") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  if (elsewhere(3000, [] { return 0; }) == 99) {
    MESSAGE("SKIPPED: (machine) no time namespaces here");
    return;
  }
  cluster.kill("n0");
  cluster.start("n0", [&] {
    // exec takes this process into it.
    if (::unshare(CLONE_NEWTIME) != 0) ::_exit(98);
    std::ofstream("/proc/self/timens_offsets") << "boottime 3000 0" << std::flush;
  });
  CHECK(eventually([&] { return codeOf([&] { client.exists("unknown", 500); }) == FLUXON_PROTOCOL; }));
  CHECK(codeOf([&] { cluster.client(); }) == FLUXON_PROTOCOL);
  std::string said;
  CHECK(ctl(cluster, "--json stat --local key", said) == 0);
  CHECK_MESSAGE(said.find("\"serving\":true") != std::string::npos, said);
}

TEST_CASE("client: an ssdd in another time namespace than its owner does not attach, and says why") {
  if (elsewhere(500, [] { return 0; }) == 99) {
    MESSAGE("SKIPPED: (machine) no time namespaces here");
    return;
  }
  char folder[] = "/tmp/fluxon-disks-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  {
    const std::string disk = "large_file_paths = [\"" + std::string(folder) + "\"]\nlarge_limit_size = [\"32MiB\"]\n";
    Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + disk});
    std::string said;
    run("timeout 3 unshare -T --boottime 500 " FLUXON_BIN "/fluxon-ssdd --config " + cluster.config() + " --node n0", said);
    CHECK_MESSAGE(said.find("another time namespace") != std::string::npos, said);
    CHECK(said.find("info attached") == std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("client: a neighbour that serves under another master is none") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto here = cluster.client("n0"), there = cluster.client("n1");
  const std::string a = valueOf(1, 10'000), b = valueOf(2, 10'000);
  there.put("one", a);
  there.put("two", a);
  CHECK(here.get("one")->source() == fluxon::Source::neighbour);
  CHECK(here.get("two")->source() == fluxon::Source::neighbour);
  // n0 goes to another master, n1 stays.
  const OtherMaster other;
  cluster.configure({.common = "master = \"" + other.address() + "\"\nsecret_file = \"" + other.secret() + "\"\n"});
  cluster.kill("n0");
  cluster.start("n0");
  const auto text = [&](const std::string& key) -> std::string {
    std::string found = "?";
    const auto asked = [&] {
      const fluxon_code code = codeOf([&] {
        const auto holder = here.get(key, 500);
        found = holder ? std::string(holder->text()) : "miss";
      });
      return code == FLUXON_OK;
    };
    CHECK(eventually(asked));
    return found;
  };
  // Not asked yet: the client is attached to the last life of n0, and to n1.
  CHECK(text("one") == "miss");
  CHECK(text("two") == "miss");
  REQUIRE(here.put("one", b));
  CHECK(bool(text("one") == b));
  CHECK(here.remove("one"));
  CHECK(text("one") == "miss");
  REQUIRE(there.put("one", valueOf(3, 10'000)));
  CHECK(text("one") == "miss");
  CHECK(bool(there.get("one")->text() == valueOf(3, 10'000)));
}

TEST_CASE("client: hits are counted by where the value came from, of living clients and of dead ones") {
  char folder[] = "/tmp/fluxon-disks-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  {
    Hosts hosts({.hosts = 2, .owner = "segment_size = \"16MiB\"\nmax_keys = 1024\n", .disks = folder});
    const auto hits = [&](const std::string& source) {
      return hosts.metric("h0", "fluxon_owner_client_hits_total", "source=\"" + source + "\"");
    };
    const auto get = [&](const std::string& key) {
      auto client = hosts.client(0);
      const auto holder = client.get(key);
      REQUIRE(holder);
      CHECK(holder->text() == kLarge);
      return holder->source();
    };
    auto far = hosts.client(1), near = hosts.client(0);
    REQUIRE(near.put("near", kLarge));
    REQUIRE(far.put("far", kLarge));
    const auto persisted = [&](const std::string& owner) { return hosts.metric(owner, "fluxon_owner_ssd_persists_taken_total") == 1; };
    REQUIRE(eventually([&] { return persisted("h0") && persisted("h1"); }));
    CHECK(get("near") == fluxon::Source::local);
    CHECK(get("far") == fluxon::Source::remote);
    CHECK(get("far") == fluxon::Source::local);
    std::string said;
    for (const char* node : {"h0", "h1"}) CHECK_MESSAGE(hosts.ctl(0, std::string("evict --to 0 ") + node, said) == 0, said);
    CHECK(get("near") == fluxon::Source::ssd);
    CHECK(get("far") == fluxon::Source::remoteSsd);
    const std::map<std::string, double> expected{{"local", 2}, {"neighbour", 0}, {"remote", 1}, {"ssd", 1}, {"remote_ssd", 1}};
    REQUIRE(eventually([&] { return hosts.metric("h0", "fluxon_owner_clients") == 1; }));
    for (const auto& [source, count] : expected) CHECK_MESSAGE(hits(source) == count, source);
    CHECK(hosts.metric("h0", "fluxon_owner_client_events_total", "event=\"remoteSsdBytes\"") == static_cast<double>(kLarge.size()));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("client: a put that asks for more replicas than there is room for says how many were made") {
  // n1 has no room for the large one beside what is held there.
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"16MiB\"\nmax_keys = 1024\n"});
  auto here = cluster.client("n0"), there = cluster.client("n1");
  const std::string half(9 << 20, 'x');
  std::string said;
  const auto put = [&](const std::string& options) {
    CHECK(ctl(cluster, "--node n0 put " + options + " key " + cluster.config(), said) == 0);
    return said.substr(said.find(" bytes") + 6);
  };
  CHECK(put("") == "\n");
  CHECK(put("--replicas 2") == ", on 2 of 2 nodes\n");
  CHECK(put("--replicas 3") == ", on 2 of 3 nodes\n");
  CHECK(here.put("small", "x", {.replicas = 2}).replicas == 2);
  CHECK(here.put("one", kLarge).replicas == 1);
  REQUIRE(there.put("held", half));
  const auto holder = there.get("held");
  const fluxon::PutResult large = here.put("large", half, {.replicas = 2});
  CHECK(large);
  CHECK(large.replicas == 1);
  auto grant = here.putStart("filled", 1 << 20, {.replicas = 2});
  REQUIRE(grant);
  CHECK(std::move(*grant).commit().replicas == 2);
}

TEST_CASE("client: the hits by source are as many as the gets that found something, each of them once") {
  constexpr int kThreads = 4, kRounds = 250, kKeys = 8;
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"16MiB\"\nmax_keys = 1024\n"});
  {
    auto here = cluster.client("n0"), there = cluster.client("n1");
    for (int key = 0; key < kKeys; ++key) REQUIRE((key % 2 ? there : here).put("k" + std::to_string(key), valueOf(1, 10'000)));
  }
  const auto counted = [&](const std::string& node) { return cluster.metric(node, "fluxon_owner_client_hits_total"); };
  REQUIRE(counted("n0") + counted("n1") == 0);
  std::atomic<int> found = 0, missed = 0;
  {
    auto client = cluster.client("n0");
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int round = 0; round < kRounds; ++round) {
          const int key = (round + t) % (kKeys + 1);  // the last one is nowhere
          ++(client.get("k" + std::to_string(key)) ? found : missed);
          if (round % 50 == 0) client.put("k" + std::to_string(2 * t), valueOf(2, 10'000));  // gets meet puts that are being decided
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(found + missed == kThreads * kRounds);
  CHECK(eventually([&] { return counted("n0") == found; }));
  CHECK(counted("n1") == 0);
  // One that came through the ring found something there or not; what n1 answered for n0 is no get of n1.
  const double asked = cluster.metric("n0", "fluxon_owner_client_events_total", "event=\"askedHits\"");
  CHECK(cluster.metric("n0", "fluxon_owner_ring_misses_total") == missed);
  CHECK(cluster.metric("n0", "fluxon_owner_ring_gets_total") >= missed + asked);
  CHECK(cluster.metric("n0", "fluxon_owner_ring_gets_total") <= kThreads * kRounds);
  CHECK(cluster.metric("n1", "fluxon_owner_ring_gets_total") == 0);
}

TEST_CASE("client: a value is filled in the memory of the node that is named, and lies at the own one") {
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"16MiB\"\nlink = \"127.0.0.1:0\"\n"});
  auto client = cluster.client("n0");
  auto grant = client.putStart("key", kLarge.size(), {.sourceNode = "n1"});
  REQUIRE(grant);
  std::memcpy(grant->bytes().data(), kLarge.data(), kLarge.size());
  std::ostringstream mappings;
  mappings << std::ifstream("/proc/self/maps").rdbuf();
  const std::string all = mappings.str();
  CHECK(all.find("/n1/segment") != std::string::npos);
  REQUIRE(std::move(*grant).commit());
  CHECK(client.stat("key")->nodes == "n0\n");
  const auto holder = client.get("key");
  REQUIRE(holder);
  CHECK(holder->source() == fluxon::Source::local);
  CHECK(holder->text() == kLarge);
}

TEST_CASE("client: more replicas than a put can ask for, and a member that must be 0, are invalid arguments with what is accepted") {
  Cluster cluster;
  auto client = cluster.client();
  const auto refusal = [](auto call) -> std::string {
    try {
      call();
    } catch (const fluxon::Exception& error) {
      CHECK(error.code() == FLUXON_INVALID_ARGUMENT);
      return error.what();
    }
    return "";
  };
  CHECK(client.put("key", "value", {.replicas = 255}).replicas == 1);
  CHECK(has(refusal([&] { client.put("key", "value", {.replicas = 256}); }), "fluxon_put_options.replicas is 256 (accepted: 0 to 255)"));
  CHECK(has(refusal([&] { client.putStart("key", 1, {.replicas = 256}); }), "fluxon_put_options.replicas is 256 (accepted: 0 to 255)"));

  fluxon_connect_options where = FLUXON_INIT(fluxon_connect_options);
  const std::string root = cluster.root();
  where.shm_root = root.c_str();
  where.cluster = "t";
  fluxon_client* plain = nullptr;
  REQUIRE(fluxon_connect(&where, &plain) == FLUXON_OK);
  fluxon_call_options options = FLUXON_INIT(fluxon_call_options);
  CHECK(fluxon_exists(plain, "key", 3, &options) == FLUXON_OK);
  options.reserved = 7;
  CHECK(fluxon_exists(plain, "key", 3, &options) == FLUXON_INVALID_ARGUMENT);
  CHECK(has(fluxon_last_error(), "fluxon_call_options.reserved is 7 (accepted: 0)"));
  fluxon_close(plain);
}

TEST_CASE("client: a process with no descriptors left for what the owner hands over is told its limit") {
#ifdef FLUXON_SANITIZED
  MESSAGE("SKIPPED: (machine) the sanitizers look at memory through a pipe, and take want of descriptors for bad memory");
  return;
#endif
  Cluster cluster;
  cluster.client().put("key", "value");
  const std::string get = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n ";
  for (int limit = 4; limit < 40; ++limit) {
    CAPTURE(limit);
    const Ended ended = execute(get + std::to_string(limit) + "; exec " FLUXON_BIN "/fluxonctl --config " + cluster.config() + " get key");
    CAPTURE(ended.err);
    if (ended.out == "value") break;
    CHECK((ended.status == 71 || limit < 6));  // the loader of libraries, and the configuration
    CHECK(has(ended.err, "oo many open files"));
    if (limit >= 6) CHECK(has(ended.err, "RLIMIT_NOFILE is " + std::to_string(limit)));
  }
}

TEST_CASE("client: who keeps what a dead parent held is named by pins") {
  Cluster cluster;
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t parent = inChild([&] {
    auto client = cluster.client();
    client.put("key", kLarge);
    const auto holder = client.get("key");
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    [[maybe_unused]] const ssize_t told = ::write(pipe[1], &child, sizeof child);
    std::string both;
    if (ctl(cluster, "--json pins", both) != 0) return 1;
    const std::string self = std::to_string(::getpid());
    if (both.find("\"pid\":" + self + ",") == std::string::npos) return 2;
    if (both.find("\"mapped_by\":[" + self + "," + std::to_string(child) + "]") == std::string::npos) return 3;
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  pid_t child = 0;
  REQUIRE(::read(pipe[0], &child, sizeof child) == sizeof child);
  CHECK(waitFor(parent) == -SIGKILL);
  std::string said;
  CHECK(ctl(cluster, "--json pins", said) == 0);
  CHECK_MESSAGE(said.find("\"pid\":" + std::to_string(child) + ",") != std::string::npos, said);
  CHECK_MESSAGE(said.find("\"mapped_by\":[" + std::to_string(child) + "]") != std::string::npos, said);
  ::kill(child, SIGKILL);
  for (const int end : pipe) ::close(end);
  CHECK(eventually([&] { return ctl(cluster, "pins", said) == 0 && said.find("no holders") != std::string::npos; }));
}

TEST_CASE("client: errors name what would help: another root, the nodes that run, and who does not answer") {
  Cluster cluster;
  fluxon::ConnectOptions options;
  options.shmRoot = cluster.root();
  options.cluster = "other";
  try {
    fluxon::Client none(options);
    FAIL("it connects");
  } catch (const fluxon::Exception& error) {
    CHECK(std::string(error.what()).find("FLUXON_SHM_ROOT") != std::string::npos);
  }
  std::string said;
  for (const char* verb : {"get key", "pins"}) {
    CHECK(ctl(cluster, std::string("--node nix ") + verb, said) == 69);
    CHECK_MESSAGE(said.find("(running here: n0)") != std::string::npos, said);
  }
  auto client = cluster.client();
  const auto why = [&] {
    try {
      client.countPrefix("", 300);
    } catch (const fluxon::Exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  {
    const Stopped stopped(cluster, "master");
    CHECK_MESSAGE(why().find("waits for its master") != std::string::npos, why());
  }
  const Stopped stopped(cluster, "n0");
  CHECK_MESSAGE(why().find("the owner does not take commands") != std::string::npos, why());
}

TEST_CASE("client: bash completes the nodes of the cluster that the configuration names") {
  Cluster cluster;
  std::string said;
  const std::string script = "source " FLUXON_SOURCE "/scripts/fluxonctl.bash-completion; COMP_WORDS=(" FLUXON_BIN "/fluxonctl --config " +
                             cluster.config() + " --node n); COMP_CWORD=4; compopt() { :; }; _fluxonctl; echo \"${COMPREPLY[@]}\"";
  CHECK(run("bash -c '" + script + "'", said) == 0);
  CHECK(said == "n0\n");
}

#ifndef FLUXON_SANITIZED
TEST_CASE("client: a call without memory says so, wherever it ran out, and the client is as good as before") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto there = cluster.client("n1");
  auto client = cluster.client("n0");
  fluxon_client* const raw = client.raw();
  const std::string key = "a key that is longer than what a string keeps within itself";
  const auto listed = [](void*, const fluxon_listed*) { return 1; };
  uint64_t number = 0;
  fluxon_stat stat = FLUXON_INIT(fluxon_stat);
  const std::map<std::string, std::function<fluxon_code()>> calls{
      {"put inline", [&] { return fluxon_put(raw, key.data(), key.size(), "x", 1, nullptr, nullptr); }},
      {"put", [&] { return fluxon_put(raw, key.data(), key.size(), kLarge.data(), kLarge.size(), nullptr, nullptr); }},
      {"put start",
       [&] {
         fluxon_grant grant = FLUXON_INIT(fluxon_grant);
         const fluxon_code code = fluxon_put_start(raw, key.data(), key.size(), 5000, nullptr, &grant);
         fluxon_abort(&grant);
         return code;
       }},
      {"get",
       [&] {
         fluxon_holder holder = FLUXON_INIT(fluxon_holder);
         const fluxon_code code = fluxon_get(raw, "there", 5, nullptr, &holder);
         fluxon_release(&holder);
         return code;
       }},
      {"exists", [&] { return fluxon_exists(raw, "there", 5, nullptr); }},
      {"stat", [&] { return fluxon_stat_key(raw, "there", 5, nullptr, &stat); }},
      {"remove", [&] { return fluxon_remove(raw, "none", 4, nullptr); }},
      {"count", [&] { return fluxon_count_prefix(raw, "", 0, nullptr, &number); }},
      {"list", [&] { return fluxon_list(raw, "", 0, key.data(), key.size(), 0, nullptr, listed, nullptr); }},
      {"lease", [&] { return fluxon_lease_grant(raw, 60'000, nullptr, &number); }},
      {"connect", [&] {
         fluxon_connect_options options = FLUXON_INIT(fluxon_connect_options);
         options.cluster = "t";
         options.node = "n0";
         options.shm_root = cluster.root().c_str();
         fluxon_client* other = nullptr;
         const fluxon_code code = fluxon_connect(&options, &other);
         fluxon_close(other);
         return code;
       }}};
  there.put("there", kLarge);
  for (const auto& [name, call] : calls) {
    CAPTURE(name);
    int failed = 0;
    for (;; ++failed) {
      REQUIRE(failed < 500);
      failsIn = failed;
      const fluxon_code code = call();
      const bool enough = std::exchange(failsIn, -1) >= 0;
      if (enough) {
        CHECK((code == FLUXON_OK || code == FLUXON_MISS));
        break;
      }
      CHECK(code == FLUXON_SYSTEM);
      CHECK(std::string(fluxon_last_error()) == "out of memory");
    }
    CHECK(failed > 0);
  }
  CHECK(client.put(key, kLarge));
  CHECK(client.get("there")->text() == kLarge);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_grants") == 0; }));
}
#endif

TEST_CASE("a master whose name is not known: fluxonctl names it and ends with 69, the owner names it and joins when it is known") {
  if (execute("unshare -m true").status != 0) {
    MESSAGE("SKIPPED: a resolver of one's own needs root");
    return;
  }
  const OtherMaster master;
  const Place place;
  const std::string port = master.address().substr(master.address().rfind(':') + 1), name = "late-master.invalid";
  const std::string common = "master = \"" + name + ":" + port + "\"\nsecret_file = \"" + master.secret() + "\"\n";
  const std::string config = place.configure("segment_size = \"16MiB\"\n", "", "", common);
  const std::string resolver = place.folder() + "/resolv.conf", hosts = place.folder() + "/hosts", log = place.folder() + "/log";
  std::ofstream(hosts) << "127.0.0.1 localhost\n";
  // A server that says at once that it is none, and one that says nothing.
  const int silent = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{.sin_family = AF_INET, .sin_port = htons(53), .sin_addr = {htonl(0x7f350002)}};
  REQUIRE(::bind(silent, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  const std::string apart =
      "exec unshare -m sh -c 'mount --bind " + resolver + " /etc/resolv.conf && mount --bind " + hosts + " /etc/hosts && exec timeout 60 ";
  const std::string said = "connect " + name + ":" + port + ": looking up the name ";
  for (const std::string server : {"127.53.0.2", "127.53.0.1"}) {
    CAPTURE(server);
    std::ofstream(resolver) << "nameserver " << server << "\n";
    const Ended status = execute(apart + FLUXON_BIN "/fluxonctl --config " + config + " --timeout 2 status'");
    CHECK(status.status == 69);
    CHECK_MESSAGE(status.err.find(said) != std::string::npos, status.err);
  }
  ::close(silent);
  const pid_t owner = inChild([&] {
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    return ::execl("/bin/sh", "sh", "-c", (apart + FLUXON_BIN "/fluxon-owner --config " + config + "'").c_str(), nullptr);
  });
  CHECK(eventually([&] { return logIn(log).find("warning master: service unavailable: " + said) != std::string::npos; }));
  std::ofstream(hosts) << "127.0.0.1 localhost " << name << "\n";
  CHECK(eventually([&] { return logIn(log).find("info ready: node n0") != std::string::npos; }));
  ::kill(owner, SIGTERM);
  CHECK(waitFor(owner) == 0);
}
