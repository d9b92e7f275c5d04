#include "rpc/control_port.h"

#include <algorithm>
#include <utility>

namespace fluxon::rpc {
namespace {

constexpr Duration kMeasured = milliseconds(10);
// KJ takes 16 events at a look, the rest stays in line: so many looks have seen what 1024 sockets had.
constexpr unsigned kLooks = 64;
// A loop that is never idle has by then handled everything that was asked of it before.
constexpr Duration kTurnedOver = seconds(1);

Duration threadTime() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return {now.tv_sec * 1'000'000'000 + now.tv_nsec};
}

}  // namespace

bool ControlPort::wait() {
  const Time now = bootTime();
  looks(now);
  countLook(now, true);
  const bool woken = UnixEventPort::wait();
  looked();
  return woken;
}

bool ControlPort::poll() {
  const Time now = bootTime();
  looks(now);
  countLook(now, false);
  const bool woken = UnixEventPort::poll();
  looked();
  return woken;
}

Duration ControlPort::takeLongest() { return std::exchange(longest_, {}); }

void ControlPort::looks(Time now) {
  if (lookedAt_ == Time::never()) return;
  const Duration worked = now - lookedAt_;
  longest_ = std::max(longest_, worked);
  longestEver_ = std::max(longestEver_, worked);
  if (worked >= kMeasured) longestBusy_ = std::max(longestBusy_, std::min(worked, Duration{threadTime().ns - measured_.ns}));
}

void ControlPort::looked() {
  lookedAt_ = bootTime();
  if (lookedAt_ - measuredAt_ < kMeasured) return;
  measuredAt_ = lookedAt_;
  measured_ = threadTime();
}

// A loop that waits has done all that earlier looks have brought.
void ControlPort::countLook(Time now, bool idle) {
  if (++looksSince_ <= kLooks || (!idle && now - mark_ < kTurnedOver)) return;
  heard_ = mark_;
  mark_ = now;
  looksSince_ = 0;
}

}  // namespace fluxon::rpc
