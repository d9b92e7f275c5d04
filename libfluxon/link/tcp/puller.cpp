#include "link/tcp/puller.h"

#include <algorithm>

#include "base/check.h"

namespace fluxon::link::tcp {
namespace {

constexpr Duration kReconnect = seconds(1);  // after a failed connection, before one more beside those that work

std::string keyOf(const PeerAddress& address, const Fetch& fetch) {
  return address.address + '\n' + address.node + '\n' + toString(address.incarnation) + (fetch.staged ? "\nstaged" : "");
}

}  // namespace

Puller::Puller(LinkContext& link, unsigned connectionsPerPeer, Outside outside)
    : link_(link), connectionsPerPeer_(connectionsPerPeer), outside_(std::move(outside)) {}

void Puller::touch(Peer& peer) {
  if (!std::exchange(peer.dirty, true)) dirty_.push_back(&peer);
}

// --- fetches

Peer& Puller::peerOf(const PeerAddress& address, const Fetch& fetch) {
  const std::string key = keyOf(address, fetch);
  std::unique_ptr<Peer>& place = peers_[key];
  if (!place) {
    place = std::make_unique<Peer>();
    place->key = key;
    place->address = address;
  }
  return *place;
}

void Puller::fetch(const PeerAddress& address, std::vector<Fetch> fetches) {
  for (Fetch& each : fetches) {
    const uint64_t id = each.id;
    Peer& peer = peerOf(address, each);
    auto transfer = std::make_unique<Transfer>(Transfer{std::move(each), &peer, 0, {}});
    Transfer& added = *transfer;
    FLUXON_CHECK(transfers_.emplace(id, std::move(transfer)).second, "the id of a fetch is in use");
    deadlines_.emplace(added.fetch.deadline.ns, id);
    ++peer.transfers;
    uint64_t offset = 0;
    do {
      const uint64_t length = std::min(link_.pieceBytes, added.fetch.bytes - offset);
      peer.queue.push_back({&added, offset, length, 0, {}});
      peer.queuedBytes += length;
      ++added.open;
      offset += length;
    } while (offset < added.fetch.bytes);
    const size_t keyBytes = added.fetch.key.size();
    if (keyBytes > kMaxKeyBytes) fail(added, {Code::invalidKey, "a key of " + std::to_string(keyBytes) + " bytes"});
    touch(peer);
  }
}

void Puller::cancel(uint64_t id, Error why) {
  const auto at = transfers_.find(id);
  if (at == transfers_.end()) return;
  if (at->second->fetch.staged) return giveUp(*at->second, std::move(why));
  fail(*at->second, std::move(why));
}

void Puller::cancelAll(Error why) {
  std::vector<uint64_t> ids;
  for (const auto& [id, transfer] : transfers_) ids.push_back(id);
  for (const uint64_t id : ids) cancel(id, why);
}

void Puller::onDeadlines() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= link_.now.ns) {
    const uint64_t id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    const auto at = transfers_.find(id);
    if (at != transfers_.end()) giveUp(*at->second, {Code::timedOut, ""});
  }
}

// Fails a transfer and closes the connections on which it delays others.
void Puller::giveUp(Transfer& transfer, Error why) {
  const bool staged = transfer.fetch.staged;
  std::vector<FetchingConnection*> stuck;
  for (const auto& connection : transfer.peer->connections) {
    if (connection->stuckOn(transfer)) stuck.push_back(connection.get());
  }
  fail(transfer, std::move(why));
  for (FetchingConnection* connection : stuck) {
    if (staged) connection->leaveOthers();
    connection->close({Code::unavailable, "the peer does not answer"});
  }
}

void Puller::fail(Transfer& transfer, Error why) {
  if (!transfer.error.ok()) return;
  transfer.error = std::move(why);
  Peer& peer = *transfer.peer;
  const auto dropped = std::remove_if(peer.queue.begin(), peer.queue.end(), [&](const Piece& piece) {
    if (piece.transfer != &transfer) return false;
    peer.queuedBytes -= piece.length;
    --transfer.open;
    return true;
  });
  peer.queue.erase(dropped, peer.queue.end());
  for (const auto& connection : peer.connections) transfer.open -= connection->drop(transfer);
  if (transfer.open == 0) finish(transfer);
}

void Puller::pieceEnded(Transfer& transfer, Error error) {
  Peer& peer = *transfer.peer;
  touch(peer);
  FLUXON_CHECK(transfer.open > 0, "a piece ended twice");
  --transfer.open;
  // The first error fails the transfer; fail() finishes it if no piece is left.
  if (!error.ok() && transfer.error.ok()) return fail(transfer, std::move(error));
  if (transfer.open == 0) finish(transfer);
}

void Puller::finish(Transfer& transfer) {
  const uint64_t id = transfer.fetch.id;
  deadlines_.erase({transfer.fetch.deadline.ns, id});
  --transfer.peer->transfers;
  touch(*transfer.peer);
  outside_.fetched({id, std::move(transfer.error)});
  transfers_.erase(id);
}

