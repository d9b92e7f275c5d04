// A tcp link whose peer is a plain socket that stops, lies or talks nonsense.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/crc32c.h"
#include "net/handshake.h"
#include "link/tcp/link_format.h"
#include "link_fixture.h"

namespace fluxon::link::tcp {
namespace {

struct Socket {
  explicit Socket(int descriptor) : fd(descriptor) { REQUIRE(fd >= 0); }
  Socket(Socket&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  void write(const void* from, size_t bytes) { CHECK(::send(fd, from, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes)); }
  bool read(void* to, size_t bytes) { return ::recv(fd, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes); }
  template <class Frame>
  void write(const Frame& frame) {
    write(&frame, sizeof frame);
  }
  template <class Frame>
  bool read(Frame& frame) {
    return read(&frame, sizeof frame);
  }
  // The other side has closed it; what it sent before is skipped.
  bool closed() {
    char bytes[4096];
    pollfd waiting{fd, POLLIN, 0};
    while (::poll(&waiting, 1, 20000) == 1) {
      if (::recv(fd, bytes, sizeof bytes, 0) <= 0) return true;
    }
    return false;
  }
  int fd;
};

// A source by hand.
struct RawSource {
  RawSource() : listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    REQUIRE(::bind(listener.fd, reinterpret_cast<sockaddr*>(&at), bytes) == 0);
    REQUIRE(::listen(listener.fd, 8) == 0);
    ::getsockname(listener.fd, reinterpret_cast<sockaddr*>(&at), &bytes);
    peer = {"raw", Incarnation(7), "127.0.0.1:" + std::to_string(ntohs(at.sin_port))};
  }
  // With the handshake behind it.
  Socket accept() {
    Socket socket(::accept(listener.fd, nullptr, nullptr));
    net::ServerHandshake handshake(secret, net::Purpose::data, {"raw", Incarnation(7)});
    net::ClientHello hello;
    REQUIRE(socket.read(hello));
    socket.write(handshake.answer(hello));
    net::ClientProof proof;
    REQUIRE(socket.read(proof));
    socket.write(handshake.judge(proof));
    return socket;
  }
  static std::vector<ReadRecord> readFrame(Socket& socket) {
    FrameHeader header;
    REQUIRE(socket.read(header));
    std::string body(header.bytes, '\0');
    REQUIRE(socket.read(body.data(), body.size()));
    std::vector<ReadRecord> records(header.count);
    size_t at = 0;
    for (ReadRecord& record : records) {
      std::memcpy(&record, body.data() + at, sizeof record);
      at += sizeof record + paddedKeyBytes(record.keyBytes);
    }
    return records;
  }
  static PieceHeader headerOf(const ReadRecord& record, const std::string& payload) {
    return {record.tag, record.offset, record.length, 0, crc32c(payload.data(), payload.size())};
  }
  net::Secret secret = secretOf(kSecret);
  Socket listener;
  PeerAddress peer;
};

template <class Body>
void onBoth(Body body) {
  tcp::onBoth([&](Settings settings) {
    settings.connectionsPerPeer = 1;
    body(settings);
  });
}

bool untouched(const char* memory, size_t bytes) {
  return std::string_view(memory, bytes).find_first_not_of('\x33') == std::string_view::npos;
}

TEST_CASE("tcp peer: one that answers half of a piece and stops costs its fetch the deadline, and writes nothing afterwards") {
  onBoth([](const Settings& settings) {
    RawSource raw;
    Node target(settings, "t");
    const std::string value = bytesOf(1, 400000);
    Pages memory(value.size());
    const uint64_t id = target.ask(raw.peer, "k", 1, memory.data, value.size(), milliseconds(300));
    Socket socket = raw.accept();
    const ReadRecord record = RawSource::readFrame(socket).at(0);
    socket.write(RawSource::headerOf(record, value));
    socket.write(value.data(), value.size() / 2);
    CHECK(target.outcome(id).code == Code::timedOut);
    std::memset(memory.data, 0x33, memory.size);
    ::send(socket.fd, value.data() + value.size() / 2, value.size() / 2, MSG_NOSIGNAL);
    // What comes late is thrown away, on this connection or with it.
    const uint64_t next = target.ask(raw.peer, "k", 1, memory.data, 0, milliseconds(300));
    CHECK_FALSE(target.outcome(next).ok());
    CHECK(untouched(memory.data, memory.size));
  });
}

TEST_CASE("tcp peer: a piece given up half way does not spoil what comes after it on its connection") {
  onBoth([](const Settings& settings) {
    RawSource raw;
    Node target(settings, "t");
    const std::string value = bytesOf(1, 400000);
    Pages memory(value.size()), other(value.size());
    const uint64_t first = target.ask(raw.peer, "k", 1, memory.data, value.size());
    const uint64_t second = target.ask(raw.peer, "k", 1, other.data, value.size());
    Socket socket = raw.accept();
    std::vector<ReadRecord> records;
    while (records.size() < 2) {
      for (const ReadRecord& record : RawSource::readFrame(socket)) records.push_back(record);
    }
    socket.write(RawSource::headerOf(records[0], value));
    socket.write(value.data(), value.size() / 2);
    target.link->cancel(first);
    CHECK(target.outcome(first).code == Code::timedOut);
    std::memset(memory.data, 0x33, memory.size);
    socket.write(value.data() + value.size() / 2, value.size() / 2);
    socket.write(RawSource::headerOf(records[1], value));
    socket.write(value.data(), value.size());
    CHECK(target.outcome(second).ok());
    CHECK(std::memcmp(other.data, value.data(), value.size()) == 0);
    CHECK(untouched(memory.data, memory.size));
  });
}

TEST_CASE("tcp peer: one that never answers, not even the hello, costs the deadline; one that hangs up is unavailable at once") {
  onBoth([](const Settings& settings) {
    RawSource raw;
    Node target(settings, "t");
    char to[8];
    CHECK(target.outcome(target.ask(raw.peer, "k", 1, to, 8, milliseconds(200))).code == Code::timedOut);
    { Socket(::accept(raw.listener.fd, nullptr, nullptr)); }
    CHECK(target.await([&] { return target.link->counters().connectsFailed == 1; }));
    const uint64_t id = target.ask(raw.peer, "k", 1, to, 8);
    {
      Socket socket = raw.accept();
      RawSource::readFrame(socket);
    }
    CHECK(target.outcome(id).code == Code::unavailable);
  });
}

TEST_CASE("tcp peer: a payload that does not fit its checksum is corrupt and counted") {
  onBoth([](const Settings& settings) {
    RawSource raw;
    Node target(settings, "t");
    for (const size_t size : {100, 300000}) {
      std::string value = bytesOf(1, size);
      Pages memory(size);
      const uint64_t id = target.ask(raw.peer, "k", 1, memory.data, size);
      static std::unique_ptr<Socket> socket;
      if (size == 100) socket = std::make_unique<Socket>(raw.accept());
      const PieceHeader header = RawSource::headerOf(RawSource::readFrame(*socket).at(0), value);
      value[size / 2] ^= 1;
      socket->write(header);
      socket->write(value.data(), size);
      CHECK(target.outcome(id).code == Code::corrupt);
    }
    CHECK(target.link->counters().crcErrors == 2);
  });
}

TEST_CASE("tcp peer: an answer to another question closes the connection, and no byte of it is taken") {
  onBoth([](const Settings& settings) {
    for (int field = 0; field < 4; ++field) {
      RawSource raw;
      Node target(settings, "t");
      const std::string value = bytesOf(1, 5000);
      Pages memory(8192);
      std::memset(memory.data, 0x33, memory.size);
      const uint64_t id = target.ask(raw.peer, "k", 1, memory.data, value.size());
      Socket socket = raw.accept();
      PieceHeader header = RawSource::headerOf(RawSource::readFrame(socket).at(0), value);
      if (field == 0) ++header.tag;
      if (field == 1) header.offset += 8;
      if (field == 2) header.length += 1000;
      if (field == 3) header.code = static_cast<uint32_t>(Code::miss);
      socket.write(header);
      socket.write(value.data(), value.size());
      CHECK(target.outcome(id).code == Code::protocol);
      CHECK(untouched(memory.data, memory.size));
      CHECK(target.link->counters().refusedFrames == 1);
    }
  });
}

// A target by hand.
Socket connectTo(const Node& node) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string& address = node.link->address();
  at.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(socket.fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  return socket;
}

Socket shakenWith(const Node& node) {
  Socket socket = connectTo(node);
  static const net::Secret secret = secretOf(kSecret);
  net::ClientHandshake handshake(secret, net::Purpose::data, {"raw", Incarnation(3)}, {});
  socket.write(handshake.hello());
  net::ServerHello hello;
  REQUIRE(socket.read(hello));
  const Result<net::ClientProof> proof = handshake.answer(hello);
  REQUIRE(proof.ok());
  socket.write(proof.value());
  net::ServerVerdict verdict;
  REQUIRE(socket.read(verdict));
  REQUIRE(verdict.code == 0);
  return socket;
}

std::string frameFor(const std::string& key, uint64_t putId, uint64_t valueBytes, uint64_t offset, uint64_t length, uint32_t times = 1) {
  std::string body;
  for (uint32_t i = 0; i < times; ++i) {
    const ReadRecord record{i + 1, keyHash(key), putId, 0, valueBytes, offset, length, static_cast<uint32_t>(key.size()), 0};
    body.append(reinterpret_cast<const char*>(&record), sizeof record).append(key).append(paddedKeyBytes(key.size()) - key.size(), '\0');
  }
  FrameHeader header{{}, kReadKind, times, static_cast<uint32_t>(body.size())};
  std::memcpy(header.magic, kFrameMagic, sizeof header.magic);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

// Descriptors for many connections of which both ends are here.
void manyDescriptors() {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST_CASE("tcp peer: 600 connections that say nothing keep nobody out, and the oldest of them end") {
  manyDescriptors();
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    source.files.put("k", 1, "value");
    std::vector<Socket> silent;
    for (int i = 0; i < 600; ++i) silent.push_back(connectTo(source));
    Pages memory(4096);
    CHECK(target.get(source.peer(), "k", 1, memory.data, 5).ok());
    CHECK(silent.front().closed());
    CHECK(source.link->counters().connectionsOpen == 1);
  });
}

TEST_CASE("tcp peer: of more connections than are kept, the one that was idle for the longest time gives way") {
  manyDescriptors();
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    source.files.put("k", 1, "value");
    std::vector<Socket> others;
    Pages memory(4096);
    for (int i = 0; i < 256; ++i) others.push_back(shakenWith(source));
    CHECK(target.get(source.peer(), "k", 1, memory.data, 5).ok());  // its connection is used after those were
    for (int i = 0; i < 256; ++i) others.push_back(shakenWith(source));
    CHECK(others.front().closed());
    CHECK(target.get(source.peer(), "k", 1, memory.data, 5).ok());
    CHECK(source.await([&] { return source.link->counters().connectionsOpen == 512; }));
    CHECK(target.link->counters().connectsFailed == 0);
    CHECK(target.link->counters().connectionsOpen == 1);
  });
}

