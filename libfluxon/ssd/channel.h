// Channel: one end of the message channel between an owner and its ssdd, over the two rings of ssdd_format.h.
//
// Invariants
//   1. Messages arrive in the order of send(), each once, whole; those for which the ring has no room wait here, in order.
//   2. The peer may write anything into the file at any time. This end reads each word once and checks it, and never reads back its own
//      words (tail of its ring, head of the other). Nonsense ends the channel, and nothing else.
//   3. After sleep() has returned true, the bell of this end rings when there is a message to receive, or room for one that waits.
// The channel does not see the death of its peer: that is the end of a socket. One thread.
#pragma once

#include <deque>
#include <string>

#include "ssd/messages.h"
#include "ssd/ssdd_format.h"

namespace fluxon::ssd {

class Channel {
 public:
  enum class End { owner, ssdd };
  // `file` is mapped as long as this lives and has been used by no other end of this kind. `peerBell`: the eventfd that wakes the
  // other end, not blocking; the caller's.
  Channel(SsddFile& file, End, int peerBell);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Nothing happens in a channel that is broken.
  void send(const Message&);
  enum class Received { nothing, message, broken };
  Received receive(Message&);

  // To be called when the bell has rung, and at first: sends what waits.
  void awake();
  // There was nothing to receive. False: now there is.
  [[nodiscard]] bool sleep();

  size_t waiting() const { return waiting_.size(); }  // sent, but not in the ring
  bool broken() const { return !why_.empty(); }
  const std::string& why() const { return why_; }  // for people

 private:
  bool put(const Message&);
  void flush();
  bool fits(uint64_t bytes);
  Received refuse(const char* what, uint64_t value);
  void ring();

  ByteRing& out_;
  ByteRing& in_;
  const End end_;
  const int peerBell_;
  uint64_t tail_ = 0;               // of out_
  uint64_t head_ = 0;               // of in_
  uint64_t rungFor_ = UINT64_MAX;   // tail before the frame for which the sleeping reader was rung
  uint64_t relieved_ = UINT64_MAX;  // tail of in_ when its starved writer was rung
  std::deque<Message> waiting_;
  std::string why_;
};

}  // namespace fluxon::ssd
