// What a broken or hostile process of the same user can say to a daemon: on the attach socket, in its own client file, to the
// master's socket, to the http port. The daemon lives, other clients are not disturbed, and nothing is kept of those that went.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "cluster.h"
#include "raw_client.h"

using namespace fluxon::test;
namespace fs = std::filesystem;
namespace shm = fluxon::shm;

namespace {

using Random = std::mt19937_64;

bool isLong() { return std::getenv("FLUXON_LONG") != nullptr; }
uint64_t seedOf(uint64_t otherwise) { return std::getenv("FLUXON_SEED") ? std::stoull(std::getenv("FLUXON_SEED")) : otherwise; }

size_t descriptorsOf(const Cluster& cluster, const std::string& process) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/" + std::to_string(cluster.pid(process)) + "/fd")) ++count;
  return count;
}
size_t clientFiles(const Cluster& cluster) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(cluster.root() + "/t/n0"))
    count += entry.path().filename().string().starts_with("client-");
  return count;
}
std::string ownerSocket(const Cluster& cluster) { return cluster.root() + "/t/n0/socket"; }
std::string masterSocket(const Cluster& cluster) { return cluster.root() + "/t/.master/socket"; }

std::string httpAddress(const Cluster& cluster, const std::string& process) {
  const std::string log = cluster.log(process);
  const size_t from = log.find("http ", log.rfind("info ready")) + 5;
  return log.substr(from, log.find('\n', from) - from);
}
// Seconds until /health answers; negative: it does not.
double healthSeconds(const Cluster& cluster, const std::string& process) {
  const auto begun = std::chrono::steady_clock::now();
  const bool good = httpGet(httpAddress(cluster, process), "/health").find("\"healthy\":true") != std::string::npos;
  return good ? std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() : -1;
}

bool atRest(const Cluster& cluster, double clients) {
  const auto owner = [&](const char* name, const char* label = "") {
    return cluster.metric("n0", std::string("fluxon_owner_") + name, label);
  };
  return owner("clients") == clients && owner("grants") == 0 && owner("ring_holds") == 0 && owner("directory_slots", "granted") == 0 &&
         owner("directory_slots", "retired") == 0 && cluster.metric("master", "fluxon_master_puts_inflight") == 0 &&
         cluster.metric("master", "fluxon_master_segment_inflight_bytes") == 0 &&
         cluster.metric("master", "fluxon_master_segment_retired_bytes") == 0;
}

std::string noise(Random& random, size_t bytes) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Numbers on which code breaks.
uint64_t awkward(Random& random) {
  switch (random() % 8) {
    case 0: return random();
    case 1: return random() % 200;
    case 2: return uint64_t{1} << random() % 64;
    case 3: return (uint64_t{1} << random() % 64) - 1;
    case 4: return UINT64_MAX - random() % 5000;
    case 5: return 4096 * (random() % 2000);
    case 6: return random() % 100'000'000;
    default: return 0;
  }
}

// A client file scribbled over by every means that a client has.
class Scribbler {
 public:
  Scribbler(RawClient& client, uint64_t seed) : client_(client), file_(client.file()), random_(seed) {}

  void act() {
    switch (random_() % 16) {
      case 0: file_.ring.tail.store(static_cast<uint32_t>(awkward(random_))); break;
      case 1: file_.ring.head.store(static_cast<uint32_t>(awkward(random_))); break;
      case 2: enter(static_cast<uint32_t>(awkward(random_))); break;
      case 3: slot().state.store(random_() % 4 ? static_cast<uint32_t>(random_() % 4) : static_cast<uint32_t>(random_())); break;
      case 4: hazards(); break;
      case 5: touches(); break;
      case 6: counters(); break;
      case 7: bytes(); break;
      case 8: client_.ring(random_() % 2 ? UINT64_MAX - 1 : 1); break;
      case 9: message(); break;
      default: command(); break;
    }
  }
  // While the owner reads: what it has checked changes under it.
  void race() {
    shm::CommandSlot& slot = file_.commands[random_() % 8];
    slot.request.keyBytes = random_() % 2 ? 5 : static_cast<uint32_t>(random_());
    slot.request.extraBytes = random_() % 2 ? 5 : static_cast<uint32_t>(random_());
    slot.request.valueBytes = awkward(random_);
    slot.state.store(static_cast<uint32_t>(random_() % 4));
    file_.ring.tail.fetch_add(static_cast<uint32_t>(random_() % 3));
  }

