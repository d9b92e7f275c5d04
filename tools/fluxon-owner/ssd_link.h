// SsdLink: the owner's end of the channel to its ssdd: attaching, messages, and the end of what ssdd may write into the segment.
//
//   none ──attach──► attached ──(socket ends, broken frame, startOver)──► adrift ──(attach, or no lock of a shard is held)──► none
//   adrift: the ssdd that was here, or the kernel for it, may still write into the extents of its loads. That is over when the locks of
//   its shard files are free, or when an ssdd attaches: that one holds the locks, and has no I/O of its own in the segment.
//
// Invariant: the link reports the end of each load once (`fetched`), and nothing writes into the extent after that.
// Control thread.
#pragma once

#include <kj/async-unix.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "node_files.h"
#include "owner_core.h"
#include "rpc/daemon.h"
#include "ssd/channel.h"
#include "ssd/ssdd_format.h"

namespace fluxon::owner {

class SsdLink final : private kj::TaskSet::ErrorHandler {
 public:
  struct Events {
    std::function<bool(Incarnation life, bool empty)> takes;  // may it attach?
    std::function<void(Incarnation)> attached;
    std::function<void()> gone;
    std::function<void(const ssd::Message&)> message;
    std::function<void(uint64_t load, uint64_t bytes)> loading;
    std::function<void(uint64_t load, const Error&)> fetched;
    std::function<void()> calm;       // what the ssdd of the last life may have written is over
    std::function<void()> notComing;  // no ssdd will come with what it had in the last life
    std::function<void()> heard;      // after some of these
  };
  SsdLink(rpc::Daemon&, NodeFiles&, const Config&, Events);

  bool enabled() const { return !roots_.empty(); }
  // An ssdd of the last life holds its shards: it may attach with what it has, and may be writing.
  static bool leftBehind(NodeFiles&, const Config&);
  // `leftBehind`: calm() is to be called.
  void start(bool leftBehind);
  void stop();
  void attach(shm::Descriptor& socket, const ssd::SsddAttach&);

  void send(const ssd::Message&);
  void load(const Fetch&);
  void startOver(const char* why);
  // Writes what its owner has left out into the file and, once a minute, into the log.
  void show(const OwnerCounters&, Time now);
  bool attached() const { return channel_ != nullptr; }
  const ssd::SsddStatus* status() const { return file_ ? &shared().status : nullptr; }
  size_t adrift() const { return adrift_.size(); }

 private:
  ssd::SsddFile& shared() const { return *reinterpret_cast<ssd::SsddFile*>(file_.data()); }
  // The tasks of a channel stop when it is not the present one.
  kj::Promise<void> watch(const ssd::Channel&);
  kj::Promise<void> bell(const ssd::Channel&);
  kj::Promise<void> awaitLocks();
  kj::Promise<void> patience();
  void received(const ssd::Message&);
  void cut();
  void lost(const ssd::Channel&, const std::string& why);
  void writesEnded();
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  NodeFiles& files_;
  std::vector<std::string> roots_;
  Events events_;
  log::Seldom refused_;
  shm::MappedFile file_;
  shm::FaultGuard fileGuard_;  // ssdd can cut it short; it is no ring then, or an idle one
  shm::Descriptor socket_, ownBell_, peerBell_;
  std::unique_ptr<ssd::Channel> channel_;
  kj::Own<kj::UnixEventPort::FdObserver> socketObserver_, bellObserver_;
  std::set<uint64_t> loads_, adrift_;
  bool leftBehind_ = false;
  bool awaiting_ = false;  // the locks
  uint64_t cuts_ = 0;
  uint64_t saidLeftOut_ = 0;
  Time nextWarning_{0};
  kj::Own<kj::TaskSet> channelTasks_;
  kj::TaskSet tasks_;
};

}  // namespace fluxon::owner
