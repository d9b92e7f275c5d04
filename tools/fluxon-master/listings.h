// Listings: what owners ask about keys: one of them, those with a prefix, and how many these are. A count goes over the table in slices,
// since nothing else is done meanwhile. Values that nobody can read are none. One thread.
#pragma once

#include <deque>
#include <string>

#include "outgoing.h"
#include "routes.h"

namespace fluxon::master {

class Listings {
 public:
  Listings(Outgoing& out, const Routes& routes) : out_(out), routes_(routes) {}

  // Of a key that no change is under way of.
  void stat(Member&, OperationId, const rpc::StatKey&);
  void list(Member&, OperationId, const rpc::ListKeys&);
  void count(Member& member, OperationId id, const rpc::CountKeys& request) { counts_.push_back({member, id, request.prefix, {}, 0}); }

  bool counting() const { return !counts_.empty(); }
  void countSlice();

 private:
  struct Count {
    MemberRef member;
    OperationId request;
    std::string prefix;
    std::string after;  // keys to here have been looked at
    uint64_t keys;
  };

  Outgoing& out_;
  const Routes& routes_;
  std::deque<Count> counts_;
};

}  // namespace fluxon::master
