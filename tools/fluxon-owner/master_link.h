// MasterLink: the owner's connection to its master. What is said on it: joining.h.
//
//   apart ──connect, hello──► met ──nothing under way──► registering ──► joined
//     ▲                        │                    │             │
//     └── after a pause ───────┴────────────────────┴─────────────┘ the connection is lost, a refusal, a fence
// The pause doubles from 50 ms up to 1 s (backoff), and is short again after a success.
// One thread.
#pragma once

#include <capnp/rpc-twoparty.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "joining.h"
#include "rpc/access.h"
#include "rpc/daemon.h"
#include "rpc/messages.h"
#include "schema/master.capnp.h"

namespace fluxon::owner {

class MasterLink final : private kj::TaskSet::ErrorHandler {
 public:
  struct Place {
    std::string socket;  // of a master on this host
    Endpoint master;     // on another host; off: by the socket
  };
  MasterLink(rpc::Daemon&, rpc::Access&, Place, Joining, OwnerCore&, std::function<void()> changed);
  ~MasterLink();

  void start() { tasks_.add(run()); }
  void setHttp(std::string address) { joining_.registration().http = std::move(address); }
  void setLink(std::string address) { joining_.registration().link = std::move(address); }
  const rpc::Registration& registration() const { return joining_.registration(); }
  // Queues a request; the requests of one turn of the loop leave in one message.
  void send(const rpc::Request&);
  // Ends the connection if the core has been fenced; the service calls it after every event.
  void check();
  // Says farewell; resolves when the master knows or after a second. `keeps`: the values stay for the next life.
  enum class Values { kept, gone };
  kj::Promise<void> leave(Values);
  bool joined() const { return joining_.joined(); }
  const std::string& lastError() const { return lastError_; }
  // Connections that were made since the start.
  uint64_t connections() const { return connections_; }
  uint64_t term() const { return joining_.term().value; }
  // Resolves at the first successful registration.
  kj::Promise<void> firstJoined() { return first_.addBranch(); }

 private:
  class OwnerServer;
  struct Connection {
    kj::Own<kj::AsyncIoStream> stream;
    kj::Own<capnp::TwoPartyClient> client;
    schema::Master::Client master;
    kj::Maybe<schema::Session::Client> session;
  };

  kj::Promise<kj::Own<kj::AsyncIoStream>> connect();
  kj::Promise<void> run();
  kj::Promise<void> converse();
  kj::Promise<void> join();
  void flush();
  void received(Incarnation life, capnp::List<schema::MasterMessage>::Reader);
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  rpc::Access& access_;
  Place place_;
  OwnerCore& core_;
  Joining joining_;
  std::function<void()> changed_;
  kj::Maybe<kj::Own<Connection>> connection_;
  kj::Own<kj::PromiseFulfiller<void>> broken_;  // ends the present conversation
  kj::Own<kj::PromiseFulfiller<void>> firstFulfiller_;
  kj::ForkedPromise<void> first_;
  std::vector<rpc::Request> queue_;
  kj::Own<capnp::Response<schema::Session::SubmitResults>> answered_;
  bool flushing_ = false;
  bool leaving_ = false;
  int64_t pauseMs_ = 50;
  std::string lastError_;
  uint64_t connections_ = 0;
  kj::TaskSet tasks_;
};

}  // namespace fluxon::owner
