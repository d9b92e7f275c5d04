// IoEngine over one io_uring. Its sockets block, so that the kernel waits for readiness itself, and with `whole` until all bytes have
// been moved.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "link/tcp/io_engine.h"

namespace fluxon::link::tcp {
namespace {

constexpr unsigned kEntries = 256;
// Makes the kernel collect completions when this thread asks for them and not by interrupting it; kernels before 6.1 know neither.
constexpr unsigned kCheapest = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;

class UringEngine final : public IoEngine {
 public:
  ~UringEngine() override {
    if (made_) ::io_uring_queue_exit(&ring_);
  }

  // 0 or negative errno.
  int open() {
    int result = ::io_uring_queue_init(kEntries, &ring_, kCheapest);
    if (result == -EINVAL) result = ::io_uring_queue_init(kEntries, &ring_, 0);
    made_ = result == 0;
    constexpr unsigned kNeeded = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if (made_ && (ring_.features & kNeeded) != kNeeded) return -ENOSYS;
    return made_ ? tryOut() : result;
  }

  bool uring() const override { return true; }
  int socketFlags() const override { return 0; }

  void start(Operation& op) override {
    io_uring_sqe* const sqe = entry();
    const unsigned whole = op.whole ? MSG_WAITALL : 0;
    switch (op.kind) {
      case Operation::Kind::accept: ::io_uring_prep_accept(sqe, op.fd, nullptr, nullptr, SOCK_CLOEXEC); break;
      case Operation::Kind::connect:
        ::io_uring_prep_connect(sqe, op.fd, reinterpret_cast<const sockaddr*>(&op.address), op.addressBytes);
        break;
      case Operation::Kind::receive:
        ::io_uring_prep_recvmsg(sqe, op.fd, &op.message, whole);
        if (op.waitFirst) sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
        break;
      case Operation::Kind::send: ::io_uring_prep_sendmsg(sqe, op.fd, &op.message, whole | MSG_NOSIGNAL); break;
      case Operation::Kind::wake: ::io_uring_prep_read(sqe, op.fd, &op.count, sizeof op.count, 0); break;
    }
    ::io_uring_sqe_set_data(sqe, &op);
    op.inFlight = true;
  }

  void cancel(Operation& op) override {
    if (!op.inFlight) return;
    io_uring_sqe* const sqe = entry();
    ::io_uring_prep_cancel(sqe, &op, 0);
    ::io_uring_sqe_set_data(sqe, nullptr);
  }

  void wait(Time until, std::vector<Completion>& to) override {
    io_uring_cqe* first = nullptr;
    int result;
    if (until == Time::never()) {
      result = ::io_uring_submit_and_wait(&ring_, 1);
    } else {
      const int64_t left = std::max<int64_t>(0, (until - bootTime()).ns);
      __kernel_timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
      result = ::io_uring_submit_and_wait_timeout(&ring_, &first, 1, &timeout, nullptr);
    }
    FLUXON_CHECK(result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM,
                 "io_uring_enter failed");
    unsigned head, seen = 0;
    io_uring_cqe* cqe;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      ++seen;
      auto* const op = static_cast<Operation*>(::io_uring_cqe_get_data(cqe));
      if (op) to.push_back({op, cqe->res});
    }
    ::io_uring_cq_advance(&ring_, seen);
  }

 private:
  // A filter may let a ring be made and refuse what it is for.
  int tryOut() {
    io_uring_cqe* done = nullptr;
    ::io_uring_prep_nop(entry());
    int result = ::io_uring_submit_and_wait(&ring_, 1);
    if (result >= 0) result = ::io_uring_peek_cqe(&ring_, &done);
    if (result < 0) return result;
    ::io_uring_cqe_seen(&ring_, done);
    return 0;
  }

  io_uring_sqe* entry() {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    while (!sqe) {
      ::io_uring_submit(&ring_);
      sqe = ::io_uring_get_sqe(&ring_);
    }
    return sqe;
  }

  io_uring ring_{};
  bool made_ = false;
};

}  // namespace

std::unique_ptr<IoEngine> makeUringEngine(std::string& why) {
  auto engine = std::make_unique<UringEngine>();
  const int result = engine->open();
  if (result == 0) return engine;
  why = std::strerror(-result);
  return nullptr;
}

}  // namespace fluxon::link::tcp
