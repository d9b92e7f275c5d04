// libuv as a guest of KJ: KJ owns the control thread, and watches the backend descriptor of a uv loop beside its own. For
// blocking calls on a worker thread (work) and for child processes.
//
// Invariants
//   1. Only run() calls uv_run, on the control thread; whoever touches a uv handle pokes afterwards, since a new timer or
//      request changes what the backend descriptor can tell.
//   2. A function given to work() outlives the call: the guest owns it until its result has been delivered.
#pragma once

#include <kj/async-io.h>
#include <kj/async-unix.h>

#include <functional>

struct uv_loop_s;

namespace fluxon::rpc {

class UvGuest {
 public:
  UvGuest(kj::UnixEventPort& port, kj::Timer& timer);
  ~UvGuest() noexcept(false);
  KJ_DISALLOW_COPY(UvGuest);

  uv_loop_s* loop() { return loop_; }
  void poke();
  // Runs `blocking` on a worker thread, then fulfils on the control thread. Dropping the promise does not stop the work.
  kj::Promise<void> work(std::function<void()> blocking);
  size_t working() const { return working_; }

 private:
  kj::Promise<void> run();

  kj::Timer& timer_;
  uv_loop_s* loop_;
  kj::Own<kj::UnixEventPort::FdObserver> observer_;
  kj::Own<kj::PromiseFulfiller<void>> poked_;
  size_t working_ = 0;
  kj::Promise<void> running_;
};

}  // namespace fluxon::rpc
