// Both engines on a real file system, with O_DIRECT.
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <random>
#include <set>
#include <thread>

#include "loop_device.h"
#include "refuse_uring.h"
#include "scratch.h"

namespace fluxon::ssdd {
namespace {

constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;

bool isDone(const Completion& c, uint64_t bytes) { return c.error == 0 && c.bytes == bytes; }

bool readable(int fd, int timeoutMs) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, timeoutMs) == 1;
}

TEST_CASE("io engine: what is written at many sizes and offsets is what is read, and nothing beside it") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    const Scratch file("round_trip");
    const FileRef there = engine->addFile(file.fd);
    std::string model(12 * kMiB, '\0');
    file.fill(model);
    uint64_t seed = 0;
    for (const size_t bytes : {size_t{512}, size_t{1024}, 4 * kKiB, 4 * kKiB + 512, 64 * kKiB, kMiB, 4 * kMiB, 5 * kMiB + 512}) {
      for (const uint64_t offset : {size_t{0}, size_t{512}, 4 * kKiB, 3 * kMiB + 1536}) {
        CAPTURE(bytes);
        CAPTURE(offset);
        const std::string content = pattern(++seed, bytes);
        const Memory from(bytes), to(bytes);
        std::memcpy(from.data, content.data(), bytes);
        CHECK(isDone(only(*engine, writes(there, offset, from, seed)), bytes));
        CHECK(isDone(only(*engine, reads(there, offset, to, seed)), bytes));
        CHECK(to == content);
        model.replace(offset, bytes, content);
      }
    }
    CHECK(file.content() == model);
  }
}

TEST_CASE("io engine: parts are read and written in their order") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    const Scratch file("parts");
    const std::string content = pattern(1, 300 * kKiB);
    const Memory a(512), b(200 * kKiB), c(content.size() - a.bytes - b.bytes);
    std::memcpy(b.data, content.data(), b.bytes);
    std::memcpy(a.data, content.data() + b.bytes, a.bytes);
    std::memcpy(c.data, content.data() + b.bytes + a.bytes, c.bytes);
    Request request = writes(FileRef::descriptor(file.fd), 4096, {});
    {
      const iovec parts[] = {b, a, c};  // the list is the engine's after submit()
      request.parts = parts;
      REQUIRE(engine->submit(request));
    }
    CHECK(isDone(all(*engine).at(0), content.size()));
    CHECK(file.content() == std::string(4096, '\0') + content);
    const Memory one(100 * kKiB), two(200 * kKiB);
    const iovec parts[] = {one, two};
    request.direction = Direction::read;
    request.parts = parts;
    CHECK(isDone(only(*engine, request), content.size()));
    CHECK(one == content.substr(0, one.bytes));
    CHECK(two == content.substr(one.bytes));
  }
}

TEST_CASE("io engine: of hundreds in flight no completion is lost and none comes twice") {
  constexpr size_t kCount = 600, kBlock = 8 * kKiB;
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    const Scratch file("hundreds"), other("others");
    const std::string old = pattern(1, kCount * kBlock), fresh = pattern(2, kCount * kBlock);
    file.fill(old);
    const FileRef source = engine->addFile(file.fd), target = engine->addFile(other.fd);
    const Memory to(kCount * kBlock), from(kCount * kBlock);
    std::memcpy(from.data, fresh.data(), from.bytes);
    std::vector<uint64_t> order(kCount);
    for (size_t i = 0; i < kCount; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    for (const uint64_t i : order) {
      REQUIRE(engine->submit(reads(source, i * kBlock, {to.data + i * kBlock, kBlock}, i)));
      REQUIRE(engine->submit(writes(target, i * kBlock, {from.data + i * kBlock, kBlock}, kCount + i)));
    }
    CHECK(engine->pending() == 2 * kCount);
    std::multiset<uint64_t> tags;
    while (engine->pending() > 0) {
      std::vector<Completion> done;
      engine->wait(5, Time::never(), done);
      REQUIRE(!done.empty());
      for (const Completion& each : done) {
        CHECK(isDone(each, kBlock));
        tags.insert(each.tag);
      }
    }
    CHECK(tags.size() == 2 * kCount);
    CHECK(std::set<uint64_t>(tags.begin(), tags.end()).size() == 2 * kCount);
    CHECK(*tags.rbegin() == 2 * kCount - 1);
    CHECK(to == old);
    CHECK(other.content() == fresh);
    CHECK(engine->counters().readsStarted == kCount);
    CHECK(engine->counters().writesStarted == kCount);
  }
}

