#include "answer_log.h"

#include <algorithm>
#include <set>

#include "base/mark.h"

namespace fluxon::master {

const AnswerLog::Answer* AnswerLog::at(OperationId id) const {
  if (id.value >= lowest_ && id.value - lowest_ < answers_.size()) return &answers_[id.value - lowest_];
  const std::map<uint64_t, Answer>& apart = id.value < lowest_ ? stragglers_ : beyond_;
  const auto found = apart.find(id.value);
  return found == apart.end() ? nullptr : &found->second;
}
AnswerLog::Answer& AnswerLog::place(OperationId id) {
  if (id.value < lowest_) return stragglers_.at(id.value);
  if (id.value - lowest_ >= kWindow) return beyond_[id.value];
  if (id.value - lowest_ >= answers_.size()) answers_.resize(id.value - lowest_ + 1);
  return answers_[id.value - lowest_];
}
AnswerLog::Seen AnswerLog::begin(OperationId id, bool keep) {
  if (id.value < lowest_ && !stragglers_.count(id.value)) return Seen::forgotten;
  if (id.value >= lowest_ && id.value - lowest_ >= kWindow && !keep && !beyond_.count(id.value)) return Seen::far;
  Answer& answer = place(id);
  if (answer.begun) return answer.reply ? Seen::answered : Seen::running;
  answer.begun = true;
  return Seen::fresh;
}
void AnswerLog::finish(const rpc::Reply& reply) {
  if (at(reply.id)) place(reply.id).reply = reply;
}
const rpc::Reply* AnswerLog::answer(OperationId id) const {
  const Answer* const found = at(id);
  return found && found->reply ? &*found->reply : nullptr;
}
void AnswerLog::forgetBelow(OperationId id, const std::vector<OperationId>& stragglers) {
  const std::set<OperationId> open(stragglers.begin(), stragglers.end());
  // A message of an earlier connection may arrive late, with a lower `id`. It says nothing about stragglers from that id on.
  std::erase_if(stragglers_, [&](const auto& each) { return each.first < id.value && !open.count(OperationId(each.first)); });
  for (const OperationId straggler : open) {
    // A forgotten id was answered and stays forgotten. A request that is not here yet is on its way, or will be sent again.
    if (straggler.value < lowest_ || straggler.value >= id.value || stragglers_.size() >= kMostStragglers) continue;
    FLUXON_MARK("master: a request is unanswered long after later ones");
    const Answer* const known = at(straggler);
    stragglers_.emplace(straggler.value, known ? *known : Answer());
  }
  for (; lowest_ < id.value && !answers_.empty(); ++lowest_) answers_.pop_front();
  lowest_ = std::max(lowest_, id.value);
  beyond_.erase(beyond_.begin(), beyond_.lower_bound(lowest_));
  while (!beyond_.empty() && beyond_.begin()->first - lowest_ < kWindow) {
    auto reached = beyond_.extract(beyond_.begin());
    place(OperationId(reached.key())) = std::move(reached.mapped());
  }
}

}  // namespace fluxon::master
