// Tcp links that talk to each other over the loopback, over io_uring and over poll().
#include "link_fixture.h"

namespace fluxon::link::tcp {
namespace {

TEST_CASE("tcp link: values of every size arrive bit for bit, and not a byte beside them") {
  onBoth([](Settings settings) {
    settings.pieceBytes = 256 << 10;
    Node source(settings, "s"), target(settings, "t");
    const uint64_t piece = settings.pieceBytes;
    const uint64_t sizes[] = {0,     1,     511,   512,       513,       4095,          4096,          4097,       65535,
                              65536, 65537, piece, piece - 1, piece + 1, 3 * piece - 1, 3 * piece + 1, 20ull << 20};
    uint64_t id = 0;
    for (const uint64_t size : sizes) source.files.put("k" + std::to_string(size), ++id, bytesOf(size, size));
    id = 0;
    for (const uint64_t size : sizes) {
      std::string into(size + 128, '\x5a');
      const Error error = target.get(source.peer(), "k" + std::to_string(size), ++id, into.data() + 64, size);
      CHECK_MESSAGE(error.ok(), size << ": " << error.message());
      const bool same = into == std::string(64, '\x5a') + bytesOf(size, size) + std::string(64, '\x5a');
      CHECK(same);
    }
    CHECK(target.link->engine() == (settings.refuseUring ? "poll" : "io_uring"));
    CHECK(target.link->counters().crcErrors == 0);
    CHECK(source.link->counters().bytesOut == target.link->counters().bytesIn);
  });
}

TEST_CASE("tcp link: a vector of values goes down in one frame and comes back whole") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    std::vector<Fetch> fetches;
    Pages memory(60 * 5000);
    for (uint64_t i = 0; i < 60; ++i) {
      const std::string key = "k" + std::to_string(i);
      source.files.put(key, i + 1, bytesOf(i, 5000));
      fetches.push_back({i, key, keyHash(key), PutId(i + 1), 0, memory.data + i * 5000, 5000, bootTime() + seconds(20)});
    }
    target.link->fetch(source.peer(), fetches);
    for (uint64_t i = 0; i < 60; ++i) {
      CHECK(target.outcome(i).ok());
      CHECK(std::memcmp(memory.data + i * 5000, bytesOf(i, 5000).data(), 5000) == 0);
    }
    CHECK(target.link->counters().submissions == 1);
    CHECK(target.link->counters().descriptors == 60);
    CHECK(target.link->counters().pieces == 60);
  });
}

TEST_CASE("tcp link: more fetches than a window has room for all come through") {
  onBoth([](Settings settings) {
    settings.connectionsPerPeer = 2;
    Node source(settings, "s"), target(settings, "t");
    const std::string value = bytesOf(1, 300);
    source.files.put("k", 1, value);
    Pages memory(2000 * 300);
    std::vector<Fetch> fetches;
    for (uint64_t i = 0; i < 2000; ++i)
      fetches.push_back({i, i % 10 == 3 ? "other" : "k", keyHash("k"), PutId(1), 0, memory.data + i * 300, 300, bootTime() + seconds(20)});
    target.link->fetch(source.peer(), fetches);
    for (uint64_t i = 0; i < 2000; ++i) {
      CHECK(target.outcome(i).code == (i % 10 == 3 ? Code::miss : Code::ok));
      if (i % 10 != 3) CHECK(std::memcmp(memory.data + i * 300, value.data(), 300) == 0);
    }
  });
}

TEST_CASE("tcp link: an IPv6 address in brackets, and a name, are listened on and reached") {
  onBoth([](Settings settings) {
    for (const char* address : {"[::1]:0", "localhost:0", "[127.0.0.1]:0"}) {
      CAPTURE(address);
      settings.listen = parseEndpoint(address).value();
      Node source(settings, "s"), target(settings, "t");
      if (address[1] == ':') CHECK(source.link->address().starts_with("[::1]:"));
      source.files.put("k", 1, "value");
      Pages memory(4096);
      CHECK(target.get(source.peer(), "k", 1, memory.data, 5).ok());
    }
  });
}

