#include "service.h"

#include <unistd.h>

#include <algorithm>

#include "base/extent.h"
#include "base/json.h"
#include "base/log.h"
#include "shm/hazard_scan.h"

namespace fluxon::owner {
namespace {

constexpr Duration kFirstBeat = milliseconds(100);  // the master has not said yet how long leases are
constexpr Duration kLastPuts = seconds(1);          // that an owner which stops waits for
constexpr size_t kClientsScannedHere = 4;
constexpr size_t kSlotsScannedHere = 64;

rpc::Registration registrationOf(NodeFiles& files, const Config& config, const std::string& hostId) {
  rpc::Registration registration;
  registration.node = files.node();
  registration.hostId = hostId;
  registration.label = config.owner.label;
  registration.pid = static_cast<uint64_t>(::getpid());
  registration.segmentBytes = files.segmentBytes();
  registration.maxKeys = config.owner.maxKeys;
  if (files.replacedLife()) registration.ends.push_back(files.replacedLife());
  return registration;
}

}  // namespace

Service::Service(rpc::Daemon& daemon, NodeFiles& files, const Config& config, rpc::Access& access)
    : daemon_(daemon),
      files_(files),
      populatePages_(config.owner.populate),
      ssdLeftBehind_(SsdLink::leftBehind(files, config)),
      core_({.node = files.node(), .awaitsSsd = ssdLeftBehind_ && files.directory().ssd()}, files.directory(), files.segment(),
            files.segmentBytes(), *this),
      peers_(daemon, files, config,
             {[this](uint64_t id, const Error& error) {
                if (!error.ok()) log::debug("a copy from another owner failed: " + error.message());
                core_.fetched(id, error, bootTime());
                run();
              },
              [this](ExportId id) {
                core_.unexported(id, bootTime());
                run();
              }}),
      ssd_(daemon, files, config,
           {[this](Incarnation life, bool empty) { return !stopping_ && core_.takesSsd(life, empty); },
            [this](Incarnation life) { core_.ssdAttached(life, bootTime()); }, [this] { core_.ssdGone(bootTime()); },
            [this](const ssd::Message& message) { core_.ssd(message, bootTime()); },
            [this](uint64_t load, uint64_t bytes) { core_.loading(load, bytes, bootTime()); },
            [this](uint64_t load, const Error& error) { core_.fetched(load, error, bootTime()); },
            [this] { core_.clientGone(kSsdWriter, bootTime()); }, [this] { core_.ssdNotComing(); }, [this] { run(); }}),
      clients_(daemon, files, config.owner.maxClients,
               {[this](Caller caller, Command command) { core_.command(caller, std::move(command), bootTime()); },
                [this](ClientId id) { core_.clientGone(id, bootTime()); }, [this] { run(); },
                [this](shm::Descriptor& socket, const ssd::SsddAttach& request) { ssd_.attach(socket, request); }}),
      link_(daemon, access, {files.paths().masterSocket(), config.common.master},
            Joining(core_, files.header(), files.paths().cluster, registrationOf(files, config, peers_.hostId())), core_,
            [this] { run(); }),
      left_(nullptr),
      tasks_(*this) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  leave_ = kj::mv(paf.fulfiller);
  left_ = kj::mv(paf.promise);
}
Service::~Service() noexcept = default;

Error Service::start() {
  if (files_.adopted()) {
    Result<std::set<uint64_t>> living = clients_.adopt();
    if (!living) return living.error();
    if (ssdLeftBehind_) living->insert(kSsdWriter.value);
    core_.adopt(*living, bootTime());
  }
  ssd_.start(ssdLeftBehind_);
  if (Error error = clients_.listen(); !error.ok()) return error;
  if (Error error = peers_.start(); !error.ok()) return error;
  if (Error error = files_.complete(); !error.ok()) return error;
  link_.setLink(peers_.address());
  link_.start();
  tasks_.add(beat());
  tasks_.add(eachSecond());
  if (populatePages_) tasks_.add(populate(0));
  run();
  return {};
}

kj::Promise<void> Service::stop() {
  stopping_ = true;
  clients_.stop();
  return decided(bootTime() + kLastPuts).then([this] { return farewell(); });
}

// Waits for puts that the master is deciding: else the master would not know whether they are values of the next life.
kj::Promise<void> Service::decided(Time until) {
  if (files_.directory().count(shm::SlotState::pending) == 0 || bootTime() >= until) return kj::READY_NOW;
  return daemon_.timer().afterDelay(1 * kj::MILLISECONDS).then([this, until] { return decided(until); });
}

kj::Promise<void> Service::farewell() {
  const bool keeps = core_.stop(bootTime()) && !leaving_ && loss_.what != NodeFiles::Loss::What::values;
  ssd_.stop();
  if (leaving_ || loss_.what == NodeFiles::Loss::What::values) files_.discard();
  return link_.leave(keeps ? MasterLink::Values::kept : MasterLink::Values::gone);
}

void Service::leave(const char* why) {
  if (std::exchange(leaving_, true)) return;
  log::info(std::string(why) + ": leaves for good");
  leave_->fulfill();
}

kj::Promise<void> Service::beat() {
  core_.heartbeat(clients_.takeTouches(), bootTime());
  files_.noteClock();
  ssd_.show(core_.counters(), bootTime());
  run();
  const Duration pause = core_.lease().ns > 0 ? core_.lease() / 5 : kFirstBeat;
  return daemon_.timer().afterDelay(pause.ns * kj::NANOSECONDS).then([this] { return beat(); });
}

