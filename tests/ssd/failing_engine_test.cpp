// What later tests rely on when they break a device.
#include "failing_engine.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "scratch.h"

namespace fluxon::ssdd {
namespace {

constexpr size_t kMiB = 1 << 20;

struct Broken {
  Broken() { file.fill(content); }
  bool read(uint64_t tag) { return engine.submit(reads(there, tag * 4096, {to.data + tag * 4096, 4096}, tag)); }

  const std::string content = pattern(1, kMiB);
  const Scratch file{"broken"};
  const FileRef there = FileRef::descriptor(file.fd);
  const Memory to{kMiB};
  const std::unique_ptr<FileEngine> inner = makePsyncEngine({}).value();
  FailingEngine engine{*inner};
};

TEST_CASE("failing engine: an error meets the next request of its direction and no other") {
  Broken b;
  b.engine.failNext(Direction::read, {.error = EIO});
  b.engine.failNext(Direction::write, {.error = ENOSPC});
  for (uint64_t i = 0; i < 3; ++i) REQUIRE(b.read(i));
  const auto done = all(b.engine);
  REQUIRE(done.size() == 3);
  for (const Completion& each : done) CHECK(each.error == (each.tag == 0 ? EIO : 0));
  CHECK(only(b.engine, writes(b.there, 0, {b.to.data, 512}, 9)).error == ENOSPC);
  CHECK(b.file.content() == b.content);
  CHECK(only(b.engine, writes(b.there, 0, {b.to.data, 512}, 9)).error == 0);
}

TEST_CASE("failing engine: a short transfer moves its beginning and nothing more") {
  Broken b;
  b.engine.failNext(Direction::read, {.error = EIO, .bytes = 1024});
  const iovec parts[] = {{b.to.data, 512}, {b.to.data + 4096, 4096}};
  const Completion c = only(b.engine, {.direction = Direction::read, .file = b.there, .offset = 0, .parts = parts, .tag = 1});
  CHECK(c.error == EIO);
  CHECK(c.bytes == 1024);
  std::string expected(kMiB, '\0');
  expected.replace(0, 512, b.content, 0, 512).replace(4096, 512, b.content, 512, 512);
  CHECK(b.to == expected);
}

TEST_CASE("failing engine: a delayed completion comes late, and rings") {
  Broken b;
  constexpr Duration kDelay = milliseconds(50);
  b.engine.failNext(Direction::read, {.delay = kDelay});
  const Time from = bootTime();
  for (uint64_t i = 0; i < 2; ++i) REQUIRE(b.read(i));
  b.engine.start();
  std::vector<Completion> done;
  while (done.size() < 2) {
    pollfd waiting{b.engine.eventFd(), POLLIN, 0};
    REQUIRE(::poll(&waiting, 1, 10'000) == 1);
    b.engine.wait(0, Time{}, done);
  }
  CHECK(done[0].tag == 1);
  CHECK(done[1].tag == 0);
  CHECK(bootTime() >= from + kDelay);
}

TEST_CASE("failing engine: completions come in another order, each of them once") {
  Broken b;
  b.engine.reorder(7, 32);
  for (uint64_t i = 0; i < 100; ++i) REQUIRE(b.read(i));
  std::vector<Completion> done;
  while (b.engine.pending() > 0) b.engine.wait(1, Time::never(), done);
  std::vector<uint64_t> tags;
  for (const Completion& each : done) tags.push_back(each.tag);
  CHECK_FALSE(std::is_sorted(tags.begin(), tags.end()));
  std::sort(tags.begin(), tags.end());
  REQUIRE(tags.size() == 100);
  for (uint64_t i = 0; i < 100; ++i) CHECK(tags[i] == i);
}

TEST_CASE("failing engine: its end waits for delayed completions") {
  Broken b;
  b.engine.failNext(Direction::read, {.error = EIO, .delay = milliseconds(30)});
  const Time from = bootTime();
  REQUIRE(b.read(0));
  std::vector<Completion> done;
  b.engine.close(done);
  REQUIRE(done.size() == 1);
  CHECK(done[0].error == EIO);
  CHECK(bootTime() >= from + milliseconds(30));
}

}  // namespace
}  // namespace fluxon::ssdd
