// What /proc says of processes of this host that its files do not say: daemons whose files have been removed beneath them, and who maps
// files that have no name any more. Processes of other users, and of other pid or network namespaces, are not seen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shm/paths.h"

namespace fluxon::ctl {

// A daemon that lives and listens on a socket that is not to be found at its path.
struct LostDaemon {
  uint64_t pid = 0;    // 0: not to be seen
  std::string socket;  // its path
  std::string text() const;
};
std::vector<LostDaemon> lostDaemons(const shm::Paths&);

// Removed files below a folder that somebody maps still.
struct MappedLeftovers {
  uint64_t bytes = 0;
  std::set<uint64_t> pids;
};
MappedLeftovers mappedLeftovers(const std::string& root);

// Pid of the process that has the socket; 0: it is not to be seen.
uint64_t socketHolder(uint64_t socketInode);
// "python3", from /proc; "" if it is gone.
std::string commandOf(uint64_t pid);

// --- texts of /proc ---

// Of /proc/net/unix: inodes of the sockets that listen at a path of the form FOLDER/NAME/socket, by path.
std::map<std::string, std::vector<uint64_t>> listenersBelow(const std::string& table, const std::string& folder);
// Of /proc/PID/maps: the mapped length of each removed file below `root`, by device and inode.
std::map<std::string, uint64_t> removedMappings(const std::string& maps, const std::string& root);

}  // namespace fluxon::ctl
