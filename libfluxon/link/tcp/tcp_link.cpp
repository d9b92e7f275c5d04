#include "link/tcp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>

#include "link/tcp/link_thread.h"
#include "net/socket_address.h"

namespace fluxon::link::tcp {
namespace {

constexpr unsigned kMostConnections = 64;
constexpr uint64_t kLeastPieceBytes = 4096;

Error checked(const Settings& settings) {
  if (settings.connectionsPerPeer == 0 || settings.connectionsPerPeer > kMostConnections)
    return {Code::badConfig,
            std::to_string(settings.connectionsPerPeer) + " connections a peer (accepted: 1 to " + std::to_string(kMostConnections) + ")"};
  if (settings.pieceBytes < kLeastPieceBytes || settings.pieceBytes > kMaxPieceBytes)
    return {Code::badConfig, "pieces of " + std::to_string(settings.pieceBytes) + " bytes (accepted: " + std::to_string(kLeastPieceBytes) +
                                 " to " + std::to_string(kMaxPieceBytes) + ")"};
  return {};
}

Error setCongestion(int fd, const std::string& name) {
  if (name.empty() || ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0) return {};
  return {Code::badConfig, "tcp congestion control '" + name + "': " + systemError("", errno).detail +
                               " (accepted: see /proc/sys/net/ipv4/tcp_available_congestion_control)"};
}

// What peers are told of a link that listens at `bound`.
std::string advertised(const std::string& wish, const std::string& bound) {
  if (wish.empty()) return bound;
  return parseEndpoint(wish).ok() ? wish : wish + bound.substr(bound.rfind(':'));
}

}  // namespace

TcpLink::TcpLink() = default;
TcpLink::~TcpLink() = default;

Result<std::unique_ptr<TcpLink>> TcpLink::start(const Settings& settings, const net::Secret& secret, const std::string& node,
                                                const shm::DirectoryView& own, shm::ClientFile& hazards) {
  if (const Error error = checked(settings); !error.ok()) return error;
  std::unique_ptr<TcpLink> link(new TcpLink());
  shm::Descriptor listener;
  if (settings.listen.enabled) {
    Result<shm::Descriptor> bound = net::listenOn(settings.listen, 0);
    if (!bound) return bound.error();
    listener = std::move(bound.value());
    if (const Error error = setCongestion(listener.get(), settings.congestionControl); !error.ok()) return error;
    link->address_ = advertised(settings.advertise, net::toString(net::boundTo(listener.get())));
  } else {
    const shm::Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (const Error error = setCongestion(probe.get(), settings.congestionControl); !error.ok()) return error;
  }
  Result<std::shared_ptr<Mailbox>> mailbox = Mailbox::create();
  if (!mailbox) return mailbox.error();
  link->thread_ = std::make_unique<LinkThread>(settings, secret, node, own, hazards, mailbox.value(), std::move(listener));
  if (Error error = link->thread_->run(); !error.ok()) return error;
  return link;
}

void TcpLink::setIncarnation(Incarnation incarnation) {
  thread_->mailbox().post([incarnation](LinkThread& link) { link.setIncarnation(incarnation); });
}

void TcpLink::fetch(const PeerAddress& peer, std::vector<Fetch> fetches) {
  if (fetches.empty()) return;
  auto shared = std::make_shared<std::vector<Fetch>>(std::move(fetches));
  thread_->mailbox().post([peer, shared](LinkThread& link) { link.puller().fetch(peer, std::move(*shared)); });
}

void TcpLink::cancel(uint64_t id) {
  thread_->mailbox().post([id](LinkThread& link) { link.puller().cancel(id, {Code::timedOut, "cancelled"}); });
}

void TcpLink::cancelAll() {
  thread_->mailbox().post([](LinkThread& link) { link.puller().cancelAll({Code::timedOut, "cancelled"}); });
}

void TcpLink::publish(uint64_t exportId, const char* data, uint64_t bytes, uint64_t ready) {
  thread_->mailbox().post([=](LinkThread& link) { link.source().publish(exportId, data, bytes, ready); });
}

void TcpLink::advance(uint64_t exportId, uint64_t ready) {
  thread_->mailbox().post([=](LinkThread& link) { link.source().advance(exportId, ready); });
}

void TcpLink::fail(uint64_t exportId) {
  thread_->mailbox().post([exportId](LinkThread& link) { link.source().fail(exportId); });
}

void TcpLink::unpublish(uint64_t exportId) {
  thread_->mailbox().post([exportId](LinkThread& link) { link.source().unpublish(exportId); });
}

int TcpLink::eventFd() const { return thread_->mailbox().eventFd(); }
LinkEvents TcpLink::reap() { return thread_->mailbox().takeEvents(); }
std::string TcpLink::engine() const { return thread_->uring() ? "io_uring" : "poll"; }

LinkCounters TcpLink::counters() const {
  LinkCounters now;
#define FLUXON_COPY(name, text) now.name = thread_->counters().name.load(std::memory_order_relaxed);
  FLUXON_LINK_COUNTERS(FLUXON_COPY)
#undef FLUXON_COPY
  return now;
}

}  // namespace fluxon::link::tcp
