// Service: the edge of an ssdd. It connects SsdCore, which makes all decisions, with the owner, the devices, time and metrics.
//
//   opening ──(all shards locked and emptied)──► seeking ──(attached)──► attached ──(owner gone, channel broken)──► draining
//                                                   ▲                                                                │
//                                                   └──────────────(nothing touches the segment any more)────────────┘
// The shards keep their contents when an owner goes. ssdd tells the next owner how much there is; that owner may refuse all of it (fenced),
// and then the shards start empty under a new life (epoch). The control thread never waits for a disk: a worker opens the files, and
// devices have their own threads.
#pragma once

#include <kj/async.h>

#include <memory>
#include <optional>
#include <string>

#include "base/config.h"
#include "device.h"
#include "owner_link.h"
#include "rpc/daemon.h"
#include "ssd/channel.h"
#include "ssd/roots.h"
#include "ssd_core.h"

namespace fluxon::ssdd {

class Service final : public Host, private kj::TaskSet::ErrorHandler {
 public:
  Service(rpc::Daemon&, const Config&, shm::Paths, std::string node);
  ~Service() noexcept override;

  // Opens the shards, then serves. Error: the shards cannot be opened.
  kj::Promise<Error> open();
  // Sets the address of the HTTP endpoint; before open().
  void shows(std::string http) { http_ = std::move(http); }
  // Resolves when an owner has taken this ssdd for the first time.
  kj::Promise<void> ready() { return kj::mv(ready_); }
  // Takes no more requests; resolves when no I/O is left, however long the disk takes.
  kj::Promise<void> stop();

  std::string metrics() const;
  std::string health(bool& healthy) const;

  // Host
  void send(ssd::Message) override;

 private:
  enum class State { opening, seeking, attached, draining };

  kj::Promise<Error> tryOpen();
  Error opened();
  kj::Promise<void> detach();
  uint64_t sum(std::atomic<uint64_t> DeviceCounters::*) const;
  kj::Promise<void> seek(Duration pause);
  void attached(std::shared_ptr<Session>);
  kj::Promise<void> watchPopulated(Duration pause);
  kj::Promise<void> listen();
  kj::Promise<void> reap();
  void handle(DiskResult&);
  kj::Promise<void> work();
  kj::Promise<void> tick();
  kj::Promise<void> lookForFiles(size_t device);
  kj::Promise<void> giveSpaceBack(size_t device);
  void sayOutages();
  void hearRest();
  void lose(const std::string& why);
  void after();
  kj::Promise<void> drained();
  void publish();
  Duration age(size_t device) const;  // of its oldest I/O
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  const Config& config_;
  const std::string node_;
  std::string http_;
  OwnerLink link_;
  State state_ = State::opening;
  bool stopping_ = false;
  std::string error_;  // why it is not open, or not attached
  Incarnation life_ = newIncarnation();
  uint64_t attaches_ = 0;

  ssd::Roots roots_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<SsdCore> core_;
  size_t onWorkers_ = 0;              // file checks that a disk has not answered
  std::vector<DeviceState> outages_;  // by device: the state that the log has reported
  std::vector<bool> retired_;         // by shard
  std::shared_ptr<Session> session_;  // while attached or draining
  std::optional<ssd::Channel> channel_;
  bool openingNow_ = false, working_ = false, publishing_ = false, detaching_ = false;

  kj::Own<kj::UnixEventPort::FdObserver> devicesObserver_;
  kj::Own<kj::PromiseFulfiller<void>> isReady_;
  kj::Promise<void> ready_;
  kj::Own<kj::TaskSet> tasks_;
  kj::Own<kj::TaskSet> ownersTasks_;  // of the session
};

}  // namespace fluxon::ssdd
