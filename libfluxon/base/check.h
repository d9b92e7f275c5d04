// FLUXON_CHECK: our own state is inconsistent. Prints the reason and aborts; the supervisor restarts the process and
// its incarnation fences the past. Never for bytes that came from a peer, a disk or shared memory: those are errors.
#pragma once

namespace fluxon {
[[noreturn]] void checkFailed(const char* file, int line, const char* condition, const char* reason);
}

#define FLUXON_CHECK(condition, reason) \
  (__builtin_expect(!(condition), 0) ? ::fluxon::checkFailed(__FILE__, __LINE__, #condition, reason) : (void)0)
