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

#include <optional>
#include <string>

#include "changes.h"
#include "membership.h"
#include "outgoing.h"
#include "routes.h"
#include "space_queue.h"

namespace fluxon::master {

class Drains;
class Puts;
class SsdReplicas;
class Staging;

struct TransferCounters {
  uint64_t replicasMade = 0, transfersFailed = 0;
};

constexpr uint64_t kCopyMs = 60'000;  // for a copy that no caller's deadline bounds

class Transfers {
 public:
  Transfers(Outgoing& out, Routes& routes, const Membership& membership, SpaceQueue& space, Changes& changes, Puts& puts, Staging& staging,
            SsdReplicas& ssds, Drains& drains)
      : out_(out),
        routes_(routes),
        membership_(membership),
        space_(space),
        changes_(changes),
        puts_(puts),
        staging_(staging),
        ssds_(ssds),
        drains_(drains) {}

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
  // The copy of a put is at its home, and becomes the value.
  void arrived(Member& home, OrderId copy);
  // What becomes of the extent of a transfer that is over.
  enum class Place { kept, written, unheardOf };
  // The transfer is over; whoever waited for it is answered. The entry of its key may be gone after it.
  void drop(Member&, TransferId, Place);
  void memberEnded(Member&);

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
  Changes& changes_;
  Puts& puts_;
  Staging& staging_;
  SsdReplicas& ssds_;
  Drains& drains_;
  TransferCounters counters_;
};

}  // namespace fluxon::master
