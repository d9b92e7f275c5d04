#include <cstdlib>
#include <sstream>

#include "processes.h"

namespace fluxon::ctl {

namespace {

// Calls each(flags, inode, path) for the sockets of /proc/net/unix.
template <class Each>
void eachSocket(const std::string& table, Each each) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    // number: references protocol FLAGS type state INODE PATH
    std::istringstream words(line);
    std::string skip, flags, path;
    uint64_t inode = 0;
    words >> skip >> skip >> skip >> flags >> skip >> skip >> inode;
    std::getline(words >> std::ws, path);
    each(flags, inode, path);
  }
}

}  // namespace

std::vector<uint64_t> boundTo(const std::string& table, const std::string& path) {
  std::vector<uint64_t> found;
  eachSocket(table, [&](const std::string&, uint64_t inode, const std::string& at) {
    if (at == path) found.push_back(inode);
  });
  return found;
}

std::map<std::string, std::vector<uint64_t>> listenersBelow(const std::string& table, const std::string& folder) {
  constexpr unsigned long kListens = 0x10000;
  std::map<std::string, std::vector<uint64_t>> found;
  eachSocket(table, [&](const std::string& flags, uint64_t inode, const std::string& path) {
    const bool ours = path.starts_with(folder + "/") && path.ends_with("/socket") &&
                      path.find('/', folder.size() + 1) == path.size() - std::string("/socket").size();
    if (ours && (std::strtoul(flags.c_str(), nullptr, 16) & kListens) != 0) found[path].push_back(inode);
  });
  return found;
}

std::map<std::string, uint64_t> removedMappings(const std::string& maps, const std::string& root) {
  const std::string removed = " (deleted)";
  std::map<std::string, uint64_t> found;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    // from-to access offset DEVICE INODE PATH
    std::istringstream words(line);
    std::string range, skip, offset, device, inode, path;
    words >> range >> skip >> offset >> device >> inode;
    std::getline(words >> std::ws, path);
    const size_t dash = range.find('-');
    if (dash == std::string::npos || !path.starts_with(root + "/") || !path.ends_with(removed)) continue;
    found[device + " " + inode] += std::strtoull(range.c_str() + dash + 1, nullptr, 16) - std::strtoull(range.c_str(), nullptr, 16);
  }
  return found;
}

}  // namespace fluxon::ctl
