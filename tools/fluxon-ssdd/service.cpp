#include "service.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/json.h"
#include "base/log.h"
#include "rpc/metrics.h"

namespace fluxon::ssdd {
namespace {

using Kind = DiskResult::Kind;

constexpr Duration kFirstPause = milliseconds(100), kLongestPause = seconds(1);  // between tries to attach
constexpr auto kLockPause = 200 * kj::MILLISECONDS;                              // between tries to lock the shards
constexpr auto kPublishPause = 100 * kj::MILLISECONDS;
constexpr auto kLookPause = 1 * kj::SECONDS;  // between looks for the shard files
constexpr Duration kStuck = seconds(5);       // an I/O this old is not healthy
constexpr int kMessagesAtOnce = 256;
constexpr size_t kMostWaiting = 1024;  // messages for which the channel has no room: lists wait

// Null: the kernel refuses io_uring, and the configuration allows nothing else.
Devices::MakeEngine chooseEngine(const std::string& backend, std::string& why) {
  const auto threads = [](const EngineSettings& settings) { return makePsyncEngine(settings); };
  if (backend == "psync") return threads;
  if (!makeUringEngine({}, why)) {
    if (backend == "io_uring") return nullptr;
    log::warn("io_uring is refused (" + why + "): files are read and written by threads, which is slower");
    return threads;
  }
  return [](const EngineSettings& settings) {
    std::string refused;
    auto engine = makeUringEngine(settings, refused);
    if (engine) return Result(std::move(engine));
    log::warn("io_uring is refused for one device (" + refused + "): it is served by threads, which is slower");
    return makePsyncEngine(settings);
  };
}

std::vector<ssd::RootOption> rootOptions(const Config::Owner& owner) {
  std::vector<ssd::RootOption> options;
  for (size_t i = 0; i < owner.largeLimitBytes.size(); ++i) options.push_back({owner.largeFilePaths[i], owner.largeLimitBytes[i]});
  return options;
}

}  // namespace

Service::Service(rpc::Daemon& daemon, const Config& config, shm::Paths paths, std::string node)
    : daemon_(daemon),
      config_(config),
      node_(node),
      link_(daemon, std::move(paths), std::move(node)),
      ready_(nullptr),
      tasks_(kj::heap<kj::TaskSet>(static_cast<kj::TaskSet::ErrorHandler&>(*this))),
      ownersTasks_(kj::heap<kj::TaskSet>(static_cast<kj::TaskSet::ErrorHandler&>(*this))) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  isReady_ = kj::mv(paf.fulfiller);
  ready_ = kj::mv(paf.promise);
}
Service::~Service() noexcept = default;

// --- opening -------------------------------------------------------------------------------------------------------------------

kj::Promise<Error> Service::open() {
  openingNow_ = true;
  return tryOpen().then([this](Error error) {
    openingNow_ = false;
    return error.ok() && !stopping_ ? opened() : error;
  });
}

kj::Promise<Error> Service::tryOpen() {
  auto result = std::make_shared<std::optional<Result<ssd::Roots>>>();
  const auto open = [options = rootOptions(config_.owner), cluster = config_.common.cluster, node = node_, result] {
    result->emplace(ssd::openRoots(options, cluster, node));
  };
  return daemon_.workers().run(open).then([this, result]() -> kj::Promise<Error> {
    if (**result) {
      roots_ = std::move(**result).value();
      return Error{};
    }
    const Error& error = (*result)->error();
    if (error.code != Code::unavailable || stopping_) return error;
    if (std::exchange(error_, error.message()) != error_) log::info("waits: " + error.detail);
    return daemon_.timer().afterDelay(kLockPause).then([this] { return tryOpen(); });
  });
}

