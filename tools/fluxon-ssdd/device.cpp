#include "device.h"

#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <optional>

#include "base/bell.h"
#include "base/extent.h"
#include "base/log.h"
#include "base/thread.h"

namespace fluxon::ssdd {
namespace {

using Kind = DiskResult::Kind;

shm::Descriptor makeBell(Error& error) {
  shm::Descriptor bell(bell::make());
  if (!bell) error = systemError("eventfd", errno);
  return bell;
}

// The thread registers the segment in pieces, so that I/O goes on in between. Each piece overlaps the next one by so much that every
// request lies within one piece.
constexpr uint64_t kPieceBytes = 64 * kMiB;
constexpr uint64_t kLargestRequest = kChunkBytes;

// Registers a segment with the engine of a device, on the device's thread. A registration refers to pages, not addresses: it is dropped
// before the first request that uses other pages at the same addresses.
class SegmentMemory {
 public:
  SegmentMemory(const std::string& path, FileEngine& engine, DeviceCounters& counters)
      : path_(path), engine_(engine), counters_(counters) {}

  void replace(const iovec& segment) {
    engine_.dropMemory(segment_);
    segment_ = segment;
    refused_ = false;
    refusal_ = {};
    advance(0);
  }
  // Reports the refusal only if no other segment has come meanwhile: the engine also refuses memory that has gone.
  bool hasRefusal() const { return !refusal_.ok() && refusal_.code != Code::notEnabled; }
  void tellRefusal() {
    if (!hasRefusal()) return;
    log::info(path_ + ": each request pins its pages anew (RLIMIT_MEMLOCK?): " + std::exchange(refusal_, {}).message());
  }
  // Whether the pages of the next piece are populated.
  bool canStep(uint64_t populated) const { return !refused_ && at_ < segment_.iov_len && populated >= end(); }
  void step() {
    refusal_ = engine_.addMemory({static_cast<char*>(segment_.iov_base) + at_, end() - at_});
    refused_ = !refusal_.ok();
    if (!refused_) advance(end() == segment_.iov_len ? end() : at_ + kPieceBytes);
  }

 private:
  uint64_t end() const { return std::min<uint64_t>(segment_.iov_len, at_ + kPieceBytes + kLargestRequest); }
  void advance(uint64_t to) {
    at_ = to;
    counters_.registeredBytes.store(to, std::memory_order_relaxed);
  }
  const std::string& path_;
  FileEngine& engine_;
  DeviceCounters& counters_;
  iovec segment_{};
  uint64_t at_ = 0;
  Error refusal_;  // that nobody has been told of
  bool refused_ = false;
};

}  // namespace

struct Devices::Device {
  Device(const ssd::Root& r, Error& error) : root(r), bell(makeBell(error)) {}

  const ssd::Root& root;
  DeviceCounters counters;
  shm::Descriptor bell;  // rung when the thread sleeps and there is something in the inbox
  std::mutex mutex;      // over what follows
  std::vector<DiskJob> inbox;
  std::optional<iovec> segment;  // a new one; jobs that are in the inbox with it name it
  uint64_t populated = 0;
  bool cancels = false, ends = false, asleep = false;

