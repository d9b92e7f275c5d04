// Who may follow whom as owner of a node, and whose values a life has. A process that registers says in whose directory it is: which life
// it adopts the values of, and which lives it has ended there, or was. A lock or a folder proves nothing: both are names, which can be
// removed under a process that lives.
#pragma once

#include <algorithm>

#include "member.h"

namespace fluxon::master {

// Who registers has the directory of that life: it has ended its lease there, or was it itself.
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