Error Service::opened() {
  error_.clear();
  std::string why;
  const Devices::MakeEngine engine = chooseEngine(config_.ssdd.backend, why);
  if (!engine) return {Code::system, "io_uring, which ssdd.backend wants, is refused: " + why};
  for (const ssd::SameDevice& each : roots_.leftOut) log::warn(each.path + " is on the same device as " + each.first + ", and is not used");
  std::vector<ShardSpec> shards;
  for (size_t device = 0; device < roots_.roots.size(); ++device) {
    const ssd::Root& root = roots_.roots[device];
    for (const ssd::Shard& shard : root.shards) shards.push_back({DeviceIndex(device), shard.bytes, root.blockBytes});
    log::info("root " + root.path + ": " + formatSize(root.capacityBytes()) + " in " + std::to_string(root.shards.size()) + " shards, " +
              (root.direct ? "direct I/O in blocks of " + std::to_string(root.blockBytes) : std::string("no direct I/O there")));
    if (root.reserved == shm::Reserved::byWriting) {
      log::warn("root " + root.path + ": its file system has no fallocate: space is reserved by writing zeros, which is slower");
    }
  }
  const WriteMode mode = config_.ssdd.uringMode == "iovec" ? WriteMode::iovec : WriteMode::singleBuffer;
  devices_ = std::make_unique<Devices>(roots_.roots, Devices::Settings{.mode = mode, .makeEngine = engine});
  if (!devices_->error().ok()) return devices_->error();
  core_ = std::make_unique<SsdCore>(shards, *devices_, *this);
  using Observer = kj::UnixEventPort::FdObserver;
  devicesObserver_ = kj::heap<Observer>(daemon_.port(), devices_->eventFd(), Observer::OBSERVE_READ);
  state_ = State::seeking;
  outages_.resize(devices_->count());
  retired_.resize(shards.size());
  tasks_->add(reap());
  tasks_->add(seek(kFirstPause));
  tasks_->add(tick());
  for (size_t device = 0; device < devices_->count(); ++device) tasks_->add(lookForFiles(device));
  return {};
}

// --- the owner -----------------------------------------------------------------------------------------------------------------

kj::Promise<void> Service::seek(Duration pause) {
  ssd::SsddAttach request{};
  std::memcpy(request.magic, ssd::kSsddAttachMagic, sizeof request.magic);
  request.version = ssd::kSsddVersion;
  request.life = life_.value;
  request.entries = core_->entries();
  for (const ssd::Root& root : roots_.roots) request.capacityBytes += root.capacityBytes();
  return link_.attach(request).then([this, pause](Result<std::shared_ptr<Session>> result) -> kj::Promise<void> {
    if (stopping_) return kj::READY_NOW;
    if (result) {
      attached(std::move(result).value());
      return kj::READY_NOW;
    }
    const Error& error = result.error();
    const bool fenced = error.code == Code::fenced;
    if (fenced) {
      log::info("starts empty: " + error.message());
      core_->startOver();
      life_ = newIncarnation();
    } else if (std::exchange(error_, error.message()) != error_) {
      log::info("waits for its owner: " + error.message());
    }
    const Duration wait = fenced && pause == kFirstPause ? Duration{} : pause;
    const Duration next = std::min(pause * 2, kLongestPause);
    return daemon_.timer().afterDelay(wait.ns * kj::NANOSECONDS).then([this, next]() -> kj::Promise<void> {
      if (stopping_) return kj::READY_NOW;
      return seek(next);
    });
  });
}

void Service::attached(std::shared_ptr<Session> session) {
  session_ = std::move(session);
  error_.clear();
  ++attaches_;
  log::info("attached, with " + std::to_string(core_->entries()) + " entries of life " + toString(life_));
  devices_->setSegment(session_->segment(), session_->segmentBytes());
  channel_.emplace(session_->file(), ssd::Channel::End::ssdd, session_->ownersBell());
  core_->ownerAttached(session_->segmentBytes());
  state_ = State::attached;
  char(&shown)[sizeof(ssd::SsddStatus::http)] = session_->file().status.http;
  if (http_.size() < sizeof shown) std::memcpy(shown, http_.c_str(), http_.size() + 1);
  publish();
  ownersTasks_->add(session_->ended().then([this] { hearRest(); }));
  ownersTasks_->add(listen());
  ownersTasks_->add(watchPopulated(kFirstPause));
  isReady_->fulfill();
}

