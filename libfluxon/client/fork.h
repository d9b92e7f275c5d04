// Forks. A client belongs to the process that opened it: in a child its shared memory is the parent's.
#pragma once

#include <cstdint>

namespace fluxon::client {

// Number of forks between the first process that loaded the library and this one: what was made under another number belongs to
// an ancestor. Reads one word.
uint64_t forkGeneration();

}  // namespace fluxon::client
