// ControlPort: KJ's event port of a daemon's control loop. It also measures how long the loop worked between two looks at its sockets,
// signals and timers, and the time until which the process has handled everything that was sent to it.
//
// One thread, that of the loop.
#pragma once

#include <kj/async-unix.h>

#include "base/clock.h"

namespace fluxon::rpc {

class ControlPort final : public kj::UnixEventPort {
 public:
  bool wait() override;
  bool poll() override;

  // The longest time between two looks: since the last call of takeLongest(), and since the start. Waiting for the next event does not
  // count; a stop of the process and the want of a processor do.
  Duration takeLongest();
  Duration longestEver() const { return longestEver_; }
  // The most that the thread itself computed between two looks, to some kMeasured: what remains when nobody stopped it or took its
  // processor away, and it did not sleep.
  Duration longestBusy() const { return longestBusy_; }

  // What was in a socket of this process by then has been read and handled. It follows the present only while the loop looks:
  // who needs to know looks again (Daemon::afterLook) until it has come far enough.
  Time heard() const { return heard_; }

 private:
  void looks(Time now);
  void looked();
  void countLook(Time now, bool idle);

  Time lookedAt_ = Time::never();  // when the last look ended; never: no look yet
  Duration longest_, longestEver_, longestBusy_;
  Time measuredAt_{0};  // the thread's own time was `measured_` then
  Duration measured_;
  Time heard_{0}, mark_{0};  // what came before mark_ is being read
  unsigned looksSince_ = 0;  // looks since mark_
};

}  // namespace fluxon::rpc
