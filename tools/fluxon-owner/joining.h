// Joining: how an owner joins a master that it has met, and what becomes of its values on the way. It sees no connection: MasterLink
// carries what it says, and tells it what it hears.
//
//   apart ──met──► (known term, not fenced): the same incarnation registers again ──────────────────────────► joined
//     ▲      └───► (else) keep the values, settle ──► a new incarnation registers ──(inventory)─────────────► joined
//     │                                      ▲             │ the master wants no inventory: drop the values,
//     │                                      └─────────────┘ settle, and once more
//     └── lost: the connection ended, the master refused, the core was fenced
// Another cluster's values, and those that the master has refused as a whole, are dropped before the first registration.
//
// Invariants
//   1. A (term, master) lower than the highest seen of its cluster, or equal to it in term but of another master, is refused: it is a
//      master that has been replaced. The highest is kept in shared memory and outlives this process, wherever that ends.
//   2. An incarnation registers anew with nothing under way that may write into the segment, but into extents that it says are in use
//      (OwnerCore::underWay).
//   3. What the master says to one life is never heard by another.
//   4. An incarnation that the master has fenced registers never again.
//   5. It names the lives of the node that serve no more: the one that the directory had served as when it was taken over (its lease has
//      been ended there), and those as which it has registered since. By that alone the master ends a life whose lease has not run out.
// One thread.
#pragma once

#include <string>
#include <vector>

#include "owner_core.h"
#include "rpc/messages.h"
#include "shm/directory_format.h"

namespace fluxon::owner {

class Joining {
 public:
  // `place`: node, host, sizes, lives that have ended with files that were replaced; what changes from life to life is filled in here.
  Joining(OwnerCore&, shm::DirectoryHeader&, std::string cluster, rpc::Registration place);

  rpc::Registration& registration() { return registration_; }
  const rpc::Registration& registration() const { return registration_; }
  bool joined() const { return joined_; }
  Term term() const { return term_; }

  // The master has said who it is. An error: it is not to be talked to.
  Error met(const rpc::Hello&, Time now);
  // begin() may be called.
  bool ready() const { return !anew_ || core_.underWay() == 0; }
  // What is sent to the master now; `fresh` is the incarnation of a new life.
  const rpc::Registration& begin(Incarnation fresh, Time now);
  // again: the values are dropped, and begin() is to be called once more when ready.
  enum class Answered { joined, again };
  Result<Answered> answered(const rpc::Registered&, Time now);
  // To the life that registered as `life`. Orders may come before the answer to the registration that they belong to, and wait for
  // it; those of a registration that was dropped are nobody's.
  void heard(Incarnation life, rpc::MasterMessage, Time now);
  // The connection has ended. What is unanswered is sent again by both sides.
  void lost();
  // The master has fenced this incarnation: the connection is to be ended. True once.
  bool fenced();

 private:
  void remember(uint64_t cluster, const rpc::Hello&);

  OwnerCore& core_;
  shm::DirectoryHeader& header_;
  std::string cluster_;
  rpc::Registration registration_;
  std::vector<rpc::MasterMessage> early_;
  Term term_, met_;  // joined, and of the present connection; 0: none
  Incarnation master_, metMaster_;
  bool anew_ = true;
  bool joined_ = false;
  Time sent_{0};
};

}  // namespace fluxon::owner