// The owner populates its segment page by page, or leaves that to the first writer.
kj::Promise<void> Service::watchPopulated(Duration pause) {
  const uint64_t bytes = session_->populatedBytes();
  devices_->segmentPopulated(bytes);
  if (bytes >= session_->segmentBytes()) return kj::READY_NOW;
  const Duration next = std::min(pause * 2, kLongestPause);
  return daemon_.timer().afterDelay(pause.ns * kj::NANOSECONDS).then([this, next] { return watchPopulated(next); });
}

kj::Promise<void> Service::listen() {
  if (state_ != State::attached) return kj::READY_NOW;
  channel_->awake();
  ssd::Message message;
  for (int n = 0; n < kMessagesAtOnce && !channel_->broken(); ++n) {
    if (channel_->receive(message) == ssd::Channel::Received::message) {
      if (const Error error = core_->message(message, bootTime()); !error.ok()) {
        lose(error.message());
        return kj::READY_NOW;
      }
    } else if (channel_->sleep()) {
      after();
      return session_->rung().then([this] { return listen(); });
    }
  }
  after();
  return daemon_.afterLook().then([this] { return listen(); });
}

// The owner has ended. ssdd carries out the invalidations that it has sent before the next owner may ask for a list.
void Service::hearRest() {
  ssd::Message message;
  while (state_ == State::attached && channel_->receive(message) == ssd::Channel::Received::message) {
    if (const Error error = core_->message(message, bootTime()); !error.ok()) break;
  }
  lose("the owner has gone, or has cut it off");
}

void Service::send(ssd::Message message) { channel_->send(message); }

void Service::lose(const std::string& why) {
  if (state_ != State::attached) return;
  log::info("the channel to the owner ends: " + why);
  state_ = State::draining;
  core_->ownerGone();
  after();
}

// Nothing in this process touches the segment any more.
kj::Promise<void> Service::detach() {
  publish();
  ownersTasks_ = kj::heap<kj::TaskSet>(static_cast<kj::TaskSet::ErrorHandler&>(*this));
  channel_.reset();
  devices_->setSegment(nullptr, 0);
  session_.reset();
  state_ = State::seeking;
  detaching_ = false;
  if (stopping_) return kj::READY_NOW;
  return seek(kFirstPause);
}

// --- devices, and everything that follows from what has happened -----------------------------------------------------------------

kj::Promise<void> Service::reap() {
  for (DiskResult& each : devices_->reap()) handle(each);
  after();
  return devicesObserver_->whenBecomesReadable().then([this] { return reap(); });
}

void Service::handle(DiskResult& result) {
  const Time now = bootTime();
  if (!result.error.ok() && result.error.code != Code::unavailable) log::warn(result.error.message());
  switch (result.kind) {
    case Kind::written:
      core_->written(result.id, result.error.ok() ? Result<uint32_t>(result.payloadCrc) : Result<uint32_t>(std::move(result.error)), now);
      break;
    case Kind::progress: core_->progress(result.id, result.bytes, now); break;
    case Kind::readDone: core_->readDone(result.id, result.error, now); break;
    case Kind::checked: core_->checked(result.id, result.error, now); break;
  }
}

kj::Promise<void> Service::tick() {
  return daemon_.timer().afterDelay(kTick.ns * kj::NANOSECONDS).then([this]() -> kj::Promise<void> {
    core_->tick(bootTime());
    after();
    sayOutages();
    return tick();
  });
}

