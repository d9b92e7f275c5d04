#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fluxon {

void checkFailed(const char* file, int line, const char* condition, const char* reason) {
  std::fprintf(stderr, "fluxon: bug: %s (%s) at %s:%d\n", reason, condition, file, line);
  std::abort();
}

}  // namespace fluxon
