// MasterLink: the owner's connection to its master, and its place in the cluster.
//
//   apart ──connect, hello──► met ──(known term, not fenced)──► register again, same incarnation ──► joined
//     ▲                        └──(else): keep the values, settle──► register, new incarnation ──(inventory)──► joined
//     │                                        ▲                          │ the master wants no inventory: drop the values, settle,
//     │                                        └──────────────────────────┘ and once more
//     └───────────────── connection lost, register refused: after a pause ──────────────────────────────────────┘
// Another cluster's values, and those that the master has refused as a whole, are dropped before the first registration.
// The pause grows from 50 ms to 1 s and is short again after a success. A (term, master) lower than the highest seen, or equal to
// it in term but of another master, is refused: it is a master that has been replaced.
// One thread.
#pragma once

#include <capnp/rpc-twoparty.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "owner_core.h"
#include "rpc/access.h"
#include "rpc/daemon.h"
#include "rpc/messages.h"
#include "schema/master.capnp.h"

namespace fluxon::owner {

class MasterLink final : private kj::TaskSet::ErrorHandler {
 public:
  struct Place {
    std::string socket;   // of a master on this host
    Endpoint master;      // on another host; off: by the socket
    std::string cluster;
    rpc::Registration registration;  // node, host, sizes; incarnation and occupied are filled in here
  };
  MasterLink(rpc::Daemon&, rpc::Access&, Place, OwnerCore&, shm::DirectoryHeader&, std::function<void()> changed);
  ~MasterLink();

  void start() { tasks_.add(run()); }
  void setHttp(std::string address) { place_.registration.http = std::move(address); }
  void setLink(std::string address) { place_.registration.link = std::move(address); }
  const rpc::Registration& registration() const { return place_.registration; }
  // Queues; what was queued in one turn of the loop leaves in one message.
  void send(const rpc::Request&);
  // Looks whether the core was fenced since; the service calls it after every event.
  void check();
  // Says farewell; resolves when the master knows or after a second. `keeps`: the values stay for the next life.
  enum class Values { kept, gone };
  kj::Promise<void> leave(Values);
  bool joined() const { return joined_; }
  const std::string& lastError() const { return lastError_; }
  uint64_t term() const { return term_; }
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
  kj::Promise<void> registerNow(uint64_t term, uint64_t master, bool anew);
  kj::Promise<void> settled();
  void flush();
  void received(capnp::List<schema::MasterMessage>::Reader);
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  rpc::Access& access_;
  Place place_;
  OwnerCore& core_;
  shm::DirectoryHeader& header_;
  std::function<void()> changed_;
  kj::Maybe<kj::Own<Connection>> connection_;
  kj::Own<kj::PromiseFulfiller<void>> broken_;  // ends the present conversation
  kj::Own<kj::PromiseFulfiller<void>> firstFulfiller_;
  kj::ForkedPromise<void> first_;
  std::vector<rpc::Request> queue_;
  std::vector<rpc::MasterMessage> early_;  // came before the answer to the registration
  kj::Own<capnp::Response<schema::Session::SubmitResults>> answered_;
  bool flushing_ = false;
  bool joined_ = false;
  bool leaving_ = false;
  uint64_t term_ = 0, master_ = 0;
  int64_t pauseMs_ = 50;
  std::string lastError_;
  kj::TaskSet tasks_;
};

}  // namespace fluxon::owner
