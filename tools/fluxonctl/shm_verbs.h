// Verbs that read the files of a host in /dev/shm and need no daemon: pins, rings, stat --local.
#pragma once

#include "options.h"

namespace fluxon::ctl {

// Exit status. A damaged file is named and skipped; if no file is sound that ends the run.
int shmVerb(const Options& options);

}  // namespace fluxon::ctl
