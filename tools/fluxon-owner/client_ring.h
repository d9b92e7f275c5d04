// ClientRing: the owner's end of one client's file. It takes commands out of the ring, writes answers back into their slots, sets held
// words and reads touches. The client may write any byte of the file at any moment, so the owner believes none of them.
//
// Invariants
//   1. The owner copies once what a client wrote, and checks the copy. It answers `protocol` to a command that does not hold together.
//   2. The owner runs a command slot at most once between two answers, whatever the ring says.
//   3. The owner reads and writes nothing outside of the file on the word of the client.
// One thread (the control thread).
#pragma once

#include <algorithm>
#include <cstdint>

#include "owner_core.h"
#include "shm/client_format.h"

namespace fluxon::owner {

// Turns the command of a caller that has given up into what is still to be done. Its grant must come back, so a commit becomes an abort.
// False: nothing is to be done.
bool afterwards(shm::CommandKind&);

class ClientRing {
 public:
  // Over a file that the owner has laid out, and keeps mapped; touches that are in it already count as seen.
  explicit ClientRing(shm::ClientFile&);

  // Takes the next command and its slot. over: its caller has given up, and nothing is to be done; refused: it made no sense. The caller
  // of next() answers neither.
  enum class Next { nothing, command, over, refused };
  Next next(uint32_t& slot, Command&);
  bool more() const;
  // False: the caller has given up, or has spoilt its slot; what the answer grants must be undone (a hold is none then).
  bool answer(uint32_t slot, const Answer&);

  // Held words in use.
  size_t held() const;
  // Calls each(slot of the directory) for what the client has read since the last call: `most` slots at most, shared out over the
  // shards, the newest ones of each shard first. The rest counts as seen. The client chose the numbers: `each` checks them. Returns how
  // many there were.
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
