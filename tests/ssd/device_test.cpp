// Records of all kinds of sizes on a real file system with O_DIRECT, through both engines and both ways of writing; damage; devices
// that fail.
#include "device.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "base/crc32c.h"
#include "base/extent.h"
#include "failing_engine.h"
#include "scratch.h"

namespace fluxon::ssdd {
namespace {

using Result = DiskResult::Kind;

constexpr uint64_t kShardBytes = 40 * kMiB;
constexpr uint64_t kSegmentBytes = 48 * kMiB;
constexpr char kBeside = 0x5a;

ssd::Roots opened() {
  auto roots = ssd::openRoots({{scratchFolder, kShardBytes}}, "test", "node");
  REQUIRE_MESSAGE(roots.ok(), roots.error().message());
  return std::move(roots).value();
}

// One shard on a device, and a segment.
struct Rig {
  explicit Rig(Kind kind = Kind::uring, WriteMode mode = WriteMode::singleBuffer, bool breaks = false, uint64_t shuffle = 0)
      : roots(opened()) {
    const auto engine = [this, kind, breaks, shuffle](const ssdd::EngineSettings& settings) -> std::unique_ptr<ssdd::FileEngine> {
      if (!breaks) return make(kind, settings);
      inner = make(kind, settings);
      auto failing = std::make_unique<FailingEngine>(*inner);
      broken = failing.get();
      if (shuffle) failing->reorder(shuffle, 3);
      return failing;
    };
    devices = std::make_unique<Devices>(roots.roots, Devices::Settings{mode, 0, engine});
    devices->setSegment(segment.data, segment.bytes);
    std::memset(segment.data, kBeside, segment.bytes);
  }
  ~Rig() {
    devices.reset();
    std::filesystem::remove_all(scratchFolder + "/test_cluster_kv_ssd_storage");
  }

  std::string put(uint64_t offset, uint64_t bytes, uint64_t seed) {
    std::string payload = pattern(seed, bytes);
    std::memcpy(segment.data + offset, payload.data(), bytes);
    return payload;
  }
  std::string at(uint64_t offset, uint64_t bytes) const { return {segment.data + offset, bytes}; }

