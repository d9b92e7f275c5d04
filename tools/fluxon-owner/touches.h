// Touches: collects which slots clients have read since the last heartbeat, from the touch marks in their files. It runs on the control
// thread, so one call looks at a bounded number of marks and shares that out over the clients: it takes the newest marks of each, up to
// its share, and passes over older ones, as a client does itself when its circle is full. The next call begins with the clients that this
// one has not reached.
#pragma once

#include <cstdint>
#include <vector>

#include "client_ring.h"

namespace fluxon::owner {

class Touches {
 public:
  // Slots are numbered below slotCount; take() leaves out what clients name beyond it. A call looks at about `looks` marks, where the heads
  // of a client count for some, and returns `most` slots at most.
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
