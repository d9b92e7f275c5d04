// Round-robin over a map that shares out one bounded effort: each call begins behind the entry at which the last one ended.
#pragma once

namespace fluxon::owner {

// Calls each(key, value) for the entries of a map in the order of their keys, beginning behind `after` and going round, until it says
// false or each has had its turn. The map must not change meanwhile.
template <class Map, class Each>
void inTurn(Map& map, const typename Map::key_type& after, Each each) {
  const auto first = map.upper_bound(after);
  for (auto at = first; at != map.end(); ++at) {
    if (!each(at->first, at->second)) return;
  }
  for (auto at = map.begin(); at != first; ++at) {
    if (!each(at->first, at->second)) return;
  }
}

}  // namespace fluxon::owner
