// What fluxonctl makes of the file `ssdd`, whatever is in it.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>

#include "ssdd_report.h"

namespace fluxon::ctl {
namespace {

constexpr uint64_t kFileBytes = sizeof(ssd::SsddFile);
constexpr Time kNow = Time{} + seconds(100);

// Header and status of a sound file.
struct Sound {
  std::unique_ptr<ssd::SsddFile> file = std::make_unique<ssd::SsddFile>();
  ssd::SsddHeader& header = file->header;
  ssd::SsddStatus& status = file->status;

  Sound() {
    std::memcpy(header.file.magic, ssd::kSsddMagic, 8);
    header.file.version = shm::kFormatVersion;
    header.file.headerBytes = sizeof header;
    header.file.fileBytes = kFileBytes;
    header.file.incarnation = 7;
    header.life = 8;
    header.pid = 9;
    header.attachedNs = seconds(40).ns;
    status.devices = 1;
    status.shards = 2;
    status.engine = 1;
    std::strcpy(status.device[0].path, "/disk/root");
    std::strcpy(status.http, "127.0.0.1:9301");
    status.shard[0].usedBytes = 10;
    status.shard[1].usedBytes = 20;
    status.shard[1].state = 1;
  }
  Result<SsddReport> report(uint64_t bytes = kFileBytes) const { return reportOf(header, status, bytes, kNow); }
};

TEST_CASE("ssdd file: a shard of a device that is gone or hung does not serve, and one that is retired stays so") {
  const std::pair<uint64_t, std::string> states[] = {{0, "serving"}, {1, "serving"}, {2, "serving"}, {3, "hung"}, {4, "gone"}};
  for (const auto& [device, shard] : states) {
    Sound sound;
    sound.status.device[0].state = device;
    const SsddReport report = sound.report().value();
    CHECK(report.shards.at(0).state == shard);
    CHECK(report.shards.at(1).state == "retired");
  }
}

TEST_CASE("ssdd file: who, since when, devices with what their shards use") {
  Sound sound;
  sound.status.device[0].oldestNs = static_cast<uint64_t>(seconds(99).ns);
  sound.status.loadsDirect = 5;
  sound.status.device[0].state = 3;
  sound.status.device[0].stalled = 4;
  sound.header.givenUp = 6;
  const SsddReport report = sound.report().value();
  CHECK(report.owner.value == 7);
  CHECK(report.life.value == 8);
  CHECK(report.pid == 9);
  CHECK(report.attachedMs == 60'000);
  CHECK(report.engine == "io_uring");
  CHECK(report.http == "127.0.0.1:9301");
  REQUIRE(report.devices.size() == 1);
  CHECK(report.devices[0].path == "/disk/root");
  CHECK(report.devices[0].usedBytes == 30);
  CHECK(report.devices[0].oldestMs == 1000);
  CHECK(report.devices[0].state == "hung");
  CHECK(report.devices[0].stalled == 4);
  REQUIRE(report.shards.size() == 2);
  CHECK(report.shards[0].state == "hung");  // as its device
  CHECK(report.shards[1].state == "retired");
  CHECK(report.counters[3].name == "given_up");
  CHECK(report.counters[3].value == 6);
  CHECK(report.counters[8].name == "loads_direct");
  CHECK(report.counters[8].value == 5);
}

TEST_CASE("ssdd file: counts beyond what the file has room for are cut, and how many are missing is said") {
  Sound sound;
  sound.status.devices = UINT64_MAX;
  sound.status.shards = ssd::kShownShards + 3;
  const SsddReport report = sound.report().value();
  CHECK(report.devices.size() == ssd::kShownDevices);
  CHECK(report.devicesHidden == UINT64_MAX - ssd::kShownDevices);
  CHECK(report.shards.size() == ssd::kShownShards);
  CHECK(report.shardsHidden == 3);
  CHECK_FALSE(report.devices[0].usedBytes);  // not all of its shards are known
}

TEST_CASE("ssdd file: a path without an end stops at its field") {
  Sound sound;
  std::memset(sound.status.device[0].path, 'x', sizeof sound.status.device[0].path);
  sound.status.device[0].capacityBytes = UINT64_MAX;  // follows it
  CHECK(sound.report().value().devices[0].path == std::string(sizeof sound.status.device[0].path, 'x'));
}

TEST_CASE("ssdd file: a shard of no device, and times that are not yet, are no facts") {
  Sound sound;
  sound.status.shard[1].device = 1;
  sound.status.shard[1].state = 2;
  sound.status.engine = 3;
  sound.status.device[0].state = 5;
  sound.status.device[0].oldestNs = UINT64_MAX;
  sound.header.attachedNs = INT64_MIN;
  SsddReport report = sound.report().value();
  CHECK(report.shards[0].device == 0);
  CHECK_FALSE(report.shards[1].device);
  CHECK(report.devices[0].usedBytes == 10);
  CHECK(report.shards[1].state == "invalid");
  CHECK(report.engine == "invalid");
  CHECK(report.devices[0].state == "invalid");
  CHECK(report.devices[0].oldestMs == 0);
  CHECK(report.attachedMs == 0);
  sound.header.attachedNs = INT64_MAX;
  CHECK(sound.report().value().attachedMs == 0);
}

TEST_CASE("ssdd file: another magic, version or length is damage") {
  CHECK(Sound().report(kFileBytes - 1).error().code == Code::corrupt);
  CHECK(Sound().report(0).error().code == Code::corrupt);
  Sound magic, version, shorter;
  magic.header.file.magic[0] = 'X';
  CHECK(magic.report().error().detail == "wrong magic");
  version.header.file.version = shm::kFormatVersion + 1;
  CHECK(version.report().error().code == Code::corrupt);
  shorter.header.file.fileBytes = kFileBytes - 4096;
  CHECK(shorter.report(kFileBytes - 4096).error().detail == "another size");
}

TEST_CASE("ssdd file: any bytes whatever give a report or damage") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    Sound sound;
    auto* const bytes = reinterpret_cast<char*>(&sound.status);
    for (size_t i = 0; i + 8 <= sizeof sound.status; i += 8) {
      const uint64_t word = random();
      std::memcpy(bytes + i, &word, 8);
    }
    const SsddReport report = sound.report().value();
    CHECK(report.devices.size() == ssd::kShownDevices);
    CHECK(report.shards.size() == ssd::kShownShards);
  }
}

}  // namespace
}  // namespace fluxon::ctl
