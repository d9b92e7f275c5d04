// Preloaded into a process: each of its sockets gets buffers of a few KiB, so that every message of some size meets a full one. Sockets
// that io_uring accepts have those of their listener.
#include <dlfcn.h>
#include <sys/socket.h>

namespace {

// A tcp window below these makes the kernel wait for timers.
constexpr int kUnixBytes = 2048, kTcpBytes = 16 * 1024;

int shrunk(int fd) {
  if (fd < 0) return fd;
  int family = AF_UNIX;
  socklen_t length = sizeof family;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
  const int bytes = family == AF_UNIX ? kUnixBytes : kTcpBytes;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  return fd;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int socket(int domain, int type, int protocol) noexcept {
  static auto* const original = next<int(int, int, int)>("socket");
  return shrunk(original(domain, type, protocol));
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  static auto* const original = next<int(int, sockaddr*, socklen_t*, int)>("accept4");
  return shrunk(original(fd, address, length, flags));
}
}
