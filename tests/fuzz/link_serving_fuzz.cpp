// The source's end of a data connection, from its first byte on: a stranger is given nothing; who knows the secret is given what it
// asked for, in order, and nothing else, however the bytes are cut. One export is still coming when its requests do.
#include <map>
#include <memory>
#include <random>

#include "base/crc32c.h"
#include "base/extent.h"
#include "fuzz.h"
#include "link/tcp/serving_connection.h"
#include "link_frames.h"
#include "memory_engine.h"
#include "shm_files.h"

namespace fluxon::fuzz {
namespace {

using namespace link;
using namespace link::tcp;

constexpr uint64_t kExport = 77, kStaged = 79;

enum class End : uint8_t { comes, fails, withdrawn, ends };

struct Value {
  uint64_t putId;
  std::string bytes;
};

std::string bytesFrom(uint32_t seed, size_t length) {
  std::mt19937 random(seed);
  std::string bytes(length, '\0');
  for (char& each : bytes) each = static_cast<char>(random());
  return bytes;
}

// What there is to be asked for; made once.
struct Source {
  NodeFiles files{{4, 64, 65536, 65536}};
  std::map<std::string, Value> values{{"a", {3, bytesFrom(1, 100)}}, {"big", {4, bytesFrom(2, 20'000)}}, {"empty", {5, ""}}};
  std::string exported = bytesFrom(3, 5000);
  Pages client{sizeof(shm::ClientFile)};
  shm::DirectoryView view;
  Source() {
    uint64_t offset = 0;
    for (const auto& [key, value] : values) {
      files.put(key, value.putId, offset, value.bytes);
      offset += extentBytes(value.bytes.size()) + 4096 - extentBytes(value.bytes.size()) % 4096;
    }
    view = shm::DirectoryView::over(files.directory.data, files.directory.size, files.keys.data, files.keys.size, files.segment.data,
                                    files.segment.size)
               .value();
  }
  shm::ClientFile& clientFile() { return *reinterpret_cast<shm::ClientFile*>(client.data); }
  bool holds() {
    for (const shm::HazardShard& shard : clientFile().hazards) {
      for (const shm::Word& word : shard.words) {
        if (word.load() != 0) return true;
      }
    }
    return false;
  }
};

// The answer that this request deserves; `staged` is what the export that was coming has come to.
std::string answerTo(const Source& source, const ReadRequest& request, End staged) {
  const ReadRecord& asked = request.record;
  const auto answer = [&](Code code, std::string_view bytes) {
    const PieceHeader header{asked.tag, asked.offset, bytes.size(), static_cast<uint32_t>(code), crc32c(bytes.data(), bytes.size())};
    return std::string(bytesOf(header)).append(bytes);
  };
  if (!request.sane) return answer(Code::protocol, "");
  const std::string* bytes = nullptr;
  if (asked.exportId != 0) {
    if (asked.exportId == kExport || (asked.exportId == kStaged && staged != End::withdrawn)) bytes = &source.exported;
  } else if (const auto found = source.values.find(request.key); found != source.values.end()) {
    if (found->second.putId == asked.putId && keyHash(request.key) == asked.keyHash) bytes = &found->second.bytes;
  }
  if (!bytes || bytes->size() != asked.valueBytes) return answer(Code::miss, "");
  if (asked.exportId == kStaged && staged == End::fails) return answer(Code::system, "");
  return answer(Code::ok, std::string_view(*bytes).substr(asked.offset, asked.length));
}

}  // namespace

bool run(std::string_view input) {
  static Source& source = *new Source;
  Input in(input);
  const bool honest = in.take<uint8_t>() % 4 != 0;
  const size_t most = 16 + in.take<uint16_t>();
  const End end = static_cast<End>(in.take<uint8_t>() % static_cast<uint8_t>(End::ends));
  const uint64_t ready = in.take<uint16_t>() % (source.exported.size() + 1);
  const std::string_view bytes = in.rest();
  std::string coming = source.exported.substr(0, ready) + std::string(source.exported.size() - ready, '\x5a');

  const net::Secret secret;
  MemoryEngine engine;
  CounterSet<std::atomic<uint64_t>> counters;
  LinkContext link{engine, secret, {"here", Incarnation(7)}, 4096, "", seconds(60), seconds(5), counters, [](const std::string&) {}};
  unsigned withdrawn = 0;
  std::unique_ptr<ServingConnection> connection;
  const auto changed = [&](uint64_t id) {
    if (connection) connection->exportChanged(id);
  };
  ValueSource values(source.view, source.clientFile(), {[&](uint64_t) { ++withdrawn; }, changed});
  values.publish(kExport, source.exported.data(), source.exported.size(), source.exported.size());
  values.publish(kStaged, coming.data(), coming.size(), ready);
  connection = std::make_unique<ServingConnection>(link, values, shm::Descriptor());
  const auto run = [&] {
    while (!connection->gone() && engine.step(most)) {
    }
  };

  if (honest) {
    net::ClientHandshake client(secret, net::Purpose::data, {"there", Incarnation(8)}, Incarnation(7));
    engine.toReceive(bytesOf(client.hello()));
    run();
    net::ServerHello hello;
    const std::string sent = engine.takeSent();
    FLUXON_CHECK(sent.size() == sizeof hello, "no hello");
    std::memcpy(&hello, sent.data(), sizeof hello);
    engine.toReceive(bytesOf(client.answer(hello).value()));
    run();
    FLUXON_CHECK(engine.takeSent() == bytesOf(net::ServerVerdict{}), "an honest peer is refused");
  }
  engine.toReceive(bytes);
  run();
  if (end == End::comes) {
    // In two steps.
    for (const uint64_t upTo : {(ready + coming.size()) / 2, coming.size()}) {
      source.exported.copy(coming.data(), upTo);
      values.advance(kStaged, upTo);
      run();
    }
  } else if (end == End::fails) {
    values.fail(kStaged);
  } else {
    values.unpublish(kStaged);
  }
  run();
  const bool broken = connection->gone();
  FLUXON_CHECK(broken || engine.unread() == 0, "it reads no more and does not say so");
  const std::string sent = engine.takeSent();
  engine.end();
  run();
  FLUXON_CHECK(connection->gone(), "it outlives its peer");
  connection.reset();
  FLUXON_CHECK(!source.holds(), "a value is held for nobody");
  values.unpublish(kExport);
  if (end != End::withdrawn) values.unpublish(kStaged);
  FLUXON_CHECK(withdrawn == 2, "an export is read by nobody and does not end");
  FLUXON_CHECK(counters.connectionsOpen.load() == 0, "connections are counted wrong");

  if (!honest) {
    // At most the hello and a verdict that is none.
    FLUXON_CHECK(sent.size() <= sizeof(net::ServerHello) + sizeof(net::ServerVerdict), "a stranger is given something");
    FLUXON_CHECK(counters.bytesOut.load() == 0 && counters.refusedHellos.load() == 1, "a stranger is given something");
    return sent.size() == sizeof(net::ServerHello);
  }
  RequestParser parser;
  std::string expected;
  std::string_view rest = bytes;
  ReadRequest request;
  RequestParser::Outcome outcome;
  bool waited = false;  // all that comes after it is answered when the end of the export is known
  while ((outcome = parser.next(rest, request)) == RequestParser::Outcome::request) {
    const ReadRecord& asked = request.record;
    waited |= request.sane && asked.exportId == kStaged && asked.valueBytes == coming.size() && asked.offset + asked.length > ready;
    expected += answerTo(source, request, waited ? end : End::comes);
  }
  FLUXON_CHECK(broken == (outcome == RequestParser::Outcome::broken), "the connection ends for no reason, or goes on without sense");
  // What was asked for before the nonsense may or may not be answered.
  FLUXON_CHECK(broken ? std::string_view(expected).starts_with(sent) : sent == expected, "what was sent is not what was asked for");
  return !broken && !expected.empty();
}

std::vector<std::string> seeds() {
  const std::string honest("\1\xff\xff\0\0\0", 6), slow("\1\0\0\0\0\0", 6), stranger("\0\xff\0\0\0\0", 6);
  const std::string comes("\1\xff\xff\0\xe8\3", 6), fails("\1\xff\xff\1\xe8\3", 6), leaves("\1\xff\xff\2\xe8\3", 6);
  const auto piece = [](uint64_t tag, const std::string& key, uint64_t putId, uint64_t whole, uint64_t offset, uint64_t length) {
    return requestOf(tag, key, keyHash(key), putId, whole, offset, length);
  };
  const std::string frame =
      frameOf({piece(1, "big", 4, 20'000, 0, 4096), piece(2, "big", 4, 20'000, 19'000, 1000), piece(3, "a", 3, 100, 0, 100),
               piece(4, "empty", 5, 0, 0, 0), piece(5, "a", 2, 100, 0, 100), piece(6, "none", 3, 100, 0, 100)});
  const std::string other = frameOf(
      {requestOf(7, "", 0, 0, 5000, 100, 4900, kExport), requestOf(8, "", 0, 0, 5000, 0, 1, 78), requestOf(9, "a", 1, 3, 100, 50, 51)});
  const std::string staged = frameOf({requestOf(10, "", 0, 0, 5000, 0, 1000, kStaged), requestOf(11, "", 0, 0, 5000, 1000, 2000, kStaged),
                                      piece(12, "a", 3, 100, 0, 100), requestOf(13, "", 0, 0, 5000, 3000, 2000, kStaged)});
  const net::Secret secret;
  const net::ClientHandshake client(secret, net::Purpose::data, {"there", Incarnation(8)}, Incarnation());
  return {honest + frame,
          slow + frame,
          honest + other,
          slow + frame + other + frame,
          stranger + std::string(bytesOf(client.hello())),
          comes + staged + frame,
          fails + frame + staged + frame,
          leaves + frame + staged};
}

}  // namespace fluxon::fuzz
