// Neighbours: which owners are of this host, so that this owner can map their segments. An owner is a neighbour if it has registered our
// host id (this boot and the folder of the cluster in shared memory), the lock of its node is held, and its directory is served by the
// incarnation that the master named. An address says nothing about it. Control thread.
#pragma once

#include <map>
#include <string>

#include "base/ids.h"
#include "rpc/messages.h"
#include "shm/paths.h"

namespace fluxon::owner {

class Neighbours {
 public:
  explicit Neighbours(shm::Paths);
  const std::string& hostId() const { return hostId_; }
  bool has(const rpc::Peer&);

 private:
  const shm::Paths paths_;
  const std::string hostId_;
  std::map<std::string, Incarnation> found_;
};

}  // namespace fluxon::owner
