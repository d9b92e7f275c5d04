#include "rpc/daemon.h"

#include <kj/debug.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>

#include "base/log.h"
#include "base/result.h"
#include "base/thread.h"

namespace fluxon::rpc {
namespace {

constexpr unsigned kEventsBetweenLooks = 16;
constexpr Duration kSettled = seconds(3);
constexpr auto kHeard = std::chrono::milliseconds(100);

// KJ would write to stderr itself, and wait for it.
class KjLog final : public kj::ExceptionCallback {
 public:
  void logMessage(kj::LogSeverity severity, const char* file, int line, int, kj::String&& text) override {
    const std::string said = std::string(text.cStr()) + " (" + file + ":" + std::to_string(line) + ")";
    if (severity <= kj::LogSeverity::INFO) return log::info(said);
    severity == kj::LogSeverity::WARNING ? log::warn(said) : log::error(said);
  }
};

// On a thread, which is waited for a moment, so that what comes next is heard after it.
void tell(const std::function<void()>& say) {
  auto heard = std::make_shared<std::promise<void>>();
  std::future<void> future = heard->get_future();
  Result<std::thread> thread = startThread([heard, say] {
    say();
    heard->set_value();
  });
  if (!thread) return say();  // late is better than never
  thread->detach();
  future.wait_for(kHeard);
}

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

void Daemon::settle() {
  const Time end = bootTime() + kSettled;
  while (workers_->working() > 0) {
    if (bootTime() >= end) {
      log::warn("a disk does not answer: what is under way ends with the process");
      log::finish();
      std::_Exit(status_);
    }
    timer().afterDelay(1 * kj::MILLISECONDS).wait(waitScope_);
  }
}

int guarded(const char* process, const std::function<int()>& run) {
  int status = 70;
  const KjLog kjLog;
  KJ_IF_MAYBE (error, kj::runCatchingExceptions([&] { status = run(); })) {
    const Code code = error->getType() == kj::Exception::Type::DISCONNECTED ? Code::unavailable : Code::system;
    std::string detail = error->getDescription().cStr();
    if (detail.ends_with(std::strerror(EMFILE))) detail += limitBehind(EMFILE);  // of a system call that KJ made
    log::last(std::string(process) + ": " + Error{code, detail}.message());
    return sysexit(code);
  }
  log::finish();
  return status;
}

void announceReady(int readyFd, const std::string& status) {
  tell([readyFd, status] {
    log::finish();  // what the log says of the start is there when somebody is told that it is over
    ::sd_notify(0, ("READY=1\nSTATUS=" + status).c_str());
    if (readyFd < 0) return;
    if (::write(readyFd, "\n", 1) != 1) log::warn("could not report readiness on descriptor " + std::to_string(readyFd));
    ::close(readyFd);
  });
}
void announceStopping() {
  tell([] { ::sd_notify(0, "STOPPING=1"); });
}

}  // namespace fluxon::rpc
