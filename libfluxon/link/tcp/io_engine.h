// The one seam between the tcp link and the kernel: the link starts operations and collects completions. Two engines implement it:
// io_uring, and poll() where the kernel refuses io_uring.
//
//          start                      wait
//   idle ─────────► in flight ──────────────────► idle      the kernel may write what the operation names only in flight
//                      │ cancel: hastens the completion (-ECANCELED, or what had been done before)
//
// Invariant: wait() returns every started operation exactly once, cancelled or not. Until then its owner leaves it where it is, with
// all that it points to. Whoever hands a completion to its sink clears inFlight just before: of two completions that come together, the
// second is still in flight while the first is handled. One thread, the one that made the engine.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fluxon::link::tcp {

struct Operation;

class IoSink {
 public:
  // What the system call would have returned, errors as negative errno. A send or receive may be short.
  virtual void completed(Operation&, int result) = 0;

 protected:
  ~IoSink() = default;
};

struct Operation {
  enum class Kind { accept, connect, receive, send, wake };
  IoSink* sink = nullptr;
  Kind kind = Kind::wake;
  int fd = -1;
  bool inFlight = false;       // set by start(), cleared by who takes the completion
  bool whole = false;          // send, receive: the engine may wait for all bytes before it completes
  bool waitFirst = false;      // receive: the socket's low-water mark is to be waited for before anything is taken
  msghdr message{};            // send, receive
  sockaddr_storage address{};  // connect
  socklen_t addressBytes = 0;
  uint64_t count = 0;  // wake: the value of the eventfd
};

struct Completion {
  Operation* operation;
  int result;
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual bool uring() const = 0;
  // Flags with which sockets of this engine are made (SOCK_NONBLOCK or 0).
  virtual int socketFlags() const = 0;
  virtual void start(Operation&) = 0;
  virtual void cancel(Operation&) = 0;
  // Starts what is still to be started, blocks until there is a completion or `until`, and appends the completions.
  virtual void wait(Time until, std::vector<Completion>&) = 0;
};

// Null if the kernel refuses; `why` says so.
std::unique_ptr<IoEngine> makeUringEngine(std::string& why);
std::unique_ptr<IoEngine> makePollEngine();

}  // namespace fluxon::link::tcp