// --- peers

void Puller::opened(FetchingConnection& connection) {
  link_.count(link_.counters.connectionsOpen);
  for (const auto& [key, peer] : peers_) {
    for (const auto& each : peer->connections) {
      if (each.get() == &connection) touch(*peer);
    }
  }
}

void Puller::resolved(const std::string& peerKey, Result<std::vector<sockaddr_storage>> addresses) {
  const auto at = peers_.find(peerKey);
  if (at == peers_.end()) return;
  Peer& peer = *at->second;
  peer.resolving = false;
  touch(peer);
  if (!addresses) return failQueued(peer, addresses.error());
  peer.resolved = std::move(addresses.value());
}

void Puller::failQueued(Peer& peer, const Error& why) {
  while (!peer.queue.empty()) fail(*peer.queue.front().transfer, why);
}

// Opens one connection, or as many as the settings allow if more than one piece waits.
void Puller::connect(Peer& peer) {
  if (peer.queue.empty()) return;
  if (peer.resolved.empty()) {
    if (!std::exchange(peer.resolving, true)) outside_.resolve(peer.key, peer.address.address);
    return;
  }
  const size_t worth = peer.queuedBytes > link_.pieceBytes ? connectionsPerPeer_ : 1;
  while (peer.connections.size() < worth && (peer.connections.empty() || peer.failed + kReconnect <= link_.now)) {
    const net::Party wanted{peer.address.node, peer.address.incarnation};
    peer.connections.push_back(std::make_unique<FetchingConnection>(link_, *this, wanted, peer.resolved));
  }
}

// Gives each piece to the connection that has the least to do, but keeps small ones together until they make a whole piece.
void Puller::assign(Peer& peer) {
  FetchingConnection* chosen = nullptr;
  uint64_t given = 0;
  while (!peer.queue.empty()) {
    const uint64_t length = peer.queue.front().length;
    if (!chosen || given + length > link_.pieceBytes || !chosen->room(length)) {
      chosen = nullptr;
      given = 0;
      for (const auto& each : peer.connections) {
        if (each->open() && each->room(length) && (!chosen || each->bytesAsked() < chosen->bytesAsked())) chosen = each.get();
      }
    }
    if (!chosen) break;
    given += length;
    peer.queuedBytes -= length;
    chosen->request(peer.queue.front());
    peer.queue.pop_front();
  }
  for (const auto& each : peer.connections) each->flush();
}

void Puller::removeGone(Peer& peer) {
  for (size_t i = 0; i < peer.connections.size();) {
    if (!peer.connections[i]->gone()) {
      ++i;
      continue;
    }
    const std::unique_ptr<FetchingConnection> dead = std::move(peer.connections[i]);
    peer.connections.erase(peer.connections.begin() + static_cast<ptrdiff_t>(i));
    std::deque<Piece> again;
    for (const Piece& piece : dead->takeLost()) {
      if (!piece.transfer) continue;
      if (dead->othersLeft() && piece.transfer->error.ok()) {
        again.push_back(piece);
        peer.queuedBytes += piece.length;
      } else {
        pieceEnded(*piece.transfer, dead->reason());
      }
    }
    peer.queue.insert(peer.queue.begin(), again.begin(), again.end());
    if (dead->wasOpen()) {
      link_.counters.connectionsOpen.fetch_sub(1, std::memory_order_relaxed);
    } else {
      peer.failed = link_.now;
      const bool alone = std::all_of(peer.connections.begin(), peer.connections.end(), [](const auto& each) { return each->closing(); });
      if (alone) failQueued(peer, dead->reason());
    }
  }
}

void Puller::afterTurn() {
  const auto anyGone = [](const Peer& peer) {
    return std::any_of(peer.connections.begin(), peer.connections.end(), [](const auto& each) { return each->gone(); });
  };
  for (auto& [key, peer] : peers_) {
    if (anyGone(*peer)) touch(*peer);
  }
  while (!dirty_.empty()) {
    Peer& peer = *dirty_.back();
    dirty_.pop_back();
    removeGone(peer);
    peer.dirty = false;
    std::erase(dirty_, &peer);
    connect(peer);
    assign(peer);
    if (anyGone(peer)) touch(peer);
    if (peer.connections.empty() && peer.transfers == 0 && !peer.resolving) peers_.erase(std::string(peer.key));
  }
}

void Puller::onDue() {
  for (const auto& [key, peer] : peers_) {
    for (const auto& connection : peer->connections) {
      if (!connection->closing() && connection->due() <= link_.now) connection->onDue();
      if (!connection->closing()) link_.nextDue = std::min(link_.nextDue, connection->due());
    }
  }
}

void Puller::closeAll() {
  cancelAll({Code::unavailable, "the link ends"});
  for (const auto& [key, peer] : peers_) {
    for (const auto& connection : peer->connections) connection->close({Code::unavailable, "the link ends"});
  }
}

bool Puller::idle() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& each) { return each.second->connections.empty(); });
}

}  // namespace fluxon::link::tcp
