// Transfers: copies of values under way from one member to another. The target pulls. The source protects what is being read by itself, so
// the master keeps nothing alive there. An owner asks for a copy by a get (gets.h), or the master orders one: of a put whose home is
// another member, of a value to be spread over more owners, or of a value that leaves a node (drains.h).
//
//   (staged ──►) moving ──the target is done: ok──► a replica, or not wanted any more (temporary at its target)
//      │            └──done: an error, the target ends──► over
//      └──the source cannot, or ends──► over; the target has not been told of it
//   Until then the extent belongs to the target, which writes there. An extent that is no replica comes back by `release`; one that the
//   target has not been told of is free at once.
//
//   A copy becomes a replica only if the route still has its put_id and no change of the key is under way. So the master tells the target
//   of every change of the key (changes.h).
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
    // The copy of a put has reached its home.
    std::function<void(const OfPut&, const Copied&, Time now)> arrived;
    // The value of a put cannot be copied to that node.
    std::function<void(const OfPut&, const std::string& node)> cannotArrive;
    // The request waits for the change of the key.
    std::function<void(KeyEntry&, Member&, rpc::Request)> defer;
    // A transfer of a staged value is over.
    std::function<void(Member& source, const StagedAt&)> notStaged;
    // A load from the member's own SSD has failed.
    std::function<void(Member&, const Transfer&, Code)> loadFailed;
    // A copy from that member has ended.
    std::function<void(Member& from, Time now)> ended;
  };
  Transfers(Outgoing& out, Routes& routes, const Membership& membership, SpaceQueue& space, Events events)
      : out_(out), routes_(routes), membership_(membership), space_(space), events_(std::move(events)) {}

  void getDone(Member&, OperationId, const rpc::GetDone&, Time now);
  void replicateDone(Member&, OperationId, const rpc::ReplicateDone&, Time now);
  void spread(Member&, OperationId, const rpc::Spread&, Time now);

  // Begins the transfer that a get needs.
  Transfer& begin(Member& to, OperationId get, Transfer);
  // Orders a copy of a readable value, or of an export of the source. Returns 0 if the target cannot reach the source.
  OrderId replicate(const KeyEntry&, Member& source, Member& to, std::optional<rpc::Exported>, uint64_t timeLeftMs, Transfer);
  // The writer has filled the extent of a put whose home is another member: orders the home to fetch it. False: it cannot.
  bool bringHome(Member&, Put&, Time now);
  // The value that a copy brings home is not wanted any more; the copy ends like any unwanted one.
  void unwanted(Member& home, OrderId copy);
  // The value that a copy has brought home is published.
  void taken(Member& home, OrderId copy);
  // The state of a transfer's extent when the transfer is over. unheardOf: the target was not told of it, and nothing is staged for it.
  enum class Place { kept, written, unheardOf };
  // Ends the transfer and answers whoever waits for it. The call may erase the entry of its key.
  void drop(Member&, TransferId, Place);
  void memberEnded(Member&);
  // Called when the master ends.
  static void forget(Member& member) { member.transfers.own().clear(); }

  // The number of copies under way that may become replicas of the entry's version.
  static size_t durable(const KeyEntry&);
  // The number of values that transfers copy from the member, not counting values that its own clients put.
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
