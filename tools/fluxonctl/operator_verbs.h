// Verbs that ask the master: for people who run a cluster.
#pragma once

#include "options.h"

namespace fluxon::ctl {

// Exit status.
int operatorVerb(const Options& options);

}  // namespace fluxon::ctl
