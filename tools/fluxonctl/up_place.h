// UpPlace: where `up` of a cluster is to be found on its host, ROOT/CLUSTER/.up: the lock, which it has while it lives, and the socket at
// which `down` asks it to stop. It is asked, not signalled: a process id that is read from a file may be anybody's. See fluxon-shm(5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "base/result.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"

namespace fluxon::ctl {

// Of a socket, whatever bears its name later. An inode number alone may be used again.
using SocketId = std::tuple<uint64_t, uint64_t, int64_t>;  // device, inode, when it was made

class UpPlace {
 public:
  // Takes the lock and listens. unavailable: another `up` runs the cluster. `group`: of the folders on the way, or -1.
  static Result<UpPlace> take(const shm::Paths& paths, int group);
  UpPlace(UpPlace&&) = default;
  UpPlace& operator=(UpPlace&&) = delete;
  ~UpPlace();

  int stopFd() const { return socket_.get(); }
  // Somebody may remove the files beneath it: then nobody finds this process, and the lock keeps no second one out. Makes anew what is
  // gone; another stopFd() holds from then on. A line of what was done, or why it cannot be, once; or empty.
  std::string renew();

 private:
  UpPlace(const shm::Paths& paths, int group) : paths_(paths), group_(group) {}
  Error lock();
  Error listen();

  shm::Paths paths_;
  int group_;
  shm::LockFile lock_;
  shm::Descriptor socket_;
  shm::Descriptor replaced_;  // the socket before this one: who waits for it closes it last
  std::optional<SocketId> socketName_;
  std::string said_;
};

// Asks the `up` of the cluster to stop and waits until that process has ended: not for one that begins meanwhile. True: there was one;
// false: nobody has the lock. denied: whether there is one cannot be seen from here; timedOut: it still runs.
Result<bool> stopUp(const shm::Paths& paths, Duration patience);
// Of an `up` that lives while its lock is not to be found here: "process 7 (fluxonctl) runs ..."; empty: none is seen.
std::string lostUp(const shm::Paths& paths);

}  // namespace fluxon::ctl
