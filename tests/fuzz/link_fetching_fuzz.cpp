// The target's end of a data connection. The input is what its peer does and when: answers, answers with changed bits, anything else,
// and fetches given up meanwhile. A piece ends once; what ended well is what the peer has; nobody writes into memory that was given back.
#include <netinet/in.h>

#include <map>
#include <memory>
#include <random>

#include "base/crc32c.h"
#include "fuzz.h"
#include "link/tcp/puller.h"
#include "link_frames.h"
#include "memory_engine.h"

namespace fluxon::fuzz {
namespace {

using namespace link;
using namespace link::tcp;

constexpr uint64_t kPiece = 24'000;  // more than goes through the buffer
constexpr size_t kMostTransfers = 8;

enum class Act : uint8_t { ask, answer, refuse, spoil, raw, giveUp, acts };

// The bytes of a value from `offset` on.
std::string_view valueOf(uint64_t transfer, uint64_t offset, uint64_t length) {
  static const std::string noise = [] {
    std::mt19937 random(1);
    std::string bytes(1 << 17, '\0');
    for (char& each : bytes) each = static_cast<char>(random());
    return bytes;
  }();
  return std::string_view(noise).substr(transfer * 61 % 4096 + offset, length);
}

// One value that is asked for, in memory of exactly its size.
struct Wanted {
  std::unique_ptr<char[]> memory;
  Transfer transfer;
  uint64_t ended = 0, asked = 0;
  bool good = true;
};

class Target final : public PieceSink {
 public:
  Target() : connection_(std::make_unique<FetchingConnection>(link_, *this, net::Party{"there", Incarnation(7)}, addresses())) {}

  void opened(FetchingConnection&) override { open_ = true; }
  void pieceEnded(Transfer& transfer, Error error) override {
    const auto at = wanted_.find(transfer.fetch.id);
    FLUXON_CHECK(at != wanted_.end() && &at->second.transfer == &transfer, "a piece ends whose memory was given back");
    Wanted& wanted = at->second;
    FLUXON_CHECK(++wanted.ended <= wanted.asked, "a piece ends twice");
    wanted.good &= error.ok();
    if (wanted.ended < wanted.asked) return;
    const std::string_view got(wanted.memory.get(), transfer.fetch.bytes);
    FLUXON_CHECK(!wanted.good || raw_ || got == valueOf(transfer.fetch.id, 0, got.size()), "other bytes than the peer's count as good");
    finished_ += wanted.good;
    wanted_.erase(at);
  }

  bool run(Input& in) {
    most_ = 16 + in.take<uint16_t>();
    if (in.take<uint8_t>() % 8 == 0) {
      engine_.end();
      engine_.toReceive(in.rest());
    } else {
      open();
      while (!in.empty() && !connection_->gone()) act(in);
    }
    engine_.end();
    pump();
    if (!connection_->gone()) connection_->close({Code::unavailable, "the end"});
    pump();
    FLUXON_CHECK(connection_->gone(), "it outlives its peer");
    for (const Piece& piece : connection_->takeLost()) {
      if (piece.transfer) pieceEnded(*piece.transfer, connection_->reason());
    }
    connection_.reset();
    FLUXON_CHECK(wanted_.empty(), "a piece has no end");
    return finished_ > 0;
  }

 private:
  static std::vector<sockaddr_storage> addresses() {
    sockaddr_storage address{};
    address.ss_family = AF_INET;
    return {address};
  }
  void pump() {
    while (!connection_->gone() && engine_.step(most_)) {
    }
  }

  void open() {
    pump();
    net::ServerHandshake server(secret_, net::Purpose::data, {"there", Incarnation(7)});
    const std::string hello = engine_.takeSent();
    FLUXON_CHECK(hello.size() == sizeof(net::ClientHello), "no hello");
    engine_.toReceive(bytesOf(server.answer(Input(hello).take<net::ClientHello>())));
    pump();
    const std::string proof = engine_.takeSent();
    FLUXON_CHECK(proof.size() == sizeof(net::ClientProof), "no proof");
    engine_.toReceive(bytesOf(server.judge(Input(proof).take<net::ClientProof>())));
    pump();
    FLUXON_CHECK(open_, "an honest peer is refused");
  }

  void act(Input& in) {
    switch (static_cast<Act>(in.take<uint8_t>() % static_cast<uint8_t>(Act::acts))) {
      case Act::ask: ask(in.take<uint16_t>()); break;
      case Act::answer: reply(Code::ok, in, 0); break;
      case Act::refuse: reply(static_cast<Code>(in.take<uint8_t>()), in, 0); break;
      case Act::spoil: reply(Code::ok, in, 1 + in.take<uint8_t>() % 3u); break;
      case Act::raw:
        raw_ = true;
        engine_.toReceive(in.take(in.take<uint8_t>()));
        break;
      case Act::giveUp: giveUp(in.take<uint8_t>()); break;
      case Act::acts: break;
    }
    // Not always all that could happen does before the next act.
    for (uint8_t steps = in.take<uint8_t>(); steps > 0 && !connection_->gone() && engine_.step(most_); --steps) {
    }
    collect();
  }

