// What the master's log says of owners that may not join.
#include <doctest/doctest.h>

#include "refused_joins.h"

namespace fluxon::master {
namespace {

constexpr Time kStart{1'000'000'000};

TEST_CASE("refused joins: the first is said, then how many there were every ten minutes, and their end") {
  RefusedJoins joins;
  CHECK(joins.refused("b", "host", "192.0.2.8 (pid 9)", "it is alive", kStart) == "node b on 192.0.2.8 (pid 9) may not join: it is alive");
  size_t lines = 0;
  Time now = kStart;
  for (int i = 0; i < 700; ++i) {
    now = now + seconds(1);
    const std::string line = joins.refused("b", "host", "192.0.2.8 (pid 9)", "it is alive", now);
    if (line.empty()) continue;
    ++lines;
    CHECK(line == "node b on 192.0.2.8 (pid 9) may not join: it is alive (601 refusals so far)");
  }
  CHECK(lines == 1);
  CHECK(joins.total() == 701);
  CHECK(joins.ended(now + seconds(29)).empty());
  const std::vector<std::string> ended = joins.ended(now + seconds(30));
  REQUIRE(ended.size() == 1);
  CHECK(ended[0] == "node b on 192.0.2.8 (pid 9) does not ask to join any more (701 refusals so far)");
  CHECK(joins.ended(now + seconds(60)).empty());
  CHECK_FALSE(joins.refused("b", "host", "192.0.2.8 (pid 10)", "it is alive", now + seconds(60)).empty());
}

TEST_CASE("refused joins: another host, another node and another reason are said at once") {
  RefusedJoins joins;
  CHECK_FALSE(joins.refused("b", "host", "x", "it is alive", kStart).empty());
  CHECK_FALSE(joins.refused("b", "other", "y", "it is alive", kStart).empty());
  CHECK_FALSE(joins.refused("c", "host", "x", "it is alive", kStart).empty());
  CHECK_FALSE(joins.refused("b", "host", "x", "it is fenced", kStart).empty());
  CHECK(joins.refused("b", "host", "x", "it is fenced", kStart).empty());
}

TEST_CASE("refused joins: more names than anybody has are counted and not kept") {
  RefusedJoins joins;
  for (int i = 0; i < 1000; ++i) joins.refused("n" + std::to_string(i), "host", "x", "no", kStart);
  CHECK(joins.total() == 1000);
  CHECK(joins.ended(kStart + seconds(60)).size() == 256);
}

}  // namespace
}  // namespace fluxon::master