TEST_CASE("io engine: a read across the end of the file brings what there is, and says so") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    for (const size_t size : {size_t{1000}, size_t{1024}, 20 * kKiB + 1}) {
      const Scratch file("end");
      const std::string content = pattern(size, size);
      file.fill(content);
      const Memory to(32 * kKiB);
      const Completion across = only(*engine, reads(FileRef::descriptor(file.fd), 512, to));
      CHECK(across.error == ENODATA);
      CHECK(across.bytes == size - 512);
      CHECK(std::string(to.data, size - 512) == content.substr(512));
      const Completion behind = only(*engine, reads(FileRef::descriptor(file.fd), 64 * kKiB, to));
      CHECK(behind.error == ENODATA);
      CHECK(behind.bytes == 0);
    }
  }
}

TEST_CASE("io engine: a full file system fails the write that meets it, and no other operation") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    const Scratch room("room"), full("full");
    const std::string content = pattern(3, kMiB);
    room.fill(content);
    const Memory large(32 * kMiB), small(kMiB), fresh(kMiB);
    std::memcpy(fresh.data, pattern(4, kMiB).data(), kMiB);
    constexpr uint64_t kWrites = kScratchBytes / (32 * kMiB) + 1;
    for (uint64_t i = 0; i < kWrites; ++i) REQUIRE(engine->submit(writes(FileRef::descriptor(full.fd), i * large.bytes, large, i)));
    REQUIRE(engine->submit(reads(FileRef::descriptor(room.fd), 0, small, 100)));
    size_t failed = 0;
    for (const Completion& each : all(*engine)) {
      if (each.tag == 100) {
        CHECK(isDone(each, kMiB));
      } else if (each.error == 0) {
        CHECK(each.bytes == large.bytes);
      } else {
        ++failed;
        CHECK(each.error == ENOSPC);
        CHECK(each.bytes < large.bytes);
      }
    }
    CHECK(failed > 0);
    CHECK(failed < kWrites);
    CHECK(small == content);
    CHECK(isDone(only(*engine, writes(FileRef::descriptor(room.fd), 0, fresh)), kMiB));
  }
}

TEST_CASE("io engine: a device that fails in a part of it fails the operations on that part alone") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    const ssd::TemporaryFolder folder;
    const std::string image = folder.path + "/device";
    REQUIRE(::close(::open(image.c_str(), O_CREAT | O_RDWR, 0600)) == 0);
    REQUIRE(::truncate(image.c_str(), 4 * kMiB) == 0);
    const int device = ssd::loopDevice(image);
    REQUIRE(device >= 0);
    REQUIRE(::truncate(image.c_str(), 2 * kMiB) == 0);  // the device still says that it has 4
    const FileRef there = engine->addFile(device);
    const Memory to(4 * kMiB);
    for (uint64_t i = 0; i < 64; ++i) REQUIRE(engine->submit(reads(there, i * 64 * kKiB, {to.data + i * 64 * kKiB, 64 * kKiB}, i)));
    size_t good = 0, bad = 0;
    for (const Completion& each : all(*engine)) {
      CAPTURE(each.tag);
      CHECK(each.error == (each.tag < 32 ? 0 : EIO));
      ++(each.error == 0 ? good : bad);
    }
    CHECK(good == 32);
    CHECK(bad == 32);
    ::close(device);
  }
}

TEST_CASE("io engine: a closed descriptor fails its own operations") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    const Scratch file("open");
    file.fill(pattern(1, kMiB));
    const int closed = ::dup(file.fd);
    ::close(closed);
    const Memory to(kMiB);
    for (uint64_t i = 0; i < 64; ++i)
      REQUIRE(engine->submit(reads(FileRef::descriptor(i % 2 ? closed : file.fd), i * 16 * kKiB, {to.data + i * 16 * kKiB, 16 * kKiB}, i)));
    const auto done = all(*engine);
    CHECK(done.size() == 64);
    for (const Completion& each : done) CHECK(each.error == (each.tag % 2 ? EBADF : 0));
  }
}

