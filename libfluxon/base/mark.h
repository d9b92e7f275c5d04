// FLUXON_MARK(name): a branch that only a fault or a race leads into. It is nothing in a daemon. The simulator is built with
// FLUXON_MARKS: there it counts, and the fixed set of seeds fails when it leaves one out. Names are unique.
// FLUXON_MAY_END(): a moment before a store into memory that outlives the process. It is nothing in a daemon. The simulator ends the
// process there, when it has asked for that, so that its next life finds what was stored and nothing of what was to follow.
#pragma once

#ifdef FLUXON_MARKS

#include <cstdint>

namespace fluxon {

// Thrown at the moment that endAfter counts down to; below 0: at none.
struct EndedHere {};
inline thread_local int64_t endAfter = -1;

struct Mark {
  const char* name;
  uint64_t reached;
};

}  // namespace fluxon

#define FLUXON_MARK(text)                                                                  \
  do {                                                                                     \
    [[gnu::section("fluxon_marks"), gnu::used]] static ::fluxon::Mark fluxonMark{text, 0}; \
    ++fluxonMark.reached;                                                                  \
  } while (false)

#define FLUXON_MAY_END()                                                                   \
  do {                                                                                     \
    if (::fluxon::endAfter >= 0 && ::fluxon::endAfter-- == 0) throw ::fluxon::EndedHere{}; \
  } while (false)

#else
#define FLUXON_MARK(text) static_cast<void>(0)
#define FLUXON_MAY_END() static_cast<void>(0)
#endif
