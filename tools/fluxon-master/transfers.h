// Transfers: copies of values on their way from one member to another. The target pulls; the source protects what is read by itself, so
// the master keeps nothing alive there. An owner asks for a copy by a get (gets.h), or is ordered to make one: of a put whose value it
// shall have, of a value that is to be on more owners, of one that is to leave a node (drains.h).
//
//   (staged ──►) moving ──the target is done: ok──► a replica, or not wanted any more (temporary at its target)
//      │            └──done: an error, the target ends──► over
//      └──the source cannot, or ends──► over, and nobody has heard of it
//   Until then the extent is that of who writes there. What is no replica comes back by `release`; what nobody has heard of is free.
//
//   What a transfer brings becomes a replica only if the route is still that of its put_id and no change is under way. So its target is
//   told of every change of the key (changes.h).
// One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/counters.h"
#include "membership.h"
#include "outgoing.h"
#include "routes.h"
#include "space_queue.h"

namespace fluxon::master {

#define FLUXON_MASTER_TRANSFER_COUNTERS(X)                                             \
  X(replicasMade, "fluxon_master_replicas_made_total", "Copies that became replicas.") \
  X(transfersFailed, "fluxon_master_transfers_failed_total", "Copies that failed.")
struct TransferCounters {
  FLUXON_COUNTERS(FLUXON_MASTER_TRANSFER_COUNTERS)
};

constexpr uint64_t kCopyMs = 60'000;  // for a copy that no caller's deadline bounds

class Transfers {
 public:
  struct Events {
    // The copy of a put is at its home.
    std::function<void(const OfPut&, const Copied&, Time now)> arrived;
    // It cannot be brought to that node.
    std::function<void(const OfPut&, const std::string& node)> cannotArrive;
    // The request waits for the change of the key.
    std::function<void(KeyEntry&, Member&, rpc::Request)> defer;
    // A transfer is over that comes by a place at its source.
    std::function<void(Member& source, const StagedAt&)> notStaged;
    // A load from the member's own SSD has failed.
    std::function<void(Member&, const Transfer&, Code)> loadFailed;
    // A copy from there has ended.
    std::function<void(Member& from, Time now)> ended;
  };
  Transfers(Outgoing& out, Routes& routes, const Membership& membership, SpaceQueue& space, Events events)
      : out_(out), routes_(routes), membership_(membership), space_(space), events_(std::move(events)) {}

  void getDone(Member&, OperationId, const rpc::GetDone&, Time now);
  void replicateDone(Member&, OperationId, const rpc::ReplicateDone&, Time now);
  void spread(Member&, OperationId, const rpc::Spread&, Time now);

  // One begins, asked for by that get.
  Transfer& begin(Member& to, OperationId get, Transfer);
  // Orders a copy of a readable value, or of what the source has exported there. No order: there is no way to it.
  OrderId replicate(const KeyEntry&, Member& source, Member& to, std::optional<rpc::Exported>, uint64_t timeLeftMs, Transfer);
  // The writer has filled its place of a put whose value shall lie at another member, who now comes for it. False: it cannot.
  bool bringHome(Member&, Put&, Time now);
  // What a copy brings home is not wanted any more: it ends as any copy that is not.
  void unwanted(Member& home, OrderId copy);
  // What a copy has brought home is the value now.
  void taken(Member& home, OrderId copy);
  // What becomes of the extent of a transfer that is over.
  enum class Place { kept, written, unheardOf };  // unheardOf: nor is anything staged for it
  // The transfer is over; whoever waited for it is answered. The entry of its key may be gone after it.
  void drop(Member&, TransferId, Place);
  void memberEnded(Member&);
  // At the end of the master.
  static void forget(Member& member) { member.transfers.own().clear(); }

  // Copies of the version that are to become replicas.
  static size_t durable(const KeyEntry&);
  // Values on their way out of the member, but for what its clients put.
  size_t movingFrom(const Member&) const;
  uint64_t underWay() const;
  Duration oldest(Time now) const;
  const TransferCounters& counters() const { return counters_; }

 private:
  void ended(Member&, OperationId request, TransferId, Code, Time now);

  Outgoing& out_;
  Routes& routes_;
  const Membership& membership_;
  SpaceQueue& space_;
  Events events_;
  TransferCounters counters_;
};

}  // namespace fluxon::master
