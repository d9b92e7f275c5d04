// OwnerLink: attaches to the owner of this node and receives the files that it hands over (ssd/ssdd_format.h). The socket carries nothing
// after that; its end means that the owner has ended, or does not want this ssdd any more. One thread, nothing blocks.
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

// The files that an owner has handed over. They stay mapped while the session lives, even after the owner has gone.
class Session {
 public:
  ssd::SsddFile& file() const { return *reinterpret_cast<ssd::SsddFile*>(fileMap_.data()); }
  char* segment() const;
  uint64_t segmentBytes() const { return segmentBytes_; }
  uint64_t populatedBytes() const;  // as the owner's file says: not checked
  int ownersBell() const { return ownersBell_.get(); }
  int bell() const { return bell_.get(); }
  kj::Promise<void> rung();
  // Resolves when the owner has gone.
  kj::Promise<void> ended();

 private:
  friend class OwnerLink;
  using Observer = kj::UnixEventPort::FdObserver;
  Session(kj::UnixEventPort& port, shm::Descriptor socket, int (&descriptors)[ssd::kSsddDescriptors]);
  // Checks and maps the files.
  Error map(const shm::Descriptor& file, const shm::Descriptor& segment);

  kj::UnixEventPort& port_;
  shm::Descriptor socket_, ownersBell_, bell_;
  shm::MappedFile fileMap_, segmentMap_;
  shm::FaultGuard segmentGuard_;  // bytes of a value that are lost must not read as zeros
  uint64_t segmentBytes_ = 0;
  kj::Own<Observer> socketObserver_, bellObserver_;
};

class OwnerLink {
 public:
  OwnerLink(rpc::Daemon& daemon, shm::Paths paths, std::string node) : daemon_(daemon), paths_(std::move(paths)), node_(std::move(node)) {}

  // Tries once. fenced: the contents of this ssdd are void. Other errors: the caller tries again.
  kj::Promise<Result<std::shared_ptr<Session>>> attach(const ssd::SsddAttach&);

 private:
  Result<std::shared_ptr<Session>> answered(shm::Descriptor socket, Time asked);

  rpc::Daemon& daemon_;
  shm::Paths paths_;
  std::string node_;
};

}  // namespace fluxon::ssdd
