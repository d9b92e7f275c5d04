// up and down: a cluster on one host. The supervisor of a cluster holds <shm root>/<cluster>/.up/lock, which names its process.
#pragma once

#include "options.h"

namespace fluxon::ctl {

// Blocks until the cluster is stopped, with --detach until it is ready. Exit status.
int up(const Options& options);
// Stops the supervisor and waits for its end. Exit status; 0 also if there was none.
int down(const Options& options);

}  // namespace fluxon::ctl
