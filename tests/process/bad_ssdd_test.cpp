// What attaches to an owner as its ssdd and is none, or none in its right mind: the owner lives, serves what is in memory, says so in a
// line, and takes a real one when that has gone.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "base/bell.h"
#include "cluster.h"
#include "loop_device.h"
#include "raw_client.h"
#include "shm/node_socket.h"
#include "ssd/channel.h"
#include "ssd_steps.h"

using namespace fluxon::test;
using fluxon::Code;
using fluxon::PutId;
using fluxon::ssd::Message;
using fluxon::ssd::MessageKind;
namespace bell = fluxon::bell;
namespace ssd = fluxon::ssd;
namespace shm = fluxon::shm;

namespace {

using Random = std::mt19937_64;

// A node with an SSD tier, and a value in memory.
struct Node {
  explicit Node(int leaseMs = 1000)
      : cluster({.owner = "segment_size = \"64MiB\"\n" + ssdLines(folder.path, "64MiB"), .leaseMs = leaseMs}) {
    client.put("here", kHere);
  }
  bool serves() {
    const auto there = client.get("here");
    return there && there->text() == kHere && client.put("other", "value") && client.get("other")->text() == "value";
  }
  // Owner and master have found each other.
  bool joins() {
    return eventually([&] { return codeOf([&] { client.put("joined", "value", {.timeoutMs = 500}); }) == FLUXON_OK; }, 20);
  }
  size_t lines(const std::string& part) const {
    const std::string log = cluster.log("n0");
    size_t count = 0;
    for (size_t at = log.find(part); at != std::string::npos; at = log.find(part, at + 1)) ++count;
    return count;
  }
  bool attached() const { return cluster.metric("n0", "fluxon_owner_ssd_attached") == 1; }
  void worksWithRealOne() {
    CHECK(eventually([&] { return !attached(); }));
    cluster.start("ssdd-n0");
    checkSsd(cluster);
  }

  static inline const std::string kHere = valueOf(7, 50'000);
  const ssd::TemporaryFolder folder;
  Cluster cluster;
  fluxon::Client client = cluster.client();
};

ssd::SsddAttach attachSsdd() {
  static uint64_t life = 1000;
  ssd::SsddAttach request{};
  std::memcpy(request.magic, ssd::kSsddAttachMagic, sizeof request.magic);
  request.version = ssd::kSsddVersion;
  request.life = ++life;
  return request;
}

class Impostor {
 public:
  explicit Impostor(const Node& node) : socket_(connectTo(node.cluster.root() + "/t/n0/socket", SOCK_SEQPACKET)) { REQUIRE(socket_); }

