#include "link/tcp/serving_connection.h"

#include <cstring>

#include "base/crc32c.h"
#include "net/socket_address.h"

namespace fluxon::link::tcp {
namespace {

// Of a sane request, whose key it names.
ValuePart partOf(const ReadRequest& request) {
  const ReadRecord& asked = request.record;
  return {request.key, asked.keyHash, PutId(asked.putId), asked.exportId, asked.valueBytes, asked.offset, asked.length};
}

}  // namespace

ServingConnection::ServingConnection(LinkContext& link, ValueSource& source, shm::Descriptor fd)
    : Connection(link), source_(source), handshake_(link.secret, net::Purpose::data, link.self), lastUsed_(link.now) {
  use(std::move(fd));
  dueAt(link.now + link.stall);
  receiveFrame(&clientHello_, sizeof clientHello_);
}

ServingConnection::~ServingConnection() {
  release();
  if (state_ == State::open) {
    link_.counters.connectionsOpen.fetch_sub(1, std::memory_order_relaxed);
  } else {
    link_.count(link_.counters.refusedHellos);
  }
}

void ServingConnection::onDue() {
  if (state_ != State::open) return close({Code::timedOut, "no hello"});
  if (sending()) return close({Code::timedOut, "the peer takes no bytes"});
  if (awaited_ != 0) return close({Code::timedOut, "bytes of an export do not come"});
  close({Code::unavailable, "idle"});
}

void ServingConnection::giveWay() {
  if (!proved()) return refuse(Code::tooMany, "it was the oldest of too many that have not proved themselves");
  close({Code::tooMany, "it gives way to another connection"});
}

void ServingConnection::receiveFrame(void* to, size_t bytes) {
  const iovec part{to, bytes};
  receive(&part, 1, Want::whole);
}

void ServingConnection::sendFrame(const void* from, size_t bytes) {
  const iovec part{const_cast<void*>(from), bytes};
  send(&part, 1);
}

void ServingConnection::refuse(Code code, const std::string& why) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const bool known = ::getpeername(socket(), reinterpret_cast<sockaddr*>(&peer), &length) == 0;
  const std::string node = handshake_.peer().node;
  link_.log("refused a data connection of " + (known ? net::toString(peer) : "a peer that is gone") +
            (node.empty() ? "" : ", node " + node) + ": " + why);
  close({code, why});
}

void ServingConnection::received(size_t bytes) {
  switch (state_) {
    case State::hello:
      serverHello_ = handshake_.answer(clientHello_);
      state_ = State::answer;
      return sendFrame(&serverHello_, sizeof serverHello_);
    case State::proof:
      verdict_ = handshake_.judge(proof_);
      state_ = State::verdict;
      return sendFrame(&verdict_, sizeof verdict_);
    default: filled_ += bytes; parse();
  }
}

void ServingConnection::sent() {
  switch (state_) {
    case State::answer:
      if (const Code code = codeFromWire(serverHello_.code); code != Code::ok) return refuse(code, std::string("hello: ") + codeName(code));
      state_ = State::proof;
      return receiveFrame(&proof_, sizeof proof_);
    case State::verdict:
      if (verdict_.code != 0) return refuse(Code::denied, "wrong cluster secret");
      return open();
    default: {
      uint64_t bytes = 0;
      for (size_t i = 0; i < inSend_; ++i) bytes += headers_[i].length;
      link_.count(link_.counters.bytesOut, bytes);
      lastUsed_ = link_.now;
      release();
      answer();
      if (!sending() && awaited_ == 0) dueAt(link_.now + link_.idle * 2);
      if (!receiving()) parse();
    }
  }
}

void ServingConnection::open() {
  state_ = State::open;
  link_.count(link_.counters.connectionsOpen);
  lastUsed_ = link_.now;
  dueAt(link_.now + link_.idle * 2);
  listen();
}

void ServingConnection::parse() {
  std::string_view bytes(buffer_, filled_);
  RequestParser::Outcome outcome = RequestParser::Outcome::more;
  while (waiting_.size() < kMostWaiting) {
    ReadRequest request;
    outcome = parser_.next(bytes, request);
    if (outcome != RequestParser::Outcome::request) break;
    waiting_.push_back(std::move(request));
  }
  if (outcome == RequestParser::Outcome::broken) {
    link_.count(link_.counters.refusedFrames);
    return refuse(Code::protocol, parser_.why());
  }
  std::memmove(buffer_, bytes.data(), bytes.size());
  filled_ = bytes.size();
  if (!sending()) answer();
  if (waiting_.size() < kMostWaiting && !receiving()) listen();
}

void ServingConnection::listen() {
  const iovec part{buffer_ + filled_, kBufferBytes - filled_};
  receive(&part, 1, Want::some);
}

void ServingConnection::exportChanged(uint64_t exportId) {
  if (awaited_ == exportId && !closing()) answer();
}

// Sends the next answers, together up to one piece of the usual length.
void ServingConnection::answer() {
  const uint64_t awaited = std::exchange(awaited_, 0);
  iovec parts[kMostParts];
  size_t count = 0;
  uint64_t bytes = 0;
  while (!waiting_.empty() && inSend_ < kMostAtOnce) {
    const ReadRequest& request = waiting_.front();
    if (inSend_ > 0 && request.record.length > link_.pieceBytes - std::min(bytes, link_.pieceBytes)) break;
    const std::optional<Reading> begun = request.sane ? source_.begin(partOf(request)) : Reading{Code::protocol};
    if (!begun) {
      if (inSend_ > 0) break;
      awaited_ = request.record.exportId;
      if (awaited == 0) dueAt(link_.now + link_.idle);
      return;
    }
    const Reading& reading = readings_[inSend_] = *begun;
    if (reading.code == Code::protocol) {
      link_.count(link_.counters.refusedFrames);
      if (!std::exchange(frameRefused_, true))
        link_.log("data connection of " + handshake_.peer().node + ": a request outside of its value");
    }
    PieceHeader& header = headers_[inSend_++];
    header = {request.record.tag, request.record.offset, reading.length, static_cast<uint32_t>(reading.code), 0};
    header.crc32c = crc32c(reading.data, reading.length);
    parts[count++] = {&header, sizeof header};
    parts[count++] = {const_cast<char*>(reading.data), reading.length};
    bytes += reading.length;
    waiting_.pop_front();
  }
  if (inSend_ == 0) return;
  dueAt(link_.now + link_.stall);
  send(parts, count);
}

void ServingConnection::release() {
  for (size_t i = 0; i < inSend_; ++i) source_.end(readings_[i]);
  inSend_ = 0;
}

}  // namespace fluxon::link::tcp
