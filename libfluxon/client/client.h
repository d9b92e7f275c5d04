// Client: what one process does with a cache. The attachment to its own node, those to neighbours on the host, gets without a
// message, and everything else through the rings.
//
// Invariants
//   1. The set of attachments is replaced as a whole. A get works on the set that it loaded inside a gate; whoever replaces the
//      set waits until all who may have loaded the old one have left before it retires what is not in the new one. Gates are never held
//      across anything that blocks.
//   2. A hit in a neighbour counts only under the master of the client's own owner (shm/directory_view.h).
//   3. Nothing waits past the deadline of its caller: no lock is held across a message to an owner.
//   4. After a fork the child touches neither shared memory nor descriptors of the client: alive() is false, in holders and grants
//      too.
// Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/attachment.h"
#include "shm/paths.h"

namespace fluxon::client {

enum class Source : uint32_t { local = 1, neighbour = 2, remote = 3, ssd = 4, remoteSsd = 5 };

struct Held {
  const char* data = nullptr;
  uint64_t length = 0;
  PutId putId;
  Source source = Source::local;
  Attachment* attachment = nullptr;
  bool byRing = false;  // `word` is the index of a held word; else that of a hazard
  uint32_t word = 0;
  uint64_t slotRef = 0;  // that the word names
};

struct Granted {
  char* data = nullptr;
  uint64_t length = 0;
  Attachment* attachment = nullptr;
  uint64_t slotRef = 0;
};

struct Put {
  std::string_view key;
  uint64_t length = 0;
  PutMode mode;
  uint64_t lease = 0;
  Time deadline;
  uint8_t replicas = 1;    // owners that shall have the value
  std::string sourceNode;  // of this host: where the value is filled; empty: where it shall lie
};

struct Done {
  PutId putId;
  uint32_t replicas = 1;  // owners that had the value at the answer
};

struct Stat {
  uint64_t putId = 0, length = 0, lease = 0;
  std::string nodes;
};

struct Scrubbed {
  uint64_t checked = 0, damaged = 0;  // entries
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> connect(const std::string& root, const std::string& cluster, const std::string& node,
                                                 const std::string& name, bool prefault, Time deadline,
                                                 Attachment::As = Attachment::As::client);
  ~Client();

  bool alive() const;
  const std::string& node() const { return node_; }

  // ok, miss or an error; blocks only without a local hit. `deadline` is asked for then.
  template <class DeadlineOf>
  Error get(std::string_view key, DeadlineOf deadline, Held& held) {
    return probeAll(key, held) ? Error{} : getByRing(key, deadline(), held);
  }
  static void release(Held&);
  // Lets `read` look at bytes of a neighbour's segment that its owner keeps unchanged meanwhile; unavailable, corrupt (outside the
  // segment).
  Error readFrom(const std::string& node, uint64_t offset, uint64_t bytes, Time deadline, const std::function<void(const char*)>& read);

  Result<Done> put(const Put&, const void* data);
  Result<Granted> putStart(const Put&);
  static Result<Done> commit(const Granted&, Time deadline);
  static void abort(const Granted&);

  // One command to the own owner. Without an answer, one that changes nothing is `timedOut` or `unavailable`; of one that changes
  // something the outcome is unknown.
  enum class Effect { none, change };
  Result<Reply> command(const Call& call, Effect effect);
  Result<Stat> stat(std::string_view key, Time deadline);
  // Lets the node's ssdd read and check all that it has; blocks until that is done. notEnabled: the node has no SSD tier.
  Result<Scrubbed> scrub(Time deadline);

 private:
  struct Placed {
    Attachment* attachment;  // with a use()
    Reply reply;
  };
  struct Set {
    Attachment* own = nullptr;     // none: it has ended, and the next one is not attached to yet
    std::vector<Attachment*> all;  // the own one first
    Attachment* find(const std::string& node) const;
  };
  struct Refusal {
    Error error;
    Time until{0};
  };
  struct alignas(64) Gate {
    std::atomic<uint64_t> inside[2] = {};
  };
  class InGate;
  class Attaching;

  Client() = default;
  bool probeAll(std::string_view key, Held& held);
  Error getByRing(std::string_view key, Time deadline, Held& held);
  struct Asked {
    enum class Next { over, again, bring };  // bring: the neighbour takes no client: the own owner is to bring the value
    Error error;
    Next next = Next::over;
  };
  Asked askOnce(uint32_t flags, std::string_view key, Time deadline, Held& held);
  Error getFromNeighbour(Attachment& mine, Attachment& there, uint32_t flags, std::string_view key, Time deadline, Held& held);
  Error follow(Attachment&, const Reply&, std::string_view key, uint64_t master, Time deadline, Held& held);
  Result<Granted> grant(const Put&);
  Result<Placed> askPlace(const Put&, shm::CommandKind, std::string_view value);
  static Error takeHeld(Attachment&, const Reply&, Source, Held&);
  // With a use() for the caller.
  Result<Attachment*> own(Time deadline);
  Result<Attachment*> neighbour(const std::string& node, Time deadline);
  Result<Attachment*> use(const std::string& node, Time deadline);
  void forgetDead();
  void replace(std::vector<Attachment*> all);

  shm::Paths paths_;
  std::string node_, name_;
  uint64_t forkGeneration_ = 0;
  std::atomic<Set*> set_{nullptr};
  Gate gates_[shm::kHazardShards];  // by thread number
  std::atomic<uint64_t> epoch_{0};  // its lowest bit is the side through which gates are entered
  Attachment::As as_ = Attachment::As::client;
  std::mutex mutex_;  // changes of the set, and what is below
  std::condition_variable attached_;
  std::set<std::string> attaching_;         // nodes that some thread attaches to
  std::map<std::string, Refusal> refused_;  // neighbours that have just not taken this client
};

}  // namespace fluxon::client