  std::promise<Result<const char*>> engineName;
  std::thread thread;
};

std::atomic<uint64_t>& Devices::queued(Device& device, const DiskJob& job) {
  return job.kind == Kind::written ? device.counters.writesQueued : device.counters.readsQueued;
}

Devices::Devices(const std::vector<ssd::Root>& roots, const Settings& settings) : bell_(makeBell(error_)) {
  Settings each = settings;
  each.bufferBytes = std::max(settings.bufferBytes / std::max<size_t>(1, roots.size()), 4 * Buffers::kSizes.back());
  for (const ssd::Root& root : roots) {
    devices_.push_back(std::make_unique<Device>(root, error_));
    for (size_t shard = 0; shard < root.shards.size(); ++shard) places_.push_back({devices_.size() - 1, shard});
  }
  closed_ = !error_.ok();
  if (closed_) return;
  for (auto& device : devices_) {
    Result<std::thread> thread = startThread([this, &device = *device, each] { run(device, each); });
    if (thread)
      device->thread = std::move(thread).value();
    else
      device->engineName.set_value(thread.error());
  }
  for (size_t i = devices_.size(); i-- > 0;) {
    const Result<const char*> name = devices_[i]->engineName.get_future().get();
    if (name)
      engine_ = name.value();
    else
      error_ = name.error();
  }
}

Devices::~Devices() { close(); }

void Devices::close() {
  if (std::exchange(closed_, true)) return;
  for (auto& device : devices_) {
    {
      const std::lock_guard lock(device->mutex);
      device->ends = true;
    }
    bell::ring(device->bell.get());
  }
  for (auto& device : devices_) {
    if (device->thread.joinable()) device->thread.join();
  }
}

void Devices::setSegment(char* data, uint64_t bytes) {
  segment_ = data;
  segmentBytes_ = bytes;
  for (auto& device : devices_) {
    const std::lock_guard lock(device->mutex);
    device->segment = iovec{data, bytes};
    device->populated = 0;
    if (std::exchange(device->asleep, false)) bell::ring(device->bell.get());
  }
}

void Devices::segmentPopulated(uint64_t bytes) {
  for (auto& device : devices_) {
    const std::lock_guard lock(device->mutex);
    device->populated = std::min(bytes, segmentBytes_);
    if (std::exchange(device->asleep, false)) bell::ring(device->bell.get());
  }
}

char* Devices::inSegment(uint64_t offset, uint64_t bytes) const {
  FLUXON_CHECK(segment_ && offset <= segmentBytes_ && bytes <= segmentBytes_ - offset, "a job outside of the segment");
  return segment_ + offset;
}

void Devices::write(const WriteJob& job) {
  give(job.shard, {Kind::written,
                   job.id,
                   0,
                   job.fileOffset,
                   {job.keyHash, job.putId, job.payloadBytes, 0},
                   inSegment(job.segmentOffset, job.payloadBytes)});
}
void Devices::read(const ReadJob& job) {
  give(job.shard, {Kind::readDone,
                   job.id,
                   0,
                   job.fileOffset,
                   {0, PutId(), job.payloadBytes, job.payloadCrc},
                   inSegment(job.segmentOffset, extentBytes(job.payloadBytes))});
}
void Devices::check(const CheckJob& job) {
  give(job.shard, {Kind::checked, job.id, 0, job.fileOffset, {job.keyHash, job.putId, job.payloadBytes, job.payloadCrc}, nullptr});
}

void Devices::give(ShardId shard, DiskJob job) {
  FLUXON_CHECK(!closed_ && shard.value < places_.size(), "a job for closed devices, or for no shard");
  const Place place = places_[shard.value];
  job.shard = place.shard;
  Device& device = *devices_[place.device];
  queued(device, job).fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(device.mutex);
  device.inbox.push_back(job);
  if (std::exchange(device.asleep, false)) bell::ring(device.bell.get());
}

void Devices::cancelQueued(DeviceIndex index) {
  std::vector<DiskResult> results;
  Device& device = *devices_[index.value];
  {
    const std::lock_guard lock(device.mutex);
    for (const DiskJob& each : device.inbox) {
      queued(device, each).fetch_sub(1, std::memory_order_relaxed);
      results.push_back({.kind = each.kind, .id = each.id, .error = {Code::unavailable, "the job was taken back"}});
    }
    device.inbox.clear();
    device.cancels = true;
    if (std::exchange(device.asleep, false)) bell::ring(device.bell.get());
  }
  hand(results);
}

std::vector<DiskResult> Devices::reap() {
  bell::clear(bell_.get());
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

void Devices::hand(std::vector<DiskResult>& results) {
  if (results.empty()) return;
  const std::lock_guard lock(mutex_);
  if (results_.empty()) bell::ring(bell_.get());
  results_.insert(results_.end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
  results.clear();
}

void Devices::run(Device& device, const Settings& settings) {
  ::prctl(PR_SET_NAME, "ssd");
  const Result<std::unique_ptr<FileEngine>> made = settings.makeEngine({.alignment = device.root.blockBytes});
  if (!made) return device.engineName.set_value(made.error());
  FileEngine* const engine = made.value().get();
  DeviceWorker worker(device.root, *engine, settings.mode, settings.bufferBytes, device.counters);
  pollfd sources[] = {{device.bell.get(), POLLIN, 0}, {engine->eventFd(), POLLIN, 0}};
  if (sources[1].fd < 0) return device.engineName.set_value(systemError("eventfd", errno));
  device.engineName.set_value(engine->name());
  SegmentMemory memory(device.root.path, *engine, device.counters);
  std::vector<DiskJob> jobs;
  std::vector<DiskResult> results;
  bool moved = true;
  for (;;) {
    bool cancels, ends, idle;
    std::optional<iovec> segment;
    uint64_t populated;
    {
      const std::lock_guard lock(device.mutex);
      jobs.swap(device.inbox);
      segment = std::exchange(device.segment, std::nullopt);
      populated = device.populated;
      cancels = std::exchange(device.cancels, false);
      ends = device.ends;
      idle = !moved && jobs.empty() && !segment && !cancels && !ends && !memory.canStep(populated) && !memory.hasRefusal();
      device.asleep = idle;
    }
    if (idle) {
      ::poll(sources, 2, -1);
      bell::clear(device.bell.get());
    }
    segment ? memory.replace(*segment) : memory.tellRefusal();
    if (cancels) worker.cancelQueued(results);
    for (const DiskJob& each : jobs) worker.add(each);  // given after the cancelling
    jobs.clear();
    if (ends) {
      worker.close(results);
      return hand(results);
    }
    moved = worker.step(results);
    hand(results);
    if (memory.canStep(populated)) memory.step();
  }
}

const DeviceCounters& Devices::counters(size_t device) const { return devices_[device]->counters; }

void Devices::show(size_t index, ssd::ShownDevice& to) const {
  const Device& device = *devices_[index];
  const std::string& path = device.root.path;
  char text[sizeof to.path] = {};
  const size_t cut = path.size() - std::min(path.size(), sizeof text - 1);
  std::memcpy(text, path.data() + cut, path.size() - cut);
  std::memcpy(to.path, text, sizeof text);
  const auto store = [](shm::Word& word, uint64_t value) { word.store(value, std::memory_order_relaxed); };
  const auto load = [](const auto& value) { return static_cast<uint64_t>(value.load(std::memory_order_relaxed)); };
  store(to.capacityBytes, device.root.capacityBytes());
  store(to.blockBytes, device.root.blockBytes);
  store(to.direct, device.root.direct ? 1 : 0);
  store(to.readsQueued, load(device.counters.readsQueued));
  store(to.writesQueued, load(device.counters.writesQueued));
  store(to.reads, load(device.counters.reads));
  store(to.writes, load(device.counters.writes));
  store(to.readBytes, load(device.counters.readBytes));
  store(to.writtenBytes, load(device.counters.writtenBytes));
  store(to.readErrors, load(device.counters.readErrors));
  store(to.writeErrors, load(device.counters.writeErrors));
  store(to.oldestNs, load(device.counters.oldestNs));
  store(to.registeredBytes, load(device.counters.registeredBytes));
  store(to.writesDirect, load(device.counters.writesDirect));
}

}  // namespace fluxon::ssdd
