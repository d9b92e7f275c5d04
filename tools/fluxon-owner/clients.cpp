#include "clients.h"

#include <dirent.h>
#include <fcntl.h>
#include <kj/debug.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "attach.h"
#include "base/bell.h"
#include "base/log.h"
#include "in_turn.h"

namespace fluxon::owner {
namespace {

constexpr size_t kSlice = 128;  // commands between two looks at everything else
constexpr int kMessagesAtOnce = 16;
constexpr uint64_t kMostOwners = 64;    // of this host, that copy values from here
constexpr uint64_t kFilesPerPlace = 2;  // of clients: those that have closed may hold values for some time

bool sendMessage(int socket, const shm::AttachReply& reply, const int* descriptors, size_t count) {
  return sendWithDescriptors(socket, &reply, sizeof reply, descriptors, count);
}

bool is(const shm::AttachRequest& request, shm::AttachKind kind) { return request.kind == static_cast<uint32_t>(kind); }

shm::AttachReply makeReply(Code code, ClientId client, uint64_t number, const std::string& detail) {
  shm::AttachReply reply{};
  std::memcpy(reply.magic, shm::kAttachMagic, 8);
  reply.version = shm::kFormatVersion;
  reply.code = static_cast<uint32_t>(code);
  reply.number = number;
  reply.clientId = client.value;
  reply.clockNs = bootTime().ns;
  std::memcpy(reply.detail, detail.data(), std::min(detail.size(), sizeof reply.detail - 1));
  return reply;
}

}  // namespace

void ClientTotals::add(const shm::ClientFile& file) {
  for (const shm::CounterShard& shard : file.counters) {
#define FLUXON_ADD(name, text) name += shard.name.load(std::memory_order_relaxed);
    FLUXON_CLIENT_COUNTERS(FLUXON_ADD)
#undef FLUXON_ADD
    for (uint32_t i = 0; i < shm::kLatencyBuckets; ++i) latency[i] += shard.latency[i].load(std::memory_order_relaxed);
    latencySumNs += shard.latencySumNs.load(std::memory_order_relaxed);
  }
}

Clients::Clients(rpc::Daemon& daemon, NodeFiles& files, uint64_t maxClients, Events events)
    : daemon_(daemon),
      files_(files),
      maxClients_(maxClients),
      events_(std::move(events)),
      touches_(files.directory().slotCount()),
      tasks_(kj::heap<kj::TaskSet>(static_cast<kj::TaskSet::ErrorHandler&>(*this))) {}
Clients::~Clients() = default;

Result<std::set<uint64_t>> Clients::adopt() {
  std::set<uint64_t> living;
  const std::string folder = files_.paths().nodeDir(files_.node());
  DIR* dir = ::opendir(folder.c_str());
  if (!dir) return systemError("open " + folder, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    if (std::string(entry->d_name).starts_with("client-")) names.emplace_back(entry->d_name);
  }
  ::closedir(dir);
  for (const std::string& name : names) {
    const std::string path = files_.file(name);
    struct stat info;
    const bool regular = ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
    Result<shm::Descriptor> file = regular ? shm::openFile(path, shm::Access::readWrite) : Error{Code::corrupt, path};
    Result<shm::MappedFile> map = file ? shm::MappedFile::map(file->get(), shm::Access::readWrite, path) : file.error();
    if (!map && map.error().code != Code::corrupt) return map.error();  // whose client may live, and hold values
    const uint64_t id = std::strtoull(name.c_str() + 7, nullptr, 10);
    const auto client = map ? std::make_shared<ClientMap>(std::move(map).value()) : nullptr;
    const auto* shared = client ? &client->shared() : nullptr;
    const bool good = shared && client->file.bytes() == sizeof(shm::ClientFile) &&
                      !shm::refuse(shared->header.file, shm::kClientMagic, client->file.bytes()) && id != 0 &&
                      shared->header.clientId == id;
    if (!good) {
      log::warn(path + " is no client's file, and is removed");
      ::unlink(path.c_str());
      continue;
    }
    nextId_ = std::max(nextId_, id + 1);
    if (::flock(file->get(), LOCK_EX | LOCK_NB) == 0) {
      dead_.add(*shared);
      ::unlink(path.c_str());
      continue;
    }
    Client& adopted = clients_[ClientId(id)];
    adopted.id = ClientId(id);
    adopted.map = client;
    adopted.pid = static_cast<pid_t>(shared->header.pid);
    adopted.ring.emplace(adopted.shared());
    adopted.file = std::move(file).value();
    living.insert(id);
  }
  if (!living.empty()) log::info(std::to_string(living.size()) + " clients of the last life still hold values");
  return living;
}

Error Clients::listen() {
  listener_ = shm::Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener_) return systemError("socket", errno);
  const std::string path = files_.file("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {Code::invalidArgument, path + " is too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return systemError("bind " + path, errno);
  if (files_.group() >= 0 && ::chown(path.c_str(), static_cast<uid_t>(-1), static_cast<gid_t>(files_.group())) != 0)
    return systemError("chown " + path, errno);
  if (::chmod(path.c_str(), files_.group() >= 0 ? 0660 : 0600) != 0) return systemError("chmod " + path, errno);
  if (::listen(listener_.get(), 64) != 0) return systemError("listen " + path, errno);
  using Observer = kj::UnixEventPort::FdObserver;
  listenerObserver_ = kj::heap<Observer>(daemon_.port(), listener_.get(), Observer::OBSERVE_READ);
  tasks_->add(accept());
  tasks_->add(sweep());
  look();
  return {};
}

void Clients::stop() {
  tasks_ = nullptr;
  for (auto& [id, client] : clients_) client.ringing = nullptr;
  ::unlink(files_.file("socket").c_str());
}

kj::Promise<void> Clients::accept() {
  for (;;) {
    shm::Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) break;
    tasks_->add(converse(std::move(socket)));
  }
  // Out of descriptors: connections that wait ring no bell again.
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
    const std::string line = waits_.line(std::string("clients wait: ") + std::strerror(errno), bootTime());
    if (!line.empty()) log::warn(line);
    return daemon_.timer().afterDelay(100 * kj::MILLISECONDS).then([this] { return accept(); });
  }
  return listenerObserver_->whenBecomesReadable().then([this] { return accept(); });
}

