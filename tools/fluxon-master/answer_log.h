// AnswerLog: the master's answers to one owner's requests, by request id, within a sliding window that the owner moves on. The master
// carries out each id once and repeats the recorded reply when the request comes again (at-most-once execution). Ids have no gaps, so the
// answers form a queue whose front is the lowest unanswered id. Requests that stay unanswered long after later ones (stragglers, which wait
// for space or for a silent owner) are kept apart, so that the queue does not grow behind them. One thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "rpc/messages.h"

namespace fluxon::master {

class AnswerLog {
 public:
  enum class Seen { fresh, running, answered, forgotten, far };
  // `keep`: records the request even if its id lies beyond the window.
  Seen begin(OperationId id, bool keep = false);
  void finish(const rpc::Reply& reply);
  const rpc::Reply* answer(OperationId id) const;
  // The owner has received the answers to all ids below `id`, except those of the stragglers.
  void forgetBelow(OperationId id, const std::vector<OperationId>& stragglers);

 private:
  static constexpr uint64_t kWindow = uint64_t{1} << 17;  // ids beyond it are refused: an owner holds its requests back at half of it
  static constexpr size_t kMostStragglers = 1024;
  struct Answer {
    bool begun = false;
    std::optional<rpc::Reply> reply;
  };
  const Answer* at(OperationId id) const;
  Answer& place(OperationId id);

  std::deque<Answer> answers_;
  std::map<uint64_t, Answer> stragglers_;  // below lowest_
  std::map<uint64_t, Answer> beyond_;      // ids beyond the window that begin() was told to keep
  uint64_t lowest_ = 1;
};

}  // namespace fluxon::master