TEST_CASE("io engine: a file of the table outlives its descriptor") {
  const auto engine = make(Kind::uring);
  Scratch file("table");
  const std::string content = pattern(1, kMiB);
  file.fill(content);
  const FileRef there = engine->addFile(file.fd);
  REQUIRE(there.isRegistered());
  file.close();
  const Memory to(kMiB);
  CHECK(isDone(only(*engine, reads(there, 0, to)), kMiB));
  CHECK(to == content);
}

TEST_CASE("io engine: memory that it knows, does not know, knows in part, and twice") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    const Scratch file("memory");
    const Memory memory(6 * kMiB);
    for (const iovec& known : {iovec{memory.data + 4 * kMiB, kMiB}, iovec{memory.data + kMiB, kMiB}, iovec{memory.data + kMiB / 2, kMiB}})
      CHECK(engine->addMemory(known).ok() == (kind == Kind::uring));
    const std::string content = pattern(9, memory.bytes);
    std::memcpy(memory.data, content.data(), memory.bytes);
    const FileRef there = engine->addFile(file.fd);
    for (uint64_t i = 0; i < 12; ++i) REQUIRE(engine->submit(writes(there, i * kMiB / 2, {memory.data + i * kMiB / 2, kMiB / 2}, i)));
    for (const Completion& each : all(*engine)) CHECK(isDone(each, kMiB / 2));
    CHECK(file.content() == content);
    std::memset(memory.data, 0, memory.bytes);
    constexpr uint64_t kAcross = 768 * kKiB;  // 8 buffers, some across a border
    for (uint64_t i = 0; i < 8; ++i) REQUIRE(engine->submit(reads(there, i * kAcross, {memory.data + i * kAcross, kAcross}, i)));
    for (const Completion& each : all(*engine)) CHECK(isDone(each, kAcross));
    CHECK(memory == content);
  }
}

