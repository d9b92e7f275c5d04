#include "node_files.h"

#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/size.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace fluxon::owner {

Result<std::unique_ptr<NodeFiles>> NodeFiles::create(const shm::Paths& paths, const std::string& node, const Config::Owner& config,
                                                     int group, Incarnation incarnation) {
  std::unique_ptr<NodeFiles> files(new NodeFiles(paths, node, group));
  if (Error error = shm::makeDirectories(paths, paths.nodeDir(node), group); !error.ok()) return error;
  Result<shm::LockFile> lock = shm::LockFile::acquire(files->file("lock"), "node " + node);
  if (!lock) return lock.error();
  files->lock_ = std::move(lock).value();
  files->clearLeftovers();
  if (Error error = files->makeFiles(config, incarnation); !error.ok()) return error;
  return files;
}

void NodeFiles::clearLeftovers() {
  if (Result<shm::MappedFile> old = shm::MappedFile::open(file("directory"), shm::Access::readWrite)) {
    auto* header = reinterpret_cast<shm::DirectoryHeader*>(old->data());
    if (old->bytes() >= sizeof(shm::DirectoryHeader) && !shm::refuse(header->file, shm::kDirectoryMagic, old->bytes())) {
      header->leaseUntilNs.store(0, std::memory_order_seq_cst);
      header->servingIncarnation.store(0, std::memory_order_seq_cst);
      clusterId_ = header->clusterId.load();
      highestTerm_ = header->highestTerm.load();
      highestMaster_ = header->highestMaster.load();
    }
  }
  DIR* dir = ::opendir(paths_.nodeDir(node_).c_str());
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == "segment" || name == "directory" || name == "keys" || name == "socket" || name.starts_with("client-")) {
      ::unlinkat(::dirfd(dir), entry->d_name, 0);
    }
  }
  ::closedir(dir);
}

Error NodeFiles::makeFiles(const Config::Owner& config, Incarnation incarnation) {
  const int mode = group_ >= 0 ? 0640 : 0600;
  const uint64_t segmentBytes = alignUp(config.segmentBytes, 4096);
  shape_ = shm::DirectoryWriter::shapeFor(config.maxKeys, segmentBytes);
  const auto make = [&](const char* name, uint64_t bytes, shm::MappedFile& map) -> Error {
    Result<shm::Descriptor> fd = shm::createFile(file(name), bytes, mode, group_);
    if (!fd) return fd.error();
    Result<shm::MappedFile> mapped = shm::MappedFile::map(fd->get(), shm::Access::readWrite, file(name));
    if (!mapped) return mapped.error();
    map = std::move(mapped).value();
    return {};
  };
  if (Error error = make("segment", shm::kSegmentDataOffset + segmentBytes, segmentMap_); !error.ok()) return error;
  if (Error error = make("directory", shm::directoryFileBytes(shape_.buckets, shape_.overflowSlots), directoryMap_); !error.ok())
    return error;
  if (Error error = make("keys", shm::keysFileBytes(shape_.keysBytes), keysMap_); !error.ok()) return error;
  ::madvise(directoryMap_.data(), directoryMap_.bytes(), MADV_POPULATE_WRITE);  // a hint: without it first touches cost more

  auto& header = segmentHeader();
  std::memcpy(header.file.magic, shm::kSegmentMagic, 8);
  header.file.version = shm::kFormatVersion;
  header.file.headerBytes = static_cast<uint32_t>(shm::kSegmentDataOffset);
  header.file.fileBytes = segmentMap_.bytes();
  header.file.incarnation = incarnation.value;
  header.dataBytes = segmentBytes;
  memory_ = shm::DirectoryWriter::layout(directoryMap_.data(), keysMap_.data(), shape_, incarnation, paths_.cluster, node_);
  memory_.header->pid = static_cast<uint64_t>(::getpid());
  memory_.header->controlAsleep.store(1, std::memory_order_relaxed);
  memory_.header->clusterId.store(clusterId_, std::memory_order_relaxed);
  memory_.header->highestTerm.store(highestTerm_, std::memory_order_relaxed);
  memory_.header->highestMaster.store(highestMaster_, std::memory_order_relaxed);
  directory_ = std::make_unique<shm::DirectoryWriter>(memory_, shape_);
  return {};
}

NodeFiles::~NodeFiles() {
  if (!lock_.acquired()) return;  // the files are another's
  if (directory_) {
    directory_->setLease(0);
    directory_->setServing(Incarnation());
  }
  clearLeftovers();
  ::unlink(file("lock").c_str());
  ::rmdir(paths_.nodeDir(node_).c_str());
}

uint64_t NodeFiles::populateStep(uint64_t at) {
  const uint64_t step = std::min(segmentBytes() - at, 16 * kMiB);
  // EINVAL on kernels without it: pages are then touched by their first writer.
  if (step == 0 || ::madvise(segment() + at, step, MADV_POPULATE_WRITE) != 0) return segmentBytes();
  segmentHeader().populatedBytes.store(at + step, std::memory_order_relaxed);
  return at + step;
}

}  // namespace fluxon::owner
