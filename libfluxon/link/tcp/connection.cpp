#include "link/tcp/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace fluxon::link::tcp {

Connection::Connection(LinkContext& link) : link_(link) {
  sending_.op.sink = receiving_.op.sink = this;
  sending_.op.kind = Operation::Kind::send;
  receiving_.op.kind = Operation::Kind::receive;
}

void Connection::prepare(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Connection::use(shm::Descriptor fd) {
  prepare(fd.get());
  sending_.op.fd = receiving_.op.fd = fd.get();
  fd_ = std::move(fd);
}

void Connection::dueAt(Time due) {
  due_ = due;
  link_.nextDue = std::min(link_.nextDue, due);
}

void Connection::close(Error why) {
  if (reason_) return;
  reason_ = std::move(why);
  if (fd_) ::shutdown(fd_.get(), SHUT_RDWR);
  if (sending_.op.inFlight) link_.engine.cancel(sending_.op);
  if (receiving_.op.inFlight) link_.engine.cancel(receiving_.op);
}

void Connection::Flow::take(const iovec* from, size_t n) {
  FLUXON_CHECK(!op.inFlight && n <= kMostParts, "two operations on one direction of a connection");
  count = at = 0;
  moved = 0;
  for (size_t i = 0; i < n; ++i) {
    if (from[i].iov_len > 0) parts[count++] = from[i];
  }
}

void Connection::Flow::advance(size_t bytes) {
  moved += bytes;
  for (; at < count && bytes >= parts[at].iov_len; ++at) bytes -= parts[at].iov_len;
  if (at < count) parts[at] = {static_cast<char*>(parts[at].iov_base) + bytes, parts[at].iov_len - bytes};
}

void Connection::startFlow(Flow& flow) {
  flow.op.message.msg_iov = flow.parts + flow.at;
  flow.op.message.msg_iovlen = flow.count - flow.at;
  flow.op.whole = flow.wholeWanted;
  link_.engine.start(flow.op);
}

void Connection::lowWater(int bytes) {
  if (bytes == lowWater_) return;
  lowWater_ = bytes;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

void Connection::send(const iovec* parts, size_t count) {
  if (closing()) return;
  sending_.take(parts, count);
  sending_.op.kind = Operation::Kind::send;
  sending_.wholeWanted = true;
  startFlow(sending_);
}

void Connection::receive(const iovec* parts, size_t count, Want want) {
  if (closing()) return;
  receiving_.take(parts, count);
  receiving_.wholeWanted = want == Want::whole;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  receiving_.op.waitFirst = want == Want::most;
  lowWater(want == Want::most ? static_cast<int>(std::min<size_t>(bytes, kWakeBytes)) : 1);
  cancelled_ = false;
  startFlow(receiving_);
}

void Connection::cancelReceive() {
  if (!receiving_.op.inFlight || cancelled_) return;
  cancelled_ = true;
  link_.engine.cancel(receiving_.op);
}

void Connection::completed(Operation& op, int result) {
  Flow& flow = &op == &sending_.op ? sending_ : receiving_;
  if (closing()) return;
  if (op.kind == Operation::Kind::connect) return connected(result);
  if (&flow == &receiving_ && cancelled_) {
    if (result > 0) flow.advance(static_cast<size_t>(result));
    if (result > 0 || result == -ECANCELED || result == -EINTR) {
      cancelled_ = false;
      return receiveCancelled(flow.moved);
    }
  }
  if (result == -EINTR || result == -EAGAIN) return startFlow(flow);
  if (result <= 0) return ended(flow, -result);
  flow.advance(static_cast<size_t>(result));
  if (flow.wholeWanted && !flow.finished()) return startFlow(flow);
  if (&flow == &sending_) {
    sent();
  } else {
    received(flow.moved);
  }
}

void Connection::ended(Flow&, int error) {
  close({Code::unavailable, error == 0 ? "the peer closed the connection" : std::string("connection lost: ") + std::strerror(error)});
}

}  // namespace fluxon::link::tcp
