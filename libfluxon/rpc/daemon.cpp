#include "rpc/daemon.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/result.h"

namespace fluxon::rpc {
namespace {

constexpr unsigned kEventsBetweenLooks = 16;
constexpr Duration kFinished = seconds(3);

}  // namespace

Daemon::Prepared::Prepared() {
  kj::UnixEventPort::captureSignal(SIGTERM);
  kj::UnixEventPort::captureSignal(SIGINT);
  kj::UnixEventPort::captureSignal(SIGXCPU);
  ::umask(0077);
  // The soft limit is for programs that call select().
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return;
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
}

Daemon::Daemon() : loop_(port_), waitScope_(loop_), workers_(kj::heap<Workers>(port_)) {
  waitScope_.setBusyPollInterval(kEventsBetweenLooks);
}
Daemon::~Daemon() noexcept(false) = default;

kj::Promise<void> Daemon::stopped() {
  auto any = port_.onSignal(SIGTERM).exclusiveJoin(port_.onSignal(SIGINT)).exclusiveJoin(port_.onSignal(SIGXCPU));
  return any.then([this](siginfo_t signal) {
    if (signal.si_signo == SIGXCPU) {
      status_ = sysexit(Code::system);
      return log::error("stopping: the time of the processor that RLIMIT_CPU allows is used up (ulimit -t, or LimitCPU= of the unit)");
    }
    log::info(std::string("stopping: ") + (signal.si_signo == SIGTERM ? "SIGTERM" : "SIGINT"));
  });
}

kj::Promise<void> Daemon::at(Time when) {
  const int64_t left = std::clamp<int64_t>((when - bootTime()).ns, 0, seconds(3600).ns);
  return timer().afterDelay(left * kj::NANOSECONDS);
}

void Daemon::finishWork() {
  const Time end = bootTime() + kFinished;
  while (workers_->working() > 0) {
    if (bootTime() >= end) {
      log::warn("a disk does not answer: what is under way ends with the process");
      log::finish();
      std::_Exit(status_);
    }
    timer().afterDelay(1 * kj::MILLISECONDS).wait(waitScope_);
  }
}

}  // namespace fluxon::rpc
