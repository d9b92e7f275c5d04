// The rings between an owner and its ssdd: order, room, bells, and a peer that writes nonsense.
#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "base/bell.h"
#include "base/ids.h"
#include "ssd/channel.h"

namespace fluxon::ssd {
namespace {

using Received = Channel::Received;

struct Bell {
  Bell() : fd(bell::make()) { REQUIRE(fd >= 0); }
  ~Bell() { ::close(fd); }
  Bell(const Bell&) = delete;
  // How often it has rung since the last call.
  uint64_t take() const {
    uint64_t count = 0;
    return ::read(fd, &count, sizeof count) == sizeof count ? count : 0;
  }
  void wait() const {
    pollfd waiting{fd, POLLIN, 0};
    REQUIRE_MESSAGE(::poll(&waiting, 1, 20'000) == 1, "nobody rings");
    take();
  }
  const int fd;
};

struct Both {
  Message expect(Channel& at) {
    Message message;
    REQUIRE(at.receive(message) == Received::message);
    return message;
  }

  const std::unique_ptr<SsddFile> file{new SsddFile()};
  Bell ownersBell, ssddsBell;
  Channel owner{*file, Channel::End::owner, ssddsBell.fd};
  Channel ssdd{*file, Channel::End::ssdd, ownersBell.fd};
};

Message persist(uint64_t id, std::string key) {
  return {.kind = MessageKind::persist, .id = id, .key = std::move(key), .putId = PutId(Term(3), id), .offset = id * 64, .bytes = id};
}

bool same(const Message& a, const Message& b) {
  return a.kind == b.kind && a.id == b.id && a.key == b.key && a.putId == b.putId && a.offset == b.offset && a.bytes == b.bytes &&
         a.code == b.code;
}

// One frame in the ring to ssdd, as a peer might have written it.
struct Forged : Both {
  explicit Forged(Frame frame, uint64_t tail = sizeof(Frame)) {
    std::memcpy(file->toSsdd.bytes, &frame, sizeof frame);
    file->toSsdd.tail = tail;
  }
  std::string why() {
    Message message;
    REQUIRE(ssdd.receive(message) == Received::broken);
    CHECK(ssdd.broken());
    CHECK(ssdd.receive(message) == Received::broken);
    ssdd.send({.kind = MessageKind::done});
    CHECK(file->toOwner.tail == 0);
    return ssdd.why();
  }
};
constexpr Frame kGood{static_cast<uint16_t>(MessageKind::load), 0, 0, 1, 2, 3, 4};

TEST_CASE("ssd channel: a message arrives as it was sent, in both directions") {
  Both b;
  Message message;
  CHECK(b.ssdd.receive(message) == Received::nothing);
  const Message there{.kind = MessageKind::decided,
                      .id = 1,
                      .key = std::string("k\0\n", 3),
                      .putId = PutId(Term(1), 7),
                      .offset = UINT64_MAX,
                      .bytes = UINT64_MAX - 1,
                      .code = Code::corrupt};
  b.owner.send(there);
  CHECK(same(b.expect(b.ssdd), there));
  const Message back{.kind = MessageKind::progress, .id = 2, .bytes = 3};
  b.ssdd.send(back);
  CHECK(same(b.expect(b.owner), back));
  CHECK(b.ssdd.receive(message) == Received::nothing);
  CHECK(b.owner.receive(message) == Received::nothing);
}

TEST_CASE("ssd channel: frames wrap at every place of the ring") {
  Both b;
  std::mt19937 random(5);
  uint64_t sent = 0;
  for (uint64_t id = 1; sent < 20 * kRingBytes; ++id) {
    const Message there = persist(id, std::string(random() % (kMaxKeyBytes + 1), static_cast<char>(id)));
    sent += there.key.size() + sizeof(Frame);
    b.owner.send(there);
    REQUIRE(same(b.expect(b.ssdd), there));
  }
}

TEST_CASE("ssd channel: what does not fit waits, and comes in its order") {
  Both b;
  const uint64_t count = 3 * kRingBytes / (sizeof(Frame) + kMaxKeyBytes);
  for (uint64_t id = 1; id <= count; ++id) b.owner.send(persist(id, std::string(kMaxKeyBytes, 'x')));
  CHECK(b.owner.waiting() > count / 2);
  b.owner.send(persist(count + 1, ""));  // would fit, and must not overtake
  for (uint64_t id = 1; id <= count + 1; ++id) {
    Message message;
    if (b.ssdd.receive(message) == Received::nothing) {
      b.owner.awake();
      REQUIRE(b.ssdd.receive(message) == Received::message);
    }
    REQUIRE(message.id == id);
  }
  CHECK(b.owner.waiting() == 0);
}

TEST_CASE("ssd channel: a full ring is full to the last byte") {
  Both b;
  const uint64_t whole = kRingBytes / 64;
  for (uint64_t id = 1; id <= whole; ++id) b.owner.send(persist(id, std::string(24, 'x')));
  CHECK(b.owner.waiting() == 0);
  b.owner.send(persist(whole + 1, ""));
  CHECK(b.owner.waiting() == 1);
  for (uint64_t id = 1; id <= whole; ++id) REQUIRE(b.expect(b.ssdd).id == id);
  b.owner.awake();
  CHECK(b.expect(b.ssdd).id == whole + 1);
}

TEST_CASE("ssd channel: a reader that sleeps is rung once, one that is awake is not") {
  Both b;
  b.owner.send(persist(1, "k"));
  CHECK(b.ssddsBell.take() == 0);
  CHECK_FALSE(b.ssdd.sleep());  // there is something
  b.owner.send(persist(2, "k"));
  CHECK(b.ssddsBell.take() == 0);
  b.expect(b.ssdd), b.expect(b.ssdd);
  CHECK(b.ssdd.sleep());
  for (uint64_t id = 3; id <= 5; ++id) b.owner.send(persist(id, "k"));
  CHECK(b.ssddsBell.take() == 1);
  b.ssdd.awake();
  for (uint64_t id = 3; id <= 5; ++id) CHECK(b.expect(b.ssdd).id == id);
  b.owner.send(persist(6, "k"));
  CHECK(b.ssddsBell.take() == 0);
  CHECK(b.expect(b.ssdd).id == 6);
  CHECK(b.ssdd.sleep());
  b.owner.send(persist(7, "k"));
  CHECK(b.ssddsBell.take() == 1);
  CHECK(b.ownersBell.take() == 0);
}

TEST_CASE("ssd channel: a writer without room is rung when half of the ring is empty") {
  Both b;
  uint64_t id = 0;
  while (b.owner.waiting() < 3) b.owner.send(persist(++id, std::string(1000, 'x')));
  CHECK(b.owner.sleep());
  const uint64_t inRing = id - 3;
  for (uint64_t i = 1; i <= inRing; ++i) {
    b.expect(b.ssdd);
    if (i < inRing / 2 - 1) REQUIRE(b.ownersBell.take() == 0);
    if (i == inRing / 2 + 2) CHECK(b.ownersBell.take() == 1);
  }
  CHECK(b.ownersBell.take() == 0);
  b.owner.awake();
  CHECK(b.owner.waiting() == 0);
  for (int i = 0; i < 3; ++i) b.expect(b.ssdd);
  CHECK(b.ownersBell.take() == 0);  // nothing waits
}

TEST_CASE("ssd channel: each number that makes no sense ends it") {
  Forged good(kGood);
  CHECK(good.expect(good.ssdd).offset == 3);
  Frame frame = kGood;
  for (const uint16_t kind : {0, 9, 31, 40, 65535, static_cast<int>(MessageKind::persisted)}) {
    frame.kind = kind;
    CHECK(Forged(frame).why() == "unknown kind of message " + std::to_string(kind));
  }
  frame = kGood;
  frame.keyBytes = kMaxKeyBytes + 1;
  CHECK(Forged(frame, 8192).why() == "a key of bytes 4097");
  frame.keyBytes = UINT32_MAX;
  CHECK(Forged(frame, 8192).why() == "a key of bytes 4294967295");
  frame.keyBytes = 1;
  CHECK(Forged(frame).why() == "a frame is longer than what there is: bytes 48");
  CHECK(Forged(kGood, 32).why() == "the ring ends in the middle of a frame: bytes left 32");
  CHECK(Forged(kGood, 44).why() == "the ring ends in the middle of a frame: bytes left 44");
  CHECK(Forged(kGood, kRingBytes + 8).why() == "the writer's tail lies outside of the ring: bytes left 1048584");
  CHECK(Forged(kGood, UINT64_MAX - 7).why().starts_with("the writer's tail lies outside"));
}

TEST_CASE("ssd channel: an unknown code is a protocol error of its message and no more") {
  Frame frame = kGood;
  frame.code = 60000;
  Forged f(frame);
  CHECK(f.expect(f.ssdd).code == Code::protocol);
}

TEST_CASE("ssd channel: a head beyond the tail ends the writer's end") {
  Both b;
  b.file->toSsdd.head = 8;
  b.owner.send(persist(1, "k"));
  CHECK(b.owner.broken());
  CHECK(b.owner.why().starts_with("the reader's head lies outside"));
  CHECK(b.file->toSsdd.tail == 0);
}

TEST_CASE("ssd channel: what a peer writes into this end's words changes nothing here") {
  Both b;
  b.owner.send(persist(1, "a"));
  b.file->toSsdd.tail = 0;  // as if nothing had been sent: the next send puts it right
  b.file->toOwner.head = 80;
  b.owner.send(persist(2, "b"));
  CHECK(b.expect(b.ssdd).id == 1);
  CHECK(b.expect(b.ssdd).id == 2);
  Message message;
  CHECK(b.owner.receive(message) == Received::nothing);
  CHECK_FALSE(b.owner.broken());
}

TEST_CASE("ssd channel: random bytes in the file never do more than end it") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    Both b;
    for (uint64_t id = 1; id <= 5; ++id) b.owner.send(persist(id, "key"));
    auto* const words = reinterpret_cast<uint64_t*>(&b.file->toSsdd);
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % 2 ? random() % 24 : 16 + random() % 60;
      words[at] = random() % 2 ? random() : words[at] ^ uint64_t { 1 } << random() % 64;
    }
    Message message;
    for (int i = 0; i < 1000 && b.ssdd.receive(message) == Received::message; ++i) CHECK(message.key.size() <= kMaxKeyBytes);
    b.owner.send(persist(6, "key"));
    b.owner.awake();
  }
}

// Both directions at once; each thread sleeps whenever it may.
void talk(Channel& channel, const Bell& bell, MessageKind kind, uint64_t count, std::atomic<bool>& good) {
  std::mt19937 random(static_cast<unsigned>(kind));
  uint64_t sent = 0, received = 0;
  const auto receive = [&] {
    Message message;
    while (channel.receive(message) == Received::message) {
      const auto fill = static_cast<char>(message.id);
      if (message.id != ++received || message.key.find_first_not_of(fill) != std::string::npos || message.bytes != message.key.size())
        good = false;
    }
  };
  while ((received < count || sent < count || channel.waiting() > 0) && good) {
    for (unsigned n = random() % 300; n > 0 && sent < count && channel.waiting() < 1000; --n) {
      ++sent;
      const std::string key(random() % 16 == 0 ? random() % kMaxKeyBytes : random() % 40, static_cast<char>(sent));
      channel.send({.kind = kind, .id = sent, .key = key, .bytes = key.size()});
    }
    receive();
    const bool idle = channel.waiting() >= 1000 || sent == count;
    if (idle && (received < count || channel.waiting() > 0) && channel.sleep()) {
      pollfd waiting{bell.fd, POLLIN, 0};
      if (::poll(&waiting, 1, 20'000) != 1) good = false;
      bell.take();
    }
    channel.awake();
  }
}

TEST_CASE("ssd channel: two threads, 100,000 messages each way, and nobody sleeps for ever") {
  Both b;
  std::atomic<bool> good = true;
  constexpr uint64_t kCount = 100'000;
  std::thread other([&] { talk(b.ssdd, b.ssddsBell, MessageKind::listed, kCount, good); });
  talk(b.owner, b.ownersBell, MessageKind::persist, kCount, good);
  other.join();
  CHECK(good);
}

}  // namespace
}  // namespace fluxon::ssd
