// Verbs about the nodes of this host. All but scrub read files in /dev/shm alone and need no daemon.
#pragma once

#include "options.h"

namespace fluxon::ctl {

// Exit status. A damaged file is named and skipped; if no file is sound that ends the run.
int shmVerb(const Options& options);

}  // namespace fluxon::ctl
