// FLUXON_MARK(name): a branch that only a fault or a race leads into. It is nothing in a daemon. The simulator is built with
// FLUXON_MARKS: there it counts, and the fixed set of seeds fails when it leaves one out. Names are unique.
#pragma once

#ifdef FLUXON_MARKS

#include <cstdint>

namespace fluxon {

struct Mark {
  const char* name;
  uint64_t reached;
};

}  // namespace fluxon

#define FLUXON_MARK(text)                                                                       \
  do {                                                                                          \
    [[gnu::section("fluxon_marks"), gnu::used]] static ::fluxon::Mark fluxonMark{text, 0}; \
    ++fluxonMark.reached;                                                                       \
  } while (false)

#else
#define FLUXON_MARK(text) static_cast<void>(0)
#endif
