// MasterCalls: the requests of this owner to its master, until they are answered.
//
// Life of a call:   (held back ──►) sent ──► answered, taken by who sent it
//                        └───────────┴──── the term ends: forgotten, the service sees no answer of it
//
// Invariants
//   1. The owner keeps a request until the master has answered it, and sends it again with the same id after a lost connection of the
//      same term. Ids count from 1 within a life of the owner.
//   2. The master keeps its answers from the lowest unanswered id on, within a window. The owner names a request that waits while others
//      pass (a straggler), and the window moves on without it. When stragglers are too many the owner holds further requests back (flow
//      control), well before the window ends, and sends them later in their order. It never holds back heartbeats, inventories and
//      answers to orders.
//   3. A caller gets one answer. When the lease has run out only the effects of its call are left, and are undone when the reply comes.
// One thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "host.h"
#include "retries.h"

namespace fluxon::owner {

struct Call {
  // A put or a copy, in the directory, that the master decides about.
  struct Slot {
    uint32_t slot;
  };
  // What ssdCommit names, by the tasks of its persists.
  struct Persists {
    std::vector<uint64_t> ids;
  };
  // Beyond what the request says: the get or the put to be run again, or what the answer decides about.
  using About = std::variant<std::monostate, Command, Slot, Persists>;

  rpc::Request request;
  Caller caller;  // who waits for the answer, if somebody does
  About about;
};

class MasterCalls {
 public:
  // Ids after which an unanswered request is a straggler, how many are told, and how far ids go beyond the lowest other one.
  struct Settings {
    uint64_t straggles, stragglers, ahead;
  };
  MasterCalls(Settings settings, Host& host) : settings_(settings), host_(host) {}

  // Its id; 0 if it is held back.
  OperationId send(rpc::Request::Body, Caller = {}, Call::About = {});
  // Takes the call that an answer is for; none: the answer is a repetition.
  std::optional<Call> take(OperationId);
  // Sends what was held back, as far as there is room again: after an answer.
  void sendHeldBack();
  // Sends everything unanswered again, after a lost connection.
  void sendAgain();
  // Another life of the owner: ids count anew.
  void begin();
  void endTerm();

  // The serving lease has run out: each caller is told, or its command is put off.
  void lapse(Retries&, Time now);

  // All requests below `lowest` have been answered but for the stragglers.
  struct Unanswered {
    OperationId lowest;
    std::vector<OperationId> stragglers;
  };
  Unanswered unanswered() const;
  size_t count() const { return sent_.size() + heldBack_.size(); }
  bool holdsBack() const { return !heldBack_.empty(); }
  // Puts that wait for their grant.
  size_t putsAsked() const { return putsAsked_; }

 private:
  OperationId sendNow(Call);
  void abandon(Call&, Retries&, Time now);
  bool full() const;

  Settings settings_;
  Host& host_;
  std::map<OperationId, Call> sent_;
  std::deque<Call> heldBack_;  // without an id
  uint64_t nextId_ = 1;
  size_t putsAsked_ = 0;
};

}  // namespace fluxon::owner
