#include "rpc/uv_guest.h"

#include <kj/debug.h>
#include <uv.h>

#include <memory>

namespace fluxon::rpc {
namespace {

struct Job {
  uv_work_t request;
  std::function<void()> blocking;
  kj::Own<kj::PromiseFulfiller<void>> done;
  size_t* working;
};

}  // namespace

UvGuest::UvGuest(kj::UnixEventPort& port, kj::Timer& timer) : timer_(timer), loop_(new uv_loop_t), running_(nullptr) {
  KJ_REQUIRE(uv_loop_init(loop_) == 0, "uv_loop_init");
  observer_ = kj::heap<kj::UnixEventPort::FdObserver>(port, uv_backend_fd(loop_), kj::UnixEventPort::FdObserver::OBSERVE_READ);
  running_ = run().eagerlyEvaluate([](kj::Exception&& error) { KJ_LOG(FATAL, "the libuv guest stopped", error); });
}

UvGuest::~UvGuest() noexcept(false) {
  running_ = nullptr;
  observer_ = nullptr;
  // Work that still runs is waited for: its functions may use what its caller owns.
  while (uv_loop_close(loop_) == UV_EBUSY) {
    uv_walk(
        loop_,
        [](uv_handle_t* handle, void*) {
          if (!uv_is_closing(handle)) uv_close(handle, nullptr);
        },
        nullptr);
    uv_run(loop_, UV_RUN_ONCE);
  }
  delete loop_;
}

void UvGuest::poke() {
  if (poked_.get() != nullptr) poked_->fulfill();
}

kj::Promise<void> UvGuest::run() {
  uv_run(loop_, UV_RUN_NOWAIT);
  auto paf = kj::newPromiseAndFulfiller<void>();
  poked_ = kj::mv(paf.fulfiller);
  kj::Promise<void> next = observer_->whenBecomesReadable().exclusiveJoin(kj::mv(paf.promise));
  // A loop without anything alive says "0 ms": it would return at once, where we have nothing to wait for.
  const int timeoutMs = uv_loop_alive(loop_) ? uv_backend_timeout(loop_) : -1;
  if (timeoutMs >= 0) next = next.exclusiveJoin(timer_.afterDelay(timeoutMs * kj::MILLISECONDS));
  return next.then([this] { return run(); });
}

kj::Promise<void> UvGuest::work(std::function<void()> blocking) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  Job* job = new Job{{}, std::move(blocking), kj::mv(paf.fulfiller), &working_};
  job->request.data = job;
  ++working_;
  const int error = uv_queue_work(
      loop_, &job->request, [](uv_work_t* request) { static_cast<Job*>(request->data)->blocking(); },
      [](uv_work_t* request, int) {
        const std::unique_ptr<Job> finished(static_cast<Job*>(request->data));
        --*finished->working;
        finished->done->fulfill();
      });
  KJ_REQUIRE(error == 0, "uv_queue_work", error);
  poke();
  return kj::mv(paf.promise);
}

}  // namespace fluxon::rpc
