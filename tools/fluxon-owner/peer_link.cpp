#include "peer_link.h"

#include <kj/debug.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/copy.h"

namespace fluxon::owner {
namespace {

constexpr Duration kNeighbourPatience = seconds(5);  // for one copy from an owner that may be stopped

// "Host" is what shares this boot and this cluster's folder in shared memory.
std::string hostIdOf(const shm::Paths& paths) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat folder {};
  ::stat(paths.clusterDir().c_str(), &folder);
  return boot + "/" + std::to_string(folder.st_dev) + ":" + std::to_string(folder.st_ino);
}

shm::ClientFile* makeHazards() {
  void* const memory = ::mmap(nullptr, sizeof(shm::ClientFile), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  KJ_REQUIRE(memory != MAP_FAILED, "no memory");
  return static_cast<shm::ClientFile*>(memory);
}

}  // namespace

// Copies from neighbours, one after the other, by a thread that may block.
class PeerLink::Copier {
 public:
  Copier(shm::Paths paths, char* segment) : paths_(std::move(paths)), segment_(segment), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  Error start() {
    if (!bell_) return systemError("eventfd", errno);
    Result<std::thread> thread = startThread([this] { run(); });
    if (thread) thread_ = std::move(thread).value();
    return thread ? Error{} : thread.error();
  }
  ~Copier() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  int bell() const { return bell_.get(); }
  void add(Fetch fetch) {
    {
      const std::lock_guard lock(mutex_);
      todo_.push_back(std::move(fetch));
    }
    wake_.notify_one();
  }
  // What has not begun is given up; what has ends by itself.
  void cancelAll() {
    const std::lock_guard lock(mutex_);
    for (const Fetch& fetch : todo_) done_.push_back({fetch.id, {Code::unavailable, "given up"}});
    todo_.clear();
    ring();
  }
  std::vector<link::Fetched> reap() {
    uint64_t rung;
    [[maybe_unused]] const ssize_t n = ::read(bell_.get(), &rung, sizeof rung);
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }

 private:
  void ring() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(bell_.get(), &one, sizeof one);
  }
  void run() {
    for (;;) {
      Fetch fetch;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return ending_ || !todo_.empty(); });
        if (ending_) return;
        fetch = std::move(todo_.front());
        todo_.pop_front();
      }
      Error error = copy(fetch);
      const std::lock_guard lock(mutex_);
      done_.push_back({fetch.id, std::move(error)});
      ring();
    }
  }
  Error copy(const Fetch& fetch) {
    const Time deadline = std::min(fetch.deadline, bootTime() + kNeighbourPatience);
    std::unique_ptr<client::Client>& client = clients_[fetch.peer.node];
    if (!client) {
      Result<std::unique_ptr<client::Client>> connected = client::Client::connect(paths_.root, paths_.cluster, fetch.peer.node, "neighbour",
                                                                                  false, deadline, client::Attachment::As::owner);
      if (!connected) return connected.error();
      client = std::move(connected).value();
    }
    // The segment is the neighbour's, whose clients can cut it short. Then the attachment goes, and its mapping with it.
    bool broken = false;
    const auto take = [&](const char* from) {
      const shm::FaultGuard guard = shm::FaultGuard::losable(from, fetch.bytes);
      client::copyValue(segment_ + fetch.offset, from, fetch.bytes);
      broken = guard.broken();
    };
    if (fetch.exportId) {
      Error error = client->readFrom(fetch.peer.node, fetch.sourceOffset, fetch.bytes, deadline, take);
      if (!broken) return error;
      client = nullptr;
      return {Code::unavailable, "its segment was cut short"};
    }
    client::Held held;
    if (Error error = client->get(
            fetch.key, [&] { return deadline; }, held);
        !error.ok()) {
      if (error.code != Code::miss) client = nullptr;
      return error;
    }
    Error error;
    if (held.putId != fetch.putId || held.length != fetch.bytes) {
      error = {Code::miss, "another version"};
    } else {
      take(static_cast<const char*>(held.data));
      if (broken) error = {Code::unavailable, "its segment was cut short"};
    }
    client::Client::release(held);
    if (broken) client = nullptr;
    return error;
  }

  shm::Paths paths_;
  char* segment_;
  shm::Descriptor bell_;
  std::map<std::string, std::unique_ptr<client::Client>> clients_;  // by the thread alone
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Fetch> todo_;
  std::vector<link::Fetched> done_;
  bool ending_ = false;
  std::thread thread_;
};