 private:
  shm::CommandSlot& slot() { return file_.commands[random_() % shm::kCommandSlots]; }
  void enter(uint32_t index) {
    const uint32_t tail = file_.ring.tail.load();
    file_.ring.entries[tail % shm::kCommandSlots].store(index);
    file_.ring.tail.store(tail + 1);
    client_.ring();
  }
  // A slot and generation that may well exist.
  uint64_t ref() {
    if (random_() % 4 == 0) return file_.commands[random_() % 8].answer.slotRef;
    return random_() % 3 ? (random_() % 4000) << 32 | random_() % 5 : awkward(random_);
  }
  // Well formed, but for what it says.
  void command() {
    const auto index = static_cast<uint32_t>(random_() % 8);
    shm::CommandSlot& slot = file_.commands[index];
    shm::CommandRequest& request = slot.request;
    request.kind = static_cast<uint32_t>(random_() % 8 ? 1 + random_() % 14 : awkward(random_));
    if (request.kind == static_cast<uint32_t>(shm::CommandKind::remove) && random_() % 2) request.kind = 1;
    request.flags = static_cast<uint32_t>(random_() % 4 ? random_() % 16 : random_());
    request.keyBytes = static_cast<uint32_t>(random_() % 4 ? random_() % 8 : awkward(random_));
    request.extraBytes = static_cast<uint32_t>(random_() % 4 ? random_() % 64 : awkward(random_));
    request.valueBytes = random_() % 2 ? random_() % 100'000 : awkward(random_);
    request.slotRef = ref();
    request.lease = awkward(random_);
    request.deadlineNs = random_() % 2 ? INT64_MAX : static_cast<int64_t>(awkward(random_));
    for (int i = 0; i < 64; ++i) file_.payloads[index][i] = static_cast<char>(random_() % 4 ? random_() % 3 : random_());
    slot.state.store(static_cast<uint32_t>(shm::CommandState::submitted));
    enter(index);
  }
  void hazards() {
    shm::HazardShard& shard = file_.hazards[random_() % shm::kHazardShards];
    shard.highWater.store(static_cast<uint32_t>(awkward(random_)));
    for (int i = 0; i < 20; ++i) shard.words[random_() % shm::kHazardsPerShard].store(ref());
  }
  void touches() {
    shm::TouchShard& shard = file_.touches[random_() % shm::kTouchShards];
    shard.head.store(awkward(random_));
    for (int i = 0; i < 100; ++i) shard.slots[random_() % shm::kTouchesPerShard].store(static_cast<uint32_t>(awkward(random_)));
  }
  void counters() { file_.counters[random_() % shm::kCounterShards].hits.store(random_() % 1000); }
  // Random bytes anywhere, also over the header; counters are what a client says of itself and stay plausible.
  void bytes() {
    const size_t from = random_() % 3 ? offsetof(shm::ClientFile, touches) : 0;
    const size_t until = from ? sizeof file_ : offsetof(shm::ClientFile, counters);
    auto* at = reinterpret_cast<char*>(&file_) + from + random_() % (until - from - 4096);
    for (size_t i = 0, n = random_() % 4096; i < n; ++i) at[i] = static_cast<char>(random_());
  }
  void message() {
    shm::AttachRequest request = attachRequest(static_cast<shm::AttachKind>(random_() % 4));
    if (random_() % 2) reinterpret_cast<char*>(&request)[random_() % sizeof request] ^= static_cast<char>(random_());
    ::send(client_.socket(), &request, 1 + random_() % sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  RawClient& client_;
  shm::ClientFile& file_;
  Random random_;
};

// Carries the bytes of one socket to another and remembers what the clients said, a string for each connection.
class Recorder {
 public:
  Recorder(const std::string& at, std::string to) : to_(std::move(to)), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, at.c_str(), at.size());
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Recorder() { finish(); }
  std::vector<std::string> finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    if (listener_ >= 0) ::close(std::exchange(listener_, -1));
    return said_;
  }

