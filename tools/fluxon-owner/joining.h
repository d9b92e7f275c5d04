// Joining: how an owner joins a master that it has met, and what becomes of its values on the way. It sees no connection: MasterLink
// carries what it says, and tells it what it hears.
//
//   apart ──met──► (known term, not fenced): the same incarnation registers again ──────────────────────────► joined
//     ▲      └───► (else) keep the values, settle ──► a new incarnation registers ──(inventory)─────────────► joined
//     │                                      ▲             │ the master wants no inventory: drop the values,
//     │                                      └─────────────┘ settle, and once more
//     └── lost: the connection ended, the master refused, the core was fenced
// Before the first registration the owner drops values of another cluster, and those that the master has refused as a whole.
//
// Invariants
//   1. The owner refuses a master whose term (the epoch of the cluster) is below the highest that it has seen, or equal to it but of
//      another master: that master has been replaced. The highest lies in shared memory and outlives this process, wherever it ends.
//   2. An incarnation registers anew with nothing under way that may write into the segment, but into extents that it says are in use
//      (OwnerCore::underWay).
//   3. A message of the master to one life never reaches another.
//   4. An incarnation that the master has fenced never registers again.
//   5. A registration names the lives of the node that serve no more: the one as which the directory had served when this process took it
//      over (and ended its lease), and those as which the owner has registered since. Only that lets the master end a life early, before
//      its lease has run out.
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

  // The master has said who it is. An error: the owner must not talk to it.
  Error met(const rpc::Hello&, Time now);
  // begin() may be called.
  bool ready() const { return !anew_ || core_.underWay() == 0; }
  // Returns what to send to the master now; `fresh` is the incarnation of a new life.
  const rpc::Registration& begin(Incarnation fresh, Time now);
  // again: the values have been dropped; call begin() once more when ready().
  enum class Answered { joined, again };
  Result<Answered> answered(const rpc::Registered&, Time now);
  // A message to the life that registered as `life`. Orders may come before the answer to their registration, and wait for it. Those of
  // a registration that was dropped go nowhere.
  void heard(Incarnation life, rpc::MasterMessage, Time now);
  // The connection has ended. After the next one both sides send again what is unanswered.
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
