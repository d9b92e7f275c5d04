// Verbs that act as a client of the cache, through libfluxon.
#pragma once

#include "options.h"

namespace fluxon::ctl {

// Exit status.
int cacheVerb(const Options& options);

}  // namespace fluxon::ctl
