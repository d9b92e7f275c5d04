// AnswerLog: the answers of one owner's requests, by id, within a window that the owner moves on: each id is carried out once, and a
// repetition gets the same reply. Ids come without gaps, so the answers are a queue whose front is the lowest unanswered id. A few that are
// unanswered long after those behind them (stragglers: who waits for space or for a silent owner) are kept apart, so the queue does not
// grow behind them. One thread.
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
  // `keep`: beyond the window as well.
  Seen begin(OperationId id, bool keep = false);
  void finish(const rpc::Reply& reply);
  const rpc::Reply* answer(OperationId id) const;
  // Ids below are answered and known to be so, but for the stragglers.
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
  std::map<uint64_t, Answer> beyond_;      // the window: what is kept all the same
  uint64_t lowest_ = 1;
};

}  // namespace fluxon::master