// Another process may remove the shard files. The descriptors go on working, and the space stays taken.
kj::Promise<void> Service::lookForFiles(size_t device) {
  auto missing = std::make_shared<std::string>();
  const ssd::Root& root = roots_.roots[device];
  return daemon_.timer()
      .afterDelay(kLookPause)
      .then([this, missing, &root] {
        ++onWorkers_;
        return daemon_.workers().run([missing, &root] { *missing = ssd::missingShard(root); });
      })
      .then([this, missing, device]() -> kj::Promise<void> {
        --onWorkers_;
        if (stopping_) return kj::READY_NOW;
        if (missing->empty()) return lookForFiles(device);
        log::error(*missing + " has been removed: the device is not used any more, until fluxon-ssdd starts again");
        core_->deviceGone(DeviceIndex(device), bootTime());
        after();
        return giveSpaceBack(device);
      });
}

kj::Promise<void> Service::giveSpaceBack(size_t device) {
  if (stopping_) return kj::READY_NOW;
  if (core_->devices()[device].jobs > 0) {
    return daemon_.timer().afterDelay(kLookPause).then([this, device] { return giveSpaceBack(device); });
  }
  ++onWorkers_;
  return daemon_.workers().run([&root = roots_.roots[device]] { ssd::emptyShards(root); }).then([this] { --onWorkers_; });
}

void Service::sayOutages() {
  const std::vector<DeviceGauges> devices = core_->devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceState state = devices[i].state, before = std::exchange(outages_[i], state);
    if (state == before) continue;
    const std::string device = "device of " + roots_.roots[i].path;
    switch (state) {
      case DeviceState::serving: log::info(device + " serves again"); break;
      case DeviceState::full: log::warn(device + " is full: nothing is written there until there is space"); break;
      case DeviceState::failing:
        log::warn(device + (before == DeviceState::hung ? " has answered everything, and is tried"
                                                        : " fails: nothing is written there until a try succeeds"));
        break;
      case DeviceState::hung:
        log::error(device + " has ended no request for " + std::to_string(kDevicePatience.ms() / 1000) +
                   " s: it is not used until it answers, and what it holds is given up");
        break;
      case DeviceState::gone: break;  // said where it was seen
    }
  }
  const std::vector<ShardGauges> shards = core_->shards();
  size_t shard = 0;
  for (const ssd::Root& root : roots_.roots) {
    for (const ssd::Shard& each : root.shards) {
      const size_t at = shard++;
      if (!shards[at].retired || retired_[at]) continue;
      retired_[at] = true;
      log::error(each.path + " is retired after " + std::to_string(kWriteErrors) + " failed writes: nothing is written there any more");
    }
  }
}

kj::Promise<void> Service::work() {
  if (state_ != State::attached || !core_->hasWork() || channel_->waiting() > kMostWaiting) {
    working_ = false;
    return kj::READY_NOW;
  }
  core_->work();
  after();
  return daemon_.afterLook().then([this] { return work(); });
}

void Service::after() {
  if (state_ == State::attached && channel_->broken()) return lose(channel_->why());
  if (state_ == State::attached && core_->hasWork() && !std::exchange(working_, true)) {
    tasks_->add(kj::evalLater([this] { return work(); }));
  }
  if (state_ == State::draining && core_->drained() && !std::exchange(detaching_, true)) {
    tasks_->add(kj::evalLater([this] { return detach(); }));
  }
  if (session_ && !std::exchange(publishing_, true)) {
    tasks_->add(daemon_.timer().afterDelay(kPublishPause).then([this] {
      publishing_ = false;
      publish();
    }));
  }
}

kj::Promise<void> Service::stop() {
  stopping_ = true;
  if (state_ == State::attached) {
    state_ = State::draining;
    core_->ownerGone();
    after();
  }
  return drained();
}

kj::Promise<void> Service::drained() {
  if (openingNow_ || onWorkers_ > 0 || (core_ && !core_->drained()) || detaching_) {
    return daemon_.timer().afterDelay(1 * kj::MILLISECONDS).then([this] { return drained(); });
  }
  tasks_ = nullptr;
  ownersTasks_ = nullptr;
  if (devices_) devices_->close();
  return kj::READY_NOW;
}

