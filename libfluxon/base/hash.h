// The hash of a key: XXH3, 64 bits, no seed (it is part of the directory's format).
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <string_view>

namespace fluxon {

inline uint64_t keyHash(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }

}  // namespace fluxon
