#include "peer_link.h"

#include <kj/debug.h>
#include <sys/mman.h>

#include <utility>

#include "link/tcp/tcp_link.h"
#include "neighbour_link.h"

namespace fluxon::owner {
namespace {

shm::ClientFile* makeHazards() {
  void* const memory = ::mmap(nullptr, sizeof(shm::ClientFile), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  KJ_REQUIRE(memory != MAP_FAILED, "no memory");
  return static_cast<shm::ClientFile*>(memory);
}

}  // namespace

PeerLink::PeerLink(rpc::Daemon& daemon, NodeFiles& files, const Config& config, Events events)
    : daemon_(daemon),
      files_(files),
      config_(config),
      events_(std::move(events)),
      neighbours_(files.paths()),
      hazards_(makeHazards(), [](shm::ClientFile* file) { ::munmap(file, sizeof(shm::ClientFile)); }),
      view_(files.view()),
      table_(files.segment(), rows(),
             {[this](link::Link& link) {
                using Observer = kj::UnixEventPort::FdObserver;
                watches_.push_back({link, kj::heap<Observer>(daemon_.port(), link.eventFd(), Observer::OBSERVE_READ)});
                Watch& watch = watches_.back();
                watch.reaping = reap(watch).eagerlyEvaluate([](kj::Exception&& error) { KJ_LOG(FATAL, "peer link", error); });
              },
              [this](const std::string& text) {
                if (const std::string line = refusals_.line(text, bootTime()); !line.empty()) log::warn(line);
              },
              events_.fetched, events_.unexported}),
      flush_(nullptr) {}
PeerLink::~PeerLink() = default;

std::vector<LinkTable::Row> PeerLink::rows() {
  // The bytes of a stage may not be there yet, and a copy out of mapped memory cannot wait for them.
  const auto isNeighbour = [this](const Fetch& fetch) { return !rpc::isStaged(fetch.exportId) && neighbours_.has(fetch.peer); };
  return {{"to neighbours", nullptr, false, isNeighbour, [this] { return NeighbourLink::start(files_.paths()); }},
          {"over tcp", "", config_.owner.link.enabled, LinkTable::registers(""), [this] { return startTcp(); }}};
}

Error PeerLink::start() {
  Result<net::Secret> secret = net::Secret::load(config_.common.secretFile);
  if (!secret) return secret.error();
  secret_ = std::move(secret).value();
  return table_.start();
}

Result<std::unique_ptr<link::Link>> PeerLink::startTcp() {
  link::tcp::Settings settings;
  settings.listen = config_.owner.link;
  settings.advertise = config_.owner.advertise;
  settings.log = [seldom = log::Seldom()](const std::string& text) mutable {
    if (const std::string line = seldom.line(text, bootTime()); !line.empty()) log::warn("link: " + line);
  };
  Result<std::unique_ptr<link::tcp::TcpLink>> started = link::tcp::TcpLink::start(settings, secret_, files_.node(), view_, *hazards_);
  if (!started) return started.error();
  return std::unique_ptr<link::Link>(std::move(started).value());
}

void PeerLink::fetch(Fetch fetch) {
  waiting_.push_back(std::move(fetch));
  if (std::exchange(flushing_, true)) return;
  // Hands down together what the core asks for in one turn of the loop. A refusal may make the core ask again: the loop takes that, too.
  flush_ = kj::evalLater([this] {
             while (!waiting_.empty()) table_.fetch(std::exchange(waiting_, {}));
             flushing_ = false;
           }).eagerlyEvaluate([](kj::Exception&& error) { KJ_LOG(FATAL, "fetches", error); });
}

void PeerLink::cancelAll() {
  for (const Fetch& each : std::exchange(waiting_, {})) events_.fetched(each.id, {Code::timedOut, "cancelled"});
  table_.cancelAll();
}

kj::Promise<void> PeerLink::reap(Watch& watch) {
  table_.reap(watch.link);
  return watch.observer->whenBecomesReadable().then([this, &watch] { return reap(watch); });
}

void PeerLink::show(rpc::MetricsPage& page) const {
  for (const std::string& engine : table_.engines())
    page.gauge("fluxon_owner_link_engine", "1, with the engine of a link to other hosts.", 1, {{"engine", engine}});
  const link::LinkCounters counters = table_.counters();
#define FLUXON_SHOW(name, text) \
  page.gauge("fluxon_owner_link", "What the links to other hosts count, together.", static_cast<double>(counters.name), {{"what", #name}});
  FLUXON_LINK_COUNTERS(FLUXON_SHOW)
#undef FLUXON_SHOW
}

}  // namespace fluxon::owner
