// Workers: a daemon's threads for calls that may block: disks, folders, locks. They start with the daemon, so that a system without threads
// to spare refuses the start and not a later call.
//
// Invariants
//   1. A function given to run() is destroyed on the control thread, after its promise has been settled or dropped.
//   2. The destructor waits for all functions: they may use what its caller owns.
#pragma once

#include <kj/async-unix.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "shm/mapped_file.h"

namespace fluxon::rpc {

class Workers {
 public:
  // Throws a kj::Exception that names the limit: there are no threads, or no descriptor.
  explicit Workers(kj::UnixEventPort& port);
  ~Workers() noexcept(false);
  KJ_DISALLOW_COPY(Workers);

  // Runs `blocking` on one of the threads, then fulfils on the control thread. Dropping the promise does not stop the work.
  kj::Promise<void> run(std::function<void()> blocking);
  // Functions whose promises are not settled yet.
  size_t working() const { return working_; }

 private:
  struct Job {
    std::function<void()> blocking;
    kj::Own<kj::PromiseFulfiller<void>> done;
  };

  void work();
  void end();
  kj::Promise<void> reap();

  shm::Descriptor bell_;  // rung when a job is done
  kj::UnixEventPort::FdObserver observer_;
  std::mutex mutex_;  // over what follows
  std::condition_variable wake_;
  std::deque<Job> todo_;
  std::vector<Job> done_;
  bool ending_ = false;

  std::vector<std::thread> threads_;  // from here on: the control thread's
  size_t working_ = 0;
  kj::Promise<void> reaping_;
};

}  // namespace fluxon::rpc