// A connection that has not attached yet: its first message decides.
kj::Promise<void> Clients::converse(shm::Descriptor socket) {
  union First {
    shm::AttachRequest client;
    ssd::SsddAttach ssdd;
  } first{};
  const ssize_t n = ::recv(socket.get(), &first, sizeof first, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    using Observer = kj::UnixEventPort::FdObserver;
    auto observer = kj::heap<Observer>(daemon_.port(), socket.get(), Observer::OBSERVE_READ);
    auto readable = observer->whenBecomesReadable();
    return daemon_.timer()
        .timeoutAfter(5 * kj::SECONDS, kj::mv(readable))
        .attach(kj::mv(observer))
        .then([this, socket = std::move(socket)]() mutable { return converse(std::move(socket)); });
  }
  if (n == 0) return kj::READY_NOW;
  if (n == static_cast<ssize_t>(sizeof first.ssdd) && std::memcmp(first.ssdd.magic, ssd::kSsddAttachMagic, 8) == 0) {
    events_.ssdd(socket, first.ssdd);
    return kj::READY_NOW;
  }
  const shm::AttachRequest& request = first.client;
  const bool good = n == static_cast<ssize_t>(sizeof request) && std::memcmp(request.magic, shm::kAttachMagic, 8) == 0 &&
                    request.version == shm::kFormatVersion &&
                    (is(request, shm::AttachKind::attach) || is(request, shm::AttachKind::attachOwner));
  if (!good) {
    ++refused_;
    log::warn("a client sent no attach request of this version");
    sendMessage(socket.get(), makeReply(Code::protocol, ClientId(), 0, "no attach request of this version"), nullptr, 0);
    return kj::READY_NOW;
  }
  attach(socket, request, Try::first);
  return kj::READY_NOW;
}