 private:
  void run() {
    std::vector<pollfd> polled{{listener_, POLLIN, 0}};
    std::vector<std::pair<int, int>> pairs;  // client, server
    while (!stop_) {
      if (::poll(polled.data(), polled.size(), 20) <= 0) continue;
      if (polled[0].revents) {
        pairs.emplace_back(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC), connectTo(to_, SOCK_STREAM));
        said_.emplace_back();
        polled.push_back({pairs.back().first, POLLIN, 0});
        polled.push_back({pairs.back().second, POLLIN, 0});
        continue;
      }
      for (size_t i = 1; i < polled.size(); ++i) {
        if (!polled[i].revents) continue;
        const auto [client, server] = pairs[(i - 1) / 2];
        const bool fromClient = polled[i].fd == client;
        char buffer[65536];
        const ssize_t n = ::read(polled[i].fd, buffer, sizeof buffer);
        const int other = fromClient ? server : client;
        if (n <= 0) {
          ::shutdown(other, SHUT_RDWR);
          polled[i].fd = -1;
          continue;
        }
        if (fromClient) said_[(i - 1) / 2].append(buffer, static_cast<size_t>(n));
        [[maybe_unused]] const ssize_t sent = ::send(other, buffer, static_cast<size_t>(n), MSG_NOSIGNAL);
      }
    }
    for (const auto& [client, server] : pairs) ::close(client), ::close(server);
  }

  std::string to_;
  int listener_;
  std::atomic<bool> stop_{false};
  std::vector<std::string> said_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("the attach socket refuses what is no request of this version and counts it; the owner goes on") {
  Cluster cluster;
  const std::string socket = ownerSocket(cluster);
  Random random(seedOf(1));
  const double before = cluster.metric("n0", "fluxon_owner_clients_refused_total");
  const auto refused = [&](const void* message, size_t bytes) {
    RawClient client(socket);
    CHECK(client.ask(message, bytes) == FLUXON_PROTOCOL);
    char byte;
    CHECK(::recv(client.socket(), &byte, 1, 0) == 0);  // and the conversation is over
  };
  shm::AttachRequest request = attachRequest();
  for (const size_t bytes : {size_t{1}, size_t{8}, sizeof request - 1}) refused(&request, bytes);
  request.version = fluxon::shm::kFormatVersion + 1;
  refused(&request, sizeof request);
  request = attachRequest(shm::AttachKind::writableSegment);
  refused(&request, sizeof request);
  request = attachRequest(static_cast<shm::AttachKind>(77));
  refused(&request, sizeof request);
  request = attachRequest();
  request.magic[0] = 'X';
  refused(&request, sizeof request);
  // Longer than a request: cut by the kernel to a good one, or refused; nothing else.
  std::string longer(100'000, '\0');
  request = attachRequest();
  std::memcpy(longer.data(), &request, sizeof request);
  CHECK(RawClient(socket).ask(longer.data(), longer.size()) != -1);
  for (int i = 0; i < 50; ++i) {
    const std::string text = noise(random, 1 + random() % 300);
    refused(text.data(), text.size());
  }
  { RawClient closes(socket); }
  {
    RawClient early(socket);
    request = attachRequest();
    REQUIRE(::send(early.socket(), &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request));  // closes before the answer
  }
  CHECK(cluster.metric("n0", "fluxon_owner_clients_refused_total") >= before + 57);
  CHECK(bool(cluster.client().put("key", "value")));
  CHECK(eventually([&] { return atRest(cluster, 0) && clientFiles(cluster) == 0; }));
}

TEST_CASE("an unprintable name of a client goes no further than a table") {
  Cluster cluster;
  RawClient client(ownerSocket(cluster));
  shm::AttachRequest request = attachRequest();
  std::memset(request.name, '\n', sizeof request.name);
  request.name[1] = '"';
  request.name[2] = '\xff';
  CHECK(client.ask(&request, sizeof request) == 0);
  const Ended rings = execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " rings");
  CHECK(rings.status == 0);
  CHECK(std::count(rings.out.begin(), rings.out.end(), '\n') == 2);
  const Ended json = execute(FLUXON_BIN "/fluxonctl --json --config " + cluster.config() +
                             " rings | python3 -c 'import json,sys; [json.loads(l.decode()) for l in sys.stdin.buffer]'");
  CHECK_MESSAGE(json.status == 0, json.err);
}

