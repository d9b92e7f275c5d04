// IoEngine over poll(): it tries each operation at its start and, if the kernel has nothing for it, again when poll() reports its socket.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "link/tcp/io_engine.h"

namespace fluxon::link::tcp {
namespace {

class PollEngine final : public IoEngine {
 public:
  bool uring() const override { return false; }
  int socketFlags() const override { return SOCK_NONBLOCK; }

  void start(Operation& op) override {
    op.inFlight = true;
    if (op.kind == Operation::Kind::accept || op.kind == Operation::Kind::wake)
      ::fcntl(op.fd, F_SETFL, ::fcntl(op.fd, F_GETFL) | O_NONBLOCK);
    const int result = op.kind == Operation::Kind::connect ? connect(op) : op.waitFirst ? -EAGAIN : attempt(op);
    if (result == -EAGAIN) {
      waiting_.push_back(&op);
    } else {
      done_.push_back({&op, result});
    }
  }

  void cancel(Operation& op) override {
    const auto at = std::find(waiting_.begin(), waiting_.end(), &op);
    if (at == waiting_.end()) return;
    waiting_.erase(at);
    done_.push_back({&op, -ECANCELED});
  }

  void wait(Time until, std::vector<Completion>& to) override {
    polled_.clear();
    for (const Operation* op : waiting_) {
      const bool writes = op->kind == Operation::Kind::send || op->kind == Operation::Kind::connect;
      polled_.push_back({op->fd, static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    }
    if (::poll(polled_.data(), polled_.size(), timeout(until)) > 0) {
      std::vector<Operation*> still;
      for (size_t i = 0; i < waiting_.size(); ++i) {
        Operation* const op = waiting_[i];
        const int result = polled_[i].revents == 0 ? -EAGAIN : op->kind == Operation::Kind::connect ? connected(*op) : attempt(*op);
        if (result == -EAGAIN) {
          still.push_back(op);
        } else {
          done_.push_back({op, result});
        }
      }
      waiting_ = std::move(still);
    }
    to.insert(to.end(), done_.begin(), done_.end());
    done_.clear();
  }

 private:
  int timeout(Time until) const {
    if (!done_.empty()) return 0;
    if (until == Time::never()) return -1;
    const int64_t left = (until - bootTime()).ns;
    return left <= 0 ? 0 : static_cast<int>(std::min<int64_t>((left + 999'999) / 1'000'000, 1'000'000));
  }
  static int resultOf(ssize_t n) { return n >= 0 ? static_cast<int>(n) : errno == EWOULDBLOCK ? -EAGAIN : -errno; }

  static int attempt(Operation& op) {
    ssize_t n;
    do {
      switch (op.kind) {
        case Operation::Kind::accept: n = ::accept4(op.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); break;
        case Operation::Kind::receive: n = ::recvmsg(op.fd, &op.message, MSG_DONTWAIT); break;
        case Operation::Kind::send: n = ::sendmsg(op.fd, &op.message, MSG_DONTWAIT | MSG_NOSIGNAL); break;
        default: n = ::read(op.fd, &op.count, sizeof op.count); break;
      }
    } while (n < 0 && errno == EINTR);
    return resultOf(n);
  }
  static int connect(Operation& op) {
    const int n = ::connect(op.fd, reinterpret_cast<const sockaddr*>(&op.address), op.addressBytes);
    return n == 0 ? 0 : errno == EINPROGRESS || errno == EINTR ? -EAGAIN : -errno;
  }
  static int connected(Operation& op) {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(op.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    return -error;
  }

  std::vector<Operation*> waiting_;
  std::vector<pollfd> polled_;
  std::vector<Completion> done_;
};

}  // namespace

std::unique_ptr<IoEngine> makePollEngine() { return std::make_unique<PollEngine>(); }

}  // namespace fluxon::link::tcp
