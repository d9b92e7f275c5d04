// StateFile: the state that a master must keep over its death: the cluster's id, the term, the longest serving lease it may have given, and
// per member the life whose values the next term may take. It is one small file, replaced whole: written beside the old one, fsynced,
// renamed, folder fsynced. The file `lock` beside it, which is never replaced, locks it. A new master rebuilds everything else from the
// owners. Page: fluxon-state(5).
//
//   fluxon-state 1
//   cluster NAME
//   cluster-id HEX
//   term N
//   lease-ms N
//   member NAME INCARNATION  (any number; the life whose values the next term takes, 0: none)
//   crc HEX                (crc32c of all lines before)
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace fluxon::master {

constexpr uint64_t kLongestLeaseMs = 3'600'000;  // that fluxon.toml(5) accepts

struct DurableState {
  std::string cluster;
  std::string clusterId;
  Term term;
  uint64_t leaseMs = 0;
  std::map<std::string, Incarnation> members;
};

// The file system, as this part needs it. kernelDisk() is the kernel's; the simulator has one that fails and loses what was not synced.
class StateDisk {
 public:
  virtual ~StateDisk() = default;
  // ENOENT: Code::miss.
  virtual Result<std::string> read(const std::string& path) = 0;
  // The file then holds exactly these bytes for those who read it now.
  virtual Error write(const std::string& path, const std::string& bytes) = 0;
  // Makes the file that write() made last survive a crash.
  virtual Error sync(const std::string& path) = 0;
  virtual Error rename(const std::string& from, const std::string& to) = 0;
  virtual Error syncFolder(const std::string& path) = 0;
};
std::unique_ptr<StateDisk> kernelDisk();

// `fresh`: the id for a new cluster, whose file does not exist; its term is 0. A damaged file, or one of another cluster, is an error that
// says what to do.
Result<DurableState> loadState(StateDisk&, const std::string& path, const std::string& cluster, const std::string& fresh);
// Blocks for the disk.
Error storeState(StateDisk&, const std::string& path, const DurableState&);

// The text form, for tests of the format.
std::string formatState(const DurableState&);
std::string sealed(const std::string& lines);  // with their checksum
Result<DurableState> parseState(const std::string& text, const std::string& name);

}  // namespace fluxon::master