// A client whose socket has ended, or that is of the last life, has no place, but for so many files at most.
bool Clients::full(bool owner) const {
  const uint64_t places = owner ? kMostOwners : maxClients_;
  uint64_t connected = 0, files = 0;
  for (const auto& [id, client] : clients_) {
    if (!client.attached || client.owner != owner) continue;
    ++files;
    connected += bool(client.socket);
  }
  return connected >= places || files >= places * kFilesPerPlace;
}

void Clients::attach(shm::Descriptor& socket, const shm::AttachRequest& request, Try tried) {
  const auto refuse = [&](const Error& error) {
    // What is lacking may be what those have who have ended since somebody looked.
    if (tried == Try::first && lookAtEnded() > 0) return attach(socket, request, Try::again);
    ++refused_;
    log::warn("a client may not attach: " + error.message());
    sendMessage(socket.get(), makeReply(error.code, ClientId(), request.number, error.detail), nullptr, 0);
  };
  const bool owner = is(request, shm::AttachKind::attachOwner);
  if (full(owner))
    return refuse({Code::tooMany, "node " + files_.node() + " has " + std::to_string(maxClients_) + " clients (max_clients)"});
  const ClientId id(nextId_++);
  const std::string path = files_.file("client-" + std::to_string(id.value));
  Result<shm::Descriptor> file = shm::createFile(path, sizeof(shm::ClientFile), files_.group() >= 0 ? 0640 : 0600, files_.group());
  if (!file) return refuse(file.error());
  Result<shm::MappedFile> map = shm::MappedFile::map(file->get(), shm::Access::readWrite, path);
  // The client's description: locked here, kept by nobody but the client.
  Result<shm::Descriptor> theirs = shm::openFile(path, shm::Access::readWrite);
  const auto open = [&](const char* name) { return shm::openFile(files_.file(name), shm::Access::readOnly); };
  Result<shm::Descriptor> directory = open("directory"), keys = open("keys"), segment = open("segment");
  shm::Descriptor bell(bell::make());
  const Error noBell = bell ? Error{} : systemError("eventfd", errno);
  if (!map || !theirs || !directory || !keys || !segment || !bell) {
    ::unlink(path.c_str());
    return refuse(!map         ? map.error()
                  : !theirs    ? theirs.error()
                  : !directory ? directory.error()
                  : !keys      ? keys.error()
                  : !segment   ? segment.error()
                               : noBell);
  }
  if (::flock(theirs->get(), LOCK_EX | LOCK_NB) != 0) {
    ::unlink(path.c_str());
    return refuse(systemError("flock " + path, errno));
  }
  ucred peer{};
  socklen_t length = sizeof peer;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  auto& header = reinterpret_cast<shm::ClientFile*>(map->data())->header;
  std::memcpy(header.file.magic, shm::kClientMagic, 8);
  header.file.version = shm::kFormatVersion;
  header.file.headerBytes = sizeof(shm::ClientHeader);
  header.file.fileBytes = sizeof(shm::ClientFile);
  header.file.incarnation = files_.header().file.incarnation;
  header.clientId = id.value;
  header.pid = static_cast<uint64_t>(peer.pid);
  header.attachedNs = bootTime().ns;
  std::memcpy(header.name, request.name, sizeof header.name - 1);

  const int descriptors[shm::kAttachDescriptors] = {theirs->get(), directory->get(), keys->get(), segment->get(), bell.get()};
  if (!sendMessage(socket.get(), makeReply(Code::ok, id, request.number, ""), descriptors, shm::kAttachDescriptors)) {
    ::unlink(path.c_str());
    return;
  }
  Client& client = clients_[id];
  client.id = id;
  client.map = std::make_shared<ClientMap>(std::move(map).value());
  client.ring.emplace(client.shared());
  client.file = std::move(file).value();
  client.socket = std::move(socket);
  client.bell = std::move(bell);
  client.pid = peer.pid;
  client.attached = true;
  client.owner = owner;
  using Observer = kj::UnixEventPort::FdObserver;
  client.observer = kj::heap<Observer>(daemon_.port(), client.socket.get(), Observer::OBSERVE_READ);
  client.bellObserver = kj::heap<Observer>(daemon_.port(), client.bell.get(), Observer::OBSERVE_READ);
  client.ringing = ringing(client).eagerlyEvaluate([this](kj::Exception&& error) { taskFailed(kj::mv(error)); });
  log::debug("client " + std::to_string(id.value) + " attaches, pid " + std::to_string(peer.pid));
  tasks_->add(watch(id));
}

