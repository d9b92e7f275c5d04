// Listings: answers owners' questions about keys: one key, the keys with a prefix, or their number. A count walks the table in slices,
// because the master does nothing else during a slice. Keys whose values nobody can read are left out. One thread.
#pragma once

#include <deque>
#include <string>

#include "outgoing.h"
#include "routes.h"

namespace fluxon::master {

class Listings {
 public:
  Listings(Outgoing& out, const Routes& routes) : out_(out), routes_(routes) {}

  // No change of the key may be under way.
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
