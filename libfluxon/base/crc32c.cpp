#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace fluxon {

uint32_t crc32c(const char* data, uint64_t bytes, uint32_t before) {
  constexpr uint64_t kStep = 1 << 30;  // the library counts in int
  uint32_t crc = ~before;
  for (uint64_t at = 0; at < bytes; at += kStep) {
    const auto step = static_cast<int>(std::min(kStep, bytes - at));
    crc = ::crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(data + at)), step, crc);
  }
  return ~crc;
}

}  // namespace fluxon