  // Sends bytes as one message; what the owner says to it, or protocol if that is nothing that an ssdd can read.
  Code ask(const void* request, size_t bytes) {
    REQUIRE(::send(socket_.get(), request, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
    ssd::SsddAttached reply{};
    int descriptors[ssd::kSsddDescriptors];
    const ssize_t n = shm::receiveMessage(socket_.get(), &reply, sizeof reply, descriptors, ssd::kSsddDescriptors);
    const shm::Descriptor file(descriptors[0]), segment(descriptors[1]);
    ownersBell_ = shm::Descriptor(descriptors[2]);
    bell_ = shm::Descriptor(descriptors[3]);
    if (n != static_cast<ssize_t>(sizeof reply) || std::memcmp(reply.magic, ssd::kSsddAttachMagic, 8) != 0) return Code::protocol;
    CHECK(bool(file) == (reply.code == 0));
    if (!file) return fluxon::codeFromWire(reply.code);
    map_ = shm::MappedFile::map(file.get(), shm::Access::readWrite, "ssdd").value();
    channel_.emplace(this->file(), ssd::Channel::End::ssdd, ownersBell_.get());
    return Code::ok;
  }
  Impostor& attach() {
    const ssd::SsddAttach request = attachSsdd();
    REQUIRE(ask(&request, sizeof request) == Code::ok);
    return *this;
  }
  // The owner has ended the conversation.
  bool cutOff(int timeoutMs = 20'000) const {
    pollfd waiting{socket_.get(), POLLIN, 0};
    char byte;
    return ::poll(&waiting, 1, timeoutMs) == 1 && ::recv(socket_.get(), &byte, 1, 0) == 0;
  }

  ssd::SsddFile& file() const { return *reinterpret_cast<ssd::SsddFile*>(map_.data()); }
  void ring() const { bell::ring(ownersBell_.get()); }
  void say(Message message) {
    channel_->awake();
    channel_->send(message);
  }
  // The owner has taken everything that was said.
  bool heardOut() {
    channel_->awake();
    return channel_->waiting() == 0 && file().toOwner.head == file().toOwner.tail;
  }
  // The next message of that kind; others are left unanswered.
  Message hear(MessageKind kind) {
    Message message;
    for (;;) {
      channel_->awake();
      const auto received = channel_->receive(message);
      REQUIRE(received != ssd::Channel::Received::broken);
      if (received == ssd::Channel::Received::message && message.kind == kind) return message;
      if (received == ssd::Channel::Received::message || !channel_->sleep()) continue;
      pollfd waiting{bell_.get(), POLLIN, 0};
      REQUIRE_MESSAGE(::poll(&waiting, 1, 20'000) == 1, "no message");
      REQUIRE(bell::clear(bell_.get()));
    }
  }

 private:
  shm::Descriptor socket_, ownersBell_, bell_;
  shm::MappedFile map_;
  std::optional<ssd::Channel> channel_;
};

uint64_t awkward(Random& random) {
  switch (random() % 6) {
    case 0: return random();
    case 1: return random() % 200;
    case 2: return uint64_t{1} << random() % 64;
    case 3: return UINT64_MAX - random() % 5000;
    case 4: return 4096 * (random() % 2000);
    default: return 0;
  }
}

}  // namespace

TEST_CASE("bad ssdd: an attach request of another version, size or magic, a second one and one of no life are refused") {
  Node node;
  const auto refused = [&](const ssd::SsddAttach& request, size_t bytes = sizeof(ssd::SsddAttach)) {
    Impostor impostor(node);
    std::string message(reinterpret_cast<const char*>(&request), sizeof request);
    message.resize(bytes, '\0');
    CHECK(impostor.ask(message.data(), message.size()) == Code::protocol);
    CHECK(impostor.cutOff());
  };
  ssd::SsddAttach request = attachSsdd();
  for (const size_t bytes : {size_t{1}, size_t{8}, sizeof request - 1, sizeof request + 1, sizeof request + 8, size_t{100'000}})
    refused(request, bytes);
  request.version = ssd::kSsddVersion + 1;
  refused(request);
  request = attachSsdd();
  request.magic[7] = '2';
  refused(request);
  request = attachSsdd();
  request.life = 0;
  refused(request);
  CHECK(node.lines("ssdd: it sent no attach request of this version") == 1);
  {
    Impostor first(node);
    first.attach();
    CHECK(node.attached());
    for (int i = 0; i < 3; ++i) {
      Impostor second(node);
      request = attachSsdd();
      CHECK(second.ask(&request, sizeof request) == Code::unavailable);
    }
    CHECK(node.serves());
  }
  CHECK(eventually([&] { return !node.attached(); }));
  // Claims to have what no ssdd of the last life had.
  request = attachSsdd();
  request.entries = 5;
  CHECK(Impostor(node).ask(&request, sizeof request) == Code::fenced);
  CHECK(node.serves());
  node.worksWithRealOne();
}

TEST_CASE("bad ssdd: garbage in its file ends its connection, with a line, and nothing else") {
  Node node;
  Random random(20261130);
  const pid_t pid = node.cluster.pid("n0");
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    CHECK(eventually([&] { return !node.attached(); }));
    Impostor impostor(node);
    impostor.attach();
    ssd::ByteRing& ring = impostor.file().toOwner;
    for (int i = 0; i < 20; ++i) {
      switch (random() % 5) {
        case 0: ring.tail.store(awkward(random)); break;
        case 1: impostor.file().toSsdd.head.store(awkward(random)); break;
        case 2: ring.starved.store(static_cast<uint32_t>(random())); break;
        case 3: {  // anywhere, but for the rings' own bytes
          auto* const bytes = reinterpret_cast<char*>(&impostor.file());
          const size_t at = random() % (offsetof(ssd::SsddFile, toSsdd) - 64);
          for (int n = 0; n < 64; ++n) bytes[at + n] = static_cast<char>(random());
          break;
        }
        default: {
          const ssd::Frame frame{static_cast<uint16_t>(random() % 3 ? 32 + random() % 6 : random()),
                                 static_cast<uint16_t>(random() % 40),
                                 static_cast<uint32_t>(random() % 3 ? random() % 100 : awkward(random)),
                                 awkward(random),
                                 awkward(random),
                                 awkward(random),
                                 awkward(random)};
          const uint64_t tail = ring.tail.load();
          for (size_t n = 0; n < sizeof frame; ++n) ring.bytes[(tail + n) % ssd::kRingBytes] = reinterpret_cast<const char*>(&frame)[n];
          ring.tail.store(tail + sizeof frame + random() % 3 * 8);
        }
      }
      impostor.ring();
    }
    // Whatever came before, this is none.
    ring.tail.store(ring.head.load() + ssd::kRingBytes + 8);
    impostor.ring();
    CHECK(impostor.cutOff());
    if (round % 10 == 0) CHECK(node.serves());
  }
  CHECK(::kill(pid, 0) == 0);
  CHECK(node.lines(" warning ssdd: ") >= 100);
  CHECK(node.serves());
  node.worksWithRealOne();
}

TEST_CASE("bad ssdd: answers to what was never asked are not heard") {
  Node node;
  {
    Impostor impostor(node);
    impostor.attach();
    Random random(7);
    for (uint64_t i = 0; i < 3000; ++i) {
      Message message;
      message.kind = static_cast<MessageKind>(32 + random() % 6);
      message.id = i % 3 ? i / 3 : awkward(random);
      message.key = random() % 3 ? "here" : std::string(random() % 4097, 'k');
      message.putId = PutId(awkward(random));
      message.offset = awkward(random);
      message.bytes = awkward(random);
      message.code = random() % 2 ? Code::ok : Code::corrupt;
      impostor.say(message);
    }
    // What is said later would be about what is asked from now on.
    CHECK(eventually([&] { return impostor.heardOut(); }));
    CHECK(node.serves());
    CHECK(node.attached());
    // A persist that it has not written: what it was taken for is missed, not made up.
    REQUIRE(node.client.put("lost", valueOf(3, 100'000)));
    Message asked = impostor.hear(MessageKind::persist);
    while (asked.key != "lost") asked = impostor.hear(MessageKind::persist);
    for (int twice = 0; twice < 2; ++twice) impostor.say({.kind = MessageKind::persisted, .id = asked.id});
    CHECK(impostor.hear(MessageKind::decided).code == Code::ok);
    CHECK(node.serves());
  }
  CHECK(node.serves());
  node.worksWithRealOne();
}

TEST_CASE("bad ssdd: one that lists what cannot be costs its node nothing that is in memory") {
  struct Listed {
    std::string key;
    uint64_t putId, bytes;
    bool possible;
  };
  const std::vector<Listed> all = {{"", 5, 100, false},
                                   {"x", 0, 100, false},
                                   {"x", 5, UINT64_MAX, false},
                                   {"x", 5, 1 << 30, false},
                                   {"here", UINT64_MAX, 100, true},
                                   {std::string(4096, 'x'), 5, 100, true},
                                   {std::string("\0\n\xff", 3), 5, 0, true}};
  Node node;
  for (const Listed& listed : all) {
    CAPTURE(listed.key.size());
    CAPTURE(listed.putId);
    CAPTURE(listed.bytes);
    CHECK(eventually([&] { return !node.attached(); }));
    const size_t before = node.lines("it lists what cannot be: it is cut off and starts over");
    Impostor impostor(node);
    impostor.attach();
    node.cluster.kill("master");
    node.cluster.start("master");
    impostor.say({.kind = MessageKind::done, .id = impostor.hear(MessageKind::forget).id});
    const uint64_t list = impostor.hear(MessageKind::list).id;
    for (int twice = 0; twice < 2; ++twice)
      impostor.say({.kind = MessageKind::listed, .id = list, .key = listed.key, .putId = PutId(listed.putId), .bytes = listed.bytes});
    impostor.say({.kind = MessageKind::done, .id = list});
    if (!listed.possible) CHECK(impostor.cutOff());
    CHECK(node.lines("it lists what cannot be: it is cut off and starts over") == before + !listed.possible);
    CHECK(node.joins());
    CHECK(node.serves());
  }
  node.worksWithRealOne();
}

TEST_CASE("bad ssdd: one that says nothing keeps its node neither from the next term nor from its memory") {
  Node node(6000);  // a master that has come back waits for two leases
  const std::string value = valueOf(5, 1 << 20);
  {
    Impostor silent(node);
    silent.attach();
    node.cluster.kill("master");
    node.cluster.start("master");
    CHECK(silent.cutOff());
    CHECK(node.joins());
    CHECK(node.serves());
    CHECK(node.lines("ssdd: it does not answer: it is cut off and starts over") == 1);
  }
  {
    Impostor silent(node);
    silent.attach();
    // More than there is memory for, all of it told to be persisted.
    for (int i = 0; i < 100; ++i) CHECK(node.client.put("k" + std::to_string(i), value, {.timeoutMs = 20'000}));
    CHECK(silent.cutOff());
    CHECK(node.lines("ssdd: it does not answer: it is cut off and starts over") == 2);
  }
  CHECK(bool(node.client.get("k99")->text() == value));
  node.worksWithRealOne();
}

TEST_CASE("bad ssdd: one that talks without pause keeps nobody else from being served") {
  Node node;
  {
    Impostor impostor(node);
    impostor.attach();
    std::jthread talks([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) impostor.say({.kind = MessageKind::evicted, .key = "x", .putId = PutId(5)});
    });
    for (int i = 0; i < 20; ++i) {
      CHECK(codeOf([&] { node.client.put("key", "value", {.timeoutMs = 2000}); }) == FLUXON_OK);
      CHECK(httpGet(node.cluster.pages("n0"), "/health").find("\"healthy\":true") != std::string::npos);
    }
  }
  CHECK(eventually([&] { return !node.attached(); }, 20));
  CHECK(node.serves());
}
