// Staging: a value that lies on an SSD of another host is brought to a place in its owner's segment first, where it is fetched from. The
// get is answered when the source says that it is there; the source is told when the transfer has ended. That place:
//
//   stage ──staged(ok)──► exported ──the transfer ends──► unstage ──unstaged──► free
//     ├──staged(error)──────────────────────────────────────────────────────────►
//     └──who asked ends──► unwanted ──staged(ok)──► unstage ──unstaged──► free
//   Until it is free its bytes are the source's. An `unstage` is never under way beside the `stage` that it is about: orders may overtake
//   each other, and a `stage` that came after `unstaged` would be written into a place that is somebody else's.
// One thread.
#pragma once

#include <functional>
#include <map>

#include "outgoing.h"
#include "space_queue.h"
#include "ssd_replicas.h"
#include "transfers.h"

namespace fluxon::master {

// A get that is answered when the value can be fetched from where the source brings it from its SSD.
struct StagedGet {
  MemberRef member;  // who asked
  OperationId id;    // of the request, and of its transfer
  rpc::GetStart request;
  unsigned stagings = 0;  // that have failed it before
};

class Staging {
 public:
  // The get looks for another source.
  using Again = std::function<void(const StagedGet&, Time now)>;
  Staging(Outgoing& out, SpaceQueue& space, Transfers& transfers, SsdReplicas& ssds, Again again)
      : out_(out), space_(space), transfers_(transfers), ssds_(ssds), again_(std::move(again)) {}

  // The transfer that the get has begun is to come by a place at its source. `stagings`: that have failed the get before.
  void begin(Member&, OperationId get, const rpc::GetStart&, Transfer&, uint64_t offset, unsigned stagings);
  void staged(Member&, OperationId, const rpc::Staged&, Time now);
  void unstaged(Member&, OperationId, const rpc::Unstaged&, Time now);
  // The transfer is over. What is not exported yet is unstaged when it is.
  void notWanted(Member& source, const StagedAt&);
  // The source ends: the gets that wait for it fail.
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
