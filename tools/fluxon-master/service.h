// Service: the RPC edge of the master. It holds the connections of owners and operators, writes the state file, and brings time to
// MasterCore, which makes all decisions. Operators: operator_server.h; the page of metrics: metrics.cpp.
// A handler finishes within the call or hands its work to the service's own TaskSet: a caller that goes away cancels its waiting, not the
// work.
#pragma once

#include <kj/async.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channels.h"
#include "refused_joins.h"
#include "rpc/daemon.h"
#include "rpc/socket_stream.h"
#include "schema/master.capnp.h"
#include "state_writer.h"

namespace fluxon::master {

class Service final : public Outbox, private kj::TaskSet::ErrorHandler {
 public:
  Service(rpc::Daemon&, MasterCore::Identity, Settings, DurableState, std::string statePath, const rpc::Refusals&);
  ~Service() noexcept override;

  // Serves a connection until it ends. `from`: where its other end is, for people.
  void accept(kj::Own<kj::AsyncIoStream>, const std::string& from);
  void setHttp(std::string address) { http_ = std::move(address); }
  // Where processes of other hosts connect; empty: nowhere.
  void setListen(std::string address) { listen_ = std::move(address); }
  std::string metrics() const;
  std::string health(bool& healthy) const;

  // Outbox
  void send(Member& member, rpc::MasterMessage message) override { channels_.send(member, std::move(message)); }
  void persist() override { writer_.changed(); }
  // Somebody has removed the state file: writes it again.
  void storeAgain() {
    writer_.changed();
    run();
  }

 private:
  class MasterServer;
  class SessionServer;
  class OperatorServer;

  void flush();
  void run();
  void woken();
  kj::Promise<void> watchRefused();
  kj::Promise<void> written();
  void write();
  void lost(Member&, uint64_t connection);
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  StateWriter writer_;
  std::unique_ptr<StateDisk> disk_;
  std::string statePath_;
  const rpc::Refusals& refusals_;
  std::string http_, listen_;
  Time started_;
  Channels channels_;
  std::map<uint64_t, schema::Owner::Client> owners_;  // by connection
  RefusedJoins refusedJoins_;
  MasterCore core_;
  std::multimap<uint64_t, kj::Own<kj::PromiseFulfiller<void>>> written_;  // waiters, by the version that must be on disk
  kj::Own<kj::PromiseFulfiller<void>> rescheduled_;
  kj::TaskSet tasks_;
};

}  // namespace fluxon::master
