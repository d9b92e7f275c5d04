// The checker of histories: what a cache must not do is found, what it may do is not.
#include "history.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "cluster.h"

using namespace fluxon::test;

namespace {

// A history by hand: times are in milliseconds, each operation is of a client of its own.
class Story {
 public:
  uint64_t put(int64_t begin, int64_t end, Outcome outcome = Outcome::done, uint64_t key = 1) {
    return add(Action::put, begin, end, outcome, key);
  }
  uint64_t remove(int64_t begin, int64_t end, Outcome outcome = Outcome::done) { return add(Action::remove, begin, end, outcome, 1); }
  uint64_t get(int64_t begin, int64_t end, Seen seen, uint64_t key = 1) { return add(Action::get, begin, end, Outcome::done, key, seen); }
  uint64_t get(int64_t begin, int64_t end, uint64_t saw) { return get(begin, end, Seen{Seen::Kind::whole, 1, saw}); }
  uint64_t reread(int64_t begin, uint64_t of, Seen seen) { return add(Action::reread, begin, begin, Outcome::done, 1, seen, of); }
  uint64_t add(Action action, int64_t begin, int64_t end, Outcome outcome, uint64_t key, Seen seen = {}, uint64_t of = 0) {
    Record record;
    record.operation = ++client_ << 32 | 1;
    record.key = key;
    record.of = of;
    record.beginNs = begin * 1'000'000;
    record.endNs = end * 1'000'000;
    record.seen = seen;
    record.deadlineMs = 100;
    record.action = action;
    record.outcome = outcome;
    history.add(record);
    return record.operation;
  }
  // The words of all that is wrong.
  std::string wrong() const {
    std::string words;
    for (const History::Violation& each : history.check()) words += (words.empty() ? "" : " ") + each.kind;
    return words;
  }
  History history;

 private:
  uint64_t client_ = 0;
};

}  // namespace

TEST_CASE("history: a value overwritten or deleted before the get began is stale") {
  for (const bool deleted : {false, true}) {
    Story story;
    const uint64_t old = story.put(0, 10);
    if (deleted) story.remove(20, 30);
    if (!deleted) story.put(20, 30);
    story.get(31, 32, old);
    CHECK(story.wrong() == "stale");
  }
}

TEST_CASE("history: a value is not stale while what ends it is under way, or was under way together with its own put") {
  Story story;
  const uint64_t old = story.put(0, 10);
  story.put(20, 30);
  story.get(15, 16, old);
  story.get(25, 40, old);
  const uint64_t first = story.put(50, 70), second = story.put(60, 80);
  story.get(90, 91, first);
  CHECK(story.wrong().empty());
  // But two readers agree about the order: the second was seen after the first had been.
  story.put(100, 110);
  story.get(120, 121, second);
  CHECK(story.wrong() == "stale");
}

TEST_CASE("history: a put or delete of unknown outcome may happen at any later time, or never") {
  for (const Outcome outcome : {Outcome::unknown, Outcome::open}) {
    Story story;
    const uint64_t old = story.put(0, 10);
    const uint64_t unknown = story.put(20, 30, outcome);
    if (outcome == Outcome::open) story.history.killed(clientOf(unknown), 30'000'000);
    story.remove(31, 32, Outcome::unknown);
    story.get(40, 41, old);
    const uint64_t newer = story.put(50, 60);
    story.get(70, 71, newer);
    story.get(80, 81, unknown);
    CHECK(story.wrong().empty());
    // Seen, it has happened.
    story.put(90, 95);
    story.get(100, 101, unknown);
    CHECK(story.wrong() == "stale");
  }
}

TEST_CASE("history: a newer value that one has seen makes older ones stale for all, though its put has no answer") {
  Story story;
  const uint64_t old = story.put(0, 10), unknown = story.put(20, 30, Outcome::unknown);
  story.get(40, 41, unknown);
  story.get(42, 43, old);
  CHECK(story.wrong() == "stale");
}

TEST_CASE("history: a value whose put was refused, or had not begun, is none that a get may return") {
  Story story;
  story.get(40, 41, story.put(0, 10, Outcome::refused));
  CHECK(story.wrong() == "refused");
  Story early;
  early.get(40, 41, early.put(50, 60));
  CHECK(early.wrong() == "future");
}

TEST_CASE("history: foreign bytes, values of other keys and of operations that nobody began") {
  Story story;
  const uint64_t other = story.put(0, 10, Outcome::done, 2), removed = story.remove(0, 10);
  story.get(20, 21, Seen{Seen::Kind::foreign});
  story.get(20, 21, Seen{Seen::Kind::whole, 2, other});
  story.get(20, 21, other);
  story.get(20, 21, removed);
  story.get(20, 21, 99);
  CHECK(story.wrong() == "foreign foreign foreign foreign foreign");
}

