#include "touches.h"

#include <algorithm>

namespace fluxon::owner {
namespace {

constexpr uint32_t kVisit = 256;  // what the cache misses of a client's heads cost, in looks

}  // namespace

Touches::Touches(uint32_t slotCount, uint32_t looks, uint32_t most)
    : seen_((uint64_t{slotCount} + 63) / 64), slotCount_(slotCount), looks_(looks), most_(most) {}

Touches::Taken Touches::take(const std::vector<ClientRing*>& clients) {
  Taken taken;
  const uint32_t share = std::max(looks_ / std::max<uint32_t>(static_cast<uint32_t>(clients.size()), 1), 2 * kVisit) - kVisit;
  uint32_t left = looks_;
  for (ClientRing* const client : clients) {
    if (left < kVisit || taken.slots.size() >= most_) break;
    ++taken.clients;
    left -= kVisit;
    left -= client->takeTouches(std::min(left, share), [&](uint32_t slot) {
      if (slot >= slotCount_ || taken.slots.size() >= most_) return;
      uint64_t& bits = seen_[slot / 64];
      if ((bits >> (slot % 64) & 1) != 0) return;
      bits |= uint64_t{1} << (slot % 64);
      taken.slots.push_back(slot);
    });
  }
  for (const uint32_t slot : taken.slots) seen_[slot / 64] = 0;
  std::reverse(taken.slots.begin(), taken.slots.end());
  return taken;
}

}  // namespace fluxon::owner
