// Touches: which slots clients have read since the last heartbeat, out of the touch marks in their files. It runs on the control thread,
// so what it looks at in one call is bounded, and shared out over the clients: each gives its newest marks, up to its share. Older ones
// are passed over, as a client passes them over itself when its circle is full. Clients that a call does not come to are the first ones
// of the next.
#pragma once

#include <cstdint>
#include <vector>

#include "client_ring.h"

namespace fluxon::owner {

class Touches {
 public:
  // Slots are numbered below slotCount; what clients name beyond it is left out. A call looks at about `looks` marks, the heads of a
  // client count for some, and gives `most` slots.
  explicit Touches(uint32_t slotCount, uint32_t looks = kLooks, uint32_t most = kMost);

  struct Taken {
    std::vector<uint32_t> slots;  // oldest first, each once
    size_t clients = 0;           // those that were come to, from the front
  };
  Taken take(const std::vector<ClientRing*>& clients);

 private:
  static constexpr uint32_t kLooks = 1 << 17;  // 0.7 ms, with 250 clients that have all marked 32768
  static constexpr uint32_t kMost = 16384;
  std::vector<uint64_t> seen_;  // a bit for each slot; none is set between calls
  uint32_t slotCount_, looks_, most_;
};

}  // namespace fluxon::owner
