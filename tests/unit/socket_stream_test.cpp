// Streams over sockets: peers that read late, and little at a time.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <kj/async-io.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "rpc/socket_stream.h"

namespace fluxon::rpc {
namespace {

constexpr size_t kBytes = 4 << 20;

std::vector<kj::byte> pattern() {
  std::vector<kj::byte> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<kj::byte>(i * 31 + i / 4096);
  return bytes;
}

// Two ends of a connection with buffers as small as the kernel allows.
struct Pair {
  Pair(kj::UnixEventPort& port, int family) {
    int ends[2];
    if (family == AF_UNIX) {
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
      shrink(ends[0]);
      shrink(ends[1]);
    } else {
      connectTcp(ends);
    }
    one = wrapSocket(port, kj::AutoCloseFd(ends[0]));
    other = wrapSocket(port, kj::AutoCloseFd(ends[1]));
  }
  static void shrink(int fd) {
    const int least = 1;
    REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
    REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least) == 0);
  }
  static void connectTcp(int (&ends)[2]) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    shrink(listener);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    shrink(ends[0]);
    REQUIRE(::connect(ends[0], reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ends[1] = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    REQUIRE(ends[1] >= 0);
    ::close(listener);
    REQUIRE(::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
  }
  kj::Own<kj::AsyncIoStream> one, other;
};

TEST_CASE("socket stream: a peer that reads nothing for 100 ms gets all of 4 MiB, and the stream goes on") {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  for (const int family : {AF_UNIX, AF_INET}) {
    CAPTURE(family);
    Pair pair(io.unixEventPort, family);
    const std::vector<kj::byte> sent = pattern();
    std::vector<kj::byte> received(kBytes);
    // Several refusals of the kernel in one stream: each has to be waited for, and to leave nothing behind.
    auto written = pair.one->write(sent.data(), kBytes / 2).then([&] { return pair.one->write(sent.data() + kBytes / 2, kBytes / 2); });
    auto read = io.provider->getTimer().afterDelay(100 * kj::MILLISECONDS).then([&] {
      return pair.other->tryRead(received.data(), kBytes, kBytes);
    });
    size_t n = 0;
    const auto failed = kj::runCatchingExceptions([&] {
      auto both = kj::joinPromises(kj::arr(kj::mv(written), read.then([&](size_t got) { n = got; })));
      io.provider->getTimer().timeoutAfter(20 * kj::SECONDS, kj::mv(both)).wait(io.waitScope);
    });
    KJ_IF_MAYBE (error, failed) {
      FAIL(error->getDescription().cStr());
    }
    CHECK(n == kBytes);
    CHECK(received == sent);
    // The other way, on the same connection.
    char answer[3] = {};
    pair.other->write("yes", 3).wait(io.waitScope);
    CHECK(pair.one->tryRead(answer, 3, 3).wait(io.waitScope) == 3);
    CHECK(std::string(answer, 3) == "yes");
  }
}

TEST_CASE("socket stream: a write that waits for a peer ends with the peer") {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  Pair pair(io.unixEventPort, AF_UNIX);
  const std::vector<kj::byte> sent = pattern();
  auto written = pair.one->write(sent.data(), kBytes).eagerlyEvaluate(nullptr);
  CHECK(!written.poll(io.waitScope));
  pair.other = nullptr;
  const auto failed = kj::runCatchingExceptions([&] { written.wait(io.waitScope); });
  KJ_IF_MAYBE (error, failed) {
    CHECK(error->getType() == kj::Exception::Type::DISCONNECTED);
  } else {
    FAIL("the write has ended well");
  }
}

}  // namespace
}  // namespace fluxon::rpc
