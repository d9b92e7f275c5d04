// The parser of the data link's requests: bytes from anybody.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "link/tcp/request_parser.h"

namespace fluxon::link::tcp {
namespace {

using Outcome = RequestParser::Outcome;

ReadRecord recordOf(uint64_t tag, uint64_t keyBytes) { return {tag, 11, 12, 0, 1000, 100, 200, static_cast<uint32_t>(keyBytes), 0}; }

std::string frameOf(const std::vector<ReadRecord>& records, const std::string& key) {
  std::string body;
  for (const ReadRecord& record : records) {
    body.append(reinterpret_cast<const char*>(&record), sizeof record);
    body.append(key).append(paddedKeyBytes(key.size()) - key.size(), '\0');
  }
  FrameHeader header{{}, kReadKind, static_cast<uint32_t>(records.size()), static_cast<uint32_t>(body.size())};
  std::memcpy(header.magic, kFrameMagic, sizeof header.magic);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

struct Parsed {
  std::vector<ReadRequest> requests;
  const char* why = nullptr;
  size_t left = 0;
};

// Hands `bytes` over as a connection would: `step` more at a time.
Parsed parse(std::string_view bytes, size_t step) {
  RequestParser parser;
  Parsed parsed;
  std::string buffer;
  for (size_t at = 0; at < bytes.size() && !parsed.why; at += step) {
    buffer.append(bytes.substr(at, step));
    std::string_view rest = buffer;
    for (;;) {
      ReadRequest request;
      const Outcome outcome = parser.next(rest, request);
      if (outcome == Outcome::request) {
        parsed.requests.push_back(request);
        continue;
      }
      if (outcome == Outcome::broken) parsed.why = parser.why();
      break;
    }
    buffer.erase(0, buffer.size() - rest.size());
    if (!parsed.why) CHECK(buffer.size() < kMaxRecordBytes);
  }
  parsed.left = buffer.size();
  return parsed;
}

TEST_CASE("request parser: frames in pieces of any size give the same requests") {
  const std::string key = "a key";
  const std::string bytes = frameOf({recordOf(1, 5), recordOf(2, 5)}, key) + frameOf({recordOf(3, 5)}, key);
  for (const size_t step : {1, 7, 16, 64, 100, 1000}) {
    const Parsed parsed = parse(bytes, step);
    CHECK(parsed.why == nullptr);
    REQUIRE(parsed.requests.size() == 3);
    for (uint64_t i = 0; i < 3; ++i) {
      CHECK(parsed.requests[i].record.tag == i + 1);
      CHECK(parsed.requests[i].key == key);
      CHECK(parsed.requests[i].sane);
    }
    CHECK(parsed.left == 0);
  }
}

TEST_CASE("request parser: keys of no byte and of the most bytes pass, one more breaks") {
  CHECK(parse(frameOf({recordOf(1, 0)}, ""), 100).requests.size() == 1);
  CHECK(parse(frameOf({recordOf(1, kMaxKeyBytes)}, std::string(kMaxKeyBytes, 'k')), 100).requests.size() == 1);
  CHECK(parse(frameOf({recordOf(1, kMaxKeyBytes + 1)}, std::string(kMaxKeyBytes + 1, 'k')), 100).why != nullptr);
}

TEST_CASE("request parser: a piece outside of its value, wrapped or longer than a piece may be is not sane") {
  const auto sane = [](uint64_t value, uint64_t offset, uint64_t length) {
    ReadRecord record = recordOf(1, 1);
    record.valueBytes = value;
    record.offset = offset;
    record.length = length;
    const Parsed parsed = parse(frameOf({record}, "k"), 4096);
    REQUIRE(parsed.requests.size() == 1);
    return parsed.requests[0].sane;
  };
  CHECK(sane(100, 0, 100));
  CHECK(sane(100, 100, 0));
  CHECK(sane(0, 0, 0));
  CHECK(sane(UINT64_MAX, UINT64_MAX - 5, 5));
  CHECK_FALSE(sane(100, 0, 101));
  CHECK_FALSE(sane(100, 101, 0));
  CHECK_FALSE(sane(100, UINT64_MAX, 2));
  CHECK_FALSE(sane(100, 2, UINT64_MAX));
  CHECK_FALSE(sane(UINT64_MAX, 0, kMaxPieceBytes + 1));
}

TEST_CASE("request parser: a header that is wrong in any field breaks, and nothing is parsed after it") {
  const std::string good = frameOf({recordOf(1, 1), recordOf(2, 1)}, "k");
  const auto broken = [&](auto change) {
    std::string bytes = good;
    FrameHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    change(header);
    std::memcpy(bytes.data(), &header, sizeof header);
    const Parsed parsed = parse(bytes + good, 4096);
    return parsed.why != nullptr && parsed.requests.size() < 2;
  };
  CHECK(broken([](FrameHeader& h) { h.magic[0] = 'X'; }));
  CHECK(broken([](FrameHeader& h) { h.kind = 2; }));
  CHECK(broken([](FrameHeader& h) { h.count = 0; }));
  CHECK(broken([](FrameHeader& h) { h.count = kMaxFrameRecords + 1; }));
  CHECK(broken([](FrameHeader& h) { h.count = 1; }));
  CHECK(broken([](FrameHeader& h) { h.count = 3; }));
  CHECK(broken([](FrameHeader& h) { h.bytes -= 8; }));
  CHECK(broken([](FrameHeader& h) { h.bytes = UINT32_MAX; }));
  CHECK_FALSE(broken([](FrameHeader&) {}));
}

TEST_CASE("request parser: random bytes, and good frames with flipped bits, do no more than break") {
  std::mt19937_64 random(20261130);
  const std::string key = "some key";
  unsigned broken = 0, whole = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    if (round % 4 == 0) {
      bytes.resize(random() % 300);
      for (char& each : bytes) each = static_cast<char>(random());
      if (round % 8 == 0) bytes.insert(0, kFrameMagic);
    } else {
      for (uint64_t frames = random() % 4; frames-- > 0;)
        bytes += frameOf(std::vector<ReadRecord>(1 + random() % 5, recordOf(random(), key.size())), key);
      for (uint64_t flips = random() % 3; flips-- > 0 && !bytes.empty();)
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
      bytes.resize(bytes.size() - std::min<uint64_t>(bytes.size(), random() % 40));
    }
    const size_t step = 1 + random() % 200;
    const Parsed parsed = parse(bytes, step);
    // How the bytes are cut changes nothing.
    const Parsed again = parse(bytes, 1 + random() % 200);
    CHECK((parsed.why == nullptr) == (again.why == nullptr));
    CHECK(parsed.requests.size() == again.requests.size());
    broken += parsed.why != nullptr;
    whole += parsed.why == nullptr && !parsed.requests.empty();
    for (const ReadRequest& request : parsed.requests) {
      CHECK(request.key.size() <= kMaxKeyBytes);
      if (request.sane) CHECK(request.record.offset + request.record.length <= request.record.valueBytes);
    }
  }
  CHECK(broken > 1000);
  CHECK(whole > 1000);
}

}  // namespace
}  // namespace fluxon::link::tcp