TEST_CASE("tcp link: where it cannot listen is said with the address, and is unavailable") {
  Directory files;
  Pages client(sizeof(shm::ClientFile));
  auto& file = *reinterpret_cast<shm::ClientFile*>(client.data);
  Settings settings = settingsOf(true);
  Node taken(settings);
  for (const std::string& address : {taken.link->address(), std::string("[2001:db8::1]:0"), std::string("no.such.host.invalid:1")}) {
    settings.listen = parseEndpoint(address).value();
    const auto link = TcpLink::start(settings, secretOf(kSecret), "n", files.view, file);
    REQUIRE_FALSE(link.ok());
    CHECK(link.error().code == Code::unavailable);
    CHECK(link.error().detail.starts_with("listen on " + address + ": "));
  }
}

TEST_CASE("tcp link: another version, another length or no such key is a miss, and a lapsed lease unavailable") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    source.files.put("k", 3, bytesOf(1, 5000));
    Pages memory(3 << 20);
    CHECK(target.get(source.peer(), "k", 2, memory.data, 5000).code == Code::miss);
    CHECK(target.get(source.peer(), "k", 3, memory.data, 5001).code == Code::miss);
    CHECK(target.get(source.peer(), "other", 3, memory.data, 3 << 20).code == Code::miss);
    source.files.writer.setLease(1);
    CHECK(target.get(source.peer(), "k", 3, memory.data, 5000).code == Code::unavailable);
    source.files.writer.setLease(INT64_MAX);
    CHECK(target.get(source.peer(), "k", 3, memory.data, 5000).ok());
  });
}

TEST_CASE("tcp link: another secret is denied, another incarnation or node unavailable, nobody at the port too") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t"), stranger(settings, "x", "fedcba9876543210");
    source.files.put("k", 1, "value");
    char to[5] = {};
    CHECK(stranger.get(source.peer(), "k", 1, to, 5).code == Code::denied);
    PeerAddress peer = source.peer();
    peer.incarnation = Incarnation(8);
    CHECK(target.get(peer, "k", 1, to, 5).code == Code::unavailable);
    peer = source.peer();
    peer.node = "other";
    CHECK(target.get(peer, "k", 1, to, 5).code == Code::unavailable);
    peer = source.peer();
    peer.address = "127.0.0.1:1";
    CHECK(target.get(peer, "k", 1, to, 5).code == Code::unavailable);
    peer.address = "nonsense";
    CHECK(target.get(peer, "k", 1, to, 5).code == Code::invalidArgument);
    peer.address = "localhost" + source.peer().address.substr(source.peer().address.rfind(':'));
    CHECK(target.get(peer, "k", 1, to, 5).ok());
    CHECK(std::string(to, 5) == "value");
    CHECK(target.link->counters().connectsFailed == 3);
  });
}

TEST_CASE("tcp link: a new incarnation closes what was accepted under the old one") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    source.files.put("k", 1, "value");
    char to[5] = {};
    PeerAddress peer = source.peer();
    REQUIRE(target.get(peer, "k", 1, to, 5).ok());
    source.link->setIncarnation(Incarnation(8));
    CHECK(target.await([&] { return target.link->counters().connectionsOpen == 0; }));
    CHECK(target.get(peer, "k", 1, to, 5).code == Code::unavailable);
    peer.incarnation = Incarnation(8);
    CHECK(target.get(peer, "k", 1, to, 5).ok());
  });
}

TEST_CASE("tcp link: exports are served until they are withdrawn") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    const std::string value = bytesOf(4, 3 << 20);
    source.link->publish(11, value.data(), value.size(), value.size());
    Pages memory(value.size());
    CHECK(target.outcome(target.askExport(source.peer(), 11, memory.data, value.size())).ok());
    CHECK(std::memcmp(memory.data, value.data(), value.size()) == 0);
    CHECK(target.outcome(target.askExport(source.peer(), 12, memory.data, value.size())).code == Code::miss);
    CHECK(target.outcome(target.askExport(source.peer(), 11, memory.data, value.size() - 1)).code == Code::miss);
    source.link->unpublish(11);
    source.link->unpublish(99);
    CHECK(source.await([&] { return source.withdrawn.count(11) && source.withdrawn.count(99); }));
    CHECK(target.outcome(target.askExport(source.peer(), 11, memory.data, value.size())).code == Code::miss);
  });
}