  JobId write(uint64_t fileOffset, uint64_t segmentOffset, uint64_t bytes) {
    devices->write({JobId(++jobs), ssdd::ShardId(0), fileOffset, 77, PutId(5), segmentOffset, bytes});
    return JobId(jobs);
  }
  JobId read(uint64_t fileOffset, uint64_t segmentOffset, uint64_t bytes, uint32_t crc) {
    devices->read({JobId(++jobs), ssdd::ShardId(0), fileOffset, bytes, crc, segmentOffset});
    return JobId(jobs);
  }
  JobId check(uint64_t fileOffset, uint64_t bytes, uint32_t crc, PutId putId = PutId(5)) {
    devices->check({JobId(++jobs), ssdd::ShardId(0), fileOffset, 77, putId, bytes, crc});
    return JobId(jobs);
  }
  // The next results, at least one.
  std::vector<DiskResult> some() {
    pollfd waiting{devices->eventFd(), POLLIN, 0};
    REQUIRE_MESSAGE(::poll(&waiting, 1, 20'000) == 1, "no result");
    return devices->reap();
  }
  // Until the job has ended. Progress goes to `progress`; of other jobs nothing may come.
  DiskResult end(JobId id) {
    for (;;) {
      for (DiskResult& each : some()) {
        REQUIRE(each.id == id);
        if (each.kind != Result::progress) return std::move(each);
        if (each.bytes > 0) progress.push_back(each.bytes);  // else a sign of life
      }
    }
  }
  // Until `count` jobs have ended.
  std::map<JobId, DiskResult> ends(size_t count) {
    std::map<JobId, DiskResult> all;
    while (all.size() < count) {
      for (DiskResult& each : some()) {
        if (each.kind == Result::progress) continue;
        const JobId id = each.id;
        REQUIRE_MESSAGE(all.emplace(id, std::move(each)).second, "a second answer");
      }
    }
    return all;
  }
  uint32_t written(uint64_t fileOffset, uint64_t segmentOffset, uint64_t bytes) {
    const DiskResult result = end(write(fileOffset, segmentOffset, bytes));
    REQUIRE_MESSAGE(result.error.ok(), result.error.message());
    CHECK(result.kind == Result::written);
    return result.payloadCrc;
  }

  uint32_t block() const { return roots.roots[0].blockBytes; }
  const std::string& path() const { return roots.roots[0].shards[0].path; }
  // The shard file as another program sees it.
  std::string file(uint64_t offset, uint64_t bytes) const {
    const int fd = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
    std::string all(bytes, '\0');
    REQUIRE(::pread(fd, all.data(), bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes));
    ::close(fd);
    return all;
  }
  void change(uint64_t offset, const std::string& content) const {
    const int fd = ::open(path().c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(::pwrite(fd, content.data(), content.size(), static_cast<off_t>(offset)) == static_cast<ssize_t>(content.size()));
    REQUIRE(::fsync(fd) == 0);
    ::close(fd);
  }
  void flip(uint64_t offset) const {
    std::string byte = file(offset, 1);
    byte[0] = static_cast<char>(byte[0] ^ 0x10);
    change(offset, byte);
  }

  ssd::Roots roots;
  Memory segment{kSegmentBytes};
  std::unique_ptr<ssdd::FileEngine> inner;
  FailingEngine* broken = nullptr;
  std::unique_ptr<Devices> devices;
  std::vector<uint64_t> progress;
  uint64_t jobs = 0;
};

void eachWay(const std::function<void(Kind, WriteMode)>& test) {
  for (const Kind kind : kBoth) {
    for (const WriteMode mode : {WriteMode::singleBuffer, WriteMode::iovec}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(static_cast<int>(mode));
      test(kind, mode);
    }
  }
}

constexpr uint64_t kSizes[] = {0,
                               1,
                               511,
                               512,
                               513,
                               4095,
                               4096,
                               4097,
                               65535,
                               65536,
                               65537,
                               kChunkBytes,
                               kChunkBytes + 1,
                               2 * kChunkBytes - 1,
                               2 * kChunkBytes + 1,
                               5 * kChunkBytes + 4096};

TEST_CASE("device: a record is on the disk as the format says, and nothing beside it changes") {
  eachWay([](Kind kind, WriteMode mode) {
    Rig rig(kind, mode);
    const uint64_t block = rig.block();
    const std::string old(kChunkBytes, '\xaa');
    uint64_t seed = 0;
    for (const uint64_t bytes : kSizes) {
      for (const uint64_t segmentOffset : {uint64_t{8192}, uint64_t{8192 + 64}}) {
        CAPTURE(bytes);
        CAPTURE(segmentOffset);
        const uint64_t whole = ssd::recordBytes(bytes, rig.block());
        for (uint64_t at = 0; at < whole + 2 * block; at += old.size()) rig.change(at, old.substr(0, whole + 2 * block - at));
        const std::string payload = rig.put(segmentOffset, bytes, ++seed);
        const uint32_t crc = rig.written(block, segmentOffset, bytes);
        CHECK(crc == crc32c(payload.data(), bytes));
        const std::string file = rig.file(0, whole + 2 * block);
        const auto record = ssd::parseHeader(file.data() + block, rig.block(), whole);
        REQUIRE_MESSAGE(record.ok(), record.error().message());
        CHECK(record.value() == ssd::Record{77, PutId(5), bytes, crc});
        CHECK(std::string_view(file).substr(2 * block, bytes) == payload);
        CHECK(file.substr(2 * block + bytes, whole - block - bytes) == std::string(whole - block - bytes, '\0'));
        CHECK(file.substr(0, block) == std::string(block, '\xaa'));
        CHECK(file.substr(block + whole) == std::string(block, '\xaa'));
      }
    }
    CHECK(rig.devices->counters(0).writes == 2 * std::size(kSizes));
  });
}

TEST_CASE("device: what was written is read, into its extent and nowhere else") {
  eachWay([](Kind kind, WriteMode mode) {
    Rig rig(kind, mode);
    uint64_t seed = 0;
    for (const uint64_t bytes : kSizes) {
      const std::string payload = rig.put(4096, bytes, ++seed);
      const uint32_t crc = rig.written(0, 4096, bytes);
      for (const uint64_t target : {uint64_t{24 * kMiB}, uint64_t{24 * kMiB + 512}, uint64_t{24 * kMiB + 64}}) {
        CAPTURE(bytes);
        CAPTURE(target);
        const uint64_t extent = extentBytes(bytes);
        std::memset(rig.segment.data + target - 8192, kBeside, extent + 16384);
        rig.progress.clear();
        const DiskResult result = rig.end(rig.read(0, target, bytes, crc));
        CHECK(result.kind == Result::readDone);
        CHECK_MESSAGE(result.error.ok(), result.error.message());
        CHECK(rig.at(target, bytes) == payload);
        CHECK(rig.at(target - 8192, 8192) == std::string(8192, kBeside));
        CHECK(rig.at(target + extent, 8192) == std::string(8192, kBeside));
        CHECK(std::is_sorted(rig.progress.begin(), rig.progress.end()));
        for (const uint64_t each : rig.progress) CHECK((each % kChunkBytes == 0 && each < bytes));
      }
      CHECK(rig.end(rig.check(0, bytes, crc)).error.ok());
    }
    CHECK(rig.devices->counters(0).reads == 3 * std::size(kSizes));
    CHECK(rig.devices->counters(0).oldestNs == 0);
  });
}

TEST_CASE("device: one flipped bit of a payload is found by a read and by a check") {
  Rig rig;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4097}, 2 * kChunkBytes + 1}) {
    CAPTURE(bytes);
    rig.put(0, bytes, bytes);
    for (const uint64_t place : {uint64_t{0}, bytes / 2, bytes - 1}) {
      const uint32_t crc = rig.written(0, 0, bytes);
      rig.flip(rig.block() + place);
      rig.progress.clear();
      CHECK(rig.end(rig.read(0, 24 * kMiB, bytes, crc)).error.code == Code::corrupt);
      for (const uint64_t each : rig.progress) CHECK(each < bytes);
      CHECK(rig.end(rig.check(0, bytes, crc)).error.code == Code::corrupt);
    }
  }
  CHECK(rig.devices->counters(0).readErrors == 18);
}

TEST_CASE("device: a check compares the header") {
  Rig rig;
  rig.put(0, 1000, 1);
  const uint32_t crc = rig.written(0, 0, 1000);
  CHECK(rig.end(rig.check(0, 1000, crc)).error.ok());
  CHECK(rig.end(rig.check(0, 1000, crc, PutId(6))).error.code == Code::corrupt);
  CHECK(rig.end(rig.check(0, 999, crc)).error.code == Code::corrupt);
  CHECK(rig.end(rig.check(0, 1000, crc + 1)).error.code == Code::corrupt);
  rig.flip(rig.block() - 1);
  CHECK(rig.end(rig.check(0, 1000, crc)).error.code == Code::corrupt);
  CHECK(rig.end(rig.read(0, 8192, 1000, crc)).error.ok());
}

TEST_CASE("device: bytes behind a payload do not matter to anybody") {
  Rig rig;
  rig.put(0, 1000, 1);
  const uint32_t crc = rig.written(0, 0, 1000);
  rig.flip(rig.block() + 1000);
  CHECK(rig.end(rig.read(0, 8192, 1000, crc)).error.ok());
  CHECK(rig.end(rig.check(0, 1000, crc)).error.ok());
}

TEST_CASE("device: errors of the disk are said with its file") {
  for (const WriteMode mode : {WriteMode::singleBuffer, WriteMode::iovec}) {
    Rig rig(Kind::threads, mode, true);
    rig.put(0, 8192, 1);
    const uint32_t crc = rig.written(0, 0, 8192);
    rig.broken->failNext(Direction::write, {.error = EIO});
    Error error = rig.end(rig.write(0, 0, 8192)).error;
    CHECK(error.code == Code::system);
    CHECK(error.detail == "write " + rig.path() + ": Input/output error");
    rig.broken->failNext(Direction::write, {.error = ENOSPC, .bytes = 4096});
    CHECK(rig.end(rig.write(0, 0, 8192)).error.code == Code::noSpace);
    rig.broken->failNext(Direction::read, {.error = EIO, .bytes = 512});
    error = rig.end(rig.read(0, 16384, 8192, crc)).error;
    CHECK(error.code == Code::system);
    CHECK(error.detail == "read " + rig.path() + ": Input/output error");
    rig.broken->failNext(Direction::read, {.error = EIO});
    CHECK(rig.end(rig.check(0, 8192, crc)).error.code == Code::system);
    CHECK(rig.devices->counters(0).writeErrors == 2);
    CHECK(rig.devices->counters(0).readErrors == 2);
    CHECK(rig.devices->counters(0).writes == 1);
    CHECK(rig.end(rig.read(0, 16384, 8192, crc)).error.ok());  // the device goes on
  }
}

TEST_CASE("device: a write of which a chunk fails ends when all its chunks have") {
  Rig rig(Kind::threads, WriteMode::singleBuffer, true);
  constexpr uint64_t kBytes = 3 * kChunkBytes;
  rig.put(0, kBytes, 1);
  rig.broken->failNext(Direction::write, {.delay = milliseconds(100)});
  rig.broken->failNext(Direction::write, {.error = EIO});
  const Time from = bootTime();
  CHECK(rig.end(rig.write(0, 0, kBytes)).error.code == Code::system);
  CHECK(bootTime() - from >= milliseconds(100));
  CHECK(rig.devices->counters(0).writes == 0);
}

TEST_CASE("device: a read that fails ends when nothing of it is in flight") {
  Rig rig(Kind::threads, WriteMode::singleBuffer, true);
  constexpr uint64_t kBytes = 3 * kChunkBytes;
  const std::string payload = rig.put(0, kBytes, 1);
  const uint32_t crc = rig.written(0, 0, kBytes);
  rig.broken->failNext(Direction::read, {.error = EIO});
  rig.broken->failNext(Direction::read, {.delay = milliseconds(100)});
  const Time from = bootTime();
  CHECK(rig.end(rig.read(0, 24 * kMiB, kBytes, crc)).error.code == Code::system);
  CHECK(bootTime() - from >= milliseconds(100));
  CHECK(rig.progress.empty());
}

TEST_CASE("device: chunks that come in any order are counted in theirs") {
  Rig rig(Kind::uring, WriteMode::singleBuffer, true);
  constexpr uint64_t kBytes = 5 * kChunkBytes + 100;
  const std::string payload = rig.put(0, kBytes, 1);
  const uint32_t crc = rig.written(0, 0, kBytes);
  rig.broken->failNext(Direction::read, {.delay = milliseconds(50)});
  CHECK(rig.end(rig.read(0, 24 * kMiB, kBytes, crc)).error.ok());
  CHECK(rig.at(24 * kMiB, kBytes) == payload);
  REQUIRE_FALSE(rig.progress.empty());
  CHECK(rig.progress.front() >= 4 * kChunkBytes);  // the others waited for the first one
}

TEST_CASE("device: a read has four chunks under way, and no more") {
  for (const Kind kind : kBoth) {
    Rig rig(kind, WriteMode::iovec, true);
    constexpr uint64_t kBytes = 5 * kChunkBytes + 100;
    rig.put(0, kBytes, 1);
    const uint32_t crc = rig.written(0, 0, kBytes);
    rig.broken->failNext(Direction::read, {.delay = milliseconds(100)});
    CHECK(rig.end(rig.read(0, 24 * kMiB, kBytes, crc)).error.ok());
    CHECK(rig.broken->mostReads() == kReadWindow);
  }
}

TEST_CASE("device: what is aligned is read where it belongs, and written from where it lies if the mode is that, and nothing is copied") {
  eachWay([](Kind kind, WriteMode mode) {
    Rig rig(kind, mode);
    const DeviceCounters& counters = rig.devices->counters(0);
    uint64_t reads = 0, writes = 0;
    for (const uint64_t bytes : {uint64_t{4096}, kChunkBytes, 2 * kChunkBytes + 100}) {
      CAPTURE(bytes);
      rig.put(0, bytes, 1);
      const uint32_t crc = rig.written(0, 0, bytes);
      writes += mode == WriteMode::iovec;
      CHECK(counters.writesDirect == writes);
      CHECK(rig.end(rig.read(0, 24 * kMiB, bytes, crc)).error.ok());
      CHECK(counters.readsDirect == ++reads);
      rig.put(64, bytes, 2);
      const uint32_t other = rig.written(0, 64, bytes);
      CHECK(rig.end(rig.read(0, 24 * kMiB + 64, bytes, other)).error.ok());
      CHECK(counters.writesDirect == writes);
      CHECK(counters.readsDirect == reads);
    }
    CHECK(counters.writes == 6);
    CHECK(counters.reads == 6);
  });
}

TEST_CASE("device: a write is finished while a larger one that came before it is under way, which says that it gets on") {
  Rig rig(Kind::threads, WriteMode::singleBuffer, true);
  constexpr uint64_t kBytes = 9 * kChunkBytes;
  rig.put(0, kBytes, 1);
  for (int i = 0; i < 12; ++i) rig.broken->failNext(Direction::write, {.delay = milliseconds(50)});
  const JobId large = rig.write(0, 0, kBytes), small = rig.write(kBytes + kMiB, 0, 4096);
  std::vector<JobId> ended;
  size_t signs = 0;
  while (ended.size() < 2) {
    for (const DiskResult& each : rig.some()) {
      REQUIRE(each.error.ok());
      if (each.kind != Result::progress)
        ended.push_back(each.id);
      else
        signs += each.id == large;
    }
  }
  CHECK(ended == std::vector{small, large});
  CHECK(signs == 9);  // and the header ends it
}

TEST_CASE("device: completions may come in any order") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Rig rig(Kind::uring, WriteMode::iovec, true, seed);
    constexpr uint64_t kBytes = 5 * kChunkBytes + 100;
    const std::string payload = rig.put(0, kBytes, seed);
    const uint32_t crc = rig.written(0, 0, kBytes);
    CHECK(rig.end(rig.read(0, 24 * kMiB, kBytes, crc)).error.ok());
    CHECK(rig.at(24 * kMiB, kBytes) == payload);
    CHECK(std::is_sorted(rig.progress.begin(), rig.progress.end()));
    CHECK(rig.end(rig.check(0, kBytes, crc)).error.ok());
  }
}