TEST_CASE("connections that never say anything are dropped in time; meanwhile others attach and health answers") {
  Cluster cluster;
  const size_t before = descriptorsOf(cluster, "n0");
  std::vector<int> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(connectTo(ownerSocket(cluster), SOCK_SEQPACKET));
    REQUIRE(silent.back() >= 0);
  }
  CHECK(healthSeconds(cluster, "n0") < 0.5);
  CHECK(healthSeconds(cluster, "n0") >= 0);
  {
    auto client = cluster.client();
    client.put("key", "value");
    CHECK(client.get("key")->text() == "value");
  }
  CHECK(eventually([&] { return descriptorsOf(cluster, "n0") <= before; }, 8));
  char byte;
  CHECK(::recv(silent.front(), &byte, 1, 0) == 0);
  for (const int fd : silent) ::close(fd);
}

TEST_CASE("clients that attach and end 200 times leave no descriptor, no file and no memory map") {
  Cluster cluster;
  auto stays = cluster.client();
  const auto maps = [&] {
    std::string output;
    run("grep -c client- /proc/" + std::to_string(cluster.pid("n0")) + "/maps", output);
    return std::stoul(output);
  };
  const size_t descriptors = descriptorsOf(cluster, "n0");
  for (int i = 0; i < 200; ++i) {
    switch (i % 4) {
      case 0: cluster.client(); break;
      case 1: cluster.client().put("key", valueOf(1, 10'000)); break;
      case 2: {
        RawClient client(ownerSocket(cluster));
        client.attach();
        break;
      }
      default: {
        RawClient client(ownerSocket(cluster));
        client.attach();
        const shm::AttachRequest request = attachRequest(shm::AttachKind::writableSegment);
        for (int n = 0; n < 20; ++n) ::send(client.socket(), &request, sizeof request, MSG_DONTWAIT);  // and reads no answer
      }
    }
  }
  CHECK(eventually([&] { return atRest(cluster, 1) && descriptorsOf(cluster, "n0") <= descriptors && clientFiles(cluster) == 1; }));
  CHECK(maps() == 1);
  CHECK(stays.get("key")->text() == valueOf(1, 10'000));
}

TEST_CASE("a client that floods its socket, one that connects without pause, one that rings without pause: others are served") {
  Cluster cluster;
  auto other = cluster.client();
  other.put("key", valueOf(1, 100'000));
  for (const std::string way : {"messages", "connections", "bell"}) {
    CAPTURE(way);
    // Ends with this scope however it is left.
    std::jthread flood([&](const std::stop_token& stop) {
      RawClient client(ownerSocket(cluster));
      const shm::AttachRequest request = attachRequest();
      if (::send(client.socket(), &request, sizeof request, 0) < 0) return;
      client.attach();
      while (!stop.stop_requested()) {
        if (way == "messages") ::send(client.socket(), &request, sizeof request, MSG_NOSIGNAL);
        if (way == "connections") ::close(connectTo(ownerSocket(cluster), SOCK_SEQPACKET));
        if (way == "bell") client.file().ring.tail.fetch_add(100), client.ring();
      }
    });
    for (int i = 0; i < 20; ++i) {
      CHECK(other.stat("key", 3000));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(healthSeconds(cluster, "n0") >= 0);
  }
  CHECK(eventually([&] { return atRest(cluster, 1); }));
}

TEST_CASE("garbage in a client's own file: the owner lives, other clients' values, grants and holders are unharmed, all is given back") {
  Cluster cluster({.owner = "segment_size = \"64MiB\"\nmax_keys = 4096\n"});
  auto victim = cluster.client();
  const std::string kept = valueOf(1, 50'000), held = valueOf(2, 200'000), filled = valueOf(3, 300'000);
  victim.put("victim: held", held);
  const auto holder = victim.get("victim: held");
  victim.remove("victim: held");
  auto grant = victim.putStart("victim: granted", filled.size());
  REQUIRE(grant);
  std::memcpy(grant->bytes().data(), filled.data(), filled.size());
  const pid_t pid = cluster.pid("n0");
  const size_t descriptors = descriptorsOf(cluster, "n0");
  const double refused = cluster.metric("n0", "fluxon_owner_clients_refused_total");
  const uint64_t first = seedOf(20261130);
  const int rounds = std::getenv("FLUXON_SEED") ? 1 : isLong() ? 3000 : 300;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t seed = first + static_cast<uint64_t>(round);
    CAPTURE(seed);
    {
      RawClient client(ownerSocket(cluster));
      client.attach();
      Scribbler scribbler(client, seed);
      std::jthread racer;
      if (round % 4 == 0) {
        racer = std::jthread([&](const std::stop_token& stop) {
          Scribbler other(client, ~seed);
          while (!stop.stop_requested()) other.race();
        });
      }
      for (int i = 0; i < 200; ++i) scribbler.act();
    }
    if (round % 10 != 0) continue;
    const std::string key = "victim: " + std::to_string(round);
    REQUIRE(victim.put(key, kept, {.timeoutMs = 5000}));
    const auto back = victim.get(key);
    REQUIRE(back);
    REQUIRE(back->text() == kept);
    REQUIRE(holder->text() == held);
  }
  CHECK(::kill(pid, 0) == 0);
  CHECK(cluster.metric("n0", "fluxon_owner_clients_refused_total") > refused + rounds);
  CHECK(std::move(*grant).commit());
  CHECK(victim.get("victim: granted")->text() == filled);
  CHECK(holder->text() == held);
  CHECK(healthSeconds(cluster, "n0") >= 0);
  CHECK(cluster.metric("n0", "fluxon_owner_rejoins_total") <= 1);
  CHECK(cluster.metric("master", "fluxon_master_owners_fenced_total") == 0);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_clients") == 1 && cluster.metric("n0", "fluxon_owner_grants") == 0; }));
  CHECK(eventually([&] { return descriptorsOf(cluster, "n0") <= descriptors; }));
  CHECK(clientFiles(cluster) == 1);
}

TEST_CASE("a client that cuts its file short is not heard any more; its owner and all others go on") {
  Cluster cluster;
  auto other = cluster.client();
  other.put("key", "value");
  for (const bool hole : {false, true}) {
    CAPTURE(hole);
    RawClient client(ownerSocket(cluster));
    client.attach();
    if (hole) {
      // Memory that is there again when somebody looks: harmless.
      REQUIRE(::fallocate(client.descriptor(0), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(shm::ClientFile)) == 0);
    } else {
      REQUIRE(::ftruncate(client.descriptor(0), 0) == 0);
      pollfd end{client.socket(), POLLIN, 0};
      REQUIRE(::poll(&end, 1, 10'000) == 1);
      char byte;
      CHECK(::recv(client.socket(), &byte, 1, 0) == 0);
    }
    for (int i = 0; i < 100; ++i) CHECK(bool(other.put("key", valueOf(static_cast<uint64_t>(i), 100'000))));
    CHECK(other.get("key")->text() == valueOf(99, 100'000));
    CHECK(healthSeconds(cluster, "n0") >= 0);
  }
  CHECK(cluster.log("n0").find("has cut its file short") != std::string::npos);
  CHECK(eventually([&] { return atRest(cluster, 1); }));
}

TEST_CASE("a segment that is cut short ends its owner with one line and 71, and the next life starts empty") {
  Cluster cluster;
  {
    RawClient client(ownerSocket(cluster));
    client.attach();
    const shm::AttachRequest request = attachRequest(shm::AttachKind::writableSegment);
    REQUIRE(client.ask(&request, sizeof request) == 0);
  }
  REQUIRE(::truncate((cluster.root() + "/t/n0/segment").c_str(), 0) == 0);
  const Ended put = execute(std::string("echo value | ") + FLUXON_BIN "/fluxonctl --config " + cluster.config() + " --timeout 1 put key -");
  CHECK(put.status != 0);
  CHECK(cluster.wait("n0") == 71);
  CHECK(cluster.log("n0").find("cut short") != std::string::npos);
  cluster.start("n0");
  auto client = cluster.client();
  CHECK(bool(client.put("key", "value")));
}

TEST_CASE("an owner that copies from a neighbour whose segment is cut short goes on") {
  Cluster cluster({.nodes = {"n0", "n1"}, .leaseMs = 8000});
  auto zero = cluster.client("n0"), one = cluster.client("n1");
  const fluxon::PutOptions twice{.timeoutMs = 10'000, .replicas = 2};
  zero.put("attaches", valueOf(1, 1'000'000), twice);
  REQUIRE(eventually([&] { return cluster.metric("n1", "fluxon_owner_fetched_bytes_total") == 1'000'000; }));
  // Its copy is ordered while both stand still; then there is nothing to copy any more.
  cluster.signal("n1", SIGSTOP);
  std::jthread put([&] { codeOf([&] { zero.put("key", valueOf(2, 1'000'000), twice); }); });
  CHECK(eventually([&] { return cluster.metric("master", "fluxon_master_transfers_inflight") == 1; }));
  cluster.signal("n0", SIGSTOP);
  fs::resize_file(cluster.root() + "/t/n0/segment", 4096);
  cluster.signal("n1", SIGCONT);
  CHECK(eventually([&] { return cluster.metric("n1", "fluxon_owner_fetches_failed_total") == 1; }));
  CHECK(cluster.log("n1").find("its segment was cut short") != std::string::npos);
  CHECK(bool(one.put("other", "value")));
  cluster.signal("n0", SIGCONT);
  CHECK(cluster.wait("n0") == 71);
  put.join();
}

TEST_CASE("a client that changes the flags of its bell, or takes what was rung, keeps nobody else waiting") {
  Cluster cluster;
  auto other = cluster.client();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    RawClient& client = *clients.emplace_back(std::make_unique<RawClient>(ownerSocket(cluster)));
    client.attach();
    const int bell = client.descriptor(4);
    REQUIRE(::fcntl(bell, F_SETFL, ::fcntl(bell, F_GETFL) & ~O_NONBLOCK) == 0);
    // More than one slice of commands for all of them together.
    for (uint32_t slot = 0; slot < shm::kCommandSlots; ++slot) {
      shm::CommandSlot& command = client.file().commands[slot];
      command.request.kind = static_cast<uint32_t>(shm::CommandKind::exists);
      command.request.keyBytes = 1;
      command.state = static_cast<uint32_t>(shm::CommandState::submitted);
      client.file().ring.entries[slot] = slot;
    }
  }
  for (const auto& client : clients) client->file().ring.tail = shm::kCommandSlots;
  clients.front()->ring();
  for (int i = 0; i < 100; ++i) {
    CHECK(bool(other.put("key", "value", {.timeoutMs = 5000})));
    uint64_t taken = 0;
    pollfd rung{clients.front()->descriptor(4), POLLIN, 0};
    if (::poll(&rung, 1, 0) == 1) REQUIRE(::read(rung.fd, &taken, sizeof taken) == sizeof taken);
  }
  for (const auto& client : clients) {
    const shm::CommandSlot& last = client->file().commands[shm::kCommandSlots - 1];
    CHECK(eventually([&] { return last.state != static_cast<uint32_t>(shm::CommandState::submitted); }));
  }
}

TEST_CASE("tools that read the files of a garbage client skip it and say so") {
  Cluster cluster;
  auto victim = cluster.client();
  victim.put("key", "value");
  const auto holder = victim.get("key");
  RawClient client(ownerSocket(cluster));
  client.attach();
  Random random(seedOf(5));
  for (int round = 0; round < 20; ++round) {
    auto* bytes = reinterpret_cast<char*>(&client.file());
    for (size_t i = 0; i < sizeof(shm::ClientFile); i += 1 + random() % 64) bytes[i] = static_cast<char>(random());
    for (const char* verb : {"pins", "rings"}) {
      const Ended ended = execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " " + verb);
      CHECK(ended.status == 0);
      CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') <= 1);
      CHECK(ended.out.find(verb[0] == 'p' ? "key" : "n0") != std::string::npos);
    }
  }
}

TEST_CASE("random bytes, half messages and a crowd on the master's socket: it lives and answers") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  const std::string socket = masterSocket(cluster), status = FLUXON_BIN "/fluxonctl --timeout 2 --config " + cluster.config() + " status";
  const size_t descriptors = descriptorsOf(cluster, "master");
  Random random(seedOf(7));
  const auto say = [&](const std::string& text) {
    const int fd = connectTo(socket, SOCK_STREAM);
    REQUIRE(fd >= 0);
    ::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
  };
  for (int i = 0; i < 200; ++i) say(noise(random, 1 + random() % 2000));
  // A frame's head says how many segments follow and how long they are.
  for (const uint32_t segments : {0u, 1u, 511u, 512u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    for (const uint32_t words : {0u, 1u, 1u << 16, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
      std::string head(reinterpret_cast<const char*>(&segments), 4);
      for (uint32_t i = 0; i < 3; ++i) head.append(reinterpret_cast<const char*>(&words), 4);
      say(head + noise(random, 100));
    }
  }
  std::vector<int> crowd;
  for (int i = 0; i < 400; ++i) {
    crowd.push_back(connectTo(socket, SOCK_STREAM));
    REQUIRE(crowd.back() >= 0);
    if (i % 2) ::send(crowd.back(), "\0\0\0\0\7\0\0", 7, MSG_NOSIGNAL);  // half a head
  }
  CHECK(execute(status).status == 0);
  CHECK(healthSeconds(cluster, "master") >= 0);
  CHECK(bool(client.put("key", "newer")));
  for (const int fd : crowd) ::close(fd);
  CHECK(eventually([&] { return descriptorsOf(cluster, "master") <= descriptors; }));
  CHECK(cluster.client().get("key")->text() == "newer");
}

TEST_CASE("messages of tools and owners with flipped bits, cut or repeated: the master lives and its owner serves") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  // What an owner that joins, serves a put and a get, and leaves says to its master; and what tools ask.
  Place place;
  fs::create_directories(place.root() + "/t/.master");
  std::vector<std::string> said;
  {
    Recorder recorder(place.root() + "/t/.master/socket", masterSocket(cluster));
    const std::string config = place.configure("segment_size = \"8MiB\"\n"),
                      ctl = FLUXON_BIN "/fluxonctl --node n1 --config " + config + " ";
    const pid_t owner =
        inChild([&] { return ::execl(FLUXON_BIN "/fluxon-owner", "fluxon-owner", "--config", config.c_str(), "--node", "n1", nullptr); });
    CHECK(eventually([&] { return execute("echo value | " + ctl + "put other").status == 0; }));
    CHECK(execute(ctl + "get other").status == 0);
    CHECK(execute(ctl + "delete other").status == 0);
    for (const char* verb : {"status", "members", "routes"}) CHECK(execute(ctl + verb).status == 0);
    ::kill(owner, SIGTERM);
    CHECK(waitFor(owner) == 0);
    said = recorder.finish();
  }
  REQUIRE(said.size() >= 4);
  const pid_t pid = cluster.pid("master");
  Random random(seedOf(11));
  for (int round = 0; round < (isLong() ? 5000 : 500); ++round) {
    CAPTURE(round);
    std::string text = said[round % 2 ? 0 : random() % said.size()];
    if (text.empty()) continue;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] ^= static_cast<char>(1 << random() % 8); break;
        case 1: text[at] = static_cast<char>(random()); break;
        case 2:
          if (at / 8 * 8 + 8 <= text.size()) {
            const uint64_t word = awkward(random);
            std::memcpy(&text[at / 8 * 8], &word, 8);
          }
          break;
        default:
          if (random() % 4 == 0) text.resize(at + 1);
          break;
      }
    }
    const int fd = connectTo(masterSocket(cluster), SOCK_STREAM);
    REQUIRE(fd >= 0);
    ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    // Its answers, until it has had the time to act on what it got.
    if (round % 8 == 0) ::shutdown(fd, SHUT_WR);
    char buffer[4096];
    pollfd wait{fd, POLLIN, 0};
    while (::poll(&wait, 1, 2) == 1 && ::read(fd, buffer, sizeof buffer) > 0) {
    }
    ::close(fd);
  }
  CHECK(::kill(pid, 0) == 0);
  CHECK(execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " status").status == 0);
  CHECK(eventually([&] {
    try {
      return bool(client.put("key", "newer", {.timeoutMs = 2000}));
    } catch (const fluxon::Exception&) {
      return false;
    }
  }));
  CHECK(client.get("key")->text() == "newer");
}

TEST_CASE("nonsense, half requests and a crowd on the http port: the page still comes") {
  Cluster cluster;
  for (const std::string process : {"n0", "master"}) {
    const std::string address = httpAddress(cluster, process);
    Random random(seedOf(13));
    std::vector<int> crowd;
    for (int i = 0; i < 200; ++i) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      crowd.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      REQUIRE(::connect(crowd.back(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
      const std::string text = i % 3 == 0 ? noise(random, 500) : i % 3 == 1 ? "GET /metrics HTTP/1.1\r\nHo" : std::string(100'000, 'G');
      ::send(crowd.back(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    CHECK(healthSeconds(cluster, process) >= 0);
    CHECK(httpGet(address, "/nothing").empty() == false);
    for (const int fd : crowd) ::close(fd);
  }
  CHECK(bool(cluster.client().put("key", "value")));
}
