#include "io_queues.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace fluxon::ssdd {

IoQueues::IoQueues(const EngineSettings& settings, unsigned depth)
    : depth_(depth), mostQueued_(settings.queued), alignment_(settings.alignment) {
  FLUXON_CHECK(depth_ > 0 && alignment_ >= kLeastAlignment && (alignment_ & (alignment_ - 1)) == 0, "settings of an engine");
}

bool IoQueues::submit(const Request& request) {
  auto& queue = queueOf(request.direction).queue;
  if (queue.size() >= mostQueued_) return false;
  queue.emplace_back(request, alignment_);
  return true;
}

bool IoQueues::cancel(uint64_t tag) {
  const size_t before = ended_.size();
  for (Queue* queue : {&reads_, &writes_}) {
    std::erase_if(queue->queue, [&](const Operation& each) {
      if (each.tag() != tag) return false;
      ended_.push_back({tag, 0, ECANCELED});
      return true;
    });
  }
  return ended_.size() > before;
}

void IoQueues::cancelQueued() {
  for (Queue* queue : {&reads_, &writes_}) {
    for (const Operation& each : queue->queue) ended_.push_back({each.tag(), 0, ECANCELED});
    queue->queue.clear();
  }
}

Operation* IoQueues::next() {
  if (!again_.empty()) {
    Operation* const first = again_.front();
    again_.pop_front();
    return first;
  }
  if (inFlight_.size() >= depth_) return nullptr;
  Queue* queue = reads_.inFlight <= kReadWeight * writes_.inFlight ? &reads_ : &writes_;
  if (queue->queue.empty()) queue = queue == &reads_ ? &writes_ : &reads_;
  if (queue->queue.empty()) return nullptr;
  inFlight_.splice(inFlight_.end(), queue->queue, queue->queue.begin());
  ++queue->inFlight;
  ++(queue == &reads_ ? counters_.readsStarted : counters_.writesStarted);
  return &inFlight_.back();
}

bool IoQueues::returned(Operation& operation, int64_t result) {
  if (operation.advance(result, counters_) == Operation::Step::again) {
    again_.push_back(&operation);
    return false;
  }
  ended_.push_back(operation.completion());
  --queueOf(operation.direction()).inFlight;
  const auto at = std::find_if(inFlight_.begin(), inFlight_.end(), [&](const Operation& each) { return &each == &operation; });
  FLUXON_CHECK(at != inFlight_.end(), "a completion of an operation that is not in flight");
  inFlight_.erase(at);
  return true;
}

void IoQueues::takeEnded(std::vector<Completion>& to) {
  to.insert(to.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

}  // namespace fluxon::ssdd
