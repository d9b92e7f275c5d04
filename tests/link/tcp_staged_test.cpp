// Exports whose bytes are still coming while peers ask for them.
#include "link_fixture.h"

namespace fluxon::link::tcp {
namespace {

constexpr uint64_t kPiece = 40 << 10;

Settings smallPieces(Settings settings) {
  settings.pieceBytes = kPiece;
  return settings;
}
Settings oneConnection(Settings settings) {
  settings.connectionsPerPeer = 1;
  return smallPieces(settings);
}

// An extent that a disk fills: what has not come yet is a pattern.
struct Staging {
  Staging(Node& node, uint64_t exportId, uint64_t bytes, uint64_t come = 0)
      : source(node), id(exportId), value(bytesOf(exportId, bytes)), extent(bytes, '\x5a') {
    value.copy(extent.data(), come);
    source.link->publish(id, extent.data(), extent.size(), come);
    ready = come;
  }
  ~Staging() {
    if (source.withdrawn.count(id) == 0) source.link->unpublish(id);
    CHECK(source.await([&] { return source.withdrawn.count(id) == 1; }));
  }
  void come(uint64_t upTo) {
    value.copy(extent.data() + ready, upTo - ready, ready);
    source.link->advance(id, upTo);
    ready = upTo;
  }
  void comeWhole() { come(value.size()); }
  bool is(const Pages& memory) const { return std::memcmp(memory.data, value.data(), value.size()) == 0; }

