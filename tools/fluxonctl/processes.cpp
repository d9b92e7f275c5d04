#include "processes.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "output.h"

namespace fluxon::ctl {
namespace {

std::string textOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<uint64_t> processes() {
  std::vector<uint64_t> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos) pids.push_back(std::stoull(name));
  }
  return pids;
}

}  // namespace

std::vector<uint64_t> socketsBoundTo(const std::string& path) { return boundTo(textOf("/proc/self/net/unix"), path); }

uint64_t socketHolder(uint64_t socketInode) {
  const std::string wanted = "socket:[" + std::to_string(socketInode) + "]";
  for (const uint64_t pid : processes()) {
    std::error_code error;
    for (std::filesystem::directory_iterator file("/proc/" + std::to_string(pid) + "/fd", error), end; !error && file != end;
         file.increment(error)) {
      std::error_code gone;
      if (std::filesystem::read_symlink(file->path(), gone) == wanted) return pid;
    }
  }
  return 0;
}

std::string commandOf(uint64_t pid) {
  const std::string text = textOf("/proc/" + std::to_string(pid) + "/comm");
  return text.substr(0, text.find('\n'));
}

std::string LostDaemon::text() const {
  return "process " + std::to_string(pid) + " (" + quoted(commandOf(pid)) + ") listens on " + socket + ", which has been removed";
}

std::vector<LostDaemon> lostDaemons(const shm::Paths& paths) {
  std::vector<LostDaemon> lost;
  for (const auto& [path, inodes] : listenersBelow(textOf("/proc/self/net/unix"), paths.clusterDir())) {
    for (const uint64_t inode : inodes) {
      const uint64_t pid = socketHolder(inode);
      if (pid == 0) continue;
      const std::string root = "/proc/" + std::to_string(pid) + "/root";
      struct stat info;
      const bool there = ::lstat((root + path).c_str(), &info) == 0;
      if (!there && errno != ENOENT && errno != ENOTDIR) continue;
      // Of several that were bound there one after the other the one that has the lock is the one at the path.
      const auto rightful = [&] { return static_cast<uint64_t>(shm::LockFile::holder(root + path.substr(0, path.rfind('/')) + "/lock")); };
      if (!there || !S_ISSOCK(info.st_mode) || (inodes.size() > 1 && pid != rightful())) lost.push_back({pid, path});
    }
  }
  return lost;
}

MappedLeftovers mappedLeftovers(const std::string& root) {
  MappedLeftovers left;
  std::map<std::string, uint64_t> files;
  for (const uint64_t pid : processes()) {
    for (const auto& [file, bytes] : removedMappings(textOf("/proc/" + std::to_string(pid) + "/maps"), root)) {
      files[file] = std::max(files[file], bytes);
      left.pids.insert(pid);
    }
  }
  for (const auto& [file, bytes] : files) left.bytes += bytes;
  return left;
}

}  // namespace fluxon::ctl