PeerLink::PeerLink(rpc::Daemon& daemon, NodeFiles& files, const Config& config, Events events)
    : daemon_(daemon),
      files_(files),
      config_(config),
      events_(std::move(events)),
      hostId_(hostIdOf(files.paths())),
      hazards_(makeHazards(), [](shm::ClientFile* file) { ::munmap(file, sizeof(shm::ClientFile)); }),
      view_(files.view()),
      reaping_(nullptr),
      copying_(nullptr),
      flush_(nullptr) {}
PeerLink::~PeerLink() = default;

Error PeerLink::start() {
  Result<net::Secret> secret = net::Secret::load(config_.common.secretFile);
  if (!secret) return secret.error();
  secret_ = std::move(secret).value();
  return config_.owner.link.enabled ? open() : Error{};
}

Error PeerLink::open() {
  if (tcp_) return {};
  link::tcp::Settings settings;
  settings.listen = config_.owner.link;
  settings.log = [seldom = log::Seldom()](const std::string& text) mutable {
    if (const std::string line = seldom.line(text, bootTime()); !line.empty()) log::warn("link: " + line);
  };
  Result<std::unique_ptr<link::tcp::TcpLink>> started = link::tcp::TcpLink::start(settings, secret_, files_.node(), view_, *hazards_);
  if (!started) return started.error();
  tcp_ = std::move(started).value();
  if (incarnation_) tcp_->setIncarnation(incarnation_);
  using Observer = kj::UnixEventPort::FdObserver;
  tcpObserver_ = kj::heap<Observer>(daemon_.port(), tcp_->eventFd(), Observer::OBSERVE_READ);
  reaping_ = reap().eagerlyEvaluate([](kj::Exception&& error) { KJ_LOG(FATAL, "peer link", error); });
  return {};
}

std::string PeerLink::address() const {
  if (!tcp_ || tcp_->address().empty()) return "";
  if (config_.owner.advertise.empty()) return tcp_->address();
  if (parseEndpoint(config_.owner.advertise).ok()) return config_.owner.advertise;
  return config_.owner.advertise + tcp_->address().substr(tcp_->address().rfind(':'));
}

void PeerLink::setIncarnation(Incarnation incarnation) {
  if (incarnation == incarnation_) return;  // the link closes what was accepted under another one
  incarnation_ = incarnation;
  if (tcp_) tcp_->setIncarnation(incarnation);
}

