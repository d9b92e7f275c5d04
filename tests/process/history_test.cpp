// The checker of histories: it finds each kind of wrong answer, and lets legal ones pass.
#include "history.h"

#include <doctest/doctest.h>

using namespace fluxon::test;

namespace {

struct Log : History {
  Log() : History(100) {}
  // An operation from `begin` to `end`, in seconds.
  uint64_t add(Did did, int begin, int end, Outcome ended = Outcome::done, uint64_t saw = 0, uint32_t key = 1) {
    const uint64_t op = History::begin(did, key, 0, 1000);
    at(op) = {did, ended, key, 0, begin * 1'000'000'000ll, end * 1'000'000'000ll, end * 1'000'000'000ll, saw};
    return op;
  }
  bool sound() const { return check().empty(); }
};

TEST_CASE("history: the latest value, an overlapping one and a miss are legal") {
  Log log;
  const uint64_t first = log.add(Did::put, 0, 1), second = log.add(Did::put, 2, 5);
  log.add(Did::get, 1, 2, Outcome::done, first);
  log.add(Did::get, 3, 4, Outcome::done, first);
  log.add(Did::get, 3, 4, Outcome::done, second);
  log.add(Did::get, 4, 9, Outcome::done, first);  // it began before the second had ended
  log.add(Did::get, 6, 7, Outcome::done, second);
  log.add(Did::get, 6, 7, Outcome::miss);
  CHECK(log.sound());
}

TEST_CASE("history: a value that had been replaced or deleted before the get began is stale") {
  for (const Did change : {Did::put, Did::remove}) {
    Log log;
    const uint64_t first = log.add(Did::put, 0, 1);
    log.add(change, 2, 3);
    log.add(Did::get, 4, 5, Outcome::done, first);
    CHECK(log.check().size() == 1);
  }
}

TEST_CASE("history: a delete that found nothing forbids older values too") {
  Log log;
  const uint64_t first = log.add(Did::put, 0, 1);
  log.add(Did::remove, 2, 3, Outcome::miss);
  log.add(Did::get, 4, 5, Outcome::done, first);
  CHECK_FALSE(log.sound());
}

TEST_CASE("history: puts that overlap each other may be ordered either way") {
  Log log;
  const uint64_t first = log.add(Did::put, 0, 4), second = log.add(Did::put, 1, 3);
  log.add(Did::get, 5, 6, Outcome::done, first);
  log.add(Did::get, 5, 6, Outcome::done, second);
  CHECK(log.sound());
}

TEST_CASE("history: a put without a known outcome may take effect late, or never") {
  Log log;
  const uint64_t lost = log.add(Did::put, 0, 1, Outcome::unknown), killed = log.add(Did::put, 0, 1, Outcome::open);
  log.add(Did::put, 2, 3);
  log.add(Did::get, 4, 5, Outcome::done, lost);
  log.add(Did::get, 4, 5, Outcome::done, killed);
  CHECK(log.sound());
}

TEST_CASE("history: a refused value, a value of the future and a foreign one are wrong") {
  Log log;
  const uint64_t refused = log.add(Did::put, 0, 1, Outcome::refused), future = log.add(Did::put, 8, 9);
  const uint64_t other = log.add(Did::put, 0, 1, Outcome::done, 0, 2), get = log.add(Did::get, 2, 3, Outcome::miss);
  log.add(Did::get, 2, 3, Outcome::done, refused);
  log.add(Did::get, 2, 3, Outcome::done, future);
  log.add(Did::get, 2, 3, Outcome::done, other);
  log.add(Did::get, 2, 3, Outcome::done, get);
  log.add(Did::get, 2, 3, Outcome::done, UINT64_MAX);
  CHECK(log.check().size() == 5);
}

TEST_CASE("history: a call that ends long after its deadline is wrong") {
  Log log;
  const uint64_t op = log.add(Did::get, 2, 5, Outcome::miss);
  log.at(op).deadline = 3'900'000'000;
  CHECK_FALSE(log.sound());
  log.at(op).deadline = 4'100'000'000;
  CHECK(log.sound());
}

TEST_CASE("history: a value names its writer, and any other byte in it is seen") {
  for (const size_t bytes : {32u, 33u, 100u, 4099u}) {
    const std::string value = valueFor(77, 5, bytes);
    CHECK(value.size() == bytes);
    CHECK(writerOf(value.data(), value.size(), 5) == 77);
    CHECK(writerOf(value.data(), value.size(), 6) == UINT64_MAX);
    CHECK(writerOf(value.data(), value.size() - 1, 5) == UINT64_MAX);
    for (size_t at = 0; at < bytes; at += bytes / 7 + 1) {
      std::string torn = value;
      torn[at] ^= 1;
      CHECK(writerOf(torn.data(), torn.size(), 5) == UINT64_MAX);
    }
  }
}

}  // namespace