TEST_CASE("history: torn values and holders that changed") {
  Story story;
  const uint64_t put = story.put(0, 10), newer = story.put(0, 10);
  story.get(20, 21, Seen{Seen::Kind::torn, 1, put});
  CHECK(story.wrong() == "torn");
  const uint64_t read = story.get(20, 21, put);
  story.reread(30, read, {Seen::Kind::whole, 1, put});
  CHECK(story.wrong() == "torn");
  story.reread(40, read, {Seen::Kind::whole, 1, newer});
  story.reread(50, read, {Seen::Kind::torn, 1, put});
  CHECK(story.wrong() == "changed changed torn");
}

TEST_CASE("history: calls may end a second after their deadline, and no later, unless their client was stopped or killed") {
  Story story;
  story.get(0, 1099, Seen{});
  const uint64_t slept = story.put(0, 5000), died = story.add(Action::put, 0, 0, Outcome::open, 1);
  story.history.stopped(clientOf(slept), 500'000'000, 4'500'000'000);
  story.history.killed(clientOf(died), 1'000'000'000);
  CHECK(story.wrong().empty());
  story.get(0, 1101, Seen{});
  CHECK(story.wrong() == "late");
  story.history.killed(clientOf(story.add(Action::get, 0, 0, Outcome::open, 1)), 1'200'000'000);
  CHECK(story.wrong() == "late late");
  story.add(Action::remove, 0, 0, Outcome::open, 1);
  CHECK(story.wrong() == "late late hung");
}

TEST_CASE("history: values know themselves, and any change to them") {
  std::mt19937 random(1);
  for (const size_t bytes : {kSmallestValue, kSmallestValue + 1, size_t{4096}, size_t{100'003}}) {
    const std::string value = selfDescribing(7, 9, bytes);
    CHECK(value.size() == bytes);
    CHECK(inspect(value) == Seen{Seen::Kind::whole, 7, 9});
    CHECK(inspect(value.substr(0, bytes - 1)).kind != Seen::Kind::whole);
    CHECK(inspect(value + "x").kind == Seen::Kind::torn);
    for (int i = 0; i < 100; ++i) {
      std::string broken = value;
      broken[random() % bytes] ^= static_cast<char>(1 << random() % 8);
      CHECK(inspect(broken).kind != Seen::Kind::whole);
    }
  }
  const std::string other = selfDescribing(7, 10, 4096);
  CHECK(inspect(selfDescribing(7, 9, 4096).replace(2048, 2048, other, 2048, 2048)).kind == Seen::Kind::torn);
  CHECK(inspect("") == Seen{Seen::Kind::foreign});
  CHECK(inspect(std::string(4096, '\0')) == Seen{Seen::Kind::foreign});
}

TEST_CASE("history: a random legal history has nothing wrong in it") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Story story;
    uint64_t current = 0;
    std::vector<uint64_t> happened;
    // Each operation takes effect in the order of the loop, at a moment within it.
    for (int64_t at = 0; at < 300; at += 10) {
      const int64_t begin = at - random() % 30, end = at + random() % 30;
      switch (random() % 4) {
        case 0: current = story.put(begin, end, random() % 4 ? Outcome::done : Outcome::unknown); break;
        case 1: current = (story.remove(begin, end), uint64_t{0}); break;
        default: story.get(begin, end, current && random() % 5 ? Seen{Seen::Kind::whole, 1, current} : Seen{}); break;
      }
    }
    CHECK(story.wrong().empty());
  }
}

TEST_CASE("history: the record of a client that is killed is whole, its last operation open") {
  const std::string path = "/tmp/fluxon-history-" + std::to_string(::getpid());
  const pid_t child = inChild([&] {
    Recorder recorder(path, 3);
    recorder.begin(Action::put, 5, 100);
    recorder.end(Outcome::done);
    const uint64_t read = recorder.begin(Action::get, 5, 100);
    recorder.end(Outcome::done, {Seen::Kind::whole, 5, uint64_t{3} << 32 | 1}, 2);
    recorder.begin(Action::reread, 5, 100, read);
    recorder.end(Outcome::done, {Seen::Kind::whole, 5, uint64_t{3} << 32 | 1});
    recorder.begin(Action::remove, 5, 100);
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  CHECK(waitFor(child) == -SIGKILL);
  History history;
  history.addFile(path);
  std::filesystem::remove(path);
  REQUIRE(history.records().size() == 4);
  CHECK(history.records()[3].outcome == Outcome::open);
  CHECK(history.check().size() == 1);
  history.killed(3, bootNs());
  CHECK(history.check().empty());
  const History::Counts counts = history.counts();
  CHECK(counts.puts == 1);
  CHECK(counts.hits == 1);
  CHECK(counts.hitsBySource.at(2) == 1);
  CHECK(counts.rereads == 1);
  CHECK(counts.unknown == 1);
}