TEST_CASE("device: a read does not wait for the writes that were there before it") {
  Rig rig(Kind::threads, WriteMode::singleBuffer, true);
  rig.put(0, 4096, 1);
  const uint32_t crc = rig.written(0, 0, 4096);
  constexpr size_t kWrites = 4 * kMostWrites;
  for (size_t i = 0; i < kMostWrites; ++i) rig.broken->failNext(Direction::write, {.delay = milliseconds(200)});
  for (size_t i = 1; i <= kWrites; ++i) rig.write(i * 16384, 0, 4096);
  const JobId read = rig.read(0, 8192, 4096, crc);
  const auto first = rig.some();
  REQUIRE(first.size() == 1);
  CHECK(first[0].id == read);
  CHECK(rig.devices->counters(0).writesQueued == kWrites);
  CHECK(rig.devices->counters(0).oldestNs > 0);
  CHECK(rig.ends(kWrites).size() == kWrites);
  CHECK(rig.devices->counters(0).writesQueued == 0);
}

TEST_CASE("device: jobs that have started nothing can be taken back, and each is answered once") {
  Rig rig(Kind::threads, WriteMode::singleBuffer, true);
  rig.put(0, 4096, 1);
  for (size_t i = 0; i < kMostWrites; ++i) rig.broken->failNext(Direction::write, {.delay = milliseconds(100)});
  for (uint64_t i = 0; i < 100; ++i) rig.write(i * 16384, 0, 4096);
  while (rig.devices->counters(0).oldestNs == 0) std::this_thread::yield();
  rig.devices->cancelQueued(DeviceIndex(0));
  const JobId later = rig.write(200 * 16384, 0, 4096);
  const auto ends = rig.ends(101);
  size_t good = 0;
  for (const auto& [id, result] : ends) good += result.error.ok() ? 1 : result.error.code == Code::unavailable ? 0 : 1000;
  CHECK(good >= 2);
  CHECK(good <= 1 + kMostWrites);
  CHECK(ends.at(later).error.ok());
}

