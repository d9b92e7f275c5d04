#include "rpc/socket_stream.h"

#include <errno.h>
#include <kj/debug.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/descriptors.h"
#include "base/log.h"
#include "net/socket_address.h"

namespace fluxon::rpc {
namespace {

using Observer = kj::UnixEventPort::FdObserver;

constexpr int kAcceptedAtOnce = 64;

// The peer, its host or the way to it.
bool isGone(int error) {
  return error == ECONNRESET || error == EPIPE || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ECONNABORTED;
}

class SocketStream final : public kj::AsyncIoStream {
 public:
  SocketStream(kj::UnixEventPort& port, kj::AutoCloseFd fd)
      : port_(port), fd_(kj::mv(fd)), readable_(port, fd_, Observer::OBSERVE_READ), buffer_(kj::heapArray<kj::byte>(kBufferBytes)) {}

  kj::Promise<size_t> tryRead(void* to, size_t minBytes, size_t maxBytes) override {
    return readOn(static_cast<kj::byte*>(to), minBytes, maxBytes, 0);
  }

  kj::Promise<void> write(const void* from, size_t size) override {
    std::vector<iovec> rest{{const_cast<void*>(from), size}};
    return writeOn(std::move(rest));
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    std::vector<iovec> rest;
    rest.reserve(pieces.size());
    for (const auto& piece : pieces) {
      if (piece.size() > 0) rest.push_back({const_cast<kj::byte*>(piece.begin()), piece.size()});
    }
    return writeOn(std::move(rest));
  }

  // The end of a connection shows as the end of reading; RPC always reads.
  kj::Promise<void> whenWriteDisconnected() override { return kj::NEVER_DONE; }
  void shutdownWrite() override { ::shutdown(fd_, SHUT_WR); }

 private:
  static constexpr size_t kBufferBytes = 64 * 1024;
  static constexpr size_t kMostPieces = 512;

  kj::Promise<size_t> readOn(kj::byte* to, size_t minBytes, size_t maxBytes, size_t done) {
    for (;;) {
      const size_t taken = std::min(maxBytes - done, end_ - begin_);
      if (taken > 0) std::memcpy(to + done, buffer_.begin() + begin_, taken);
      begin_ += taken;
      done += taken;
      if (done >= minBytes) return done;
      // The buffer is empty. What is longer than it goes straight to its place.
      const bool direct = maxBytes - done >= kBufferBytes;
      const ssize_t n = direct ? ::read(fd_, to + done, maxBytes - done) : ::read(fd_, buffer_.begin(), kBufferBytes);
      if (n > 0 && direct) {
        done += static_cast<size_t>(n);
      } else if (n > 0) {
        begin_ = 0;
        end_ = static_cast<size_t>(n);
      } else if (n == 0) {
        return done;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return readable_.whenBecomesReadable().then([this, to, minBytes, maxBytes, done] { return readOn(to, minBytes, maxBytes, done); });
      } else if (errno != EINTR) {
        if (isGone(errno)) return KJ_EXCEPTION(DISCONNECTED, "the peer is gone");
        KJ_FAIL_SYSCALL("read", errno);
      }
    }
  }

  kj::Promise<void> writeOn(std::vector<iovec> rest) {
    size_t at = 0;
    while (at < rest.size()) {
      msghdr message{};
      message.msg_iov = &rest[at];
      message.msg_iovlen = std::min(rest.size() - at, kMostPieces);
      const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
          rest.erase(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(at));
          return whenWritable().then([this, rest = std::move(rest)]() mutable { return writeOn(std::move(rest)); });
        }
        if (isGone(errno)) return KJ_EXCEPTION(DISCONNECTED, "the peer is gone");
        KJ_FAIL_SYSCALL("sendmsg", errno);
      }
      size_t sent = static_cast<size_t>(n);
      for (; at < rest.size() && sent >= rest[at].iov_len; ++at) sent -= rest[at].iov_len;
      if (sent > 0) rest[at] = {static_cast<char*>(rest[at].iov_base) + sent, rest[at].iov_len - sent};
    }
    return kj::READY_NOW;
  }

