// Starts threads. std::thread throws where the system gives none, and what is thrown where nobody expects it ends the process without a
// line: here it is an error, which names the limits that a thread counts against.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace fluxon {

// A thread or a process that the system has refused: "fork: Resource temporarily unavailable (RLIMIT_NPROC is 10: ulimit -u, or LimitNPROC=
// of the unit)", with each limit that is set: RLIMIT_NPROC, pids.max of the control groups, and RLIMIT_AS, since a stack that is not given
// reads the same.
Error taskError(const std::string& what, int errnoValue);

template <class Body>
Result<std::thread> startThread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& refused) {
    return taskError("start a thread", refused.code().value());
  }
}

}  // namespace fluxon