TEST_CASE("tcp peer: random and truncated bytes at the port are refused and counted, and others are served") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    source.files.put("k", 1, "value");
    std::mt19937_64 random(7);
    for (int i = 0; i < 20; ++i) {
      Socket raw = i % 2 == 0 ? connectTo(source) : shakenWith(source);
      const std::string noise = bytesOf(random(), 104 + random() % 5000);
      ::send(raw.fd, noise.data(), noise.size(), MSG_NOSIGNAL);
      CHECK(raw.closed());
    }
    {
      Socket half = connectTo(source);
      half.write("FLX", 3);
      Socket frame = shakenWith(source);
      const std::string good = frameFor("k", 1, 5, 0, 5);
      frame.write(good.data(), good.size() - 9);
    }
    char to[5];
    CHECK(target.get(source.peer(), "k", 1, to, 5).ok());
    CHECK(source.await([&] { return source.link->counters().refusedHellos == 11; }));
    CHECK(source.link->counters().refusedFrames == 10);
  });
}

TEST_CASE("tcp peer: a request outside of its value is answered with protocol, and the connection lives") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s");
    source.files.put("k", 1, "value");
    Socket raw = shakenWith(source);
    const auto ask = [&](uint64_t offset, uint64_t length) {
      const std::string frame = frameFor("k", 1, 5, offset, length);
      raw.write(frame.data(), frame.size());
      PieceHeader header;
      REQUIRE(raw.read(header));
      std::string payload(header.length, '\0');
      if (header.length > 0) REQUIRE(raw.read(payload.data(), payload.size()));
      CHECK(header.crc32c == crc32c(payload.data(), payload.size()));
      return header.code == 0 ? payload : std::string(codeName(codeFromWire(header.code)));
    };
    CHECK(ask(0, 6) == "protocol");
    CHECK(ask(6, 0) == "protocol");
    CHECK(ask(UINT64_MAX, 2) == "protocol");
    CHECK(ask(1, UINT64_MAX) == "protocol");
    CHECK(ask(1, 3) == "alu");
    CHECK(ask(5, 0) == "");
    CHECK(source.link->counters().refusedFrames == 4);
  });
}