TEST_CASE("device: its end answers everything, and waits for what is in flight") {
  Rig rig(Kind::uring, WriteMode::singleBuffer, true);
  rig.put(0, 5 * kChunkBytes, 1);
  for (int i = 0; i < 3; ++i) rig.broken->failNext(Direction::write, {.delay = milliseconds(100)});
  for (uint64_t i = 0; i < 20; ++i) rig.write(0, 0, 5 * kChunkBytes);
  rig.read(0, 24 * kMiB, 5 * kChunkBytes, 0);
  while (rig.devices->counters(0).oldestNs == 0) std::this_thread::yield();
  const Time from = bootTime();
  rig.devices->close();
  CHECK(bootTime() - from < seconds(3));
  CHECK(rig.ends(21).size() == 21);
  CHECK(rig.devices->counters(0).oldestNs == 0);
  CHECK(rig.devices->counters(0).readsQueued == 0);
  CHECK(rig.devices->counters(0).writesQueued == 0);
}

TEST_CASE("device: a segment is registered as far as its pages are there, and a new one in its place is not taken for it") {
  constexpr uint64_t kBytes = 150 * kMiB, kValue = 3 * kMiB;
  const Memory large(kBytes);
  Rig rig;
  const auto registered = [&](uint64_t bytes) {
    for (int i = 0; i < 20'000 && rig.devices->counters(0).registeredBytes != bytes; ++i) ::usleep(1000);
    return rig.devices->counters(0).registeredBytes == bytes;
  };
  // Before, in, across and behind what is registered.
  const auto comeBack = [&](uint64_t seed) {
    uint64_t fileOffset = 0;
    for (const uint64_t offset : {uint64_t{0}, 63 * kMiB, 64 * kMiB, 67 * kMiB, 127 * kMiB, kBytes - kValue}) {
      const std::string payload = pattern(++seed, kValue);
      std::memcpy(large.data + offset, payload.data(), kValue);
      const uint32_t crc = rig.written(fileOffset, offset, kValue);
      std::memset(large.data + offset, kBeside, kValue);
      const DiskResult result = rig.end(rig.read(fileOffset, offset, kValue, crc));
      CHECK_MESSAGE(result.error.ok(), result.error.message());
      CHECK(std::memcmp(large.data + offset, payload.data(), kValue) == 0);
      fileOffset += 4 * kMiB;
    }
  };
  rig.devices->setSegment(large.data, kBytes);
  comeBack(10);
  CHECK(rig.devices->counters(0).registeredBytes == 0);
  rig.devices->segmentPopulated(67 * kMiB);
  rig.devices->segmentPopulated(68 * kMiB);
  CHECK(registered(64 * kMiB));
  comeBack(20);
  CHECK(rig.devices->counters(0).registeredBytes == 64 * kMiB);
  rig.devices->segmentPopulated(UINT64_MAX);
  CHECK(registered(kBytes));
  comeBack(30);
  void* const again = ::mmap(large.data, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  REQUIRE(again == large.data);
  rig.devices->setSegment(large.data, kBytes);
  comeBack(40);
  CHECK(registered(0));
  rig.devices->segmentPopulated(kBytes);
  CHECK(registered(kBytes));
}

TEST_CASE("device: many jobs at once, more than there are buffers for") {
  eachWay([](Kind kind, WriteMode mode) {
    Rig rig(kind, mode);
    std::mt19937_64 random(3);
    struct Value {
      uint64_t fileOffset, bytes, offset;
      std::string payload;
    };
    std::vector<Value> values;
    uint64_t file = 0, memory = 0;
    while (file < 20 * kMiB) {
      const uint64_t bytes = random() % 4 == 0 ? random() % (2 * kChunkBytes) : random() % 20'000;
      values.push_back({file, bytes, memory, rig.put(memory, bytes, values.size())});
      file += ssd::recordBytes(bytes, rig.block());
      memory += extentBytes(bytes);
    }
    REQUIRE(memory < kSegmentBytes);
    std::vector<JobId> jobs;
    for (const Value& each : values) jobs.push_back(rig.write(each.fileOffset, each.offset, each.bytes));
    auto ends = rig.ends(values.size());
    std::memset(rig.segment.data, kBeside, rig.segment.bytes);
    std::vector<JobId> reads;
    for (size_t i = 0; i < values.size(); ++i) {
      const DiskResult& result = ends.at(jobs[i]);
      REQUIRE_MESSAGE(result.error.ok(), result.error.message());
      reads.push_back(rig.read(values[i].fileOffset, values[i].offset, values[i].bytes, result.payloadCrc));
      if (i % 3 == 0) rig.check(values[i].fileOffset, values[i].bytes, result.payloadCrc);
    }
    for (const auto& [id, result] : rig.ends(values.size() + (values.size() + 2) / 3)) {
      CHECK_MESSAGE(result.error.ok(), result.error.message());
    }
    for (const Value& each : values) CHECK(rig.at(each.offset, each.bytes) == each.payload);
  });
}

}  // namespace
}  // namespace fluxon::ssdd
