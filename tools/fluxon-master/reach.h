// Reach: between which members bytes can travel, and which members are best for a new value.
#pragma once

#include <optional>
#include <vector>

#include "membership.h"

namespace fluxon::master {

inline bool sameHost(const Member& a, const Member& b) { return a.registration().hostId == b.registration().hostId; }
// Whether bytes can travel from the source to the target.
inline bool reachable(const Member& source, const Member& target) {
  return sameHost(source, target) || !source.registration().link.empty();
}

// Members that can have a value of `asker` now, best first (placement.h). Members that are being drained are left out.
std::vector<Member*> candidates(const Membership&, const Member& asker, uint64_t extentBytes, Time now);

}  // namespace fluxon::master