bool PeerLink::neighbour(const rpc::Peer& peer) {
  if (peer.hostId != hostId_ || !validName(peer.node)) return false;
  const auto known = neighbours_.find(peer.node);
  if (known != neighbours_.end() && known->second == peer.incarnation) return true;
  if (!shm::LockFile::held(files_.paths().file(peer.node, "lock"))) return false;
  // Read, not mapped: it is another process's, and may become shorter meanwhile.
  const Result<shm::Descriptor> directory = shm::openFile(files_.paths().file(peer.node, "directory"), shm::Access::readOnly);
  shm::DirectoryHeader header{};
  struct stat info;
  if (!directory || ::fstat(directory.value().get(), &info) != 0 ||
      ::pread(directory.value().get(), static_cast<void*>(&header), sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    return false;
  if (shm::refuse(header.file, shm::kDirectoryMagic, static_cast<uint64_t>(info.st_size))) return false;
  if (header.servingIncarnation.load(std::memory_order_acquire) != peer.incarnation.value) return false;
  neighbours_[peer.node] = peer.incarnation;
  return true;
}

bool PeerLink::startCopier() {
  if (copier_) return true;
  auto copier = std::make_unique<Copier>(files_.paths(), files_.segment());
  if (const Error error = copier->start(); !error.ok()) {
    if (const std::string line = noCopier_.line("copies from neighbours go by the link: " + error.detail, bootTime()); !line.empty())
      log::warn(line);
    return false;
  }
  copier_ = std::move(copier);
  using Observer = kj::UnixEventPort::FdObserver;
  copierObserver_ = kj::heap<Observer>(daemon_.port(), copier_->bell(), Observer::OBSERVE_READ);
  copying_ = copied().eagerlyEvaluate([](kj::Exception&& error) { KJ_LOG(FATAL, "copies from neighbours", error); });
  return true;
}

void PeerLink::fetch(Fetch fetch) {
  // What is staged may not be there yet: only the link waits for it.
  if (!rpc::isStaged(fetch.exportId) && neighbour(fetch.peer) && startCopier()) return copier_->add(std::move(fetch));
  const std::string to = fetch.peer.node + " " + toString(fetch.peer.incarnation);
  addresses_[to] = {fetch.peer.node, fetch.peer.incarnation, fetch.peer.link};
  batch_[to].push_back({fetch.id, fetch.key, keyHash(fetch.key), fetch.putId, fetch.exportId.value, files_.segment() + fetch.offset,
                        fetch.bytes, fetch.deadline, rpc::isStaged(fetch.exportId)});
  if (std::exchange(flushing_, true)) return;
  // What was asked for in one turn of the loop goes down together.
  flush_ = kj::evalLater([this] {
             flushing_ = false;
             const Error failed = open();
             auto batch = std::exchange(batch_, {});
             for (auto& [peer, fetches] : batch) {
               const link::PeerAddress address = addresses_.at(peer);
               if (failed.ok() && !address.address.empty()) {
                 tcp_->fetch(address, std::move(fetches));
                 continue;
               }
               for (const link::Fetch& each : fetches)
                 events_.fetched(each.id, failed.ok() ? Error{Code::unavailable, "node " + address.node + " has no link"} : failed);
             }
             addresses_.clear();
           }).eagerlyEvaluate([](kj::Exception&& error) { KJ_LOG(FATAL, "fetches", error); });
}

void PeerLink::cancelAll() {
  auto batch = std::exchange(batch_, {});
  for (const auto& [peer, fetches] : batch) {
    for (const link::Fetch& each : fetches) events_.fetched(each.id, {Code::unavailable, "given up"});
  }
  if (tcp_) tcp_->cancelAll();
  if (copier_) copier_->cancelAll();
}

void PeerLink::exportValue(ExportId id, const char* data, uint64_t bytes, uint64_t ready) {
  if (tcp_) tcp_->publish(id.value, data, bytes, ready);
}
void PeerLink::exportProgress(ExportId id, uint64_t ready) {
  if (tcp_) tcp_->advance(id.value, ready);
}
void PeerLink::exportFailed(ExportId id) {
  if (tcp_) tcp_->fail(id.value);
}
void PeerLink::unexport(ExportId id) {
  if (tcp_) return tcp_->unpublish(id.value);
  events_.unexported(id);  // nobody could ask for it
}

kj::Promise<void> PeerLink::reap() {
  const link::LinkEvents events = tcp_->reap();
  for (const link::Fetched& fetched : events.fetched) events_.fetched(fetched.id, fetched.error);
  for (const uint64_t id : events.unpublished) events_.unexported(ExportId(id));
  return tcpObserver_->whenBecomesReadable().then([this] { return reap(); });
}

kj::Promise<void> PeerLink::copied() {
  for (const link::Fetched& fetched : copier_->reap()) events_.fetched(fetched.id, fetched.error);
  return copierObserver_->whenBecomesReadable().then([this] { return copied(); });
}

void PeerLink::show(rpc::MetricsPage& page) const {
  if (tcp_) page.gauge("fluxon_owner_link_engine", "1, with the engine of the tcp link.", 1, {{"engine", tcp_->engine()}});
  const link::LinkCounters counters = tcp_ ? tcp_->counters() : link::LinkCounters{};
#define FLUXON_SHOW(name, text) \
  page.gauge("fluxon_owner_link", "What the tcp link counts.", static_cast<double>(counters.name), {{"what", #name}});
  FLUXON_LINK_COUNTERS(FLUXON_SHOW)
#undef FLUXON_SHOW
}

}  // namespace fluxon::owner
