#include "rpc/workers.h"

#include <kj/debug.h>
#include <pthread.h>

#include <cerrno>
#include <utility>

#include "base/bell.h"
#include "base/thread.h"

namespace fluxon::rpc {
namespace {

constexpr int kThreads = 4;  // so many disks and folders may hang, and the next one is looked after

[[noreturn]] void refuse(const Error& error) {
  kj::throwFatalException(kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::heapString(error.detail.c_str())));
}

shm::Descriptor makeBell() {
  shm::Descriptor made(bell::make());
  if (!made) refuse(systemError("eventfd", errno));
  return made;
}

}  // namespace

Workers::Workers(kj::UnixEventPort& port)
    : bell_(makeBell()), observer_(port, bell_.get(), kj::UnixEventPort::FdObserver::OBSERVE_READ), reaping_(nullptr) {
  for (int i = 0; i < kThreads; ++i) {
    Result<std::thread> thread = startThread([this] { work(); });
    if (!thread) {
      end();
      refuse(thread.error());
    }
    threads_.push_back(std::move(thread).value());
  }
  reaping_ = reap().eagerlyEvaluate([](kj::Exception&& error) { KJ_LOG(FATAL, "workers", error); });
}

Workers::~Workers() noexcept(false) {
  reaping_ = nullptr;
  end();
}

void Workers::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& each : threads_) each.join();
}

kj::Promise<void> Workers::run(std::function<void()> blocking) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  ++working_;
  {
    const std::lock_guard lock(mutex_);
    todo_.push_back({std::move(blocking), kj::mv(paf.fulfiller)});
  }
  wake_.notify_one();
  return kj::mv(paf.promise);
}

void Workers::work() {
  ::pthread_setname_np(::pthread_self(), "worker");
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return ending_ || !todo_.empty(); });
    if (todo_.empty()) return;
    Job job = std::move(todo_.front());
    todo_.pop_front();
    lock.unlock();
    job.blocking();
    lock.lock();
    done_.push_back(std::move(job));
    bell::ring(bell_.get());
  }
}

kj::Promise<void> Workers::reap() {
  std::vector<Job> done;
  {
    const std::lock_guard lock(mutex_);
    bell::clear(bell_.get());
    done.swap(done_);
  }
  for (Job& each : done) {
    --working_;
    each.done->fulfill();
  }
  return observer_.whenBecomesReadable().then([this] { return reap(); });
}

}  // namespace fluxon::rpc
