// Gets: answers where a client can read a value, or starts a transfer that brings it to the asker (transfers.h). A value that is in
// nobody's memory comes from an SSD: the asker's own, or one of another host, whose owner stages the value first (staging.h).
//
// Only a get that starts a transfer needs space at the asker, and waits behind earlier requests for it; if the source must stage the value,
// it needs space there too. One thread.
#pragma once

#include <string>
#include <variant>

#include "base/counters.h"
#include "changes.h"
#include "outgoing.h"
#include "routes.h"
#include "space_queue.h"
#include "staging.h"
#include "transfers.h"

namespace fluxon::master {

#define FLUXON_MASTER_GET_COUNTERS(X)                                                                \
  X(gets, "fluxon_master_gets_total", "Gets that reached the master.")                               \
  X(getMisses, "fluxon_master_get_misses_total", "Gets that reached the master and found no route.") \
  X(fetches, "fluxon_master_fetches_total", "Gets whose value was on another host.")                 \
  X(ssdLoads, "fluxon_master_ssd_loads_total", "Gets whose value was to be brought from an SSD.")
struct GetCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_GET_COUNTERS)
};

class Gets {
 public:
  Gets(Outgoing& out, Routes& routes, SpaceQueue& space, Changes& changes, Transfers& transfers, Staging& staging)
      : out_(out), routes_(routes), space_(space), changes_(changes), transfers_(transfers), staging_(staging) {}

  enum class Rank { first, last };  // among those who wait for space
  void start(Member&, OperationId, const rpc::GetStart&, Time now);
  // Looks for a source; the get waits if there is no space. `stagings`: how many have failed for this get.
  void find(Member&, OperationId, const rpc::GetStart&, Rank, unsigned stagings, Time now);
  // Retries a get that waits for space. nullptr: it waits no more; otherwise the member whose segment has no room.
  Member* retry(Member&, OperationId, const rpc::GetStart&, Rank, unsigned stagings, Time now);
  const GetCounters& counters() const { return counters_; }

 private:
  struct Miss {};
  struct Refusal {
    Code code;
    std::string detail;
  };
  struct Behind {};  // who came before
  struct Read {
    const Replica* where;
  };
  struct Bring {
    const Replica* from;
    enum class Way { load, fetch, stage } way;
  };
  using Plan = std::variant<Miss, Refusal, Behind, Read, Bring>;
  Plan decide(const KeyEntry*, const Member&, const rpc::GetStart&, Rank) const;
  const Replica* chooseSource(const KeyEntry&, const Member&, const rpc::GetStart&) const;
  Member* bring(KeyEntry&, Member&, OperationId, const rpc::GetStart&, const Bring&, unsigned stagings, Time now);

  Outgoing& out_;
  Routes& routes_;
  SpaceQueue& space_;
  Changes& changes_;
  Transfers& transfers_;
  Staging& staging_;
  uint64_t rotate_ = 0;  // over sources that are as good as each other
  GetCounters counters_;
};

}  // namespace fluxon::master