  // One descriptor can be watched once: a copy of it is watched for writing, only while bytes wait.
  kj::Promise<void> whenWritable() {
    const int copy = ::dup(fd_);
    KJ_REQUIRE(copy >= 0, "dup", errno);
    auto watched = kj::heap<kj::AutoCloseFd>(copy);
    auto observer = kj::heap<Observer>(port_, copy, Observer::OBSERVE_WRITE);
    auto promise = observer->whenBecomesWritable();
    // One after the other: the observer ends first, while its descriptor is open. What one attach() is given ends from last to first.
    return promise.attach(kj::mv(observer)).attach(kj::mv(watched));
  }

  kj::UnixEventPort& port_;
  kj::AutoCloseFd fd_;
  Observer readable_;
  kj::Array<kj::byte> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is buffered
};

Result<sockaddr_un> addressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Error{Code::invalidArgument, path + " is too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

kj::Promise<net::Addresses> lookUpAside(const Endpoint& endpoint) {
  auto paf = kj::newPromiseAndCrossThreadFulfiller<net::Addresses>();
  auto fulfiller = std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<net::Addresses>>>(kj::mv(paf.fulfiller));
  net::lookUpAside(endpoint, [fulfiller](net::Addresses found) { (*fulfiller)->fulfill(kj::mv(found)); });
  return kj::mv(paf.promise);
}

// What a limit for each source counts as one: an IPv4 address, or the network of 64 bits that an IPv6 host is in.
std::string sourceOf(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    return std::string(reinterpret_cast<const char*>(&v4), sizeof v4);
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const char* const bytes = reinterpret_cast<const char*>(&v6);
  return IN6_IS_ADDR_V4MAPPED(&v6) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

// Messages leave at once; a host that has gone shows within 11 s in silence, and within 20 s while bytes wait for it.
void tune(int fd) {
  const auto set = [fd](int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
}

using Connected = Result<kj::Own<kj::AsyncIoStream>>;

kj::Promise<Connected> connectOne(kj::UnixEventPort& port, const sockaddr_storage& address, kj::Duration patience) {
  const std::string what = "connect " + net::toString(address);
  const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Connected(systemError("socket", errno));
  kj::AutoCloseFd owned(fd);
  tune(fd);
  const auto judge = [what](int error) {
    const Error failed = systemError(what, error);
    return Error{Code::unavailable, failed.detail};
  };
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), net::bytesOf(address)) == 0)
    return Connected(wrapSocket(port, kj::mv(owned)));
  if (errno != EINPROGRESS) return Connected(judge(errno));
  auto observer = kj::heap<Observer>(port, fd, Observer::OBSERVE_WRITE);
  auto writable = observer->whenBecomesWritable();
  return port.getTimer()
      .timeoutAfter(patience, writable.attach(kj::mv(observer)))
      .then(
          [&port, judge, owned = kj::mv(owned)]() mutable -> Connected {
            int error = 0;
            socklen_t length = sizeof error;
            if (::getsockopt(owned, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
            if (error != 0) return judge(error);
            return wrapSocket(port, kj::mv(owned));
          },
          [judge](kj::Exception&&) -> Connected { return judge(ETIMEDOUT); });
}

// Each address in turn, as long as the last one has failed.
kj::Promise<Connected> connectFrom(kj::UnixEventPort& port, std::vector<sockaddr_storage> addresses, size_t at, kj::Duration each) {
  const sockaddr_storage& address = addresses[at];
  return connectOne(port, address, each)
      .then([&port, addresses = std::move(addresses), at, each](Connected&& result) mutable -> kj::Promise<Connected> {
        if (result || at + 1 == addresses.size()) return kj::mv(result);
        return connectFrom(port, std::move(addresses), at + 1, each);
      });
}

}  // namespace

kj::Own<kj::AsyncIoStream> wrapSocket(kj::UnixEventPort& port, kj::AutoCloseFd fd) { return kj::heap<SocketStream>(port, kj::mv(fd)); }

void Refusals::add(const std::string& peer, const std::string& why) {
  ++count_;
  if (const std::string line = lines_.line("refused a connection of " + peer + ": " + why, bootTime()); !line.empty()) log::warn(line);
}

kj::Promise<Connected> connectTcp(kj::UnixEventPort& port, const Endpoint& endpoint, kj::Duration patience) {
  kj::Timer& timer = port.getTimer();
  const kj::TimePoint begun = timer.now();
  const auto failed = [endpoint](const std::string& why) {
    return Connected(Error{Code::unavailable, "connect " + fluxon::toString(endpoint) + ": looking up the name " + why});
  };
  return timer.timeoutAfter(patience, lookUpAside(endpoint))
      .then(
          [&port, &timer, begun, patience, failed](net::Addresses&& found) -> kj::Promise<Connected> {
            if (!found) return failed("gives no address: " + found.error().detail);
            const kj::Duration left = std::max(patience - (timer.now() - begun), 1 * kj::MILLISECONDS);
            const kj::Duration each = left / static_cast<int64_t>(found.value().size());
            return connectFrom(port, std::move(found).value(), 0, each);
          },
          [failed](kj::Exception&& error) -> kj::Promise<Connected> {
            const bool late = error.getType() == kj::Exception::Type::OVERLOADED;
            return failed(late ? "takes too long" : std::string("fails: ") + error.getDescription().cStr());
          });
}

Result<kj::Own<kj::AsyncIoStream>> connectUnix(kj::UnixEventPort& port, const std::string& path) {
  const Result<sockaddr_un> address = addressOf(path);
  if (!address) return address.error();
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return systemError("socket", errno);
  kj::AutoCloseFd owned(fd);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0) {
    const Error error = systemError("connect " + path, errno);
    return error.code == Code::denied ? error : Error{Code::unavailable, error.detail};
  }
  return kj::Own<kj::AsyncIoStream>(kj::heap<SocketStream>(port, kj::mv(owned)));
}

