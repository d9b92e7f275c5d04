// The source's end of a connection: it takes requests and answers them in their order, straight from the segment.
//
// Invariants
//   1. What a send in flight reads is held (value_source.h) until the send has completed, whole or cancelled.
//   2. At most kMostWaiting requests wait; when they do nothing more is received, and tcp tells the peer.
//   3. A peer gets nothing before it has proved that it knows the cluster secret. It has link_.stall for that.
//   4. A request for bytes of an export that have not come yet waits for exportChanged(), and all requests behind it wait too. After
//      link_.idle the connection closes instead. Meanwhile it holds nothing and sends nothing.
// The link's thread.
#pragma once

#include <deque>

#include "link/tcp/connection.h"
#include "link/tcp/request_parser.h"
#include "link/value_source.h"

namespace fluxon::link::tcp {

class ServingConnection final : public Connection {
 public:
  ServingConnection(LinkContext&, ValueSource&, shm::Descriptor);
  ~ServingConnection() override;
  void onDue() override;
  void exportChanged(uint64_t exportId);
  bool proved() const { return state_ == State::open; }
  // Proved, and nobody waits for anything here, since lastUsed().
  bool idle() const { return proved() && !sending() && waiting_.empty(); }
  Time lastUsed() const { return lastUsed_; }
  // Closes, so that another connection has its place.
  void giveWay();

 private:
  enum class State { hello, answer, proof, verdict, open };
  static constexpr size_t kMostWaiting = 256;
  static constexpr size_t kBufferBytes = 16 * 1024;
  static constexpr size_t kMostAtOnce = (kMostParts - 2) / 2;  // answers in one send
  static_assert(kBufferBytes >= 2 * kMaxRecordBytes);

  void sent() override;
  void received(size_t bytes) override;
  void receiveFrame(void* to, size_t bytes);
  void sendFrame(const void* from, size_t bytes);
  void refuse(Code, const std::string& why);
  void open();
  void parse();
  void listen();
  void answer();
  void release();

  ValueSource& source_;
  net::ServerHandshake handshake_;
  State state_ = State::hello;
  net::ClientHello clientHello_{};
  net::ServerHello serverHello_{};
  net::ClientProof proof_{};
  net::ServerVerdict verdict_{};

  RequestParser parser_;
  char buffer_[kBufferBytes];
  size_t filled_ = 0;
  std::deque<ReadRequest> waiting_;
  uint64_t awaited_ = 0;  // the export whose bytes the first of them waits for, 0: none
  PieceHeader headers_[kMostAtOnce];
  Reading readings_[kMostAtOnce];
  size_t inSend_ = 0;
  bool frameRefused_ = false;  // a request was, and has been logged
  Time lastUsed_;
};

}  // namespace fluxon::link::tcp
