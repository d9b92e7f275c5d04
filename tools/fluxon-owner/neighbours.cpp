#include "neighbours.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "shm/directory_format.h"

namespace fluxon::owner {
namespace {

std::string hostIdOf(const shm::Paths& paths) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat folder {};
  ::stat(paths.clusterDir().c_str(), &folder);
  return boot + "/" + std::to_string(folder.st_dev) + ":" + std::to_string(folder.st_ino);
}

}  // namespace

Neighbours::Neighbours(shm::Paths paths) : paths_(std::move(paths)), hostId_(hostIdOf(paths_)) {}

bool Neighbours::has(const rpc::Peer& peer) {
  if (peer.hostId != hostId_ || !validName(peer.node)) return false;
  const auto known = found_.find(peer.node);
  if (known != found_.end() && known->second == peer.incarnation) return true;
  if (!shm::LockFile::held(paths_.file(peer.node, "lock"))) return false;
  // Read, not mapped: it is another process's, and may become shorter meanwhile.
  const Result<shm::Descriptor> directory = shm::openFile(paths_.file(peer.node, "directory"), shm::Access::readOnly);
  shm::DirectoryHeader header{};
  struct stat info;
  if (!directory || ::fstat(directory.value().get(), &info) != 0 ||
      ::pread(directory.value().get(), static_cast<void*>(&header), sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    return false;
  if (shm::refuse(header.file, shm::kDirectoryMagic, static_cast<uint64_t>(info.st_size))) return false;
  if (header.servingIncarnation.load(std::memory_order_acquire) != peer.incarnation.value) return false;
  found_[peer.node] = peer.incarnation;
  return true;
}

}  // namespace fluxon::owner
