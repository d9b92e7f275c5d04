// Which life may follow which as owner of a node, and whose values a life has. A process that registers says which directory it has: the
// life whose values it adopts, and the lives that it has ended there or was itself. A lock or a folder proves nothing: both are names,
// which somebody can remove under a living process.
#pragma once

#include <algorithm>

#include "member.h"

namespace fluxon::master {

// The process that registers has the directory of that life: it has ended that life's lease there, or was that life itself.
inline bool vouches(const rpc::Registration& registration, Incarnation life) {
  return registration.adopts == life || std::count(registration.ends.begin(), registration.ends.end(), life) > 0;
}

// Likewise of the life that the member is. One that was never heard to serve may not stand in the directory, but who it had followed does.
inline bool succeeds(const rpc::Registration& registration, const Member& member) {
  if (vouches(registration, member.incarnation())) return true;
  const std::vector<Incarnation>& ends = member.registration().ends;
  return !member.joinedAt->has_value() &&
         std::any_of(ends.begin(), ends.end(), [&](Incarnation life) { return vouches(registration, life); });
}

// The values of that life are those of the member: its own, or those that it has listed, or was to list.
inline bool hasValuesOf(const Member& member, Incarnation life) {
  if (life == member.incarnation()) return true;
  return !member.joinedAt->has_value() && member.listing != Listing::none && vouches(member.registration(), life);
}

}  // namespace fluxon::master
