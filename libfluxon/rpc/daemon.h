// What every daemon has: a KJ loop with threads for what blocks, and signals.
#pragma once

#include <kj/async.h>

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
  void finishWork();

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

}  // namespace fluxon::rpc