TEST_CASE("tcp peer: one that stops reading holds its value by a hazard word, delays nobody, and is given up") {
  onBoth([](Settings settings) {
    settings.stall = seconds(2);
    Node source(settings, "s"), target(settings, "t");
    const std::string value = bytesOf(1, 40 << 20);
    const uint32_t slot = source.files.put("big", 1, value);
    source.files.put("k", 1, "value");
    const uint64_t ref = source.files.writer.ref(slot);
    const auto held = [&]() -> bool { return shm::scanHazards({&source.clientFile()}, {ref})[0]; };
    Socket raw = shakenWith(source);
    const std::string frame = frameFor("big", 1, value.size(), 0, value.size());
    raw.write(frame.data(), frame.size());
    CHECK(source.await(held));
    // Overwritten: retired, but not to be reused while the send goes on.
    source.files.writer.retire(slot);
    CHECK(held());
    char to[5];
    CHECK(target.get(source.peer(), "k", 1, to, 5).ok());
    CHECK(source.await([&] { return !held(); }));
    CHECK(raw.closed());
  });
}

TEST_CASE("tcp peer: an overwritten value goes on as it was to those who were being sent it, and is a miss for others") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    const std::string value = bytesOf(1, 40 << 20);
    const uint32_t slot = source.files.put("big", 1, value);
    const uint64_t ref = source.files.writer.ref(slot);
    Socket raw = shakenWith(source);
    const std::string frame = frameFor("big", 1, value.size(), 0, value.size());
    raw.write(frame.data(), frame.size());
    const auto held = [&]() -> bool { return shm::scanHazards({&source.clientFile()}, {ref})[0]; };
    CHECK(source.await(held));
    source.files.writer.retire(slot);
    Pages memory(value.size());
    CHECK(target.get(source.peer(), "big", 1, memory.data, value.size()).code == Code::miss);
    PieceHeader header;
    REQUIRE(raw.read(header));
    REQUIRE(raw.read(memory.data, value.size()));
    CHECK(std::memcmp(memory.data, value.data(), value.size()) == 0);
    CHECK(source.await([&] { return !held(); }));
  });
}

TEST_CASE("tcp peer: an export is withdrawn when the last send that reads it has ended") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s");
    const std::string value = bytesOf(1, 40 << 20);
    source.link->publish(5, value.data(), value.size(), value.size());
    Socket raw = shakenWith(source);
    std::string frame = frameFor("", 0, value.size(), 0, value.size());
    ReadRecord record;
    std::memcpy(&record, frame.data() + sizeof(FrameHeader), sizeof record);
    record.exportId = 5;
    std::memcpy(frame.data() + sizeof(FrameHeader), &record, sizeof record);
    raw.write(frame.data(), frame.size());
    PieceHeader header;
    REQUIRE(raw.read(header));
    CHECK(header.code == 0);
    source.link->unpublish(5);
    source.link->unpublish(6);
    CHECK(source.await([&] { return source.withdrawn.count(6) != 0; }));
    CHECK(source.withdrawn.count(5) == 0);
    std::string got(value.size(), '\0');
    REQUIRE(raw.read(got.data(), got.size()));
    const bool same = got == value;
    CHECK(same);
    CHECK(source.await([&] { return source.withdrawn.count(5) == 1; }));
  });
}

}  // namespace
}  // namespace fluxon::link::tcp