TEST_CASE("tcp link: two owners that fetch from each other at once wait for nobody") {
  onBoth([](const Settings& settings) {
    Node a(settings, "a"), b(settings, "b");
    const std::string value = bytesOf(1, 5 << 20);
    for (Node* node : {&a, &b}) node->files.put("k", 1, value);
    Pages atA(8 * value.size()), atB(8 * value.size());
    for (int i = 0; i < 8; ++i) {
      a.ask(b.peer(), "k", 1, atA.data + i * value.size(), value.size());
      b.ask(a.peer(), "k", 1, atB.data + i * value.size(), value.size());
    }
    for (uint64_t id = 1; id <= 8; ++id) {
      CHECK(a.outcome(id).ok());
      CHECK(b.outcome(id).ok());
      CHECK(std::memcmp(atA.data + (id - 1) * value.size(), value.data(), value.size()) == 0);
      CHECK(std::memcmp(atB.data + (id - 1) * value.size(), value.data(), value.size()) == 0);
    }
  });
}

TEST_CASE("tcp link: fetches cancelled at any moment end once, and nothing is written afterwards") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s"), target(settings, "t");
    const std::string value = bytesOf(1, 16 << 20);
    source.files.put("k", 1, value);
    Pages memory(value.size());
    unsigned cancelled = 0;
    for (int round = 0; round < 40; ++round) {
      const uint64_t id = target.ask(source.peer(), "k", 1, memory.data, value.size());
      const Time until = bootTime() + Duration{(round % 30) * 200'000};
      while (bootTime() < until) {
      }
      if (round % 2 == 0) {
        target.link->cancel(id);
      } else {
        target.link->cancelAll();
      }
      const Error error = target.outcome(id);
      if (error.ok()) {
        CHECK(std::memcmp(memory.data, value.data(), value.size()) == 0);
        continue;
      }
      CHECK(error.code == Code::timedOut);
      ++cancelled;
      std::memset(memory.data, 0x33, value.size());
      // The connections go on: a whole value through them shows that nothing of the old one is still under way.
      Pages other(value.size());
      REQUIRE(target.get(source.peer(), "k", 1, other.data, value.size()).ok());
      CHECK(std::memcmp(other.data, value.data(), value.size()) == 0);
      CHECK(memory.data[0] == '\x33');
      CHECK(std::memcmp(memory.data, memory.data + 1, value.size() - 1) == 0);
    }
    CHECK(cancelled > 10);
    CHECK(target.link->counters().refusedFrames == 0);
    CHECK(target.link->counters().connectionsOpen <= settings.connectionsPerPeer);
  });
}

TEST_CASE("tcp link: the destructor leaves no fetch behind") {
  onBoth([](const Settings& settings) {
    Node source(settings, "s");
    const std::string value = bytesOf(1, 16 << 20);
    source.files.put("k", 1, value);
    for (int round = 0; round < 10; ++round) {
      Pages memory(value.size());
      {
        Node target(settings, "t");
        target.ask(source.peer(), "k", 1, memory.data, value.size());
        const Time until = bootTime() + Duration{round * 500'000};
        while (bootTime() < until) {
        }
      }
      std::memset(memory.data, 0x33, value.size());
    }
    CHECK(source.await([&] { return source.link->counters().connectionsOpen == 0; }));
  });
}

TEST_CASE("tcp link: settings out of range are refused with what is accepted") {
  Directory files;
  Pages client(sizeof(shm::ClientFile));
  const auto start = [&](const Settings& settings) {
    auto link = TcpLink::start(settings, net::Secret(), "n", files.view, *reinterpret_cast<shm::ClientFile*>(client.data));
    return link ? Error{} : link.error();
  };
  Settings settings;
  settings.connectionsPerPeer = 0;
  CHECK(start(settings).code == Code::badConfig);
  settings = {};
  settings.pieceBytes = 1;
  CHECK(start(settings).code == Code::badConfig);
  settings = {};
  settings.congestionControl = "nonsense";
  CHECK(start(settings).code == Code::badConfig);
  settings.listen.enabled = false;
  CHECK(start(settings).code == Code::badConfig);
  settings = {};
  settings.listen.host = "203.0.113.77";
  CHECK(start(settings).code == Code::unavailable);
  settings = {};
  settings.listen.host = "::1";
  CHECK(start(settings).ok());
}

}  // namespace
}  // namespace fluxon::link::tcp
