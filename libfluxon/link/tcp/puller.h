// The target's side: cuts fetches into pieces, spreads the pieces over the connections of their peer, and reports a fetch as Fetched when
// the last of its pieces has ended (transfer.h).
//
// Staged fetches have connections of their own: the source's disk may delay the answer to one, and with it all answers behind it on its
// connection. So staged fetches delay each other, in the order in which they came, and no other fetch. When the puller gives up one that
// delays others, it closes the connections concerned and asks for the others' pieces again.
//
// Invariants
//   1. A peer has a connection, is getting one, or has nothing queued. A Peer is asked for staged values only, or for others only.
//   2. The puller opens connections on demand. When the last one to a peer fails before it is open, all that is queued for the peer fails.
// The link's thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "link/tcp/fetching_connection.h"

namespace fluxon::link::tcp {

struct Peer {
  std::string key;
  PeerAddress address;
  std::vector<sockaddr_storage> resolved;
  bool resolving = false;
  std::vector<std::unique_ptr<FetchingConnection>> connections;
  std::deque<Piece> queue;
  uint64_t queuedBytes = 0;
  uint64_t transfers = 0;
  Time failed{INT64_MIN};  // when a connection last ended before it was open
  bool dirty = false;      // in dirty_
};

class Puller final : public PieceSink {
 public:
  // `resolve` finds the addresses of a name elsewhere and has resolved() called.
  struct Outside {
    std::function<void(Fetched)> fetched;
    std::function<void(const std::string& peerKey, const std::string& address)> resolve;
  };
  Puller(LinkContext&, unsigned connectionsPerPeer, Outside);

  void fetch(const PeerAddress&, std::vector<Fetch>);
  void cancel(uint64_t id, Error);
  void cancelAll(Error);
  void resolved(const std::string& peerKey, Result<std::vector<sockaddr_storage>>);
  void onDeadlines();
  Time nextDeadline() const { return deadlines_.empty() ? Time::never() : Time{deadlines_.begin()->first}; }
  // After each turn of the thread: asks for what was queued, opens connections, removes those that are gone.
  void afterTurn();
  void onDue();
  void closeAll();
  bool idle() const;  // no connection is left

 private:
  void opened(FetchingConnection&) override;
  void pieceEnded(Transfer&, Error) override;
  Peer& peerOf(const PeerAddress&, const Fetch&);
  void fail(Transfer&, Error);
  void giveUp(Transfer&, Error);
  void finish(Transfer&);
  void failQueued(Peer&, const Error&);
  void touch(Peer&);
  void connect(Peer&);
  void assign(Peer&);
  void removeGone(Peer&);

  LinkContext& link_;
  const unsigned connectionsPerPeer_;
  Outside outside_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;
  std::unordered_map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;
  std::vector<Peer*> dirty_;
};

}  // namespace fluxon::link::tcp
