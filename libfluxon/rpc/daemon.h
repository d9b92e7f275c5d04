// What every daemon has: a KJ loop with a libuv guest, signals, readiness, and /metrics and /health over HTTP.
#pragma once

#include <kj/async-io.h>
#include <kj/async-unix.h>

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/config.h"
#include "base/result.h"
#include "rpc/uv_guest.h"

namespace fluxon::rpc {

// Blocks SIGTERM, SIGINT for the loop and sets umask 077; before any thread. KJ ignores SIGPIPE in this process.
class Daemon {
 public:
  Daemon();

  kj::AsyncIoContext& io() { return io_; }
  kj::Timer& timer() { return io_.provider->getTimer(); }
  kj::WaitScope& waitScope() { return io_.waitScope; }
  UvGuest& uv() { return *uv_; }

  // Resolves at the first SIGTERM or SIGINT.
  kj::Promise<void> stopped();
  kj::Promise<void> at(Time when);
  // Blocks until no work of uv() is under way: before what its functions use is destroyed.
  void settle();

 private:
  kj::AsyncIoContext io_;
  kj::Own<UvGuest> uv_;
};

// The one place where a kj::Exception that nobody expected becomes a line on stderr and an exit status.
int guarded(const char* process, const std::function<int()>& run);

// Tells whoever started us: NOTIFY_SOCKET (systemd), and a newline on `readyFd` (-1: none), which is closed.
void announceReady(int readyFd, const std::string& status);
void announceStopping();

// /metrics and /health. Answers while the process's control thread runs.
class HttpEndpoint {
 public:
  struct Pages {
    std::function<std::string()> metrics;
    std::function<std::string(bool& healthy)> health;  // JSON; 200 if healthy, else 503
  };
  HttpEndpoint(Daemon&, Pages);
  ~HttpEndpoint() noexcept(false);
  // Binds; "" when off, else the address with its port. `unavailable` says who is asked to give way.
  kj::Promise<Result<std::string>> listen(const Endpoint&);

 private:
  struct State;
  kj::Own<State> state_;
};

}  // namespace fluxon::rpc