// Messages and the end of a client's socket.
kj::Promise<void> Clients::watch(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return kj::READY_NOW;
  Client& client = found->second;
  for (int messages = 0;; ++messages) {
    // A client that sends without pause waits, so that all others are served.
    if (messages == kMessagesAtOnce) return daemon_.timer().afterDelay(1 * kj::MILLISECONDS).then([this, id] { return watch(id); });
    shm::AttachRequest request{};
    const ssize_t n = ::recv(client.socket.get(), &request, sizeof request, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      client.observer = nullptr;
      client.socket = shm::Descriptor();
      return lookUntilGone(id, 1 * kj::MILLISECONDS);
    }
    const bool good = n == static_cast<ssize_t>(sizeof request) && std::memcmp(request.magic, shm::kAttachMagic, 8) == 0 &&
                      request.version == shm::kFormatVersion;
    if (good && is(request, shm::AttachKind::writableSegment)) {
      handOverSegment(client, request.number);
    } else if (good && is(request, shm::AttachKind::clock)) {
      sendMessage(client.socket.get(), makeReply(Code::ok, id, request.number, ""), nullptr, 0);
    } else {
      ++refused_;
      sendMessage(client.socket.get(), makeReply(Code::protocol, id, request.number, "unknown request"), nullptr, 0);
    }
  }
  return client.observer->whenBecomesReadable().then([this, id] { return watch(id); });
}

void Clients::handOverSegment(Client& client, uint64_t number) {
  const Result<shm::Descriptor> segment = shm::openFile(files_.file("segment"), shm::Access::readWrite);
  if (!segment) {
    sendMessage(client.socket.get(), makeReply(segment.error().code, client.id, number, segment.error().detail), nullptr, 0);
    return;
  }
  const int descriptor = segment.value().get();
  sendMessage(client.socket.get(), makeReply(Code::ok, client.id, number, ""), &descriptor, 1);
}

void Clients::lookAt(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  if (!client.broken && client.map->guard.broken()) {
    ++refused_;
    const std::string who = "client " + std::to_string(id.value) + ", pid " + std::to_string(client.pid);
    log::warn(who + ", has cut its file short: it is not heard any more");
    client.broken = true;
    if (client.socket) ::shutdown(client.socket.get(), SHUT_RDWR);  // its watch sees the end
  }
  if (::flock(client.file.get(), LOCK_EX | LOCK_NB) != 0) return;
  dead_.add(client.shared());
  ::unlink(files_.file("client-" + std::to_string(id.value)).c_str());
  log::debug("client " + std::to_string(id.value) + " is gone");
  clients_.erase(found);
  events_.gone(id);
  events_.slice();
}

Error Clients::namesWhole() const {
  for (const auto& [id, client] : clients_) {
    struct stat info;
    if (::fstat(client.file.get(), &info) == 0 && info.st_nlink > 0) continue;
    return {Code::system, files_.file("client-" + std::to_string(id.value)) + " has been removed"};
  }
  return {};
}

// The mapping of a client that has just ended may last a moment longer than its socket.
kj::Promise<void> Clients::lookUntilGone(ClientId id, kj::Duration pause) {
  lookAt(id);
  if (!clients_.contains(id) || pause >= 1 * kj::SECONDS) return kj::READY_NOW;
  return daemon_.timer().afterDelay(pause).then([this, id, pause] { return lookUntilGone(id, pause * 2); });
}

