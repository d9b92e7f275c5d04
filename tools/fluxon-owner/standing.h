// Standing: how this owner stands with its master, and the lease under which it serves.
//
//   apart ──registered, and the master wants the list of its values──► reporting ──serve()──► joined
//     ▲ └────registered, and there are none─────────────────────────────────────────serve()────►┘
//     └── the term ends (endTerm), in either state
//   The serving lease does not depend on these: values stay readable under the old one while the owner is apart.
//
// Invariants
//   1. The serving lease counts from when the owner sent the heartbeat, not from the answer. The owner commits nothing at or after its end.
//   2. The owner sends requests only while reporting or joined, and commands of clients only while joined.
//   3. The header's content incarnation names the last life whose values the master has accepted. It changes before this owner says
//      anything else to the master, and never while a value is committed that the master has refused.
// One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "master_calls.h"
#include "shm/directory_writer.h"

namespace fluxon::owner {

class Standing {
 public:
  Standing(shm::DirectoryWriter& directory, MasterCalls& calls) : directory_(directory), calls_(calls) {}

  enum class State { apart, reporting, joined };
  bool listening() const { return state_ != State::apart; }
  bool reporting() const { return state_ == State::reporting; }
  bool joined() const { return state_ == State::joined; }
  bool serving(Time now) const { return now.ns < directory_.leaseUntilNs(); }
  // Requests of clients can go to the master.
  bool takesRequests(Time now) const { return serving(now) && joined(); }
  // For those who ask for a master that is not there.
  std::string noLease() const;
  const std::string& apartBecause() const { return apartBecause_; }
  void apart(std::string why) { apartBecause_ = std::move(why); }

  // The master under which serve() begins.
  void setMaster(Incarnation master) { master_ = master; }
  // The master has taken a registration that was sent then; serve() follows at once, or when the inventory is taken.
  void registered(Incarnation, Duration lease, Time sent);
  // The same life over another connection.
  void reconnected(Duration lease, Time sent);
  void serve(Time now);
  // False: the owner was apart.
  bool endTerm();

  // False: there is nobody to send it to, or too many are unanswered.
  bool heartbeat(const std::vector<uint32_t>& touched, Time now);
  void beatAnswered(OperationId, Code, Time now);
  Duration lease() const { return lease_; }
  // The lease has run out since it was looked at last.
  bool lapses(Time now);
  // When lapses() is to be asked; never: it has lapsed.
  Time nextWake() const { return lapsed_ ? Time::never() : Time{directory_.leaseUntilNs()}; }

  // The master has refused this incarnation or term: the service must join again.
  bool fenced() const { return fenced_; }
  void fence() { fenced_ = true; }

 private:
  void extend(Time until);

  shm::DirectoryWriter& directory_;
  MasterCalls& calls_;
  State state_ = State::apart;
  bool fenced_ = false;
  Incarnation incarnation_;  // as which we have registered
  Incarnation master_;       // with which
  Duration lease_{0};
  Time leaseFrom_{0};                  // reporting: the lease runs from here
  std::map<OperationId, Time> beats_;  // heartbeats under way: when they were sent
  bool lapsed_ = true;                 // callers have been told
  std::string apartBecause_;           // for people; empty: the master is there, or does not answer
};

}  // namespace fluxon::owner
