#include "base/ids.h"

#include <sys/random.h>

#include <cstdio>

#include "base/check.h"

namespace fluxon {

Incarnation newIncarnation() {
  uint64_t bits = 0;
  while (bits == 0) {
    FLUXON_CHECK(::getrandom(&bits, sizeof bits, 0) == static_cast<ssize_t>(sizeof bits), "getrandom gave too few bytes");
  }
  return Incarnation(bits);
}

std::string toString(Incarnation incarnation) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(incarnation.value));
  return text;
}

bool validName(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes || name[0] == '.') return false;
  for (const char c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    if (!good) return false;
  }
  return true;
}

}  // namespace fluxon
