#include "disk.h"

#include <cerrno>

namespace fluxon::sim {

Error Disk::operation(const char* what, const std::string& path) {
  if (left_ == 0) return systemError(std::string(what) + " " + path + ": the process has died", EIO);
  if (left_ != UINT64_MAX) --left_;
  if (failing_ == 0 || !scheduler_.oneIn(failing_)) return {};
  ++counters_.failed;
  scheduler_.log("disk: ", what, " ", path, " fails");
  return systemError(std::string(what) + " " + path, EIO);
}

Result<std::string> Disk::read(const std::string& path) {
  if (Error error = operation("read", path); !error.ok()) return error;
  const auto found = cached_.find(path);
  if (found == cached_.end()) return Error{Code::miss, path};
  return found->second->cached;
}

void Disk::put(Inode& inode, const std::string& bytes) {
  inode.cached = bytes;
  for (size_t sector = 0; sector * kSector < std::max(bytes.size(), inode.durable.size()); ++sector) inode.dirty.insert(sector);
}

Error Disk::write(const std::string& path, const std::string& bytes) {
  std::shared_ptr<Inode>& inode = cached_[path];
  if (!inode) inode = std::make_shared<Inode>();
  if (Error error = operation("write", path); !error.ok()) {
    // Some of it may have arrived.
    if (left_ != 0) put(*inode, bytes.substr(0, scheduler_.pick(bytes.size() + 1)));
    return error;
  }
  if (failing_ != 0 && scheduler_.oneIn(failing_)) {
    ++counters_.shortened;
    put(*inode, bytes.substr(0, scheduler_.pick(bytes.size() + 1)));
    return systemError("write " + path, ENOSPC);
  }
  put(*inode, bytes);
  return {};
}

Error Disk::sync(const std::string& path) {
  if (Error error = operation("fsync", path); !error.ok()) return error;
  Inode& inode = *cached_.at(path);
  inode.durable = inode.cached;
  inode.dirty.clear();
  return {};
}

Error Disk::rename(const std::string& from, const std::string& to) {
  if (Error error = operation("rename", from); !error.ok()) return error;
  cached_[to] = cached_.at(from);
  cached_.erase(from);
  return {};
}

Error Disk::syncFolder(const std::string& path) {
  if (Error error = operation("fsync the folder of", path); !error.ok()) return error;
  durable_ = cached_;
  return {};
}

void Disk::crash() {
  left_ = UINT64_MAX;
  if (scheduler_.oneIn(2)) {
    ++counters_.lost;
    cached_ = durable_;
  }
  durable_ = cached_;
  for (auto& [path, inode] : cached_) {
    if (inode->dirty.empty()) continue;
    ++counters_.torn;
    std::string left = inode->durable;
    const bool grown = scheduler_.oneIn(2);  // the length is a thing of its own
    if (grown) left.resize(inode->cached.size(), '\0');
    for (const size_t sector : inode->dirty) {
      const size_t from = sector * kSector;
      if (scheduler_.oneIn(2) || from >= left.size() || from >= inode->cached.size()) continue;
      const size_t bytes = std::min({kSector, left.size() - from, inode->cached.size() - from});
      left.replace(from, bytes, inode->cached, from, bytes);
    }
    inode->cached = inode->durable = left;
    inode->dirty.clear();
  }
}

}  // namespace fluxon::sim