TEST_CASE("io engine: dropped memory is that of its address no more; what was added elsewhere is still known") {
  const auto engine = make(Kind::uring);
  const Scratch file("dropped");
  const std::string content = pattern(3, kMiB);
  file.fill(content);
  const Memory memory(2 * kMiB), other(kMiB);
  REQUIRE(engine->addMemory({memory.data, kMiB}).ok());
  REQUIRE(engine->addMemory({other.data, kMiB}).ok());
  // Other pages at the same address: I/O goes to those that were added, until they are dropped.
  const auto replace = [&] {
    void* const fixed = ::mmap(memory.data, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    REQUIRE(fixed == memory.data);
  };
  const auto load = [&](char* to) { CHECK(isDone(only(*engine, reads(FileRef::descriptor(file.fd), 0, {to, kMiB})), kMiB)); };
  replace();
  load(memory.data);
  CHECK(std::string(memory.data, kMiB) != content);
  engine->dropMemory({memory.data, 2 * kMiB});
  load(memory.data);
  CHECK(std::string(memory.data, kMiB) == content);
  load(other.data);
  CHECK(other == content);
  // The place in the table is free again.
  for (int i = 0; i < 20'000; ++i) {
    REQUIRE(engine->addMemory({memory.data + kMiB, 4096}).ok());
    engine->dropMemory({memory.data + kMiB, 4096});
  }
}

TEST_CASE("io engine: two reads start for one write") {
  const auto engine = make(Kind::uring, {.depth = 12});
  const Scratch file("weight");
  file.fill(pattern(1, kMiB));
  const Memory memory(kMiB);
  for (uint64_t i = 0; i < 40; ++i) {
    REQUIRE(engine->submit(writes(FileRef::descriptor(file.fd), 0, {memory.data, 512}, i)));
    REQUIRE(engine->submit(reads(FileRef::descriptor(file.fd), 0, {memory.data + kMiB / 2, 512}, 100 + i)));
  }
  engine->start();
  CHECK(engine->counters().readsStarted == 8);
  CHECK(engine->counters().writesStarted == 4);
  CHECK(all(*engine).size() == 80);
}

TEST_CASE("io engine: many operations are one system call") {
  const auto engine = make(Kind::uring);
  const Scratch file("calls");
  file.fill(pattern(1, kMiB));
  const Memory to(kMiB);
  for (uint64_t i = 0; i < 100; ++i) REQUIRE(engine->submit(reads(FileRef::descriptor(file.fd), i * 4096, {to.data + i * 4096, 4096}, i)));
  CHECK(all(*engine).size() == 100);
  CHECK(engine->counters().systemCalls == 1);
}

TEST_CASE("io engine: its end waits for what is in flight") {
  SUBCASE("in a file") {
    for (const Kind kind : kBoth) {
      const Scratch file("destroyed");
      const std::string content = pattern(1, 32 * kMiB);
      file.fill(content);
      const Memory to(content.size());
      {
        const auto engine = make(kind, {.threads = 32});
        CAPTURE(std::string(engine->name()));
        const FileRef there = FileRef::descriptor(file.fd);
        for (uint64_t i = 0; i < 32; ++i) REQUIRE(engine->submit(reads(there, i * kMiB, {to.data + i * kMiB, kMiB}, i)));
        engine->start();
        while (engine->counters().readsStarted < 32) ::sched_yield();
      }
      CHECK(to == content);
    }
  }
  SUBCASE("however long it takes") {
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const Memory to(512);
    std::atomic<bool> written = false;
    std::thread writer;
    {
      const auto engine = make(Kind::uring);
      REQUIRE(engine->submit(reads(FileRef::descriptor(pipe[0]), 0, to)));
      engine->start();
      writer = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which an engine that does not wait is gone
        written = true;
        CHECK(::write(pipe[1], std::string(512, 'x').data(), 512) == 512);
      });
    }
    CHECK(written);
    CHECK(to == std::string(512, 'x'));
    writer.join();
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

TEST_CASE("io engine: close cancels what is queued and hands out every completion") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind, {.depth = 2, .threads = 2});
    CAPTURE(std::string(engine->name()));
    const Scratch file("closing");
    file.fill(pattern(1, kMiB));
    const Memory to(kMiB);
    for (uint64_t i = 0; i < 50; ++i) REQUIRE(engine->submit(reads(FileRef::descriptor(file.fd), 0, {to.data + i * 512, 512}, i)));
    engine->start();
    std::vector<Completion> done;
    engine->close(done);
    CHECK(done.size() == 50);
    std::set<uint64_t> tags;
    for (const Completion& each : done) {
      tags.insert(each.tag);
      CHECK((each.error == ECANCELED || isDone(each, 512)));
    }
    CHECK(tags.size() == 50);
    CHECK(engine->pending() == 0);
  }
}

TEST_CASE("io engine: what is queued can be cancelled, what is in flight goes on") {
  const auto engine = make(Kind::uring, {.depth = 1});
  const Scratch file("cancel");
  file.fill(pattern(1, kMiB));
  const Memory to(kMiB);
  for (uint64_t i = 0; i < 3; ++i) REQUIRE(engine->submit(reads(FileRef::descriptor(file.fd), 0, {to.data + i * 512, 512}, i)));
  engine->start();
  engine->cancel(0);
  engine->cancel(1);
  for (const Completion& each : all(*engine)) CHECK(each.error == (each.tag == 1 ? ECANCELED : 0));
}

TEST_CASE("io engine: a wait that hands out a completion has started the next") {
  const auto engine = make(Kind::uring, {.depth = 1});
  const Scratch file("next");
  file.fill(pattern(1, kMiB));
  const Memory to(kMiB);
  for (uint64_t i = 0; i < 2; ++i) REQUIRE(engine->submit(reads(FileRef::descriptor(file.fd), 0, {to.data + i * 512, 512}, i)));
  std::vector<Completion> done;
  engine->wait(1, Time::never(), done);
  CHECK(done.size() == 1);
  CHECK(engine->counters().readsStarted == 2);
  engine->wait(1, Time::never(), done);
  CHECK(done.size() == 2);
}

