#include "link/tcp/fetching_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

#include "base/crc32c.h"

namespace fluxon::link::tcp {

FetchingConnection::FetchingConnection(LinkContext& link, PieceSink& sink, const net::Party& wanted,
                                       std::vector<sockaddr_storage> addresses)
    : Connection(link),
      sink_(sink),
      wanted_(wanted),
      addresses_(std::move(addresses)),
      handshake_(link.secret, net::Purpose::data, link.self, wanted.incarnation) {
  dueAt(link.now + link.stall);
  connectNext();
}

FetchingConnection::~FetchingConnection() {
  if (state_ != State::open) link_.count(link_.counters.connectsFailed);
}

void FetchingConnection::onDue() {
  if (state_ != State::open) return close({Code::unavailable, "no connection in time"});
  if (!asked_.empty() || sending()) return dueAt(link_.now + link_.idle);  // each of them has its deadline
  close({Code::unavailable, "idle"});
}

// --- opening

void FetchingConnection::connectNext() {
  const sockaddr_storage& address = addresses_[nextAddress_++];
  shm::Descriptor fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | link_.engine.socketFlags(), 0));
  if (!fd) return close(systemError("socket", errno));
  if (const std::string& wish = link_.congestionControl; !wish.empty()) {
    if (::setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, wish.data(), static_cast<socklen_t>(wish.size())) != 0)
      return close(systemError("congestion control " + wish, errno));
  }
  use(std::move(fd));
  Operation& op = connecting();
  op.kind = Operation::Kind::connect;
  op.address = address;
  op.addressBytes = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  link_.engine.start(op);
}

void FetchingConnection::connected(int result) {
  if (result < 0 && nextAddress_ < addresses_.size()) return connectNext();
  if (result < 0) return close({Code::unavailable, std::string("connect: ") + std::strerror(-result)});
  state_ = State::hello;
  sendFrame(&handshake_.hello(), sizeof(net::ClientHello));
  receiveFrame(&serverHello_, sizeof serverHello_);
}

void FetchingConnection::receiveFrame(void* to, size_t bytes) {
  const iovec part{to, bytes};
  receive(&part, 1, Want::whole);
}

void FetchingConnection::sendFrame(const void* from, size_t bytes) {
  const iovec part{const_cast<void*>(from), bytes};
  send(&part, 1);
}

void FetchingConnection::sent() {
  if (state_ == State::open) return flush();
}

void FetchingConnection::received(size_t bytes) {
  switch (state_) {
    case State::hello: {
      const Result<net::ClientProof> proof = handshake_.answer(serverHello_);
      if (!proof) return close(proof.error());
      const net::Party& peer = handshake_.peer();
      if ((!wanted_.node.empty() && peer.node != wanted_.node) || (wanted_.incarnation && peer.incarnation != wanted_.incarnation))
        return close({Code::unavailable, "the peer is " + peer.node + ", not " + wanted_.node + ", or of another incarnation"});
      if (sending()) return close({Code::protocol, "an answer before the hello"});
      proof_ = proof.value();
      state_ = State::verdict;
      sendFrame(&proof_, sizeof proof_);
      return receiveFrame(&verdict_, sizeof verdict_);
    }
    case State::verdict: {
      const Error verdict = net::ClientHandshake::verdict(verdict_);
      if (!verdict.ok()) return close(verdict);
      state_ = State::open;
      dueAt(link_.now + link_.idle);
      sink_.opened(*this);
      return listen();
    }
    default: return arrived(bytes);
  }
}

// --- asking

bool FetchingConnection::room(uint64_t length) const {
  return asked_.empty() || (asked_.size() < kWindowPieces && bytesAsked_ + length <= kWindowInPieces * link_.pieceBytes);
}

void FetchingConnection::request(Piece piece) {
  const Fetch& fetch = piece.transfer->fetch;
  piece.tag = ++lastTag_;
  piece.asked = link_.now;
  const bool value = fetch.exportId == 0;
  const ReadRecord record{piece.tag,
                          value ? fetch.keyHash : 0,
                          value ? fetch.putId.value : 0,
                          fetch.exportId,
                          fetch.bytes,
                          piece.offset,
                          piece.length,
                          value ? static_cast<uint32_t>(fetch.key.size()) : 0,
                          0};
  next_.append(reinterpret_cast<const char*>(&record), sizeof record);
  if (value) next_.append(fetch.key).append(paddedKeyBytes(fetch.key.size()) - fetch.key.size(), '\0');
  ++nextRecords_;
  asked_.push_back(piece);
  bytesAsked_ += piece.length;
}

void FetchingConnection::flush() {
  if (nextRecords_ == 0 || sending() || !open()) return;
  FrameHeader header{{}, kReadKind, nextRecords_, static_cast<uint32_t>(next_.size())};
  std::memcpy(header.magic, kFrameMagic, sizeof header.magic);
  frame_.assign(reinterpret_cast<const char*>(&header), sizeof header).append(next_);
  next_.clear();
  link_.count(link_.counters.submissions);
  link_.count(link_.counters.descriptors, std::exchange(nextRecords_, 0));
  dueAt(link_.now + link_.idle);
  sendFrame(frame_.data(), frame_.size());
}