void Service::taskFailed(kj::Exception&& error) { log::error(std::string("task: ") + error.getDescription().cStr()); }

// --- what others see -------------------------------------------------------------------------------------------------------------

Duration Service::age(size_t device) const {
  const int64_t began = devices_->counters(device).oldestNs.load(std::memory_order_relaxed);
  return began == 0 ? Duration{} : std::max(Duration{}, bootTime() - Time{began});
}

uint64_t Service::sum(std::atomic<uint64_t> DeviceCounters::*counter) const {
  uint64_t all = 0;
  for (size_t i = 0; devices_ && i < devices_->count(); ++i) all += (devices_->counters(i).*counter).load(std::memory_order_relaxed);
  return all;
}

void Service::publish() {
  if (!session_) return;
  ssd::SsddStatus& to = session_->file().status;
  const auto store = [](shm::Word& word, uint64_t value) { word.store(value, std::memory_order_relaxed); };
  const std::vector<ShardGauges> shards = core_->shards();
  uint64_t capacity = 0, used = 0, entries = 0;
  for (size_t i = 0, device = 0, ofDevice = 0; i < shards.size(); ++i, ++ofDevice) {
    for (; ofDevice == roots_.roots[device].shards.size(); ++device) ofDevice = 0;
    const ShardGauges& from = shards[i];
    capacity += from.capacityBytes;
    used += from.usedBytes;
    entries += from.entries;
    if (i >= ssd::kShownShards) continue;
    ssd::ShownShard& shard = to.shard[i];
    store(shard.device, device);
    store(shard.state, from.retired ? 1 : 0);
    store(shard.capacityBytes, from.capacityBytes);
    store(shard.headPosition, from.headPosition);
    store(shard.tailPosition, from.tailPosition);
    store(shard.usedBytes, from.usedBytes);
    store(shard.deadBytes, from.deadBytes);
    store(shard.entries, from.entries);
    store(shard.readPins, from.readPins);
    store(shard.commitPins, from.commitPins);
    store(shard.writers, from.writers);
    store(shard.waiting, from.waiting);
  }
  const size_t devices = std::min<size_t>(devices_->count(), ssd::kShownDevices);
  const std::vector<DeviceGauges> gauges = core_->devices();
  for (size_t i = 0; i < devices; ++i) {
    devices_->show(i, to.device[i]);
    store(to.device[i].state, static_cast<uint64_t>(gauges[i].state));
    store(to.device[i].stalled, gauges[i].stalled);
  }
  const SsdCounters& c = core_->counters();
  store(to.engine, std::strcmp(devices_->engine(), "io_uring") == 0 ? 1 : 2);
  store(to.capacityBytes, capacity);
  store(to.usedBytes, used);
  store(to.entries, entries);
  store(to.persists, c.persists);
  store(to.persistsFailed, c.persistsFailed);
  store(to.persistsIgnored, c.persistsIgnored);
  store(to.tooLarge, c.tooLarge);
  store(to.loads, c.loads);
  store(to.loadsMissed, c.loadsMissed);
  store(to.loadsFailed, c.loadsFailed);
  store(to.loadsDirect, sum(&DeviceCounters::readsDirect));
  store(to.evicted, c.evicted);
  store(to.invalidated, c.invalidated);
  store(to.damaged, c.damaged);
  store(to.paused, core_->paused() ? 1 : 0);
  store(to.scrubChecked, core_->lastScrub().checked);
  store(to.scrubTotal, core_->lastScrub().total);
  store(to.scrubDamaged, core_->lastScrub().damaged);
  store(to.devices, devices_->count());
  store(to.shards, shards.size());
}

