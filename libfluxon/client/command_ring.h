// CommandRing: the client's side of the command ring of one owner. Life of a command slot: shm/client_format.h.
//
// Invariants
//   1. A slot is in exactly one of: the free list, a call under way, the list of abandoned slots (until the owner has let go).
//   2. At most kCommandSlots submissions are outstanding, so the submission ring never overflows.
//   3. Nothing waits past its deadline. Grants are given back without one: the client posts the command and waits for no answer.
// Any thread; the lock is held for the submission, never while waiting.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "client/reply.h"
#include "shm/client_format.h"
#include "shm/directory_format.h"

namespace fluxon::client {

struct Call {
  shm::CommandKind kind{};
  uint32_t flags = 0;
  std::string_view key;
  std::string_view extra;
  uint64_t valueBytes = 0;
  uint64_t slotRef = 0;
  uint64_t lease = 0;
  Time deadline;
};

class CommandRing {
 public:
  // Descriptors, which stay the caller's: the owner's eventfd, and the socket that ends when the owner ends.
  struct Owner {
    int bell;
    int socket;
  };
  CommandRing(shm::ClientFile& file, const shm::DirectoryHeader& header, Owner owner);

  // Blocks until the answer or the deadline. timedOut (what is known about why is in the detail), outcomeUnknown (the owner has ended):
  // the command was submitted; what it would have granted is undone, a change of the cache may or may not happen. tooMany (no command
  // slot became free), unavailable (the owner has ended): it was not.
  Result<Reply> call(const Call&);
  // Gives a grant back. Does not block: without a free command slot the command goes out with the next one that becomes free.
  void abort(uint64_t slotRef);
  // True: the owner serves nothing now, or another life of it serves, so ours may have ended; costs no system call.
  bool suspect() const;
  // True: the owner has ended, or does not listen to this client any more.
  bool dead() const;

 private:
  Result<uint32_t> takeSlot(Time deadline);
  std::optional<uint32_t> freeSlot();
  void giveSlot(uint32_t index, bool abandoned);
  void post();
  uint32_t submit(uint32_t index);
  void ring() const;
  bool await(shm::CommandSlot&, Time deadline) const;
  Error unanswered(uint32_t ticket) const;

  shm::ClientFile& file_;
  const shm::DirectoryHeader& header_;
  uint64_t life_;  // of the owner that we attached to
  int bell_, socket_;
  bool spin_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<uint32_t> free_, abandoned_;
  std::vector<uint64_t> aborts_;  // grants to be given back, for which no slot has been free yet
};

}  // namespace fluxon::client
