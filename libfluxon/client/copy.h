// Copies of values into the segment.
#pragma once

#include <cstddef>

namespace fluxon::client {

// As memcpy. Large copies go past the caches: the value is not read again by this core, a plain copy would first fetch every
// destination line, and what the application has in its caches stays there.
void copyValue(char* to, const void* from, size_t bytes);

}  // namespace fluxon::client
