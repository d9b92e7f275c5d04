// IoQueues: the requests of one engine: the read queue, the write queue, operations in flight, and completions not fetched yet. It chooses
// the next operation for both engines (file_engine.h, invariant 4). No thread of its own and no lock.
#pragma once

#include <deque>
#include <list>

#include "operation.h"

namespace fluxon::ssdd {

class IoQueues {
 public:
  // `depth` is the engine's own: settings.depth or less.
  IoQueues(const EngineSettings&, unsigned depth);

  // False: full.
  bool submit(const Request&);
  // True: there is one more completion.
  bool cancel(uint64_t tag);
  void cancelQueued();

  // The operation whose next system call the engine makes now; null: there is none, or the depth is reached.
  Operation* next();
  // The system call of an operation from next() has returned. True: the operation has ended and is gone.
  bool returned(Operation&, int64_t result);

  bool canStart() const { return !again_.empty() || (queued() > 0 && inFlight() < depth_); }
  size_t queued() const { return reads_.queue.size() + writes_.queue.size(); }
  size_t inFlight() const { return inFlight_.size(); }  // including those to be resumed
  size_t ended() const { return ended_.size(); }
  size_t pending() const { return queued() + inFlight() + ended(); }
  void takeEnded(std::vector<Completion>&);
  const IoCounters& counters() const { return counters_; }

 private:
  struct Queue {
    std::list<Operation> queue;
    size_t inFlight = 0;
  };
  Queue& queueOf(Direction d) { return d == Direction::read ? reads_ : writes_; }

  const unsigned depth_;
  const size_t mostQueued_, alignment_;
  Queue reads_, writes_;
  std::list<Operation> inFlight_;
  std::deque<Operation*> again_;  // in flight, to be called anew
  std::vector<Completion> ended_;
  IoCounters counters_;
};

}  // namespace fluxon::ssdd
