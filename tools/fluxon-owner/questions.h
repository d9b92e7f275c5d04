// Questions: hands the master the commands that change nothing here: stat, remove, count, list, leases. One thread.
#pragma once

#include "standing.h"

namespace fluxon::owner {

class Questions {
 public:
  Questions(Host& host, MasterCalls& calls, const Standing& standing) : host_(host), calls_(calls), standing_(standing) {}

  // False: the command is no question.
  bool ask(Caller, const Command&, Time now);
  void answered(const Call&, const rpc::Reply&);

  uint64_t removes() const { return removes_; }

 private:
  Host& host_;
  MasterCalls& calls_;
  const Standing& standing_;
  uint64_t removes_ = 0;
};

}  // namespace fluxon::owner
