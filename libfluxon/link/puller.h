// The target's side: fetches are cut into pieces, pieces spread over the connections of their peer, and told as Fetched when the
// last of them has ended.
//
// Life of a transfer
//
//   running ── all pieces ended well ─────────────────────────────► finished: Fetched
//      │ a piece failed, deadline, cancel                              ▲
//      └────────► failing: queued and asked pieces are dropped, ───────┘
//                 the arriving one is waited for
//
// Staged fetches have connections of their own, for an answer to one may take as long as the source's disk, and all that is asked for
// behind it on its connection waits too. So these fetches may hold up each other, in the order in which they came, and nobody else.
// When one that holds up others is given up its connections end, and what the others had asked for there is asked for again.
//
// Invariants
//   1. open counts the pieces that are queued, asked or arriving. The memory belongs to the link while it is above 0.
//   2. A peer has a connection, is getting one, or has nothing queued. It is asked for staged values, or for the others.
//   3. Connections to a peer are made on demand; one that failed fails what waits, once no other is left.
// The link's thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "link/fetching_connection.h"
#include "link/tcp_link.h"

namespace fluxon::link {

struct Peer;

struct Transfer {
  Fetch fetch;
  Peer* peer = nullptr;
  uint64_t open = 0;
  Error error;  // not ok: failing
};

struct Peer {
  std::string key;
  PeerAddress address;
  std::vector<sockaddr_storage> resolved;
  bool resolving = false;
  std::vector<std::unique_ptr<FetchingConnection>> connections;
  std::deque<Piece> queue;
  uint64_t queuedBytes = 0;
  uint64_t transfers = 0;
  Time failed{INT64_MIN};  // last connection that did not come to be
  bool dirty = false;      // in the list of those to be looked after
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
  // Asks for what was queued since, opens connections, buries those that are gone.
  void settle();
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
  void bury(Peer&);

  LinkContext& link_;
  const unsigned connectionsPerPeer_;
  Outside outside_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;
  std::unordered_map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;
  std::vector<Peer*> dirty_;
};

}  // namespace fluxon::link
