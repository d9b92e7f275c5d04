#include "ssd/channels.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace fluxon::ssd {

Channels::Channels(const EngineSettings& settings, unsigned depth)
    : depth_(depth), mostQueued_(settings.queued), alignment_(settings.alignment) {
  FLUXON_CHECK(depth_ > 0 && alignment_ >= kLeastAlignment && (alignment_ & (alignment_ - 1)) == 0, "settings of an engine");
}

bool Channels::submit(const Request& request) {
  auto& queue = channelOf(request.direction).queue;
  if (queue.size() >= mostQueued_) return false;
  queue.emplace_back(request, alignment_);
  return true;
}

bool Channels::cancel(uint64_t tag) {
  const size_t before = ended_.size();
  for (Channel* channel : {&reads_, &writes_}) {
    std::erase_if(channel->queue, [&](const Operation& each) {
      if (each.tag() != tag) return false;
      ended_.push_back({tag, 0, ECANCELED});
      return true;
    });
  }
  return ended_.size() > before;
}

void Channels::cancelQueued() {
  for (Channel* channel : {&reads_, &writes_}) {
    for (const Operation& each : channel->queue) ended_.push_back({each.tag(), 0, ECANCELED});
    channel->queue.clear();
  }
}

Operation* Channels::next() {
  if (!again_.empty()) {
    Operation* const first = again_.front();
    again_.pop_front();
    return first;
  }
  if (inFlight_.size() >= depth_) return nullptr;
  Channel* channel = reads_.inFlight <= kReadWeight * writes_.inFlight ? &reads_ : &writes_;
  if (channel->queue.empty()) channel = channel == &reads_ ? &writes_ : &reads_;
  if (channel->queue.empty()) return nullptr;
  inFlight_.splice(inFlight_.end(), channel->queue, channel->queue.begin());
  ++channel->inFlight;
  ++(channel == &reads_ ? counters_.readsStarted : counters_.writesStarted);
  return &inFlight_.back();
}

bool Channels::returned(Operation& operation, int64_t result) {
  if (operation.advance(result, counters_) == Operation::Step::again) {
    again_.push_back(&operation);
    return false;
  }
  ended_.push_back(operation.completion());
  --channelOf(operation.direction()).inFlight;
  const auto at = std::find_if(inFlight_.begin(), inFlight_.end(), [&](const Operation& each) { return &each == &operation; });
  FLUXON_CHECK(at != inFlight_.end(), "a completion of an operation that is not in flight");
  inFlight_.erase(at);
  return true;
}

void Channels::takeEnded(std::vector<Completion>& to) {
  to.insert(to.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

}  // namespace fluxon::ssd
