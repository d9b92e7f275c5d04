// FileWatch: checks once a second that the master's files still exist: those by which owners find it, and those that keep a second master
// out. Somebody may remove them while the master runs.
//   In shared memory (lock, socket): without them, owners of this host cannot connect and a second master could start. This master ends;
//   the next term starts from the state file.
//   The state folder: without it, only this process knows the state, and the lock keeps nobody out. The watch makes both anew. That is safe
//   because it takes the new lock first: if somebody already holds it, that is another master, and this one ends.
// One thread; a worker thread asks the disk.
#pragma once

#include <kj/async.h>

#include <functional>
#include <string>

#include "base/log.h"
#include "rpc/daemon.h"
#include "shm/paths.h"

namespace fluxon::master {

class FileWatch {
 public:
  struct Files {
    shm::NamedFiles sharedMemory;
    std::string stateFolder, state;  // the file in it
    shm::LockFile& stateLock;        // the watch replaces it when it makes the folder anew
    std::string what;                // this process, as the text of its locks names it
  };
  // `store` is called when the state must be written again.
  FileWatch(rpc::Daemon&, Files, std::function<void()> store);

  // Resolves with the reason when this process cannot go on.
  kj::Promise<Error> lost();

 private:
  // What a worker thread has found.
  struct Seen {
    Error lost;        // this process must end
    Error unrepaired;  // the watch tries again
    bool repaired = false, stateless = false;
  };
  Seen look();

  rpc::Daemon& daemon_;
  Files files_;
  std::function<void()> store_;
  log::Seldom said_;
};

}  // namespace fluxon::master
