// FileWatch: looks once a second whether the files are still there by which others find this master and which keep a second one out.
// Somebody may remove them beneath it.
//   In shared memory (lock, socket): owners of this host come to it no more, and a second one could begin. It ends; the next term has
//   all that is in the state file.
//   The state folder: what it says is known here alone then, and its lock keeps nobody out. Both are made anew. That is safe because
//   the new lock is taken first: whoever has it already is another master, and this one ends.
// One thread; the disk is asked on a worker thread.
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
    shm::LockFile& stateLock;        // replaced by a new one when that has to be made
    std::string what;                // is run by this process
  };
  // `store`: the state is to be written again.
  FileWatch(rpc::Daemon&, Files, std::function<void()> store);

  // Resolves with the reason when this process cannot go on.
  kj::Promise<Error> lost();

 private:
  // On a worker thread.
  struct Seen {
    Error lost;        // the end
    Error unrepaired;  // tried again
    bool repaired = false, stateless = false;
  };
  Seen look();

  rpc::Daemon& daemon_;
  Files files_;
  std::function<void()> store_;
  log::Seldom said_;
};

}  // namespace fluxon::master
