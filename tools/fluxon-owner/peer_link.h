// PeerLink: moves values between this owner and others by the links of its table (link_table.h): copies out of the mapped segments of
// neighbours, and tcp.
//
// Control thread. PeerLink reports results by its events, those of fetch() after it has returned.
#pragma once

#include <kj/async-unix.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "link_table.h"
#include "neighbours.h"
#include "net/secret.h"
#include "node_files.h"
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

  // Starts the links that listen; others start with their first fetch. Errors: those of the secret file and the sockets.
  Error start();
  // What peers are told, "" if no link listens.
  std::string address() const { return table_.address(); }
  const std::string& hostId() const { return neighbours_.hostId(); }
  void setIncarnation(Incarnation incarnation) { table_.setIncarnation(incarnation); }

  void fetch(Fetch);
  void cancelAll();
  // As Link::publish, advance, fail and unpublish.
  void exportValue(ExportId id, const char* data, uint64_t bytes, uint64_t ready) { table_.publish(id, data, bytes, ready); }
  void exportProgress(ExportId id, uint64_t ready) { table_.advance(id, ready); }
  void exportFailed(ExportId id) { table_.fail(id); }
  void unexport(ExportId id) { table_.unpublish(id); }
  bool neighbour(const rpc::Peer& peer) { return neighbours_.has(peer); }

  // What the links are reading. Every scan looks at these hazards.
  const shm::ClientFile& hazards() const { return *hazards_; }
  void show(rpc::MetricsPage&) const;

 private:
  struct Watch {
    link::Link& link;
    kj::Own<kj::UnixEventPort::FdObserver> observer;
    kj::Promise<void> reaping = nullptr;
  };
  std::vector<LinkTable::Row> rows();
  Result<std::unique_ptr<link::Link>> startTcp();
  kj::Promise<void> reap(Watch&);

  rpc::Daemon& daemon_;
  NodeFiles& files_;
  const Config config_;
  const Events events_;
  Neighbours neighbours_;
  std::unique_ptr<shm::ClientFile, void (*)(shm::ClientFile*)> hazards_;
  const shm::DirectoryView view_;
  net::Secret secret_;
  log::Seldom refusals_;
  LinkTable table_;
  std::list<Watch> watches_;
  std::vector<Fetch> waiting_;  // of one turn of the loop
  bool flushing_ = false;
  kj::Promise<void> flush_;
};

}  // namespace fluxon::owner
