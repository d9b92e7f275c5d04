// The master's state file: its text, and that nothing damaged is believed.
#include <doctest/doctest.h>

#include <cstdio>

#include "state_file.h"

namespace fluxon::master {
namespace {

DurableState state() {
  DurableState s;
  s.cluster = "prod";
  s.clusterId = "00000000000000f3";
  s.term = Term(17);
  s.leaseMs = 10000;
  s.members = {{"a", Incarnation(5)}, {"node-2", Incarnation()}};
  return s;
}

// CRC-32C, bit by bit.
std::string checksumLine(const std::string& text) {
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  char line[16];
  std::snprintf(line, sizeof line, "crc %08x\n", ~crc);
  return line;
}

TEST_CASE("state file: the text is exactly this") {
  CHECK(formatState(state()) ==
        "fluxon-state 1\ncluster prod\ncluster-id 00000000000000f3\nterm 17\nlease-ms 10000\n"
        "member a 0000000000000005\nmember node-2 0000000000000000\n"
        "crc a8ecc47b\n");
}

TEST_CASE("state file: what was written is read") {
  const Result<DurableState> read = parseState(formatState(state()), "f");
  REQUIRE(read);
  CHECK(read.value().cluster == "prod");
  CHECK(read.value().clusterId == "00000000000000f3");
  CHECK(read.value().term == Term(17));
  CHECK(read.value().leaseMs == 10000);
  CHECK((read.value().members == std::map<std::string, Incarnation>{{"a", Incarnation(5)}, {"node-2", Incarnation()}}));
}

TEST_CASE("state file: every flipped bit is refused, and the error says what to do") {
  const std::string good = formatState(state());
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1 << bit);
      CAPTURE(at);
      CAPTURE(bit);
      const Result<DurableState> read = parseState(bad, "f");
      REQUIRE_FALSE(read.ok());
      CHECK(read.error().code == Code::corrupt);
      CHECK(read.error().detail.find("f: ") == 0);
      CHECK(read.error().detail.find("restore the file") != std::string::npos);
    }
  }
}

TEST_CASE("state file: every other byte value is refused") {
  const std::string good = formatState(state());
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      if (bad != good) REQUIRE_FALSE(parseState(bad, "f").ok());
    }
  }
}

TEST_CASE("state file: every truncation is refused, and anything appended") {
  const std::string good = formatState(state());
  for (size_t length = 0; length < good.size(); ++length) {
    CAPTURE(length);
    CHECK_FALSE(parseState(good.substr(0, length), "f").ok());
  }
  CHECK_FALSE(parseState(good + "\n", "f").ok());
  CHECK_FALSE(parseState(good + good, "f").ok());
}

TEST_CASE("state file: one without its cluster, id, term or lease is incomplete, also when its checksum is right") {
  const std::string good = formatState(state()), body = good.substr(0, good.rfind("crc "));
  REQUIRE(parseState(body + checksumLine(body), "f"));
  for (const std::string line : {"cluster prod\n", "cluster-id 00000000000000f3\n", "term 17\n", "lease-ms 10000\n"}) {
    CAPTURE(line);
    std::string cut = body;
    cut.erase(cut.find("\n" + line) + 1, line.size());
    const Result<DurableState> read = parseState(cut + checksumLine(cut), "f");
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Code::corrupt);
    CHECK(read.error().detail.find("incomplete, no line '" + line.substr(0, line.find(' ')) + "'") != std::string::npos);
  }
}

TEST_CASE("state file: a lease that no configuration gives is refused, also when its checksum is right") {
  for (const auto& [lease, good] : {std::pair{"3600000", true}, {"3600001", false}, {"9999999999999999999", false}, {"-1", false}}) {
    CAPTURE(lease);
    const std::string body = "fluxon-state 1\ncluster c\ncluster-id f\nterm 1\nlease-ms " + std::string(lease) + "\n";
    CHECK(parseState(body + checksumLine(body), "f").ok() == good);
  }
}

TEST_CASE("state file: without members, and before the first term, it is complete too") {
  DurableState s = state();
  s.members.clear();
  s.term = Term(0);
  const Result<DurableState> read = parseState(formatState(s), "f");
  REQUIRE(read);
  CHECK(read.value().members.empty());
}

}  // namespace
}  // namespace fluxon::master
