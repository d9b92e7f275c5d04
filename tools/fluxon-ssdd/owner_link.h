// The connection to the owner of this node: attaching, and what the owner hands over (ssd/ssdd_format.h). Its socket says nothing
// more; that it ends means that the owner, or its will to have this ssdd, has ended. One thread, nothing blocks.
#pragma once

#include <kj/async-io.h>
#include <kj/async-unix.h>

#include <memory>
#include <string>

#include "rpc/daemon.h"
#include "shm/fault_guard.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"
#include "ssd/ssdd_format.h"

namespace fluxon::ssdd {

// What an owner has handed over. It stays mapped as long as this lives, also when the owner is gone.
class Session {
 public:
  ssd::SsddFile& file() const { return *reinterpret_cast<ssd::SsddFile*>(fileMap_.data()); }
  char* segment() const;
  uint64_t segmentBytes() const { return segmentBytes_; }
  uint64_t populatedBytes() const;  // as the owner says: anything
  int ownersBell() const { return ownersBell_.get(); }
  int bell() const { return bell_.get(); }
  kj::Promise<void> rung();
  // Resolves when the owner has gone.
  kj::Promise<void> ended();

 private:
  friend class OwnerLink;
  using Observer = kj::UnixEventPort::FdObserver;
  Session(kj::UnixEventPort& port, shm::Descriptor socket, int (&descriptors)[ssd::kSsddDescriptors]);
  // Are these what they should be?
  Error map(const shm::Descriptor& file, const shm::Descriptor& segment);

  kj::UnixEventPort& port_;
  shm::Descriptor socket_, ownersBell_, bell_;
  shm::MappedFile fileMap_, segmentMap_;
  shm::FaultGuard segmentGuard_;  // bytes of a value that are not there must not be taken for zeros
  uint64_t segmentBytes_ = 0;
  kj::Own<Observer> socketObserver_, bellObserver_;
};

class OwnerLink {
 public:
  OwnerLink(rpc::Daemon& daemon, shm::Paths paths, std::string node) : daemon_(daemon), paths_(std::move(paths)), node_(std::move(node)) {}

  // One try. fenced: what this ssdd has is worth nothing any more. Other errors: ask again.
  kj::Promise<Result<std::shared_ptr<Session>>> attach(const ssd::SsddAttach&);

 private:
  Result<std::shared_ptr<Session>> answered(shm::Descriptor socket, Time asked);

  rpc::Daemon& daemon_;
  shm::Paths paths_;
  std::string node_;
};

}  // namespace fluxon::ssdd
