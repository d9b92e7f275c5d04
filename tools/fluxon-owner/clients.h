// Clients: attaches the clients of this owner, reads their rings in turn (client_ring.h), and notices their ends.
//
// Life of a client:   attached, adopted ──(its flock is free)──► gone: grants aborted, holds and hazards over, file removed
//   The flock lies on an open file description that only the client has: this process opened the file a second time, locked
//   that description, handed it over and closed its copy. The client maps it and closes it; the mapping keeps it. So the lock is
//   free exactly when no process maps the file any more (forked children that keep the mapping count). The owner looks at the lock
//   when the socket ends, then after growing pauses, and once a second in any case. A socket alone proves nothing: fork, exec and
//   closefrom end it too.
//
//   The owner runs no more commands of a client whose file has been cut short. Its grants stay until its lock is free, since it may be
//   writing there; its holds end.
//
// Invariant: controlAsleep is 1 while the owner does not look at the rings. The owner sets it before its last look (seq_cst on both
// sides), so that look sees a client that read 0, and a client that read 1 rings its bell.
//   Each client has a bell (an eventfd) of its own, so that no client can take the ring of another. The owner never reads a bell: epoll
//   reports each write whatever the counter is, and a read could block, since the client may change the flags of the shared description.
// Fairness: a look runs kSlice commands at most and begins behind the client that was served last (round-robin).
// One thread (the control thread); scans of hazards share the mappings through shared_ptr.
#pragma once

#include <kj/async-io.h>
#include <kj/async-unix.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "client_ring.h"
#include "node_files.h"
#include "owner_core.h"
#include "rpc/daemon.h"
#include "shm/client_format.h"
#include "shm/fault_guard.h"
#include "shm/mapped_file.h"
#include "ssd/ssdd_format.h"
#include "touches.h"

namespace fluxon::owner {

// A client's file as the owner maps it. The client can cut it short: that breaks this mapping of it and nothing else.
struct ClientMap {
  explicit ClientMap(shm::MappedFile mapped) : file(std::move(mapped)), guard(shm::FaultGuard::losable(file)) {}
  shm::ClientFile& shared() const { return *reinterpret_cast<shm::ClientFile*>(file.data()); }
  shm::MappedFile file;
  shm::FaultGuard guard;
};

// Totals over all clients, living and dead.
struct ClientTotals {
#define FLUXON_DECLARE(name, text) uint64_t name = 0;
  FLUXON_CLIENT_COUNTERS(FLUXON_DECLARE)
#undef FLUXON_DECLARE
  uint64_t latency[shm::kLatencyBuckets] = {};
  uint64_t latencySumNs = 0;
  void add(const shm::ClientFile&);
};

class Clients final : private kj::TaskSet::ErrorHandler {
 public:
  struct Events {
    std::function<void(Caller, Command)> command;
    std::function<void(ClientId)> gone;
    std::function<void()> slice;                                                // after a slice of commands
    std::function<void(shm::Descriptor& socket, const ssd::SsddAttach&)> ssdd;  // an ssdd wants to attach
  };
  Clients(rpc::Daemon&, NodeFiles&, uint64_t maxClients, Events);
  ~Clients();

  // Adopts the clients of the last life that still map their files, and returns their ids: every scan counts what they hold until they
  // let go. They can send no commands; to do so they attach again. Errors: a file that may be such a client's cannot be mapped.
  Result<std::set<uint64_t>> adopt();
  // Binds the socket and begins to accept.
  Error listen();
  void stop();
  bool answer(Caller, const Answer&);
  // Files of all clients that may hold something; they stay mapped while the result is kept.
  std::vector<std::shared_ptr<ClientMap>> files() const;
  // Slots that clients have read since the last calls, oldest first, each once.
  std::vector<uint32_t> takeTouches();
  ClientTotals totals() const;
  size_t count() const { return clients_.size(); }
  size_t held() const;  // held words in use
  uint64_t refused() const { return refused_; }
  // An error if the file of a client has lost its name: the next life would not find it, and would give away what that client holds.
  Error namesWhole() const;

 private:
  struct Client {
    ClientId id;
    std::shared_ptr<ClientMap> map;
    shm::Descriptor file;  // our own description: a flock that succeeds on it proves the end
    shm::Descriptor socket, bell;
    kj::Own<kj::UnixEventPort::FdObserver> observer, bellObserver;
    kj::Promise<void> ringing = nullptr;  // waits for the bell
    std::optional<ClientRing> ring;
    enum class Kind { ofLastLife, client, owner } kind = Kind::ofLastLife;  // owner: another owner, which copies
    bool broken = false;                                                    // its file has been cut short
    pid_t pid = 0;
    shm::ClientFile& shared() const { return map->shared(); }
  };

  kj::Promise<void> accept();
  kj::Promise<void> converse(shm::Descriptor socket);
  kj::Promise<void> watch(ClientId);
  kj::Promise<void> sweep();
  kj::Promise<void> ringing(Client&);
  void look();
  enum class Try { first, again };
  struct Handover;
  bool full(Client::Kind) const;
  Result<Handover> makeFiles(const std::string& path) const;
  void attach(shm::Descriptor& socket, const shm::AttachRequest&, Try);
  void handOverSegment(Client&, uint64_t number);
  void lookAt(ClientId);
  kj::Promise<void> lookUntilGone(ClientId, kj::Duration pause);
  size_t lookAtEnded();
  bool drain(size_t limit);
  bool drainOne(Client&, size_t& left);
  void taskFailed(kj::Exception&&) override;

  rpc::Daemon& daemon_;
  NodeFiles& files_;
  uint64_t maxClients_;
  Events events_;
  shm::Descriptor listener_;
  kj::Own<kj::UnixEventPort::FdObserver> listenerObserver_;
  std::map<ClientId, Client> clients_;
  ClientId served_;     // the last one whose command was run
  bool looks_ = false;  // a look is to come
  Touches touches_;
  ClientId touched_;  // the last one whose touches were taken
  ClientTotals dead_;
  uint64_t nextId_ = 1;
  uint64_t refused_ = 0;
  log::Seldom waits_;
  kj::Own<kj::TaskSet> tasks_;
};

}  // namespace fluxon::owner
