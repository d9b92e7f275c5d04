// Which processes have a file in shared memory, borne out by /proc and the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "output.h"

namespace fluxon::ctl {

// A process by its number. The number that a file or a message tells is one of a pid namespace that may be another, and perhaps of
// long ago: it is shown as that of a process that lives only once /proc and the kernel bear it out.
struct ProcessId {
  uint64_t number = 0;
  // hidden: there is such a process, but it may not be looked into; past: it has ended, this is the number that it had for its owner.
  enum class Proof { none, proven, hidden, past } proof = Proof::none;
};
// Who has the lock.
ProcessId lockHolder(const std::string& lock);
// "pid": the number, for people also "?" or "4711?"; in JSON null where it is not proven.
Cell pidCell(const ProcessId&);

// Who maps the files of nodes: what /proc shows of the processes that this user may look into. All of /proc is read once, when it
// is first needed.
class Mappers {
 public:
  // The processes that map the file in common, in order, but for the one that has the lock: an owner maps what its clients do.
  std::vector<uint64_t> of(const std::string& path, const std::string& ownersLock);
  // One of them: the process that was told, else another one (a child of it, or the same by another number).
  ProcessId oneOf(const std::string& path, const std::string& ownersLock, uint64_t told);

 private:
  using File = std::pair<uint64_t, uint64_t>;  // device, inode
  std::optional<std::map<File, std::vector<uint64_t>>> pids_;
};

}  // namespace fluxon::ctl
