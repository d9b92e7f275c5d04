// The owner's side of hazards: which of a batch of slots some client may still be reading. Any thread; the caller keeps the
// client files mapped meanwhile. The slots' words must have been exchanged (seq_cst) before: see directory_view.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "shm/client_format.h"

namespace fluxon::shm {

// Every slot that a hazard word or a held word of one of the clients names, whatever is in it.
inline std::unordered_set<uint64_t> heldRefs(const std::vector<const ClientFile*>& clients) {
  std::unordered_set<uint64_t> refs;
  const auto look = [&](const Half& highWater, const Word* words, uint32_t count) {
    const uint32_t high = std::min(highWater.load(std::memory_order_relaxed), count);
    for (uint32_t i = 0; i < high; ++i) {
      if (const uint64_t ref = words[i].load(std::memory_order_relaxed); ref != 0) refs.insert(ref);
    }
  };
  for (const ClientFile* client : clients) {
    for (const HazardShard& shard : client->hazards) look(shard.highWater, shard.words, kHazardsPerShard);
    look(client->held.highWater, client->held.words, kHeldWords);
  }
  return refs;
}

// Marks in `held` (by index into `refs`) those that a hazard word or a held word of one of the clients names. One pass over all.
inline std::vector<bool> scanHazards(const std::vector<const ClientFile*>& clients, const std::vector<uint64_t>& refs) {
  const std::unordered_set<uint64_t> wanted(refs.begin(), refs.end());
  std::unordered_set<uint64_t> seen;
  const auto look = [&](const Half& highWater, const Word* words, uint32_t count) {
    const uint32_t high = std::min(highWater.load(std::memory_order_seq_cst), count);
    for (uint32_t i = 0; i < high; ++i) {
      const uint64_t ref = words[i].load(std::memory_order_seq_cst);
      if (ref != 0 && wanted.count(ref)) seen.insert(ref);
    }
  };
  for (const ClientFile* client : clients) {
    for (const HazardShard& shard : client->hazards) look(shard.highWater, shard.words, kHazardsPerShard);
    look(client->held.highWater, client->held.words, kHeldWords);
  }
  std::vector<bool> held(refs.size());
  for (size_t i = 0; i < refs.size(); ++i) held[i] = seen.count(refs[i]) != 0;
  return held;
}

}  // namespace fluxon::shm
