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

// A daemon that lives and listens on a socket that is not to be found at its path, as the daemon itself sees that: it may be in
// another mount namespace. One that cannot be looked into is none: nothing is known of it.
struct LostDaemon {
  uint64_t pid = 0;
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

// Inodes of the sockets of this network namespace that were bound to a path: here, or in another mount namespace.
std::vector<uint64_t> socketsBoundTo(const std::string& path);
// Pid of the process that has the socket; 0: it is not to be seen.
uint64_t socketHolder(uint64_t socketInode);
// "python3", from /proc; "" if it is gone.
std::string commandOf(uint64_t pid);

// --- texts of /proc ---

// Of /proc/net/unix: inodes of the sockets that listen at a path of the form FOLDER/NAME/socket, by path.
std::map<std::string, std::vector<uint64_t>> listenersBelow(const std::string& table, const std::string& folder);
// Inodes of the sockets that were bound to `path`.
std::vector<uint64_t> boundTo(const std::string& table, const std::string& path);
// Of /proc/PID/maps: the mapped length of each removed file below `root`, by device and inode.
std::map<std::string, uint64_t> removedMappings(const std::string& maps, const std::string& root);

}  // namespace fluxon::ctl