// How many of them are gone.
size_t Clients::lookAtEnded() {
  std::vector<ClientId> ids;
  for (const auto& [id, client] : clients_) {
    if (!client.socket) ids.push_back(id);
  }
  const size_t before = clients_.size();
  for (const ClientId id : ids) lookAt(id);
  return before - clients_.size();
}

kj::Promise<void> Clients::sweep() {
  return daemon_.timer().afterDelay(1 * kj::SECONDS).then([this] {
    std::vector<ClientId> ids;
    for (const auto& [id, client] : clients_) ids.push_back(id);
    for (const ClientId id : ids) lookAt(id);
    return sweep();
  });
}

kj::Promise<void> Clients::ringing(Client& client) {
  return client.bellObserver->whenBecomesReadable().then([this, &client] {
    // One look for all that have rung in this turn.
    if (!std::exchange(looks_, true)) tasks_->add(kj::evalLater([this] { look(); }));
    return ringing(client);
  });
}

void Clients::look() {
  looks_ = false;
  shm::Half& asleep = files_.header().controlAsleep;
  asleep.store(0, std::memory_order_seq_cst);
  bool more = drain(kSlice);
  if (!more) {
    asleep.store(1, std::memory_order_seq_cst);
    more = drain(kSlice);
    if (more) asleep.store(0, std::memory_order_seq_cst);
  }
  if (!more) return;
  // By the timer, which is looked at together with sockets and signals: rings that are never empty keep nobody else waiting.
  looks_ = true;
  tasks_->add(daemon_.afterLook().then([this] { look(); }));
}

// Runs at most `limit` commands, in turn over the clients. True: there are more.
bool Clients::drain(size_t limit) {
  size_t left = limit;
  bool more = false;
  inTurn(clients_, ClientId(served_), [&](ClientId id, Client& client) {
    if (!client.attached || client.broken) return true;
    const size_t before = left;
    more |= drainOne(client, left);
    if (left != before) served_ = id;
    return left > 0;
  });
  if (left != limit) events_.slice();
  return more || left == 0;
}

bool Clients::drainOne(Client& client, size_t& left) {
  uint32_t slot = 0;
  Command command;
  for (; left > 0; --left) {
    const ClientRing::Next next = client.ring->next(slot, command);
    if (next == ClientRing::Next::nothing) break;
    if (next == ClientRing::Next::refused) ++refused_;
    if (next == ClientRing::Next::command) events_.command({client.id, slot}, std::move(command));
  }
  return client.ring->more();
}

size_t Clients::held() const {
  size_t count = 0;
  for (const auto& [id, client] : clients_) count += client.ring->held();
  return count;
}

bool Clients::answer(Caller caller, const Answer& answer) {
  const auto found = clients_.find(caller.client);
  return found != clients_.end() && found->second.ring->answer(caller.slot, answer);
}

std::vector<std::shared_ptr<ClientMap>> Clients::files() const {
  std::vector<std::shared_ptr<ClientMap>> files;
  for (const auto& [id, client] : clients_) files.push_back(client.map);
  return files;
}

std::vector<uint32_t> Clients::takeTouches() {
  std::vector<ClientRing*> rings;
  std::vector<ClientId> ids;
  inTurn(clients_, touched_, [&](ClientId id, Client& client) {
    rings.push_back(&*client.ring);
    ids.push_back(id);
    return true;
  });
  Touches::Taken taken = touches_.take(rings);
  if (taken.clients > 0) touched_ = ids[taken.clients - 1];
  return std::move(taken.slots);
}

ClientTotals Clients::totals() const {
  ClientTotals sum = dead_;
  for (const auto& [id, client] : clients_) sum.add(client.shared());
  return sum;
}

void Clients::taskFailed(kj::Exception&& error) { log::warn(std::string("client: ") + error.getDescription().cStr()); }

}  // namespace fluxon::owner