std::string Service::health(bool& healthy) const {
  Duration oldest{};
  for (size_t i = 0; devices_ && i < devices_->count(); ++i) oldest = std::max(oldest, age(i));
  const std::vector<ShardGauges> shards = core_ ? core_->shards() : std::vector<ShardGauges>();
  uint64_t capacity = 0, used = 0, retired = 0;
  for (const ShardGauges& each : shards) {
    capacity += each.capacityBytes;
    used += each.usedBytes;
    retired += each.retired ? 1 : 0;
  }
  const bool paused = core_ && core_->paused();
  uint64_t out = 0;
  for (const DeviceGauges& each : core_ ? core_->devices() : std::vector<DeviceGauges>()) out += each.state != DeviceState::serving;
  healthy = core_ && !paused && oldest < kStuck;
  static constexpr const char* kStates[] = {"opening", "seeking", "attached", "draining"};
  return JsonObject()
      .text("process", "fluxon-ssdd")
      .flag("healthy", healthy)
      .text("node", node_)
      .text("state", kStates[static_cast<int>(state_)])
      .text("engine", devices_ ? devices_->engine() : "")
      .number("capacity_bytes", capacity)
      .number("used_bytes", used)
      .number("entries", core_ ? core_->entries() : 0)
      .number("shards", shards.size())
      .number("shards_retired", retired)
      .number("devices_out", out)
      .flag("paused", paused)
      .number("oldest_io_ms", static_cast<uint64_t>(oldest.ms()))
      .text("error", error_)
      .str();
}

namespace {

// Over some shards.
struct Sum {
  uint64_t usedBytes = 0, deadBytes = 0, retired = 0;
  size_t readPins = 0, commitPins = 0, writers = 0, waiting = 0;
  void add(const ShardGauges& shard) {
    usedBytes += shard.usedBytes;
    deadBytes += shard.deadBytes;
    retired += shard.retired ? 1 : 0;
    readPins += shard.readPins;
    commitPins += shard.commitPins;
    writers += shard.writers;
    waiting += shard.waiting;
  }
};

void showDevice(rpc::MetricsPage& page, const ssd::Root& root, const DeviceGauges& state, const Sum& shards, const DeviceCounters& c,
                Duration oldest) {
  const rpc::MetricsPage::Labels device = {{"device", root.path}};
  const auto shown = [&](const char* name, const char* help, double value) { page.gauge(name, help, value, device); };
  const auto counted = [&](const char* name, const char* help, const std::atomic<uint64_t>& value) {
    page.counter(name, help, static_cast<double>(value.load(std::memory_order_relaxed)), device);
  };
  shown("fluxon_ssdd_device_serving", "1; 0 while the device is full, fails or hangs, or when its files are gone.",
        state.state == DeviceState::serving ? 1 : 0);
  shown("fluxon_ssdd_stalled", "Persists and loads that the device does not answer.", static_cast<double>(state.stalled));
  shown("fluxon_ssdd_capacity_bytes", "Length of the shard files.", static_cast<double>(root.capacityBytes()));
  shown("fluxon_ssdd_used_bytes", "Bytes of records between tail and head, header blocks and dead ones included.",
        static_cast<double>(shards.usedBytes));
  shown("fluxon_ssdd_dead_bytes", "Those among them that nobody finds any more.", static_cast<double>(shards.deadBytes));
  shown("fluxon_ssdd_registered_bytes", "Bytes of the segment that the io_uring of the device knows.",
        static_cast<double>(c.registeredBytes.load()));
  shown("fluxon_ssdd_direct_io", "1: files are read and written around the page cache.", root.direct ? 1 : 0);
  shown("fluxon_ssdd_reads_queued", "Reads and checks that have not ended.", static_cast<double>(c.readsQueued.load()));
  shown("fluxon_ssdd_writes_queued", "Writes that have not ended.", static_cast<double>(c.writesQueued.load()));
  shown("fluxon_ssdd_oldest_io_seconds", "Age of the oldest request of the device.", static_cast<double>(oldest.ns) * 1e-9);
  counted("fluxon_ssdd_reads_total", "Values read.", c.reads);
  counted("fluxon_ssdd_reads_direct_total", "Those that were read straight to where they belong.", c.readsDirect);
  counted("fluxon_ssdd_read_bytes_total", "Payload bytes read.", c.readBytes);
  counted("fluxon_ssdd_read_errors_total", "Reads and checks that failed.", c.readErrors);
  counted("fluxon_ssdd_writes_total", "Values written.", c.writes);
  counted("fluxon_ssdd_writes_direct_total", "Those that were written from where they lay.", c.writesDirect);
  counted("fluxon_ssdd_written_bytes_total", "Payload bytes written.", c.writtenBytes);
  counted("fluxon_ssdd_write_errors_total", "Writes that failed.", c.writeErrors);
}

}  // namespace

