// The target's end of a connection: it asks for pieces, receives each straight into its memory, and checks it.
//
// Life of a piece
//
//   queued (puller.h) ── request() ──► asked ── its answer begins ──► arriving ──► ended: PieceSink::pieceEnded
//                                        │                               │
//                                        │ drop()                        │ drop(): the receive is cancelled and completes first
//                                        └────────────► dropped ◄────────┘            its bytes are thrown away when they come
//   asked, arriving ── leaveOthers() and close(), once the connection is gone ──► queued again
//   queued, asked: nobody writes its memory; arriving: the kernel and this thread do; ended, dropped: nobody ever again.
//
// Invariants
//   1. Answers come in the order of the questions. An answer that does not fit the oldest question closes the connection.
//   2. Memory of a piece is written only between its header and its last byte, and never after pieceEnded or a drop that
//      counted it.
//   3. At most kWindowPieces pieces are asked for and not yet here; if there are several, they have at most kWindowInPieces times the
//      usual length together.
// The link's thread.
#pragma once

#include <deque>

#include "link/tcp/connection.h"
#include "link/tcp/link_format.h"
#include "link/tcp/transfer.h"

namespace fluxon::link::tcp {

class FetchingConnection;

class PieceSink {
 public:
  virtual void opened(FetchingConnection&) = 0;
  // ok: all bytes are in place and checked. In any case nothing writes there any more.
  virtual void pieceEnded(Transfer&, Error) = 0;

 protected:
  ~PieceSink() = default;
};

class FetchingConnection final : public Connection {
 public:
  FetchingConnection(LinkContext&, PieceSink&, const net::Party& wanted, std::vector<sockaddr_storage> addresses);
  ~FetchingConnection() override;
  void onDue() override;

  bool open() const { return state_ == State::open && !closing(); }
  bool wasOpen() const { return state_ == State::open; }
  uint64_t bytesAsked() const { return bytesAsked_; }
  bool room(uint64_t length) const;
  // Asks for a piece with the next flush().
  void request(Piece);
  void flush();
  // Gives up the pieces of a transfer. Returns how many of them have ended thereby; for the others pieceEnded comes.
  unsigned drop(const Transfer&);
  // Is this transfer what the connection waits for? Nothing has come since its oldest piece was asked for; or it is staged, and the source
  // may wait for the bytes of one of its pieces.
  bool stuckOn(const Transfer&) const;
  // Before close(): the pieces of other transfers do not fail with the connection, but are asked for again.
  void leaveOthers() { othersLeft_ |= !closing(); }
  bool othersLeft() const { return othersLeft_; }
  // Once it is gone: the pieces that have not ended.
  std::deque<Piece> takeLost() { return std::move(asked_); }

 private:
  enum class State { connecting, hello, proof, verdict, open };
  static constexpr size_t kBufferBytes = 64 * 1024;
  static constexpr uint64_t kDirectBytes = 16 * 1024;  // more than this goes straight to its place
  static constexpr size_t kWindowPieces = 64;
  static constexpr uint64_t kWindowInPieces = 8;  // of the usual length

  void connectNext();
  void connected(int result) override;
  void sent() override;
  void received(size_t bytes) override;
  void receiveCancelled(size_t bytes) override;
  void receiveFrame(void* to, size_t bytes);
  void sendFrame(const void* from, size_t bytes);
  void arrived(size_t bytes);
  void take(size_t bytes);
  void advance(uint64_t bytes);
  void consume();
  bool beginPiece();
  void endPiece();
  void listen();

  PieceSink& sink_;
  const net::Party wanted_;
  std::vector<sockaddr_storage> addresses_;
  size_t nextAddress_ = 0;
  net::ClientHandshake handshake_;
  State state_ = State::connecting;
  net::ServerHello serverHello_{};
  net::ClientProof proof_{};
  net::ServerVerdict verdict_{};

  bool othersLeft_ = false;
  std::deque<Piece> asked_;
  uint64_t bytesAsked_ = 0;
  uint64_t lastTag_ = 0;
  std::string frame_, next_;  // in the send; to be sent next, without its header
  uint32_t nextRecords_ = 0;

  PieceHeader header_{};  // of asked_.front(), once inPayload_
  bool inPayload_ = false;
  uint64_t done_ = 0;    // of its payload
  uint32_t crc_ = 0;     // of those
  uint64_t direct_ = 0;  // bytes of the receive in flight that go straight to asked_.front()
  char buffer_[kBufferBytes];
  size_t begin_ = 0, end_ = 0;  // of what is buffered
};

}  // namespace fluxon::link::tcp
