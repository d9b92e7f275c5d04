// Reads small files whole, whatever is behind the name that somebody gave.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace fluxon {

// Of a pipe or a terminal what comes until its end; `system` if nothing comes for `patience`, or more than `most` bytes do.
Result<std::string> readFile(const std::string& path, uint64_t most, Duration patience);

}  // namespace fluxon
