// Reach: where bytes can get from one member to another, and which members are best to have a new value.
#pragma once

#include <optional>
#include <vector>

#include "membership.h"

namespace fluxon::master {

inline bool sameHost(const Member& a, const Member& b) { return a.registration().hostId == b.registration().hostId; }
// Bytes can get from one to the other.
inline bool reachable(const Member& source, const Member& target) {
  return sameHost(source, target) || !source.registration().link.empty();
}

// Members that can have a value of `asker` now, the best first (placement.h). Those that are being drained are none.
std::vector<Member*> candidates(const Membership&, const Member& asker, uint64_t extentBytes, Time now);

}  // namespace fluxon::master
