// The simulator's time, chance and log: everything that happens in a run follows from its seed.
#pragma once

#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fluxon::sim {

// A rule that a run has broken; the text says which.
class Finding : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
template <class... Parts>
[[noreturn]] void found(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Finding(text.str());
}
#define SIM_CHECK(condition, ...) (__builtin_expect(!(condition), 0) ? ::fluxon::sim::found(__VA_ARGS__) : (void)0)

class Scheduler {
 public:
  Scheduler(uint64_t seed, bool logging) : random_(seed), logging_(logging) {}

  Time now() const { return now_; }

  // --- chance
  uint64_t pick(uint64_t below) { return random_() % below; }
  bool oneIn(uint64_t n) { return pick(n) == 0; }
  Duration upTo(Duration most) { return {static_cast<int64_t>(pick(static_cast<uint64_t>(most.ns))) + 1}; }
  Duration between(Duration least, Duration most) { return least + upTo({most.ns - least.ns}); }

  // --- time
  void at(Duration in, std::function<void()> what) {
    events_.push_back({now_ + in, ++sequence_, std::move(what)});
    std::push_heap(events_.begin(), events_.end());
  }
  Time next() const { return events_.empty() ? Time::never() : events_.front().time; }
  void advance(Time to) { now_ = std::max(now_, to); }
  // One event that is due.
  bool run() {
    if (next() > now_) return false;
    std::pop_heap(events_.begin(), events_.end());
    const std::function<void()> what = std::move(events_.back().what);
    events_.pop_back();
    digest_ = (digest_ ^ static_cast<uint64_t>(now_.ns)) * 0x100000001b3;
    what();
    return true;
  }
  uint64_t digest() const { return digest_; }

  // --- log
  bool logging() const { return logging_; }
  template <class... Parts>
  void log(const Parts&... parts) {
    if (!logging_) return;
    std::ostringstream line;
    char time[32];
    std::snprintf(time, sizeof time, "%10.6f  ", static_cast<double>(now_.ns) / 1e9 - kStart);
    line << time;
    (line << ... << parts);
    log_.push_back(line.str());
  }
  const std::vector<std::string>& lines() const { return log_; }

 private:
  struct Event {
    Time time;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  static constexpr double kStart = 100;
  std::mt19937_64 random_;
  Time now_{seconds(100).ns};
  std::vector<Event> events_;  // a heap
  uint64_t sequence_ = 0, digest_ = 0xcbf29ce484222325;
  bool logging_;
  std::vector<std::string> log_;
};

// What may be stopped, killed and started again. What was begun in one life happens in no other; what comes while it is stopped, or its
// loop is busy, is handled, in its order, when it goes on. A busy loop looks at its timers, not at what has come.
class Process {
 public:
  Process(Scheduler& scheduler, std::string name) : scheduler_(scheduler), name_(std::move(name)) {}
  virtual ~Process() = default;

  const std::string& name() const { return name_; }
  bool up() const { return up_; }
  bool stopped() const { return scheduler_.now() < stoppedUntil_; }
  uint64_t life() const { return life_; }
  // Runs in this life of the process, or never.
  void later(Duration in, std::function<void()> what) {
    scheduler_.at(in, [this, life = life_, what = std::move(what)] { handle(life, what); });
  }
  void stop(Duration howLong) {
    const Time until = scheduler_.now() + howLong;
    scheduler_.log(name_, " is stopped for ", howLong.ms(), " ms");
    // Its timers may be looked at before what has come meanwhile.
    hold(howLong + (scheduler_.oneIn(2) ? scheduler_.upTo(milliseconds(20)) : Duration{0}));
    stoppedUntil_ = std::max(stoppedUntil_, until);
  }
  void busy(Duration howLong) {
    scheduler_.log(name_, " is busy for ", howLong.ms(), " ms");
    hold(howLong);
  }
  // What comes waits.
  bool held() const { return scheduler_.now() < heldUntil_ || !heldUp_.empty(); }
  // What has come by then has been handled.
  Time heard() const { return held() ? heldFrom_ : scheduler_.now(); }

 protected:
  void begin() { up_ = true; }
  void end() {
    up_ = false;
    ++life_;
    stoppedUntil_ = heldUntil_ = Time{0};
    heldUp_.clear();
  }
  // Handles something, to its end if nothing ends the process on the way.
  virtual void perform(const std::function<void()>& what) { what(); }
  // After anything that it has handled.
  virtual void afterEvent() = 0;

  Scheduler& scheduler_;

 private:
  void handle(uint64_t life, const std::function<void()>& what) {
    if (life != life_) return;
    if (held()) return heldUp_.push_back(what);
    perform(what);
    if (life == life_) afterEvent();
  }
  void hold(Duration howLong) {
    if (!held()) heldFrom_ = scheduler_.now();
    heldUntil_ = std::max(heldUntil_, scheduler_.now() + howLong);
    scheduler_.at(howLong, [this, life = life_] { goOn(life); });
  }
  void goOn(uint64_t life) {
    while (life == life_ && scheduler_.now() >= heldUntil_ && !heldUp_.empty()) {
      const std::function<void()> what = std::move(heldUp_.front());
      heldUp_.pop_front();
      perform(what);
      if (life == life_) afterEvent();
    }
  }

  std::string name_;
  bool up_ = false;
  uint64_t life_ = 0;
  Time stoppedUntil_{0}, heldUntil_{0}, heldFrom_{0};
  std::deque<std::function<void()>> heldUp_;
};

}  // namespace fluxon::sim