std::string Service::metrics() const {
  rpc::MetricsPage page;
  const auto gauge = [&](const char* name, const char* help, uint64_t value) { page.gauge(name, help, static_cast<double>(value)); };
  const auto counter = [&](const char* name, const char* help, uint64_t value) { page.counter(name, help, static_cast<double>(value)); };
  const auto loop = [&](const char* name, const char* help, Duration value) {
    page.gauge(name, help, static_cast<double>(value.ns) * 1e-9);
  };
  loop("fluxon_ssdd_loop_longest_seconds", "Longest time between two looks at sockets and timers, since this page was asked for last.",
       daemon_.port().takeLongest());
  loop("fluxon_ssdd_loop_longest_ever_seconds", "The same since the start.", daemon_.port().longestEver());
  loop("fluxon_ssdd_loop_longest_busy_seconds", "The most that was computed between two looks since the start.",
       daemon_.port().longestBusy());
  gauge("fluxon_ssdd_attached", "1 while an owner uses this ssdd.", state_ == State::attached ? 1 : 0);
  counter("fluxon_ssdd_attaches_total", "Times that an owner has taken this ssdd.", attaches_);
  if (!core_) return page.text();
  page.gauge("fluxon_ssdd_engine", "1, with the engine that reads and writes the files.", 1, {{"engine", devices_->engine()}});
  gauge("fluxon_ssdd_paused", "1 while nothing can be written: each device is out, or no shard is left.", core_->paused() ? 1 : 0);
  gauge("fluxon_ssdd_entries", "Values in the shards, and those on their way there.", core_->entries());
  gauge("fluxon_ssdd_messages_waiting", "Messages to the owner for which its ring has no room.", channel_ ? channel_->waiting() : 0);
  const std::vector<ShardGauges> shards = core_->shards();
  const std::vector<DeviceGauges> states = core_->devices();
  Sum all;
  auto next = shards.begin();
  for (size_t i = 0; i < devices_->count(); ++i) {
    const ssd::Root& root = roots_.roots[i];
    Sum ofDevice;
    for (size_t n = 0; n < root.shards.size(); ++n, ++next) {
      ofDevice.add(*next);
      all.add(*next);
    }
    showDevice(page, root, states[i], ofDevice, devices_->counters(i), age(i));
  }
  page.gauge("fluxon_ssdd_shards", "Shards by state.", static_cast<double>(shards.size() - all.retired), {{"state", "serving"}});
  page.gauge("fluxon_ssdd_shards", "Shards by state.", static_cast<double>(all.retired), {{"state", "retired"}});
  gauge("fluxon_ssdd_read_pins", "Entries that are being read.", all.readPins);
  gauge("fluxon_ssdd_commit_pins", "Entries that are written and not decided.", all.commitPins);
  gauge("fluxon_ssdd_writers", "Entries that are being written.", all.writers);
  gauge("fluxon_ssdd_claims_waiting", "Values that wait for a place in a shard.", all.waiting);
  core_->counters().each(counter);
  counter("fluxon_ssdd_log_lines_dropped_total", "Lines of the log that standard error did not take.", log::dropped());
  return page.text();
}

}  // namespace fluxon::ssdd