  Node& source;
  const uint64_t id;
  const std::string value;
  std::string extent;
  uint64_t ready = 0;
};

// The first `pieces` pieces have come, so the requests behind them are at the source.
bool arrived(Node& target, uint64_t pieces) {
  return target.await([&] { return target.link->counters().pieces >= pieces; });
}

TEST_CASE("tcp staged: each piece is sent when its last byte has come, and not before") {
  onBoth([](const Settings& settings) {
    Node source(smallPieces(settings), "s"), target(smallPieces(settings), "t");
    const uint64_t bytes = 40 * kPiece + 777;
    Staging staging(source, 3, bytes);
    Pages memory(bytes);
    const uint64_t id = target.askStaged(source.peer(), 3, memory.data, bytes);
    source.files.put("k", 1, "value");
    uint64_t others = 0;
    for (uint64_t piece = 1; staging.ready < bytes; ++piece) {
      CHECK(target.ended.count(id) == 0);
      staging.come(piece * kPiece - 1);
      // Once this is here the source has heard of that.
      char to[5];
      REQUIRE(target.get(source.peer(), "k", 1, to, sizeof to).ok());
      CHECK(target.link->counters().pieces == piece - 1 + ++others);
      staging.come(std::min(bytes, staging.ready + 7001));
      const uint64_t whole = piece + (staging.ready == bytes);
      REQUIRE(arrived(target, whole + others));
    }
    CHECK(target.outcome(id).ok());
    CHECK(staging.is(memory));
    // Who comes late finds it whole.
    Pages again(bytes);
    CHECK(target.outcome(target.askStaged(source.peer(), 3, again.data, bytes)).ok());
    CHECK(staging.is(again));
    CHECK(target.link->counters().crcErrors == 0);
  });
}

TEST_CASE("tcp staged: several peers wait for one export, and each gets all of it") {
  onBoth([](const Settings& settings) {
    Node source(smallPieces(settings), "s"), a(smallPieces(settings), "a"), b(oneConnection(settings), "b");
    Staging staging(source, 3, 9 * kPiece, kPiece), other(source, 4, 2 * kPiece, kPiece);
    Pages atA(9 * kPiece), atB(9 * kPiece), behind(2 * kPiece);
    const uint64_t ofA = a.askStaged(source.peer(), 3, atA.data, atA.size), ofB = b.askStaged(source.peer(), 3, atB.data, atB.size);
    const uint64_t then = b.askStaged(source.peer(), 4, behind.data, behind.size);
    CHECK(arrived(a, 1));
    CHECK(arrived(b, 1));
    other.comeWhole();
    staging.come(5 * kPiece);
    CHECK(arrived(a, 5));
    CHECK(arrived(b, 5));
    staging.comeWhole();
    CHECK(a.outcome(ofA).ok());
    CHECK(b.outcome(ofB).ok());
    CHECK(b.outcome(then).ok());
    CHECK(staging.is(atA));
    CHECK(staging.is(atB));
    CHECK(other.is(behind));
  });
}

TEST_CASE("tcp staged: an export that fails ends its fetches with system, also those that come later") {
  onBoth([](const Settings& settings) {
    Node source(smallPieces(settings), "s"), target(smallPieces(settings), "t");
    Staging staging(source, 3, 20 * kPiece, 2 * kPiece), other(source, 4, kPiece, kPiece);
    Pages memory(20 * kPiece);
    const uint64_t id = target.askStaged(source.peer(), 3, memory.data, memory.size);
    CHECK(arrived(target, 2));
    CHECK(target.ended.count(id) == 0);
    source.link->fail(3);
    CHECK(target.outcome(id).code == Code::system);
    CHECK(target.outcome(target.askStaged(source.peer(), 3, memory.data, memory.size)).code == Code::system);
    // The connections go on.
    CHECK(target.outcome(target.askStaged(source.peer(), 4, memory.data, kPiece)).ok());
    CHECK(target.link->counters().refusedFrames == 0);
  });
}

TEST_CASE("tcp staged: an export that is withdrawn is a miss for those who wait for it, and what is said of it later is nothing") {
  onBoth([](const Settings& settings) {
    Node source(smallPieces(settings), "s"), target(smallPieces(settings), "t");
    Staging staging(source, 3, 20 * kPiece, 2 * kPiece);
    Pages memory(20 * kPiece);
    const uint64_t id = target.askStaged(source.peer(), 3, memory.data, memory.size);
    CHECK(arrived(target, 2));
    source.link->unpublish(3);
    CHECK(target.outcome(id).code == Code::miss);
    CHECK(source.await([&] { return source.withdrawn.count(3) == 1; }));
    source.link->advance(3, 20 * kPiece);
    source.link->fail(3);
    CHECK(target.outcome(target.askStaged(source.peer(), 3, memory.data, memory.size)).code == Code::miss);
  });
}

TEST_CASE("tcp staged: one that waits holds up no other read of its peer") {
  onBoth([](const Settings& settings) {
    Node source(oneConnection(settings), "s"), target(oneConnection(settings), "t");
    source.files.put("k", 1, bytesOf(1, 5 * kPiece));
    const std::string put = bytesOf(2, kPiece);
    source.link->publish(5, put.data(), put.size(), put.size());
    Staging staging(source, 3, 2 * kPiece, kPiece);
    Pages memory(2 * kPiece), other(5 * kPiece);
    const uint64_t id = target.askStaged(source.peer(), 3, memory.data, memory.size);
    CHECK(arrived(target, 1));
    CHECK(target.get(source.peer(), "k", 1, other.data, other.size).ok());
    CHECK(target.outcome(target.askExport(source.peer(), 5, other.data, kPiece)).ok());
    CHECK(target.ended.count(id) == 0);
    staging.comeWhole();
    CHECK(target.outcome(id).ok());
    CHECK(staging.is(memory));
    CHECK(target.link->counters().connectionsOpen == 2);
  });
}

TEST_CASE("tcp staged: one that waits and is given up writes nothing afterwards, and what was behind it comes") {
  onBoth([](const Settings& settings) {
    for (const bool cancels : {true, false}) {
      Node source(oneConnection(settings), "s"), target(oneConnection(settings), "t");
      Staging first(source, 3, 8 * kPiece, kPiece), second(source, 4, 6 * kPiece, 6 * kPiece);
      Pages memory(8 * kPiece), other(6 * kPiece);
      const uint64_t id = target.askStaged(source.peer(), 3, memory.data, memory.size, cancels ? seconds(20) : milliseconds(300));
      const uint64_t behind = target.askStaged(source.peer(), 4, other.data, other.size);
      CHECK(arrived(target, 1));
      if (cancels) target.link->cancel(id);
      CHECK(target.outcome(id).code == Code::timedOut);
      std::memset(memory.data, 0x33, memory.size);
      CHECK(target.outcome(behind).ok());
      CHECK(second.is(other));
      first.comeWhole();
      CHECK(target.outcome(target.askStaged(source.peer(), 4, other.data, other.size)).ok());
      CHECK(std::string_view(memory.data, memory.size).find_first_not_of('\x33') == std::string_view::npos);
      CHECK(source.await([&] { return source.link->counters().connectionsOpen == 1; }));
    }
  });
}

TEST_CASE("tcp staged: all that wait can be given up at once, and others come through afterwards") {
  onBoth([](const Settings& settings) {
    Node source(smallPieces(settings), "s"), target(smallPieces(settings), "t");
    Staging first(source, 3, 8 * kPiece, kPiece), second(source, 4, 6 * kPiece, 0);
    Pages memory(8 * kPiece), other(6 * kPiece);
    for (int round = 0; round < 20; ++round) {
      const uint64_t before = target.link->counters().pieces;
      const uint64_t a = target.askStaged(source.peer(), 3, memory.data, memory.size);
      const uint64_t b = target.askStaged(source.peer(), 4, other.data, other.size);
      if (round % 2 == 0) CHECK(arrived(target, before + 1));
      target.link->cancelAll();
      CHECK(target.outcome(a).code == Code::timedOut);
      CHECK(target.outcome(b).code == Code::timedOut);
    }
    const uint64_t last = target.askStaged(source.peer(), 4, other.data, other.size);
    second.comeWhole();
    CHECK(target.outcome(last).ok());
    CHECK(second.is(other));
  });
}

TEST_CASE("tcp staged: a connection that is lost while a request waits is unavailable to the one side and nothing to the other") {
  onBoth([](const Settings& settings) {
    Node source(smallPieces(settings), "s");
    Staging staging(source, 3, 8 * kPiece, kPiece);
    Pages memory(8 * kPiece);
    {
      Node target(smallPieces(settings), "t");
      target.askStaged(source.peer(), 3, memory.data, memory.size);
      CHECK(arrived(target, 1));
    }
    CHECK(source.await([&] { return source.link->counters().connectionsOpen == 0; }));
    Node target(smallPieces(settings), "t");
    const uint64_t id = target.askStaged(source.peer(), 3, memory.data, memory.size);
    CHECK(arrived(target, 1));
    source.link->setIncarnation(Incarnation(8));
    CHECK(target.outcome(id).code == Code::unavailable);
    staging.comeWhole();
    PeerAddress peer = source.peer();
    peer.incarnation = Incarnation(8);
    CHECK(target.outcome(target.askStaged(peer, 3, memory.data, memory.size)).ok());
    CHECK(staging.is(memory));
  });
}

TEST_CASE("tcp staged: waiting for bytes is no stall of the peer, but it ends with the time for idle connections") {
  onBoth([](Settings settings) {
    settings = oneConnection(settings);
    Node target(settings, "t");
    settings.stall = milliseconds(200);
    settings.idle = seconds(2);
    Node source(settings, "s");
    Staging staging(source, 3, 3 * kPiece, kPiece);
    Pages memory(3 * kPiece);
    const uint64_t id = target.askStaged(source.peer(), 3, memory.data, memory.size);
    CHECK(arrived(target, 1));
    CHECK_FALSE(target.await([&] { return target.ended.count(id) != 0; }, milliseconds(500)));
    staging.come(2 * kPiece);
    CHECK(arrived(target, 2));
    CHECK_FALSE(target.await([&] { return target.ended.count(id) != 0; }, milliseconds(1200)));
    // What comes is less than a piece, and does not prolong the wait.
    staging.come(2 * kPiece + 1);
    const Time from = bootTime();
    CHECK(target.outcome(id).code == Code::unavailable);
    CHECK(bootTime() - from < milliseconds(1800));
    CHECK(source.await([&] { return source.link->counters().connectionsOpen == 0; }));
  });
}

}  // namespace
}  // namespace fluxon::link::tcp
