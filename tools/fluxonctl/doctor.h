// Is this host fit for Fluxon, and what is to be done?
#pragma once

#include "options.h"

namespace fluxon::ctl {

// Exit status: 0 if no check has failed.
int doctor(const Options& options);

}  // namespace fluxon::ctl