  void ask(uint64_t bytes) {
    if (wanted_.size() == kMostTransfers || !connection_->open()) return;
    const uint64_t id = ++lastId_;
    Wanted& wanted = wanted_[id];
    wanted.memory = std::make_unique<char[]>(bytes);
    wanted.transfer.fetch = {id, "key", 1, PutId(2), 0, wanted.memory.get(), bytes, Time::never(), bytes % 2 != 0};
    uint64_t offset = 0;
    do {
      const uint64_t length = std::min(kPiece, bytes - offset);
      ++wanted.asked;
      connection_->request({&wanted.transfer, offset, length, 0, {}});
      offset += length;
    } while (offset < bytes);
    connection_->flush();
  }

  // Reads what the connection has asked for.
  void collect() {
    std::string sent = engine_.takeSent();
    unparsed_ += sent;
    std::string_view rest = unparsed_;
    ReadRequest request;
    RequestParser::Outcome outcome;
    while ((outcome = parser_.next(rest, request)) == RequestParser::Outcome::request) {
      FLUXON_CHECK(request.sane && request.key == "key", "a request that makes no sense");
      questions_.push_back(request.record);
    }
    FLUXON_CHECK(outcome == RequestParser::Outcome::more, "frames that make no sense");
    unparsed_ = rest;
  }

  void reply(Code code, Input& in, unsigned flips) {
    if (questions_.empty()) return;
    const ReadRecord asked = questions_.front();
    questions_.erase(questions_.begin());
    const uint64_t id = owner(asked);
    const std::string_view bytes = valueOf(id, asked.offset, code == Code::ok ? asked.length : 0);
    const PieceHeader header{asked.tag, asked.offset, bytes.size(), static_cast<uint32_t>(code), crc32c(bytes.data(), bytes.size())};
    std::string whole = std::string(bytesOf(header)).append(bytes);
    for (; flips > 0; --flips) {
      const size_t bit = in.take<uint32_t>() % (whole.size() * 8);
      whole[bit / 8] = static_cast<char>(whole[bit / 8] ^ 1 << bit % 8);
    }
    engine_.toReceive(whole);
  }

  // Whose piece it is: pieces are asked for in order.
  uint64_t owner(const ReadRecord& asked) {
    if (asked.offset == 0) ++answering_;
    return answering_;
  }

  void giveUp(uint8_t which) {
    if (wanted_.empty()) return;
    auto at = std::next(wanted_.begin(), which % static_cast<ptrdiff_t>(wanted_.size()));
    Wanted& wanted = at->second;
    wanted.good = false;
    const unsigned dropped = connection_->drop(wanted.transfer);
    FLUXON_CHECK(wanted.ended + dropped <= wanted.asked, "a piece was dropped that has ended");
    wanted.ended += dropped;
    if (wanted.ended == wanted.asked) wanted_.erase(at);
  }

  const net::Secret secret_;
  MemoryEngine engine_;
  CounterSet<std::atomic<uint64_t>> counters_;
  LinkContext link_{engine_, secret_, {"here", Incarnation(8)}, kPiece, "", seconds(60), seconds(5), counters_, [](const std::string&) {}};
  std::unique_ptr<FetchingConnection> connection_;
  std::map<uint64_t, Wanted> wanted_;
  uint64_t lastId_ = 0, answering_ = 0, finished_ = 0;
  size_t most_ = 1;
  bool open_ = false;
  bool raw_ = false;  // the peer has said what is no answer of ours
  RequestParser parser_;
  std::string unparsed_;
  std::vector<ReadRecord> questions_;
};

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  return Target().run(in);
}

std::vector<std::string> seeds() {
  const auto act = [](Act what, std::string_view more = {}, uint8_t steps = 255) {
    return std::string(1, static_cast<char>(what)).append(more) + static_cast<char>(steps);
  };
  const std::string begin("\xff\xff\1", 3), slow("\0\0\1", 3);
  const std::string small = act(Act::ask, std::string("\x64\0", 2)), large = act(Act::ask, std::string("\0\xf0", 2));
  const std::string answer = act(Act::answer);
  return {begin + small + answer,
          slow + small + small + answer + answer,
          begin + large + answer + answer + answer,
          begin + small + answer + act(Act::ask, std::string("\0\0", 2)) + answer + small + act(Act::refuse, "\1"),
          begin + small + answer + large + act(Act::answer, {}, 1) + act(Act::giveUp, "\0") + answer,
          begin + small + answer + small + act(Act::spoil, std::string("\0\x55\1\0\0", 5)),
          begin + small + answer + small + act(Act::raw, std::string("\4abcd", 5))};
}

}  // namespace fluxon::fuzz
