// Absolute times in shared memory mean one moment only to processes whose CLOCK_BOOTTIME is one clock: those of one time namespace, or
// of several with the same offset (time_namespaces(7)). Whoever compares such a time with its own clock makes sure of that first.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace fluxon::shm {

// `theirs` is what `whose` read from its clock between two readings of ours. protocol: it does not lie between them, so it is another
// clock. An offset that is smaller than the time between the two may pass: see kClockSlack.
Error sameClock(const std::string& whose, Time before, Time theirs, Time after);
// Two readings so close to each other that an offset which passes between them is less than what leases have to spare.
constexpr Duration kClockSlack = milliseconds(50);

// What this process's time namespace adds to CLOCK_BOOTTIME, in ns; 0 without /proc.
int64_t bootTimeOffsetNs();

}  // namespace fluxon::shm
