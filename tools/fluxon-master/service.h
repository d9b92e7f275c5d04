// The RPC edge of the master: connections of owners and operators, the state file, time. All decisions are in MasterCore.
// Handlers finish within the call or hand their work to the service's own TaskSet: a caller that goes away cancels its waiting,
// not the work.
#pragma once

#include <kj/async.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "master_core.h"
#include "rpc/daemon.h"
#include "rpc/socket_stream.h"
#include "schema/master.capnp.h"
#include "state_file.h"

namespace fluxon::master {

class Service final : public Outbox, private kj::TaskSet::ErrorHandler {
 public:
  Service(rpc::Daemon&, MasterCore::Identity, Settings, DurableState, std::string statePath, const rpc::Refusals&);
  ~Service() noexcept override;

  schema::Master::Client bootstrap();
  void setHttp(std::string address) { http_ = std::move(address); }
  // Where processes of other hosts connect; empty: nowhere.
  void setListen(std::string address) { listen_ = std::move(address); }
  std::string metrics() const;
  std::string health(bool& healthy) const;

  // Outbox
  void send(Member&, rpc::MasterMessage) override;
  void persist() override { writeWanted_ = true; }

 private:
  class MasterServer;
  class SessionServer;
  class OperatorServer;
  // Messages for one member that have not left yet, and the way to it.
  struct Channel {
    std::shared_ptr<Member> member;
    schema::Owner::Client owner;
    std::vector<rpc::MasterMessage> queue;
  };

  std::vector<rpc::MasterMessage> take(Member&);
  void flush();
  void run();
  void woken();
  kj::Promise<void> written();
  void write();
  void connected(std::shared_ptr<Member>, schema::Owner::Client);
  void lost(Member&, uint64_t connection);
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  DurableState durable_;
  std::string statePath_;
  const rpc::Refusals& refusals_;
  std::string http_, listen_;
  Time started_;
  std::map<Member*, Channel> channels_;
  std::map<Member*, std::vector<rpc::MasterMessage>> early_;  // for members that are about to get a channel
  uint64_t connections_ = 0;
  std::map<Member*, uint64_t> connection_;  // the newest connection of each member
  bool writeWanted_ = false;  // durable() has changed since it was last handed to the disk
  MasterCore core_;
  kj::ForkedPromise<void> writing_;
  bool late_ = false;
  std::string stateError_;
  kj::Own<kj::PromiseFulfiller<void>> rescheduled_;
  kj::TaskSet tasks_;
};

}  // namespace fluxon::master
