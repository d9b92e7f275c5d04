// PeerLink: how values come from other owners, and go to them. From another host by the tcp link, which looks up what it sends by
// itself; from a neighbour, an owner of this host, by a copy out of its segment, which a thread of its own makes as a client of that
// owner. Either way this owner pulls, so nobody else writes into its segment.
//
// "Neighbour" means: the host id is ours (boot and shared memory folder), the lock of its node is held, and its directory is served
// by the incarnation that the master named. An address says nothing about it.
//
// Control thread; the results come by the events.
#pragma once

#include <kj/async-unix.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "client/client.h"
#include "link/tcp/tcp_link.h"
#include "node_files.h"
#include "owner_core.h"
#include "rpc/daemon.h"
#include "rpc/metrics.h"

namespace fluxon::owner {

class PeerLink {
 public:
  struct Events {
    std::function<void(uint64_t id, const Error&)> fetched;
    std::function<void(ExportId)> unexported;
  };
  PeerLink(rpc::Daemon&, NodeFiles&, const Config&, Events);
  ~PeerLink();

  // Starts the tcp link if it is to listen, else at the first fetch. Errors: those of the secret file and the socket.
  Error start();
  // What peers are told, "" without a listening link.
  std::string address() const;
  const std::string& hostId() const { return hostId_; }
  void setIncarnation(Incarnation);

  void fetch(Fetch);
  void cancelAll();
  // As TcpLink::publish, advance, fail.
  void exportValue(ExportId, const char* data, uint64_t bytes, uint64_t ready);
  void exportProgress(ExportId, uint64_t ready);
  void exportFailed(ExportId);
  void unexport(ExportId);
  bool neighbour(const rpc::Peer&);

  // What the link itself is reading: to be looked at by every scan.
  const shm::ClientFile& hazards() const { return *hazards_; }
  void show(rpc::MetricsPage&) const;

 private:
  class Copier;
  Error open();
  // False: the system gives no thread for it.
  bool startCopier();
  kj::Promise<void> reap();
  kj::Promise<void> copied();

  rpc::Daemon& daemon_;
  NodeFiles& files_;
  Config config_;
  Events events_;
  std::string hostId_;
  Incarnation incarnation_;
  std::unique_ptr<shm::ClientFile, void (*)(shm::ClientFile*)> hazards_;
  shm::DirectoryView view_;
  net::Secret secret_;
  std::unique_ptr<link::tcp::TcpLink> tcp_;
  std::unique_ptr<Copier> copier_;
  log::Seldom noCopier_;
  kj::Own<kj::UnixEventPort::FdObserver> tcpObserver_, copierObserver_;
  std::map<std::string, Incarnation> neighbours_;          // found to be ones
  std::map<std::string, std::vector<link::Fetch>> batch_;  // of one turn of the loop, by peer
  std::map<std::string, link::PeerAddress> addresses_;
  bool flushing_ = false;
  kj::Promise<void> reaping_, copying_, flush_;
};

}  // namespace fluxon::owner
