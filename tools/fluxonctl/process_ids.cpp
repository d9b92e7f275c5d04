#include "process_ids.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "shm/paths.h"

namespace fluxon::ctl {
namespace {

// Calls each(device, inode) for the shared mappings of a process. 0, or the errno for which it cannot be looked into.
// /proc/PID/maps: "7f..-7f.. rw-s 00000000 00:1a 4711   /dev/shm/...", numbers of the device in hex.
template <class Each>
int eachMapping(const std::string& pid, Each each) {
  std::ifstream maps("/proc/" + pid + "/maps");
  if (!maps) return errno;
  for (std::string line; std::getline(maps, line);) {
    char access[5];
    unsigned devMajor = 0, devMinor = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*s %4s %*s %x:%x %lu", access, &devMajor, &devMinor, &inode) != 4) continue;
    if (access[3] == 's') each(makedev(devMajor, devMinor), inode);
  }
  return maps.bad() ? EACCES : 0;
}

}  // namespace

ProcessId lockHolder(const std::string& lock) {
  const long pid = shm::LockFile::holder(lock);
  return pid > 0 ? ProcessId{static_cast<uint64_t>(pid), ProcessId::Proof::proven} : ProcessId{};
}

Cell pidCell(const ProcessId& process) {
  switch (process.proof) {
    case ProcessId::Proof::proven:
    case ProcessId::Proof::past: return number("pid", process.number);
    case ProcessId::Proof::hidden: return {"pid", std::to_string(process.number) + "?", "null", Cell::Align::right};
    case ProcessId::Proof::none: break;
  }
  return {"pid", "?", "null", Cell::Align::right};
}

std::vector<uint64_t> Mappers::of(const std::string& path, const std::string& ownersLock) {
  if (!pids_) {
    pids_.emplace();
    std::error_code error;
    for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos || name.size() > 10) continue;
      const uint64_t pid = std::stoull(name);
      eachMapping(name, [&](uint64_t device, uint64_t inode) {
        std::vector<uint64_t>& pids = (*pids_)[{device, inode}];
        if (pids.empty() || pids.back() != pid) pids.push_back(pid);
      });
    }
    for (auto& [file, pids] : *pids_) std::sort(pids.begin(), pids.end());
  }
  struct stat file;
  if (::stat(path.c_str(), &file) != 0) return {};
  const auto found = pids_->find({file.st_dev, file.st_ino});
  std::vector<uint64_t> pids = found == pids_->end() ? std::vector<uint64_t>() : found->second;
  std::erase(pids, lockHolder(ownersLock).number);
  return pids;
}

ProcessId Mappers::oneOf(const std::string& path, const std::string& ownersLock, uint64_t told) {
  struct stat file;
  if (::stat(path.c_str(), &file) != 0) return {};
  bool maps = false;
  const int error = told == 0 ? ENOENT : eachMapping(std::to_string(told), [&](uint64_t device, uint64_t inode) {
    maps = maps || (device == file.st_dev && inode == file.st_ino);
  });
  if (maps) return {told, ProcessId::Proof::proven};
  const std::vector<uint64_t> others = of(path, ownersLock);
  if (!others.empty()) return {others.front(), ProcessId::Proof::proven};
  const bool hidden = error == EACCES || error == EPERM;
  return {told, hidden ? ProcessId::Proof::hidden : ProcessId::Proof::none};
}

}  // namespace fluxon::ctl
