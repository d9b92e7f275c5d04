// Staging: brings a value from an SSD of another host. The source loads the value into an extent of its own segment, and the asker fetches
// it from there. The master answers the get when the source reports `staged`, and tells the source when the transfer has ended. The extent:
//
//   stage ──staged(ok)──► exported ──the transfer ends──► unstage ──unstaged──► free
//     ├──staged(error)──────────────────────────────────────────────────────────►
//     └──who asked ends──► unwanted ──staged(ok)──► unstage ──unstaged──► free
//   Until it is free the source owns its bytes. The master never sends the `unstage` before the `stage` is answered: orders may overtake
//   each other, and a `stage` carried out after its `unstage` would write into an extent that belongs to somebody else.
// One thread.
#pragma once

#include <functional>
#include <map>

#include "outgoing.h"
#include "space_queue.h"
#include "ssd_replicas.h"
#include "transfers.h"

namespace fluxon::master {

// A get that waits until its source has staged the value.
struct StagedGet {
  MemberRef member;  // who asked
  OperationId id;    // of the request, and of its transfer
  rpc::GetStart request;
  unsigned stagings = 0;  // how many have failed for this get
};

class Staging {
 public:
  // Lets the get look for another source.
  using Again = std::function<void(const StagedGet&, Time now)>;
  Staging(Outgoing& out, SpaceQueue& space, Transfers& transfers, SsdReplicas& ssds, Again again)
      : out_(out), space_(space), transfers_(transfers), ssds_(ssds), again_(std::move(again)) {}

  // Orders the source of the get's transfer to stage the value at `offset`. `stagings`: how many have failed for this get.
  void begin(Member&, OperationId get, const rpc::GetStart&, Transfer&, uint64_t offset, unsigned stagings);
  void staged(Member&, OperationId, const rpc::Staged&, Time now);
  void unstaged(Member&, OperationId, const rpc::Unstaged&, Time now);
  // The transfer is over: unstages the value, or does so when the source reports `staged`.
  void notWanted(Member& source, const StagedAt&);
  // A source has ended: the gets that wait for it fail.
  void memberEnded(Member&);

 private:
  void drop(const StagedGet&);
  void unstage(Member& source, const StagedAt&);

  Outgoing& out_;
  SpaceQueue& space_;
  Transfers& transfers_;
  SsdReplicas& ssds_;
  Again again_;
  struct Waits {
    MemberRef source;
    StagedGet get;
  };
  struct Place {
    MemberRef source;
    uint64_t offset;  // of the extent there that comes free
  };
  std::map<OrderId, Waits> waiting_;  // by their Stage, while somebody still wants it
  std::map<OrderId, Place> places_;   // by their Unstage
};

}  // namespace fluxon::master
