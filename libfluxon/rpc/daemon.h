// What every daemon has: a KJ loop with threads for what blocks, signals, readiness.
#pragma once

#include <kj/async.h>

#include <functional>
#include <string>

#include "base/clock.h"
#include "rpc/control_port.h"
#include "rpc/workers.h"

namespace fluxon::rpc {

// The loop looks at sockets, signals and timers after a few events at the latest, whatever else there is to do.
class Daemon {
 public:
  // Before any thread: blocks SIGTERM, SIGINT and SIGXCPU for the loop, sets umask 077, and takes as many descriptors as the system lets
  // this process have. KJ ignores SIGPIPE in this process.
  Daemon();
  ~Daemon() noexcept(false);
  KJ_DISALLOW_COPY(Daemon);

  ControlPort& port() { return port_; }
  kj::Timer& timer() { return port_.getTimer(); }
  kj::WaitScope& waitScope() { return waitScope_; }
  Workers& workers() { return *workers_; }

  // Resolves when everything that is to be done now is done, and sockets, signals and timers have been looked at: between two slices of
  // long work.
  kj::Promise<void> afterLook() { return timer().afterDelay(0 * kj::NANOSECONDS); }

  // Resolves at the first SIGTERM or SIGINT, or when RLIMIT_CPU is used up (SIGXCPU).
  kj::Promise<void> stopped();
  // What the process ends with after that: 71 if it was RLIMIT_CPU.
  int status() const { return status_; }
  kj::Promise<void> at(Time when);
  // Blocks until no work of workers() is under way: before what its functions use is destroyed. Work that a disk holds up for 3 seconds
  // ends with the process, at once: as for a kill, which may come at any time.
  void settle();

 private:
  struct Prepared {
    Prepared();
  } prepared_;
  ControlPort port_;
  kj::EventLoop loop_;
  kj::WaitScope waitScope_;
  kj::Own<Workers> workers_;
  int status_ = 0;
};

// The one place where a kj::Exception that nobody expected becomes a line on stderr and an exit status. What KJ itself logs goes to our
// log meanwhile.
int guarded(const char* process, const std::function<int()>& run);

// Tells whoever started us: NOTIFY_SOCKET (systemd), and a newline on `readyFd` (-1: none), which is closed. Who does not read its socket
// or its pipe hears of it when it does: these calls wait for it 0.1 seconds at most.
void announceReady(int readyFd, const std::string& status);
void announceStopping();

}  // namespace fluxon::rpc
