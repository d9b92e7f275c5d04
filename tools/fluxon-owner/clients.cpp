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
  // Out of descriptors: the listener does not become readable again for connections that wait already, so look again later.
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
    const std::string line = waits_.line(std::string("clients wait: ") + std::strerror(errno), bootTime());
    if (!line.empty()) log::warn(line);
    return daemon_.timer().afterDelay(100 * kj::MILLISECONDS).then([this] { return accept(); });
  }
  return listenerObserver_->whenBecomesReadable().then([this] { return accept(); });
}

// Serves a connection that has not attached yet: its first message tells what it is.
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

// A client whose socket has ended takes no place, only one of a larger number of files; a client of the last life takes neither.
bool Clients::full(Client::Kind kind) const {
  const uint64_t places = kind == Client::Kind::owner ? kMostOwners : maxClients_;
  uint64_t connected = 0, files = 0;
  for (const auto& [id, client] : clients_) {
    if (client.kind != kind) continue;
    ++files;
    connected += bool(client.socket);
  }
  return connected >= places || files >= places * kFilesPerPlace;
}

struct Clients::Handover {
  shm::Descriptor file;  // our own description of the client's file
  shm::MappedFile map;
  shm::Descriptor theirs;  // the client's description of it: locked here, and kept by nobody but the client
  shm::Descriptor directory, keys, segment, bell;
};

// Makes a client's file and opens what the client gets with it. After an error nothing of it is left.
Result<Clients::Handover> Clients::makeFiles(const std::string& path) const {
  Result<shm::Descriptor> file = shm::createFile(path, sizeof(shm::ClientFile), files_.group() >= 0 ? 0640 : 0600, files_.group());
  if (!file) return file.error();
  const auto fail = [&](Error error) {
    ::unlink(path.c_str());
    return error;
  };
  Result<shm::MappedFile> map = shm::MappedFile::map(file->get(), shm::Access::readWrite, path);
  if (!map) return fail(map.error());
  Handover made;
  made.file = std::move(file).value();
  made.map = std::move(map).value();
  const auto open = [&](shm::Descriptor& to, const std::string& from, shm::Access access) -> Error {
    Result<shm::Descriptor> opened = shm::openFile(from, access);
    if (!opened) return opened.error();
    to = std::move(opened).value();
    return {};
  };
  Error error = open(made.theirs, path, shm::Access::readWrite);
  if (error.ok()) error = open(made.directory, files_.file("directory"), shm::Access::readOnly);
  if (error.ok()) error = open(made.keys, files_.file("keys"), shm::Access::readOnly);
  if (error.ok()) error = open(made.segment, files_.file("segment"), shm::Access::readOnly);
  if (!error.ok()) return fail(std::move(error));
  made.bell = shm::Descriptor(bell::make());
  if (!made.bell) return fail(systemError("eventfd", errno));
  if (::flock(made.theirs.get(), LOCK_EX | LOCK_NB) != 0) return fail(systemError("flock " + path, errno));
  return made;
}

void Clients::attach(shm::Descriptor& socket, const shm::AttachRequest& request, Try tried) {
  const auto refuse = [&](const Error& error) {
    // Clients that have ended since the last look may still have what is lacking.
    if (tried == Try::first && lookAtEnded() > 0) return attach(socket, request, Try::again);
    ++refused_;
    log::warn("a client may not attach: " + error.message());
    sendMessage(socket.get(), makeReply(error.code, ClientId(), request.number, error.detail), nullptr, 0);
  };
  const Client::Kind kind = is(request, shm::AttachKind::attachOwner) ? Client::Kind::owner : Client::Kind::client;
  if (full(kind))
    return refuse({Code::tooMany, "node " + files_.node() + " has " + std::to_string(maxClients_) + " clients (max_clients)"});
  const ClientId id(nextId_++);
  const std::string path = files_.file("client-" + std::to_string(id.value));
  Result<Handover> made = makeFiles(path);
  if (!made) return refuse(made.error());
  ucred peer{};
  socklen_t length = sizeof peer;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  auto& header = reinterpret_cast<shm::ClientFile*>(made->map.data())->header;
  std::memcpy(header.file.magic, shm::kClientMagic, 8);
  header.file.version = shm::kFormatVersion;
  header.file.headerBytes = sizeof(shm::ClientHeader);
  header.file.fileBytes = sizeof(shm::ClientFile);
  header.file.incarnation = files_.header().file.incarnation;
  header.clientId = id.value;
  header.pid = static_cast<uint64_t>(peer.pid);
  header.attachedNs = bootTime().ns;
  std::memcpy(header.name, request.name, sizeof header.name - 1);

  const int descriptors[shm::kAttachDescriptors] = {made->theirs.get(), made->directory.get(), made->keys.get(), made->segment.get(),
                                                    made->bell.get()};
  if (!sendMessage(socket.get(), makeReply(Code::ok, id, request.number, ""), descriptors, shm::kAttachDescriptors)) {
    ::unlink(path.c_str());
    return;
  }
  Client& client = clients_[id];
  client.id = id;
  client.map = std::make_shared<ClientMap>(std::move(made->map));
  client.ring.emplace(client.shared());
  client.file = std::move(made->file);
  client.socket = std::move(socket);
  client.bell = std::move(made->bell);
  client.pid = peer.pid;
  client.kind = kind;
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

// Looks at the locks of clients whose sockets have ended. Returns how many of these are gone.
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
    // One look serves all clients that have rung in this turn of the loop.
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
  // The loop looks at the timer together with sockets and signals, so rings that are never empty keep nobody else waiting.
  looks_ = true;
  tasks_->add(daemon_.afterLook().then([this] { look(); }));
}

// Runs at most `limit` commands, round-robin over the clients. True: there are more.
bool Clients::drain(size_t limit) {
  size_t left = limit;
  bool more = false;
  inTurn(clients_, ClientId(served_), [&](ClientId id, Client& client) {
    if (client.kind == Client::Kind::ofLastLife || client.broken) return true;
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
