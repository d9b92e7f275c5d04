// Plain blocking sockets that do the work of a link: who wants a value asks for it with 16 bytes; the source sends pieces of
// kPiece, each behind a header with its length and crc32c, and who wants it checks the checksum. A connection has one thread on each side.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "measure.h"

namespace fluxon::bench {

constexpr uint64_t kPiece = 1 << 20;  // as the link's own

[[noreturn]] inline void fail(const char* what) {
  std::perror(what);
  std::_Exit(71);
}

// Shared memory of this process and its children, all of whose pages are there.
inline char* populated(uint64_t bytes) {
  void* const map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (map == MAP_FAILED) fail("mmap");
  std::memset(map, 1, bytes);
  return static_cast<char*>(map);
}

struct PieceHeader {
  uint64_t length;
  uint64_t crc;
};

// Ends the process when the other side has closed.
inline void all(ssize_t (*call)(int, void*, size_t, int), int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = call(fd, static_cast<char*>(data) + done, bytes - done, MSG_WAITALL | MSG_NOSIGNAL);
    if (n == 0) std::_Exit(0);
    if (n < 0) fail("plain socket");
    done += static_cast<size_t>(n);
  }
}

// `congestion` empty: the kernel's own choice.
inline int tcpSocket(const std::string& congestion) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto bytes = static_cast<socklen_t>(congestion.size());
  if (bytes > 0 && ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), bytes) != 0) fail("congestion control");
  return fd;
}

inline std::string congestionOf(int fd) {
  char name[16] = {};
  socklen_t bytes = sizeof name - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0) fail("congestion control");
  return name;
}

// --- source

// The values that are asked for lie at `values`.
[[noreturn]] inline void servePlain(int fd, const char* values) {
  for (uint64_t asked[2];;) {
    all(::recv, fd, asked, sizeof asked);
    for (uint64_t at = 0; at < asked[1]; at += kPiece) {
      const char* const from = values + asked[0] + at;
      PieceHeader header{std::min(kPiece, asked[1] - at), 0};
      header.crc = crc32c(from, header.length);
      iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(from), header.length}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
      if (n != static_cast<ssize_t>(sizeof header + header.length)) std::_Exit(0);
    }
  }
}

// A socket that listens on the loopback, and its port.
inline int listenPlain(const std::string& congestion, uint16_t& port) {
  const int listener = tcpSocket(congestion);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&at), bytes) != 0 || ::listen(listener, 16) != 0) fail("listen");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &bytes);
  port = ntohs(at.sin_port);
  return listener;
}

[[noreturn]] inline void acceptPlain(int listener, const char* values) {
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::thread(servePlain, fd, values).detach();
  }
}

// A child process that serves `bytes` of its own until it is destroyed. To be made before this process has threads.
class PlainSource {
 public:
  explicit PlainSource(uint64_t bytes) {
    const int listener = listenPlain("", port_);
    child_ = ::fork();
    if (child_ < 0) fail("fork");
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      acceptPlain(listener, populated(bytes));
    }
    ::close(listener);
  }
  PlainSource(const PlainSource&) = delete;
  ~PlainSource() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  uint16_t port() const { return port_; }

 private:
  pid_t child_ = -1;
  uint16_t port_ = 0;
};

// --- target

inline int connectPlain(uint16_t port, const std::string& congestion) {
  const int fd = tcpSocket(congestion);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(port);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) fail("connect");
  return fd;
}

inline void askPlain(int fd, uint64_t offset, uint64_t size) {
  uint64_t asked[2] = {offset, size};
  all([](int to, void* data, size_t bytes, int flags) { return ::send(to, data, bytes, flags); }, fd, asked, sizeof asked);
}

inline void receivePlain(int fd, char* to, uint64_t size) {
  for (uint64_t at = 0; at < size; at += kPiece) {
    PieceHeader header;
    all(::recv, fd, &header, sizeof header);
    all(::recv, fd, to + at, header.length);
    if (crc32c(to + at, header.length) != header.crc) fail("wrong checksum");
  }
}

}  // namespace fluxon::bench
