// Gets: finds the value that a client reads, here or where the master says.
//
//   here ──► answered at once          being decided or reclaimed here ──► waits for its key, then runs again
//   elsewhere ──► one get of the key asks the master, the others wait for its answer (single-flight):
//       read there (a neighbour)       ──► the owner sends the client there
//       fetch, load here               ──► a flight, which all of them share
//       nowhere, or the route is ours  ──► a miss
// One thread.
#pragma once

#include <string>

#include "base/counters.h"
#include "flights.h"

namespace fluxon::owner {

#define FLUXON_OWNER_GET_COUNTERS(X)                                                                     \
  X(ringGets, "fluxon_owner_ring_gets_total", "Gets of this node's clients that came through the ring.") \
  X(ringMisses, "fluxon_owner_ring_misses_total", "Gets that came through the ring and found nothing.")
struct GetCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_GET_COUNTERS)
};

class Gets {
 public:
  Gets(std::string node, const shm::DirectoryWriter& directory, Host& host, MasterCalls& calls, const Standing& standing,
       KeyControls& controls, Flights& flights)
      : node_(std::move(node)),
        directory_(directory),
        host_(host),
        calls_(calls),
        standing_(standing),
        controls_(controls),
        flights_(flights) {}

  void get(Caller, Command, Time now);
  // Answers with the value that is here. False: there is none.
  bool answerLocal(Caller, const Command&);
  // The master has answered a getStart.
  void routed(Call&, const rpc::Reply&, Time now);

  const GetCounters& counters() const { return counters_; }

 private:
  void ask(Caller, Command, Time now);
  bool mustWait(const Command&) const;
  void bring(Call&, const rpc::Reply&, Time now);

  std::string node_;
  const shm::DirectoryWriter& directory_;
  Host& host_;
  MasterCalls& calls_;
  const Standing& standing_;
  KeyControls& controls_;
  Flights& flights_;
  GetCounters counters_;
};

}  // namespace fluxon::owner
