// crc32c (Castagnoli) of a byte range, as it goes over the wire. Any thread.
#pragma once

#include <cstdint>

namespace fluxon::link {

uint32_t crc32c(const char* data, uint64_t bytes);

}  // namespace fluxon::link
