// crc32c (Castagnoli) of a byte range, as it goes over the wire and onto disks. Any thread.
#pragma once

#include <cstdint>

namespace fluxon {

// `before`: of the bytes that lie before these.
uint32_t crc32c(const char* data, uint64_t bytes, uint32_t before = 0);

}  // namespace fluxon
