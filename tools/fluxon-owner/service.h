// The edge of an owner: client rings on one side, the master on the other, time, scans on worker threads, metrics. All decisions
// are in OwnerCore.
#pragma once

#include <kj/async.h>

#include <memory>
#include <string>

#include "clients.h"
#include "master_link.h"
#include "node_files.h"
#include "owner_core.h"
#include "rpc/daemon.h"

namespace fluxon::owner {

class Service final : public Host, private kj::TaskSet::ErrorHandler {
 public:
  Service(rpc::Daemon&, NodeFiles&, const Config&, rpc::Access&);
  ~Service() noexcept override;

  Error start();
  kj::Promise<void> ready() { return link_.firstJoined(); }
  void setHttp(std::string address) { link_.setHttp(std::move(address)); }
  // Serves nothing any more, answers what is open, tells the master.
  kj::Promise<void> stop();
  std::string metrics() const;
  std::string health(bool& healthy) const;

  // Host
  void send(const rpc::Request& request) override { link_.send(request); }
  bool answer(Caller caller, Answer answer) override { return clients_.answer(caller, answer); }
  void scan(uint64_t scan, std::vector<uint64_t> refs) override;

 private:
  kj::Promise<void> beat();
  kj::Promise<void> populate(uint64_t at);
  void run();
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  NodeFiles& files_;
  bool populating_;
  bool populatePages_;
  OwnerCore core_;
  Clients clients_;
  MasterLink link_;
  kj::Own<kj::PromiseFulfiller<void>> rescheduled_;
  kj::TaskSet tasks_;
};

}  // namespace fluxon::owner
