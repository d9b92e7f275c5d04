// What the configuration takes from the host where the file says nothing.
#pragma once

#include <string>

#include "base/result.h"

namespace fluxon {

struct NodeName {
  std::string name;
  std::string why;  // it is not the host's name; empty: it is
};
// The host's name if that is a name of ours. One that is too long is cut and gets the hash of all of it, so that hosts which differ at
// the end alone are different nodes; one with other characters is replaced by its hash. A host without a name has that of its machine id.
NodeName nodeNameOf(const std::string& hostName, const std::string& machineId);
NodeName nodeNameOfThisHost();

// /var/lib/fluxon/CLUSTER for root, fluxon/CLUSTER below $XDG_STATE_HOME or $HOME/.local/state for others. Empty, if there is no such
// folder: what must outlive a restart has no place in /tmp, which anybody may write and which is emptied.
std::string defaultStateDir(const std::string& cluster);
// What a process says that needs one then.
Error noStateDir();

}  // namespace fluxon
