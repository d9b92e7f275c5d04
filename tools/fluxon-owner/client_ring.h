// ClientRing: the owner's end of one client's file: commands out of its ring, answers back into their slots, held words, touches.
// The client may write any byte of the file at any moment, so nothing in it is believed.
//
// Invariants
//   1. What a client wrote is copied once and then checked; a command that does not hold together is answered `protocol`.
//   2. A command slot is run at most once between two answers, whatever the ring says.
//   3. Nothing outside of the file is read or written on the word of the client.
// One thread (the control thread).
#pragma once

#include <algorithm>
#include <cstdint>

#include "owner_core.h"
#include "shm/client_format.h"

namespace fluxon::owner {

// What a caller that has given up still wants done: it has parted with a grant. A commit that nobody waits for any more gives its
// grant back. False: nothing.
bool afterwards(shm::CommandKind&);

class ClientRing {
 public:
  // Over a file that the owner has laid out, and keeps mapped; touches that are in it already count as seen.
  explicit ClientRing(shm::ClientFile&);

  // The next command and its slot. over: one that nobody waits for any more, and of which nothing is to be done; refused: what came
  // made no sense. Both are answered already, if they had a slot.
  enum class Next { nothing, command, over, refused };
  Next next(uint32_t& slot, Command&);
  bool more() const;
  // False: the caller has given up, or has spoilt its slot; what the answer grants must be undone (a hold is none then).
  bool answer(uint32_t slot, const Answer&);

  // Held words in use.
  size_t held() const;
  // Calls each(slot of the directory) for what the client has read since the last call: of each shard the newest ones first, `most`
  // in all, shared out over the shards; the rest counts as seen. The numbers are the client's. How many there were.
  template <class Each>
  uint32_t takeTouches(uint32_t most, Each each) {
    uint64_t heads[shm::kTouchShards];
    uint32_t fresh[shm::kTouchShards], busy = 0, left = most;
    for (uint32_t s = 0; s < shm::kTouchShards; ++s) {
      heads[s] = file_.touches[s].head.load(std::memory_order_acquire);
      fresh[s] = static_cast<uint32_t>(std::min<uint64_t>(heads[s] - touchesSeen_[s], shm::kTouchesPerShard));
      touchesSeen_[s] = heads[s];
      busy += fresh[s] != 0;
    }
    for (uint32_t s = 0; s < shm::kTouchShards; ++s) {
      if (fresh[s] == 0) continue;
      const uint32_t count = std::min(fresh[s], left / busy--);
      for (uint64_t i = 1; i <= count; ++i)
        each(file_.touches[s].slots[(heads[s] - i) % shm::kTouchesPerShard].load(std::memory_order_relaxed));
      left -= count;
    }
    return most - left;
  }

 private:
  uint32_t hold(uint64_t slotRef);

  shm::ClientFile& file_;
  uint32_t head_;  // of the ring; the one in the file is for the client to see
  bool running_[shm::kCommandSlots] = {};
  uint64_t touchesSeen_[shm::kTouchShards] = {};
  uint32_t nextHeld_ = 0;
};

}  // namespace fluxon::owner
