#include "rpc/daemon.h"

#include <kj/debug.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/result.h"

namespace fluxon::rpc {
namespace {

constexpr unsigned kEventsBetweenLooks = 16;

}  // namespace

Daemon::Prepared::Prepared() {
  kj::UnixEventPort::captureSignal(SIGTERM);
  kj::UnixEventPort::captureSignal(SIGINT);
  ::umask(0077);
  // The soft limit is for programs that call select().
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return;
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
}

Daemon::Daemon() : loop_(port_), waitScope_(loop_), uv_(kj::heap<UvGuest>(port_, port_.getTimer())) {
  waitScope_.setBusyPollInterval(kEventsBetweenLooks);
}
Daemon::~Daemon() noexcept(false) = default;

kj::Promise<void> Daemon::stopped() {
  return port_.onSignal(SIGTERM).exclusiveJoin(port_.onSignal(SIGINT)).then([](siginfo_t signal) {
    log::info(std::string("stopping: ") + (signal.si_signo == SIGTERM ? "SIGTERM" : "SIGINT"));
  });
}

kj::Promise<void> Daemon::at(Time when) {
  const int64_t left = std::clamp<int64_t>((when - bootTime()).ns, 0, seconds(3600).ns);
  return timer().afterDelay(left * kj::NANOSECONDS);
}

void Daemon::settle() {
  while (uv_->working() > 0) timer().afterDelay(1 * kj::MILLISECONDS).wait(waitScope_);
}

int guarded(const char* process, const std::function<int()>& run) {
  int status = 70;
  KJ_IF_MAYBE(error, kj::runCatchingExceptions([&] { status = run(); })) {
    const Code code = error->getType() == kj::Exception::Type::DISCONNECTED ? Code::unavailable : Code::system;
    std::fprintf(stderr, "%s: %s: %s\n", process, sentence(code), error->getDescription().cStr());
    return sysexit(code);
  }
  return status;
}

void announceReady(int readyFd, const std::string& status) {
  ::sd_notify(0, ("READY=1\nSTATUS=" + status).c_str());
  if (readyFd >= 0) {
    if (::write(readyFd, "\n", 1) != 1) log::warn("could not report readiness on descriptor " + std::to_string(readyFd));
    ::close(readyFd);
  }
}
void announceStopping() { ::sd_notify(0, "STOPPING=1"); }

}  // namespace fluxon::rpc