Result<kj::Own<SocketListener>> SocketListener::bindUnix(kj::UnixEventPort& port, const std::string& path, Refusals& refusals) {
  const Result<sockaddr_un> address = addressOf(path);
  if (!address) return address.error();
  shm::Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return systemError("socket", errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0)
    return systemError("bind " + path, errno);
  if (::listen(fd.get(), SOMAXCONN) != 0) return systemError("listen " + path, errno);
  return kj::heap<SocketListener>(port, std::move(fd), refusals);
}

Result<kj::Own<SocketListener>> SocketListener::bindTcp(kj::UnixEventPort& port, const Endpoint& endpoint, Refusals& refusals) {
  Result<shm::Descriptor> fd = net::listenOn(endpoint, SOCK_NONBLOCK);
  if (!fd) return fd.error();
  return kj::heap<SocketListener>(port, std::move(fd.value()), refusals);
}

SocketListener::SocketListener(kj::UnixEventPort& port, shm::Descriptor fd, Refusals& refusals)
    : port_(port), refusals_(refusals), fd_(std::move(fd)), observer_(port, fd_.get(), Observer::OBSERVE_READ) {}

uint16_t SocketListener::port() const { return net::portOf(net::boundTo(fd_.get())); }

void SocketListener::take(int fd, const std::function<void(Accepted)>& accepted) {
  kj::AutoCloseFd owned(fd);
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;  // it is gone already
  const bool unixSocket = address.ss_family == AF_UNIX;
  ucred peer{};
  length = sizeof peer;
  if (unixSocket && ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return refusals_.add("a process", std::strerror(errno));
  const std::string who =
      unixSocket ? "process " + std::to_string(peer.pid) + " of user " + std::to_string(peer.uid) : net::toString(address);
  if (isReserved(fd)) return refusals_.add(who, "no descriptor is left for it");
  if (!unixSocket) {
    tune(fd);
    return accepted({wrapSocket(port_, kj::mv(owned)), who, sourceOf(address)});
  }
  if (peer.uid != ::geteuid() && peer.uid != 0)
    return refusals_.add(who, "the socket is for user " + std::to_string(::geteuid()) + " and root");
  accepted({wrapSocket(port_, kj::mv(owned)), who, ""});
}

kj::Promise<void> SocketListener::serve(std::function<void(Accepted)> accepted) {
  const auto again = [this](std::function<void(Accepted)> to) {
    return [this, to = std::move(to)]() mutable { return serve(std::move(to)); };
  };
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int fd = ::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      take(fd, accepted);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      // Connections that wait ring no bell again.
      if (const std::string line = waits_.line(std::string("connections wait: ") + std::strerror(errno), bootTime()); !line.empty())
        log::warn(line);
      return port_.getTimer().afterDelay(100 * kj::MILLISECONDS).then(again(std::move(accepted)));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return observer_.whenBecomesReadable().then(again(std::move(accepted)));
    }
  }
  // A flood leaves time for those that are connected.
  return port_.getTimer().afterDelay(1 * kj::MILLISECONDS).then(again(std::move(accepted)));
}

}  // namespace fluxon::rpc
