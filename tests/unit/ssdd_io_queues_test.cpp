#include <doctest/doctest.h>

#include <cerrno>
#include <string>

#include "storage/io_queues.h"

namespace fluxon::ssdd {
namespace {

char* const kBase = reinterpret_cast<char*>(uintptr_t{1} << 30);  // an address that nobody follows

Request request(Direction direction, uint64_t offset, size_t bytes, uint64_t tag = 0) {
  return {.direction = direction, .file = FileRef::descriptor(3), .offset = offset, .buffer = {kBase, bytes}, .tag = tag};
}

struct Transfer {
  IoCounters counters;
  Operation operation;
  explicit Transfer(const Request& r) : operation(r, 512) {}
  bool done(int64_t result) { return operation.advance(result, counters) == Operation::Step::done; }
  bool nextIs(uint64_t offset, uint64_t skipped, size_t bytes) {
    const iovec first = operation.left()[0];
    return operation.offset() == offset && first.iov_base == kBase + skipped && first.iov_len == bytes;
  }
  bool endsWith(uint64_t bytes, int error) {
    const Completion c = operation.completion();
    return c.bytes == bytes && c.error == error;
  }
};

TEST_CASE("operation: a short transfer goes on where it stopped") {
  Transfer t(request(Direction::write, 4096, 8192));
  CHECK_FALSE(t.done(1024));
  CHECK(t.nextIs(5120, 1024, 7168));
  CHECK_FALSE(t.done(7168 - 512));
  CHECK(t.nextIs(4096 + 8192 - 512, 8192 - 512, 512));
  CHECK(t.done(512));
  CHECK(t.endsWith(8192, 0));
  CHECK(t.counters.resumed == 2);
}

TEST_CASE("operation: after a short transfer within a block the block is moved again") {
  Transfer t(request(Direction::read, 512, 4096));
  CHECK_FALSE(t.done(1000));
  CHECK(t.nextIs(1024, 512, 3584));
  CHECK(t.done(3584));
  CHECK(t.endsWith(4096, 0));
}

TEST_CASE("operation: a read that gets no farther has met the end of the file") {
  Transfer within(request(Direction::read, 0, 4096));
  CHECK_FALSE(within.done(1000));
  CHECK(within.done(488));
  CHECK(within.endsWith(1000, ENODATA));
  Transfer between(request(Direction::read, 0, 4096));
  CHECK_FALSE(between.done(1024));
  CHECK(between.done(0));
  CHECK(between.endsWith(1024, ENODATA));
}

TEST_CASE("operation: a write that gets no farther has failed") {
  Transfer t(request(Direction::write, 0, 4096));
  CHECK(t.done(0));
  CHECK(t.endsWith(0, EIO));
}

TEST_CASE("operation: an error after a short transfer keeps what has been moved") {
  Transfer t(request(Direction::write, 0, 4096));
  CHECK_FALSE(t.done(512));
  CHECK(t.done(-ENOSPC));
  CHECK(t.endsWith(512, ENOSPC));
}

TEST_CASE("operation: EAGAIN and EINTR are tried again, but not for ever") {
  Transfer t(request(Direction::read, 0, 1024));
  CHECK_FALSE(t.done(-EAGAIN));
  CHECK_FALSE(t.done(-EINTR));
  CHECK(t.nextIs(0, 0, 1024));
  CHECK_FALSE(t.done(512));  // counted anew from here
  for (unsigned i = 0; i < Operation::kMostRetries; ++i) REQUIRE_FALSE(t.done(-EAGAIN));
  CHECK(t.done(-EAGAIN));
  CHECK(t.endsWith(512, EAGAIN));
}

TEST_CASE("operation: parts are skipped as they are moved") {
  const iovec parts[] = {{kBase, 512}, {kBase + 8192, 1024}, {kBase + 4096, 512}};
  Transfer t({.direction = Direction::read, .file = FileRef::descriptor(3), .offset = 0, .parts = parts, .tag = 7});
  CHECK_FALSE(t.done(1024));
  REQUIRE(t.operation.left().size() == 2);
  CHECK(t.nextIs(1024, 8192 + 512, 512));
  CHECK_FALSE(t.done(512));
  REQUIRE(t.operation.left().size() == 1);
  CHECK(t.nextIs(1536, 4096, 512));
  CHECK(t.done(512));
  CHECK(t.endsWith(2048, 0));
}

// The directions of what starts now.
std::string started(IoQueues& queues) {
  std::string all;
  while (const Operation* each = queues.next()) all += each->direction() == Direction::read ? 'R' : 'W';
  return all;
}
void submit(IoQueues& queues, Direction direction, int count) {
  for (int i = 0; i < count; ++i) REQUIRE(queues.submit(request(direction, 0, 512)));
}

TEST_CASE("queues: two reads start for one write, and neither starves") {
  IoQueues queues(EngineSettings{}, 12);
  submit(queues, Direction::write, 20);
  submit(queues, Direction::read, 20);
  CHECK(started(queues) == "RWRRWRRWRRWR");
}

TEST_CASE("queues: an empty queue leaves its turn to the other, up to the depth") {
  IoQueues writes(EngineSettings{}, kIoDepth);
  submit(writes, Direction::write, 200);
  CHECK(started(writes) == std::string(128, 'W'));
  IoQueues reads(EngineSettings{}, 4);
  submit(reads, Direction::read, 5);
  CHECK(started(reads) == "RRRR");
  CHECK(reads.pending() == 5);
}

TEST_CASE("queues: what was cut short is resumed before anything new starts, and keeps its place in the depth") {
  IoQueues queues(EngineSettings{}, 1);
  REQUIRE(queues.submit(request(Direction::read, 0, 1024, 1)));
  REQUIRE(queues.submit(request(Direction::read, 0, 1024, 2)));
  Operation* const first = queues.next();
  REQUIRE(first);
  CHECK_FALSE(queues.returned(*first, 512));
  CHECK(queues.next() == first);
  CHECK(queues.next() == nullptr);
  CHECK(queues.returned(*first, 512));
  Operation* const second = queues.next();
  REQUIRE(second);
  CHECK(second->tag() == 2);
  CHECK(queues.counters().readsStarted == 2);
}

TEST_CASE("queues: full is an answer, of each queue for itself") {
  IoQueues queues(EngineSettings{.queued = 2}, 1);
  submit(queues, Direction::write, 2);
  CHECK_FALSE(queues.submit(request(Direction::write, 0, 512)));
  CHECK(queues.submit(request(Direction::read, 0, 512)));
}

TEST_CASE("queues: what is queued is cancelled by its tag, what is in flight is not") {
  IoQueues queues(EngineSettings{}, 1);
  for (const uint64_t tag : {1, 2, 3}) REQUIRE(queues.submit(request(Direction::read, 0, 512, tag)));
  Operation* const first = queues.next();
  CHECK_FALSE(queues.cancel(1));
  CHECK(queues.cancel(3));
  CHECK(queues.returned(*first, 512));
  queues.cancelQueued();
  std::vector<Completion> ended;
  queues.takeEnded(ended);
  REQUIRE(ended.size() == 3);
  CHECK((ended[0].tag == 3 && ended[0].error == ECANCELED));
  CHECK((ended[1].tag == 1 && ended[1].error == 0 && ended[1].bytes == 512));
  CHECK((ended[2].tag == 2 && ended[2].error == ECANCELED));
  CHECK(queues.pending() == 0);
}

}  // namespace
}  // namespace fluxon::ssdd