unsigned FetchingConnection::drop(const Transfer& transfer) {
  unsigned ended = 0;
  for (size_t i = 0; i < asked_.size(); ++i) {
    Piece& piece = asked_[i];
    if (piece.transfer != &transfer) continue;
    if (i == 0 && direct_ > 0) {
      cancelReceive();
    } else {
      piece.transfer = nullptr;
      ++ended;
    }
  }
  return ended;
}

bool FetchingConnection::stuckOn(const Transfer& transfer) const {
  const auto ofIt = [&](const Piece& each) { return each.transfer == &transfer; };
  const auto piece = std::find_if(asked_.begin(), asked_.end(), ofIt);
  if (piece == asked_.end()) return false;
  if (transfer.fetch.staged && std::any_of(asked_.begin() + (inPayload_ ? 1 : 0), asked_.end(), ofIt)) return true;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return true;
  return milliseconds(info.tcpi_last_data_recv) >= link_.now - piece->asked;
}

// --- receiving

void FetchingConnection::arrived(size_t bytes) {
  take(bytes);
  consume();
  if (!closing()) listen();
}

// Splits what a receive has brought into payload that is in its place and bytes in the buffer.
void FetchingConnection::take(size_t bytes) {
  const uint64_t straight = std::min<uint64_t>(std::exchange(direct_, 0), bytes);
  if (straight > 0) advance(straight);
  end_ += bytes - straight;
}

// Computes the checksum while the bytes are in the cache.
void FetchingConnection::advance(uint64_t bytes) {
  const Piece& piece = asked_.front();
  if (piece.transfer) crc_ = crc32c(piece.transfer->fetch.to + piece.offset + done_, bytes, crc_);
  done_ += bytes;
}

void FetchingConnection::receiveCancelled(size_t bytes) {
  take(bytes);
  // The transfer wants its memory back: unless the piece is whole, the connection discards the rest of its bytes as they come.
  if (!asked_.empty() && inPayload_ && done_ < asked_.front().length) {
    if (Transfer* const transfer = std::exchange(asked_.front().transfer, nullptr))
      sink_.pieceEnded(*transfer, {Code::timedOut, "given up"});
  }
  consume();
  if (!closing()) listen();
}

// Takes whole headers and payload from the buffer.
void FetchingConnection::consume() {
  for (;;) {
    if (!inPayload_) {
      if (end_ - begin_ < sizeof header_) break;
      std::memcpy(&header_, buffer_ + begin_, sizeof header_);
      begin_ += sizeof header_;
      if (!beginPiece()) return;
    }
    const Piece& piece = asked_.front();
    const uint64_t taken = std::min<uint64_t>(header_.length - done_, end_ - begin_);
    if (piece.transfer && taken > 0) std::memcpy(piece.transfer->fetch.to + piece.offset + done_, buffer_ + begin_, taken);
    begin_ += taken;
    advance(taken);
    if (done_ < header_.length) break;
    endPiece();
    if (closing()) return;
  }
  std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
}

bool FetchingConnection::beginPiece() {
  const bool expected = !asked_.empty() && header_.tag == asked_.front().tag && header_.offset == asked_.front().offset &&
                        header_.length == (header_.code == 0 ? asked_.front().length : 0);
  if (!expected) {
    link_.count(link_.counters.refusedFrames);
    link_.log("data connection to " + wanted_.node + ": an answer to no question");
    close({Code::protocol, "an answer to no question"});
    return false;
  }
  inPayload_ = true;
  done_ = 0;
  crc_ = 0;
  return true;
}

void FetchingConnection::endPiece() {
  const Piece piece = asked_.front();
  asked_.pop_front();
  bytesAsked_ -= piece.length;
  inPayload_ = false;
  if (asked_.empty()) dueAt(link_.now + link_.idle);
  if (!piece.transfer) return;
  if (header_.code != 0) return sink_.pieceEnded(*piece.transfer, {codeFromWire(header_.code), "said the peer"});
  if (crc_ != header_.crc32c) {
    link_.count(link_.counters.crcErrors);
    const std::string what = "wrong checksum of " + std::to_string(piece.length) + " bytes from " + wanted_.node;
    return sink_.pieceEnded(*piece.transfer, {Code::corrupt, what});
  }
  link_.count(link_.counters.pieces);
  link_.count(link_.counters.bytesIn, piece.length);
  sink_.pieceEnded(*piece.transfer, {});
}

// Receives a long payload straight into its place, together with the next header, unless that header may be long in coming: the kernel
// would not wake us for the payload alone. Short payloads share the buffer.
void FetchingConnection::listen() {
  if (receiving()) return;
  const uint64_t left = inPayload_ ? header_.length - done_ : 0;
  if (left >= kDirectBytes && asked_.front().transfer) {
    const Piece& piece = asked_.front();
    const iovec parts[2] = {{piece.transfer->fetch.to + piece.offset + done_, left}, {buffer_, sizeof header_}};
    direct_ = left;
    return receive(parts, asked_.size() > 1 && !piece.transfer->fetch.staged ? 2 : 1, Want::most);
  }
  // Before a long payload, and while nothing is asked for, no more than its header.
  const bool headerOnly = !inPayload_ && (asked_.empty() || asked_.front().length >= kDirectBytes);
  const iovec part{buffer_ + end_, headerOnly ? sizeof header_ - end_ : kBufferBytes - end_};
  receive(&part, 1, Want::some);
}

}  // namespace fluxon::link::tcp