kj::Promise<void> Service::populate(uint64_t at) {
  auto reached = std::make_shared<uint64_t>(at);
  return daemon_.workers().run([this, at, reached] { *reached = files_.populateStep(at); }).then([this, reached]() -> kj::Promise<void> {
    if (stopping_) return kj::READY_NOW;
    if (*reached < files_.segmentBytes()) return populate(*reached);
    const bool all = files_.segmentHeader().populatedBytes.load(std::memory_order_relaxed) == files_.segmentBytes();
    log::info(all ? "segment populated" : "this kernel does not populate: pages are touched by their first writer");
    return kj::READY_NOW;
  });
}

// A worker thread looks whether the names still lead to the files, and what readers hold.
kj::Promise<void> Service::eachSecond() {
  struct Job {
    std::vector<std::shared_ptr<ClientMap>> clients;
    NodeFiles::Loss loss;
    uint64_t readBytes = 0;
  };
  return daemon_.timer().afterDelay(1 * kj::SECONDS).then([this]() -> kj::Promise<void> {
    if (stopping_) return kj::READY_NOW;
    auto job = std::make_shared<Job>(Job{clients_.files(), {}});
    return daemon_.workers()
        .run([this, job] {
          job->loss = files_.look();
          std::vector<const shm::ClientFile*> clients{&peers_.hazards()};
          for (const auto& client : job->clients) clients.push_back(&client->shared());
          const shm::DirectoryWriter& directory = files_.directory();
          for (const uint64_t ref : shm::heldRefs(clients)) {
            const uint32_t slot = shm::slotOfRef(ref);
            if (slot < directory.slotCount() && directory.ref(slot) == ref) job->readBytes += extentBytes(directory.payloadBytes(slot));
          }
        })
        .then([this, job]() -> kj::Promise<void> {
          readBytes_ = job->readBytes;
          if (Error error = clients_.namesWhole(); job->loss.error.ok() && !error.ok())
            job->loss = {std::move(error), NodeFiles::Loss::What::values};
          if (job->loss.error.ok() || stopping_) return eachSecond();
          lost(std::move(job->loss));
          return kj::READY_NOW;
        });
  });
}

// The owner does not make a removed file anew: whoever removed it may have started another owner, which has the names now, and this
// process cannot know what else is gone. It ends in a way that a supervisor answers with a start.
void Service::lost(NodeFiles::Loss loss) {
  loss_ = std::move(loss);
  if (loss_.what == NodeFiles::Loss::What::lock) files_.disown();
  leave_->fulfill();
}

void Service::scan(uint64_t scan, std::vector<uint64_t> refs) {
  struct Job {
    std::vector<std::shared_ptr<ClientMap>> files;
    std::vector<uint64_t> refs;
    std::vector<bool> held;
  };
  auto job = std::make_shared<Job>(Job{clients_.files(), std::move(refs), {}});
  const auto look = [this, job] {
    std::vector<const shm::ClientFile*> clients;
    clients.push_back(&peers_.hazards());
    for (const auto& file : job->files) clients.push_back(&file->shared());
    job->held = shm::scanHazards(clients, job->refs);
  };
  // To look at a few clients takes some 10 us, less than a hop to a worker and back.
  const bool quick = job->files.size() <= kClientsScannedHere && job->refs.size() <= kSlotsScannedHere;
  kj::Promise<void> looked = quick ? kj::evalLater(kj::cp(look)) : daemon_.workers().run(look);
  tasks_.add(looked.then([this, scan, job] {
    core_.scanned(scan, job->held, bootTime());
    run();
  }));
}

// Arms the next wake-up of the core; called after anything that may have changed it.
void Service::run() {
  peers_.setIncarnation(link_.registration().incarnation);
  link_.check();
  const Time next = core_.nextWake();
  auto paf = kj::newPromiseAndFulfiller<void>();
  if (rescheduled_.get() != nullptr) rescheduled_->fulfill();
  rescheduled_ = kj::mv(paf.fulfiller);
  if (next == Time::never()) return;
  tasks_.add(daemon_.at(next).then([] { return true; }).exclusiveJoin(paf.promise.then([] { return false; })).then([this](bool due) {
    if (!due) return;
    core_.tick(bootTime());
    run();
  }));
}

void Service::taskFailed(kj::Exception&& error) { log::error(std::string("task: ") + error.getDescription().cStr()); }

std::string Service::health(bool& healthy) const {
  healthy = core_.serving(bootTime()) && loss_.error.ok();
  const std::string error = loss_.error.ok() ? link_.lastError() : loss_.error.message();
  const uint64_t populated = populatePages_ ? files_.segmentHeader().populatedBytes.load(std::memory_order_relaxed) : 0;
  return JsonObject()
      .text("process", "fluxon-owner")
      .flag("healthy", healthy)
      .text("node", files_.node())
      .flag("joined", link_.joined())
      .number("term", link_.term())
      .number("lease_left_ms", static_cast<uint64_t>(std::max<int64_t>(0, (Time{files_.directory().leaseUntilNs()} - bootTime()).ms())))
      .number("segment_bytes", files_.segmentBytes())
      .number("populated_bytes", populated)
      .number("clients", clients_.count())
      .text("error", error)
      .str();
}

}  // namespace fluxon::owner