TEST_CASE("io engine: a loop that waits on the eventfd alone gets everything, also beyond the depth") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind, {.depth = 1, .threads = 1});
    CAPTURE(std::string(engine->name()));
    const Scratch file("events");
    file.fill(pattern(1, kMiB));
    const Memory to(kMiB);
    std::vector<Completion> done;
    const auto drain = [&](size_t count) {
      while (done.size() < count) {
        if (!readable(engine->eventFd(), 10'000)) return false;
        engine->wait(0, Time{0}, done);
      }
      engine->wait(0, Time{0}, done);
      return done.size() == count && !readable(engine->eventFd(), 0);
    };
    const FileRef there = FileRef::descriptor(file.fd);
    for (uint64_t i = 0; i < 200; ++i) REQUIRE(engine->submit(reads(there, i * 4096, {to.data + i * 4096, 4096}, i)));
    engine->start();
    CHECK(drain(200));
    for (uint64_t i = 0; i < 5; ++i) REQUIRE(engine->submit(reads(there, i * 4096, {to.data + i * 4096, 4096}, i)));
    engine->cancel(4);
    if (kind == Kind::uring) CHECK(readable(engine->eventFd(), 10'000));  // nothing has started, the cancelled one alone can ring
    engine->start();
    CHECK(drain(205));
  }
}

TEST_CASE("io engine: a wait ends at its time") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind);
    CAPTURE(std::string(engine->name()));
    int pipe[2];  // a read that does not end by itself
    REQUIRE(::pipe(pipe) == 0);
    const Memory to(512);
    REQUIRE(engine->submit(reads(FileRef::descriptor(pipe[0]), 0, to, 1)));
    std::vector<Completion> done;
    const Time until = bootTime() + milliseconds(20);
    engine->wait(1, until, done);
    if (kind == Kind::threads) {
      REQUIRE(done.size() == 1);
      CHECK(done[0].error == ESPIPE);
    } else {
      CHECK(done.empty());
      CHECK(bootTime() >= until);
      CHECK(engine->pending() == 1);
      ::close(pipe[1]);
      engine->wait(1, Time::never(), done);
      REQUIRE(done.size() == 1);
      CHECK(done[0].error == ENODATA);
    }
    ::close(pipe[0]);
    if (kind == Kind::threads) ::close(pipe[1]);
  }
}

TEST_CASE("io engine: full is an answer, and room comes with completions") {
  for (const Kind kind : kBoth) {
    const auto engine = make(kind, {.depth = 1, .queued = 3, .threads = 1});
    CAPTURE(std::string(engine->name()));
    const Scratch file("bound");
    file.fill(pattern(1, kMiB));
    const Memory to(kMiB);
    const Request request = reads(FileRef::descriptor(file.fd), 0, {to.data, 512});
    for (int i = 0; i < 3; ++i) REQUIRE(engine->submit(request));
    CHECK_FALSE(engine->submit(request));
    CHECK(all(*engine).size() == 3);
    CHECK(engine->submit(request));
    CHECK(all(*engine).size() == 1);
  }
}

TEST_CASE("io engine: where io_uring is refused the engine says why, and threads serve") {
  const Scratch file("refused");
  const std::string content = pattern(1, 64 * kKiB);
  file.fill(content);
  const std::pair<unsigned, std::string> calls[] = {
      {SYS_io_uring_setup, "io_uring_setup"}, {SYS_io_uring_enter, "io_uring_enter"}, {SYS_io_uring_register, "io_uring_register"}};
  for (const auto& [call, name] : calls) {
    CAPTURE(name);
    const pid_t child = ::fork();
    if (child == 0) {
      std::string why;
      if (!refuseUring(call) || makeUringEngine({}, why) || why != name + ": " + std::strerror(EPERM)) ::_exit(1);
      const Memory to(content.size());
      const auto engine = makePsyncEngine({}).value();
      std::vector<Completion> done;
      if (!engine->submit(reads(engine->addFile(file.fd), 0, to))) ::_exit(2);
      engine->wait(1, Time::never(), done);
      ::_exit(done.size() == 1 && isDone(done[0], to.bytes) && to == content ? 0 : 3);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

}  // namespace
}  // namespace fluxon::ssdd
