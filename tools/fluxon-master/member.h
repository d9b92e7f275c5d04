// Member: one incarnation of one owner, as its master sees it: its space, the puts that it has begun, the answers that it may
// ask for again, and the orders that it has not carried out yet.
//
// Life:   joined ──(lease ran out, or a new incarnation registered)──► fenced        joined ──(leave)──► left
// A connection may come and go while a member is joined; orders and answers wait for it.
// One thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "key_table.h"
#include "member_space.h"
#include "rpc/messages.h"

namespace fluxon::master {

enum class MemberState : uint8_t { joined, left, fenced };

// Answers by request id, within a window that the owner moves on: each id is done once, a repetition gets the same reply.
// Ids come without gaps, so the answers are a queue whose front is the lowest unanswered id.
class AnswerLog {
 public:
  enum class Seen { fresh, running, answered, forgotten, far };
  Seen begin(OperationId id);
  void finish(const rpc::Reply& reply);
  const rpc::Reply* answer(OperationId id) const;
  // Ids below are answered and known to be so.
  void forgetBelow(OperationId id);

 private:
  static constexpr uint64_t kWindow = uint64_t{1} << 17;  // ids beyond it are refused: an owner never has that many open
  struct Answer {
    bool begun = false;
    std::optional<rpc::Reply> reply;
  };
  const Answer* at(OperationId id) const;

  std::deque<Answer> answers_;
  uint64_t lowest_ = 1;
};

struct WaitingPut {
  rpc::Request request;
  Time deadline;
};

class Member {
 public:
  Member(rpc::Registration registration, Time end)
      : registration_(std::move(registration)), leaseEnd(end), space(registration_.segmentBytes, registration_.maxKeys) {}

  const std::string& node() const { return registration_.node; }
  Incarnation incarnation() const { return registration_.incarnation; }
  const rpc::Registration& registration() const { return registration_; }

 private:
  rpc::Registration registration_;

 public:
  MemberState state = MemberState::joined;
  bool connected = true;
  Time leaseEnd;  // counted from the last answer, with margin: after it the owner certainly serves nothing
  MemberSpace space;
  AnswerLog answers;
  std::unordered_map<OperationId, Put> puts;
  std::deque<WaitingPut> waiting;  // puts without space, in order
  std::map<OperationId, rpc::MasterMessage> orders;  // sent, not answered
  std::vector<rpc::Version> invalidations;           // to be sent when the batch in flight has been answered
  bool invalidating = false;
  uint64_t evictions = 0;
  Time retryVictims{0};  // victims were busy: none are asked again before this
  Duration busyBackOff{0};
};

}  // namespace fluxon::master
