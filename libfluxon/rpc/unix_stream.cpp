#include "rpc/unix_stream.h"

#include <errno.h>
#include <kj/debug.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace fluxon::rpc {
namespace {

using Observer = kj::UnixEventPort::FdObserver;

class UnixStream final : public kj::AsyncIoStream {
 public:
  UnixStream(kj::UnixEventPort& port, kj::AutoCloseFd fd)
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
        if (errno == ECONNRESET || errno == EPIPE) return KJ_EXCEPTION(DISCONNECTED, "the peer is gone");
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
        if (errno == ECONNRESET || errno == EPIPE) return KJ_EXCEPTION(DISCONNECTED, "the peer is gone");
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
    return promise.attach(kj::mv(observer), kj::mv(watched));
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

}  // namespace

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
  return kj::Own<kj::AsyncIoStream>(kj::heap<UnixStream>(port, kj::mv(owned)));
}

Result<kj::Own<UnixListener>> UnixListener::bind(kj::UnixEventPort& port, kj::Timer& timer, const std::string& path) {
  const Result<sockaddr_un> address = addressOf(path);
  if (!address) return address.error();
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return systemError("socket", errno);
  kj::AutoCloseFd owned(fd);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0) return systemError("bind " + path, errno);
  if (::listen(fd, SOMAXCONN) != 0) return systemError("listen " + path, errno);
  return kj::heap<UnixListener>(port, timer, kj::mv(owned));
}

UnixListener::UnixListener(kj::UnixEventPort& port, kj::Timer& timer, kj::AutoCloseFd fd)
    : port_(port), timer_(timer), fd_(kj::mv(fd)), observer_(port, fd_, Observer::OBSERVE_READ) {}

kj::Promise<void> UnixListener::serve(std::function<void(kj::Own<kj::AsyncIoStream>)> accepted) {
  for (;;) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      accepted(kj::heap<UnixStream>(port_, kj::AutoCloseFd(fd)));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      // Connections that wait ring no bell again.
      return timer_.afterDelay(100 * kj::MILLISECONDS).then([this, accepted = std::move(accepted)]() mutable {
        return serve(std::move(accepted));
      });
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return observer_.whenBecomesReadable().then([this, accepted = std::move(accepted)]() mutable { return serve(std::move(accepted)); });
    }
  }
}

}  // namespace fluxon::rpc
