// The SSD tier of this host's nodes: what an ssdd shows of itself, and scrubs.
#pragma once

#include <string>
#include <vector>

#include "options.h"
#include "shm/paths.h"
#include "shm_files.h"

namespace fluxon::ctl {

// A JSON object, or lines and tables of devices and shards.
void printSsdd(const std::string& node, const SsddCopy&, Format);
// That none of these nodes has an ssdd.
Error noSsdd(const std::vector<std::string>& nodes);
// Asks the owners of those nodes that have an ssdd, one after the other; shows how far they are. Exit status: 1 if there was damage.
int scrub(const shm::Paths&, const std::vector<std::string>& nodes, const Options&);

}  // namespace fluxon::ctl
