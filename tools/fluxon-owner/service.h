// Service: the edge of an owner: client rings on one side, the master on the other, time, scans on worker threads, metrics. All
// decisions are in OwnerCore.
#pragma once

#include <kj/async.h>

#include <memory>
#include <string>

#include "clients.h"
#include "master_link.h"
#include "node_files.h"
#include "owner_core.h"
#include "peer_link.h"
#include "rpc/daemon.h"
#include "ssd_link.h"

namespace fluxon::owner {

class Service final : public Host, private kj::TaskSet::ErrorHandler {
 public:
  Service(rpc::Daemon&, NodeFiles&, const Config&, rpc::Access&);
  ~Service() noexcept override;

  Error start();
  kj::Promise<void> ready() { return link_.firstJoined(); }
  void setHttp(std::string address) { link_.setHttp(std::move(address)); }
  // Serves nothing any more, answers what is open, tells the master. The values stay for the next life, unless this owner leaves.
  kj::Promise<void> stop();
  // This owner leaves for good: stop() drops the values and tells the master so, and nothing of the node is left.
  void leave(const char* why);
  // Resolves when this owner leaves, or a file of the node is not there any more.
  kj::Promise<void> left() { return kj::mv(left_); }
  // Which file is lost, and what went with it. Without the lock the process must end as it is, without stop().
  const NodeFiles::Loss& loss() const { return loss_; }
  std::string metrics() const;
  std::string health(bool& healthy) const;

  // Host
  void send(const rpc::Request& request) override { link_.send(request); }
  bool answer(Caller caller, Answer answer) override { return clients_.answer(caller, answer); }
  void scan(uint64_t scan, std::vector<uint64_t> refs) override;
  void fetch(Fetch fetch) override { fetch.ssd ? ssd_.load(fetch) : peers_.fetch(std::move(fetch)); }
  void cancelFetches() override { peers_.cancelAll(); }
  void exportValue(ExportId id, uint64_t offset, uint64_t bytes, uint64_t ready) override {
    peers_.exportValue(id, files_.segment() + offset, bytes, ready);
  }
  void exportProgress(ExportId id, uint64_t ready) override { peers_.exportProgress(id, ready); }
  void exportFailed(ExportId id) override { peers_.exportFailed(id); }
  void ssd(ssd::Message message) override { ssd_.send(message); }
  void ssdStartOver(const char* why) override { ssd_.startOver(why); }
  void unexport(ExportId id) override { peers_.unexport(id); }
  bool neighbour(const rpc::Peer& peer) override { return peers_.neighbour(peer); }
  void leave() override { leave("everything is elsewhere"); }

 private:
  kj::Promise<void> decided(Time until);
  kj::Promise<void> farewell();
  kj::Promise<void> beat();
  kj::Promise<void> populate(uint64_t at);
  kj::Promise<void> eachSecond();
  void lost(NodeFiles::Loss);
  void run();
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  NodeFiles& files_;
  bool populatePages_;
  bool ssdLeftBehind_;
  OwnerCore core_;
  PeerLink peers_;
  SsdLink ssd_;
  Clients clients_;
  MasterLink link_;
  bool stopping_ = false;
  bool leaving_ = false;
  NodeFiles::Loss loss_;
  uint64_t readBytes_ = 0;  // held by readers, as of the last second
  kj::Own<kj::PromiseFulfiller<void>> leave_;
  kj::Promise<void> left_;
  kj::Own<kj::PromiseFulfiller<void>> rescheduled_;
  kj::TaskSet tasks_;
};

}  // namespace fluxon::owner
