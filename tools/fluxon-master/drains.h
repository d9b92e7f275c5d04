// Drains: takes a node out of service. The master orders copies of the values that only this node has in memory, a few at a time; then it
// tells the owner to leave. A value that lies only on the node's SSD is lost with the node.
//
//   no ──drain──► moving ──nothing is left to move──► finishing ──no put is under way──► told to leave, repeatedly until it has
//   ▲                └───────── undrain ◄────────────────┘  (values that come meanwhile are moved as well)
//   finishing   the master begins no put at the node
// One thread.
#pragma once

#include <string>

#include "membership.h"
#include "outgoing.h"
#include "record.h"
#include "space_queue.h"
#include "transfers.h"
#include "window.h"

namespace fluxon::master {

class Drains {
 public:
  Drains(Outgoing& out, const Record& record, const Window& window, Membership& membership, SpaceQueue& space, Transfers& transfers)
      : out_(out), record_(record), window_(window), membership_(membership), space_(space), transfers_(transfers) {}

  Error begin(const std::string& node, Time now);
  Error end(const std::string& node);

  // Orders some more copies if the node is being drained.
  void goOn(Member&, Time now);
  // A copy from `from` has ended.
  void copyEnded(Member& from, Time now);
  static Time nextWake(const Member&);
  static void memberEnded(Member& member) { member.drain.own().toMove.clear(); }

 private:
  bool moveAway(KeyEntry&, Member& from, Time now);
  void letLeave(Member&, Time now);

  Outgoing& out_;
  const Record& record_;
  const Window& window_;
  Membership& membership_;
  SpaceQueue& space_;
  Transfers& transfers_;
};

}  // namespace fluxon::master
