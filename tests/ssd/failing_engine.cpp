#include "failing_engine.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"

namespace fluxon::ssdd {

FailingEngine::FailingEngine(FileEngine& inner) : inner_(inner) {}

FailingEngine::~FailingEngine() {
  std::vector<Completion> nobodys;
  close(nobodys);
  if (epoll_ >= 0) ::close(epoll_);
  if (timer_ >= 0) ::close(timer_);
}

void FailingEngine::failNext(Direction direction, Fault fault) {
  (direction == Direction::read ? readFaults_ : writeFaults_).push_back(fault);
}

void FailingEngine::reorder(uint64_t seed, size_t window) {
  random_.emplace(seed);
  window_ = window;
}

bool FailingEngine::submit(const Request& request) {
  auto& faults = request.direction == Direction::read ? readFaults_ : writeFaults_;
  const Fault fault = faults.empty() ? Fault{} : faults.front();
  if (fault.error != 0 && fault.bytes == 0) {
    held_.push_back({{request.tag, 0, fault.error}, bootTime() + fault.delay, request.direction == Direction::read});
    setTimer();
  } else {
    Request part = request;
    part.tag = nextTag_;
    std::vector<iovec> parts(request.parts.begin(), request.parts.end());
    if (fault.error != 0) {  // only its beginning is done
      uint64_t left = fault.bytes;
      const auto cut = [&](iovec& each) { left -= each.iov_len = std::min<uint64_t>(each.iov_len, left); };
      cut(parts.empty() ? part.buffer : parts.front());
      for (size_t i = 1; i < parts.size(); ++i) cut(parts[i]);
      std::erase_if(parts, [](const iovec& each) { return each.iov_len == 0; });
    }
    part.parts = parts;
    if (!inner_.submit(part)) return false;
    pending_[nextTag_++] = {request.tag, fault, request.direction == Direction::read};
  }
  if (!faults.empty()) faults.pop_front();
  reads_ += request.direction == Direction::read;
  mostReads_ = std::max<size_t>(mostReads_, reads_);
  return true;
}

void FailingEngine::cancel(uint64_t tag) {
  for (const auto& [ours, each] : pending_) {
    if (each.tag == tag) inner_.cancel(ours);
  }
}

void FailingEngine::hold(const std::vector<Completion>& fromInner) {
  for (const Completion& each : fromInner) {
    const auto at = pending_.find(each.tag);
    FLUXON_CHECK(at != pending_.end(), "a completion that nobody waits for");
    const auto& [tag, fault, read] = at->second;
    held_.push_back({{tag, each.bytes, each.error != 0 ? each.error : fault.error}, bootTime() + fault.delay, read});
    pending_.erase(at);
  }
}

size_t FailingEngine::due(Time now) const {
  return static_cast<size_t>(std::count_if(held_.begin(), held_.end(), [&](const Held& each) { return each.due <= now; }));
}

Time FailingEngine::nextDue(Time after) const {
  Time first = Time::never();
  for (const Held& each : held_) {
    if (each.due > after) first = std::min(first, each.due);
  }
  return first;
}

void FailingEngine::wait(size_t count, Time until, std::vector<Completion>& to) {
  const size_t wanted = count == 0 ? 0 : std::min(std::max(count, window_), pending());
  Time now = bootTime();
  for (;;) {
    const bool blocks = due(now) < wanted && inner_.pending() > 0;
    std::vector<Completion> fromInner;
    inner_.wait(blocks ? 1 : 0, std::min(until, nextDue(now)), fromInner);
    hold(fromInner);
    now = bootTime();
    if (due(now) >= wanted || now >= until) break;
    if (inner_.pending() == 0) std::this_thread::sleep_for(std::chrono::nanoseconds((std::min(until, nextDue(now)) - now).ns));
  }
  if (random_) std::shuffle(held_.begin(), held_.end(), *random_);
  if (due(now) >= window_ || inner_.pending() == 0) {
    std::erase_if(held_, [&](const Held& each) {
      if (each.due > now) return false;
      to.push_back(each.completion);
      reads_ -= each.read;
      return true;
    });
  }
  setTimer();
}

void FailingEngine::close(std::vector<Completion>& to) {
  std::vector<Completion> fromInner;
  inner_.close(fromInner);
  hold(fromInner);
  wait(held_.size(), Time::never(), to);
}

int FailingEngine::eventFd() {
  if (epoll_ < 0) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    timer_ = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    for (const int fd : {inner_.eventFd(), timer_}) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      FLUXON_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0, "epoll of a failing engine");
    }
    setTimer();
  }
  return epoll_;
}

void FailingEngine::setTimer() {
  if (timer_ < 0) return;
  itimerspec at{};
  if (!held_.empty()) {
    const int64_t ns = std::max<int64_t>(1, nextDue(Time{}).ns);
    at.it_value = {ns / 1'000'000'000, ns % 1'000'000'000};
  }
  ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &at, nullptr);  // also clears it
}

}  // namespace fluxon::ssdd
