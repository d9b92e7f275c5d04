#include "ssd_link.h"

#include <sys/file.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "attach.h"
#include "base/bell.h"
#include "ssd/roots.h"

namespace fluxon::owner {
namespace {

constexpr int kMessagesAtOnce = 256;
constexpr Duration kLockPause = milliseconds(10);
constexpr Duration kBetweenWarnings = seconds(60);
constexpr Duration kPatience = seconds(3);  // for an ssdd of the last life to come with what it has

std::vector<std::string> rootsOf(const NodeFiles& files, const Config& config) {
  std::vector<std::string> roots;
  if (config.owner.largeLimitBytes.empty()) return roots;
  for (const std::string& path : config.owner.largeFilePaths) roots.push_back(ssd::rootPath(path, files.paths().cluster, files.node()));
  return roots;
}

bool anyHeld(const std::vector<std::string>& roots) { return std::any_of(roots.begin(), roots.end(), ssd::anyShardHeld); }

ssd::SsddAttached answerOf(Code code, const std::string& detail) {
  ssd::SsddAttached answer{};
  std::memcpy(answer.magic, ssd::kSsddAttachMagic, 8);
  answer.version = ssd::kSsddVersion;
  answer.code = static_cast<uint32_t>(code);
  answer.clockNs = bootTime().ns;
  std::memcpy(answer.detail, detail.data(), std::min(detail.size(), sizeof answer.detail - 1));
  return answer;
}

}  // namespace

SsdLink::SsdLink(rpc::Daemon& daemon, NodeFiles& files, const Config& config, Events events)
    : daemon_(daemon), files_(files), roots_(rootsOf(files, config)), events_(std::move(events)), tasks_(*this) {}

bool SsdLink::leftBehind(NodeFiles& files, const Config& config) { return files.adopted() && anyHeld(rootsOf(files, config)); }

void SsdLink::start(bool leftBehind) {
  leftBehind_ = leftBehind;
  if (!leftBehind) return;
  tasks_.add(awaitLocks());
  tasks_.add(patience());
}

void SsdLink::stop() {
  if (channel_) cut();
}

void SsdLink::attach(shm::Descriptor& socket, const ssd::SsddAttach& request) {
  const auto refuse = [&](Code code, const std::string& detail) {
    const ssd::SsddAttached answer = answerOf(code, detail);
    sendWithDescriptors(socket.get(), &answer, sizeof answer, nullptr, 0);
  };
  if (request.version != ssd::kSsddVersion || request.life == 0) {
    const std::string line = refused_.line("it sent no attach request of this version", bootTime());
    if (!line.empty()) log::warn("ssdd: " + line);
    return refuse(Code::protocol, "no attach request of this version");
  }
  if (!enabled()) return refuse(Code::badConfig, "node " + files_.node() + ": owner.large_limit_size is empty");
  if (channel_) return refuse(Code::unavailable, "node " + files_.node() + " has an ssdd already");
  if (!events_.takes(Incarnation(request.life), request.entries == 0)) {
    log::info("ssdd: what it has is worth nothing any more, it starts over");
    return refuse(Code::fenced, "what is in the shards is worth nothing any more");
  }
  const std::string path = files_.file("ssdd");
  Result<shm::Descriptor> made = shm::createFile(path, sizeof(ssd::SsddFile), files_.group() >= 0 ? 0640 : 0600, files_.group());
  if (!made) return refuse(made.error().code, made.error().detail);
  Result<shm::MappedFile> map = shm::MappedFile::map(made->get(), shm::Access::readWrite, path);
  // The description of ssdd: locked here and kept by nobody but ssdd, so that others see whether ssdd lives.
  Result<shm::Descriptor> theirs = shm::openFile(path, shm::Access::readWrite);
  Result<shm::Descriptor> segment = shm::openFile(files_.file("segment"), shm::Access::readWrite);
  if (!map || !theirs || !segment) {
    const Error& error = !map ? map.error() : !theirs ? theirs.error() : segment.error();
    return refuse(error.code, error.detail);
  }
  if (::flock(theirs->get(), LOCK_EX | LOCK_NB) != 0) return refuse(Code::system, "flock " + path);
  ownBell_ = shm::Descriptor(bell::make());
  peerBell_ = shm::Descriptor(bell::make());
  if (!ownBell_ || !peerBell_) return refuse(Code::system, "eventfd");
  ucred peer{};
  socklen_t length = sizeof peer;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  fileGuard_ = shm::FaultGuard();
  file_ = std::move(map).value();
  fileGuard_ = shm::FaultGuard::losable(file_);
  ssd::SsddHeader& header = shared().header;
  std::memcpy(header.file.magic, ssd::kSsddMagic, 8);
  header.file.version = shm::kFormatVersion;
  header.file.headerBytes = sizeof(ssd::SsddHeader);
  header.file.fileBytes = sizeof(ssd::SsddFile);
  header.file.incarnation = files_.header().life.load(std::memory_order_relaxed);
  header.life = request.life;
  header.pid = static_cast<uint64_t>(peer.pid);
  header.attachedNs = bootTime().ns;
  header.segmentBytes = files_.segmentBytes();
  const ssd::SsddAttached answer = answerOf(Code::ok, "");
  const int descriptors[ssd::kSsddDescriptors] = {theirs->get(), segment->get(), ownBell_.get(), peerBell_.get()};
  if (!sendWithDescriptors(socket.get(), &answer, sizeof answer, descriptors, ssd::kSsddDescriptors)) return;
  socket_ = std::move(socket);
  channel_ = std::make_unique<ssd::Channel>(shared(), ssd::Channel::End::owner, peerBell_.get());
  writesEnded();  // it has said that nothing of an earlier one is under way
  log::info("ssdd attaches, pid " + std::to_string(peer.pid) + ", life " + toString(Incarnation(request.life)) + ", " +
            std::to_string(request.entries) + " entries");
  using Observer = kj::UnixEventPort::FdObserver;
  socketObserver_ = kj::heap<Observer>(daemon_.port(), socket_.get(), Observer::OBSERVE_READ);
  bellObserver_ = kj::heap<Observer>(daemon_.port(), ownBell_.get(), Observer::OBSERVE_READ);
  channelTasks_ = kj::heap<kj::TaskSet>(static_cast<kj::TaskSet::ErrorHandler&>(*this));
  events_.attached(Incarnation(request.life));
  channelTasks_->add(watch(*channel_));
  channelTasks_->add(bell(*channel_));
  events_.heard();
}

// When the socket ends ssdd has ended, or wants no more of this owner. Nothing else comes by it.
kj::Promise<void> SsdLink::watch(const ssd::Channel& of) {
  return socketObserver_->whenBecomesReadable().then([this, &of]() -> kj::Promise<void> {
    if (channel_.get() != &of) return kj::READY_NOW;
    char byte;
    const ssize_t n = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return watch(of);
    // This promise belongs to what lost() ends.
    tasks_.add(kj::evalLater([this, &of] { lost(of, "it has ended"); }));
    return kj::READY_NOW;
  });
}

kj::Promise<void> SsdLink::bell(const ssd::Channel& of) {
  if (channel_.get() != &of) return kj::READY_NOW;
  bell::clear(ownBell_.get());
  channel_->awake();
  ssd::Message message;
  bool more = true;
  for (int count = 0; more && count < kMessagesAtOnce; ++count) {
    switch (channel_->receive(message)) {
      case ssd::Channel::Received::message: received(message); break;
      case ssd::Channel::Received::nothing: more = !channel_->sleep(); break;
      case ssd::Channel::Received::broken:
        tasks_.add(kj::evalLater([this, &of, why = channel_->why()] { lost(of, why); }));
        return kj::READY_NOW;
    }
    if (channel_.get() != &of) break;
  }
  events_.heard();
  if (channel_.get() != &of) return kj::READY_NOW;
  // The loop looks at the timer together with sockets and signals, so an ssdd that talks without end keeps nobody else waiting.
  if (more) return daemon_.timer().afterDelay(0 * kj::NANOSECONDS).then([this, &of] { return bell(of); });
  return bellObserver_->whenBecomesReadable().then([this, &of] { return bell(of); });
}

void SsdLink::received(const ssd::Message& message) {
  switch (message.kind) {
    case ssd::MessageKind::progress:
      if (loads_.count(message.id)) events_.loading(message.id, message.bytes);
      break;
    case ssd::MessageKind::loaded:
      if (loads_.erase(message.id) == 0) break;
      events_.fetched(message.id, message.code == Code::ok ? Error{} : Error{message.code, "its SSD does not give the value"});
      break;
    default: events_.message(message); break;
  }
}

void SsdLink::send(const ssd::Message& message) {
  if (channel_) channel_->send(message);
}

void SsdLink::load(const Fetch& fetch) {
  if (!channel_) {
    tasks_.add(kj::evalLater([this, id = fetch.id] {
      events_.fetched(id, {Code::unavailable, "no ssdd is attached"});
      events_.heard();
    }));
    return;
  }
  loads_.insert(fetch.id);
  channel_->send({ssd::MessageKind::load, fetch.id, fetch.key, fetch.putId, fetch.offset, fetch.bytes});
}

void SsdLink::show(const OwnerCounters& counters, Time now) {
  if (file_) shared().header.givenUp.store(counters.persistsGivenUp, std::memory_order_relaxed);
  if (counters.persistsLeftOut == saidLeftOut_ || now < nextWarning_) return;
  nextWarning_ = now + kBetweenWarnings;
  log::warn("ssdd: " + std::to_string(counters.persistsLeftOut - saidLeftOut_) +
            " values were left out, as their memory was wanted before they were written: the SSD is slower than what comes in");
  saidLeftOut_ = counters.persistsLeftOut;
}

void SsdLink::startOver(const char* why) {
  if (!channel_) return;
  log::warn(std::string("ssdd: ") + why + ": it is cut off and starts over");
  cut();
}

// Ends the channel. The channel's own tasks may call this, so the tasks end in the next turn of the loop. The channel lives until then, so
// that no new channel gets its address (tasks compare addresses).
void SsdLink::cut() {
  ++cuts_;
  tasks_.add(kj::evalLater([channel = std::move(channel_), old = kj::mv(channelTasks_), socketObserver = kj::mv(socketObserver_),
                            bellObserver = kj::mv(bellObserver_), socket = std::move(socket_), ownBell = std::move(ownBell_)]() mutable {
    old = nullptr;
    socketObserver = nullptr;
    bellObserver = nullptr;
  }));
  fileGuard_ = shm::FaultGuard();
  file_ = shm::MappedFile();
  peerBell_ = shm::Descriptor();
  adrift_.insert(loads_.begin(), loads_.end());
  loads_.clear();
  if (!adrift_.empty()) tasks_.add(awaitLocks());
}

void SsdLink::lost(const ssd::Channel& of, const std::string& why) {
  if (channel_.get() != &of) return;
  log::warn("ssdd: " + why);
  cut();
  events_.gone();
  events_.heard();
}

void SsdLink::writesEnded() {
  for (const uint64_t id : std::exchange(adrift_, {})) events_.fetched(id, {Code::unavailable, "ssdd has ended"});
  if (std::exchange(leftBehind_, false)) events_.calm(), events_.notComing();
}

kj::Promise<void> SsdLink::awaitLocks() {
  if (std::exchange(awaiting_, true)) return kj::READY_NOW;
  auto held = std::make_shared<bool>(true);
  return daemon_.workers().run([roots = roots_, held] { *held = anyHeld(roots); }).then([this, held, cuts = cuts_]() -> kj::Promise<void> {
    awaiting_ = false;
    if (cuts != cuts_) return awaitLocks();  // who has ended since may have had them after we looked
    if (adrift_.empty() && !leftBehind_) return kj::READY_NOW;
    if (!*held) {
      writesEnded();
      events_.heard();
      return kj::READY_NOW;
    }
    return daemon_.timer().afterDelay(kLockPause.ns * kj::NANOSECONDS).then([this] { return awaitLocks(); });
  });
}

// The ssdd of the last life holds its shards and does not attach: the owner gives up its contents, but goes on waiting for what it may be
// writing.
kj::Promise<void> SsdLink::patience() {
  return daemon_.timer().afterDelay(kPatience.ns * kj::NANOSECONDS).then([this] {
    if (!leftBehind_) return;
    log::warn("ssdd of the last life holds its shards and does not attach: what it has is given up");
    events_.notComing();
    events_.heard();
  });
}

void SsdLink::taskFailed(kj::Exception&& error) { log::error(std::string("ssdd: ") + error.getDescription().cStr()); }

}  // namespace fluxon::owner
