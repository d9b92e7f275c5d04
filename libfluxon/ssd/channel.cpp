#include "ssd/channel.h"

#include <algorithm>
#include <cstring>

#include "base/bell.h"
#include "base/check.h"

namespace fluxon::ssd {
namespace {

constexpr uint64_t frameBytes(uint64_t keyBytes) { return (sizeof(Frame) + keyBytes + 7) & ~uint64_t{7}; }
static_assert(kRingBytes % 8 == 0 && frameBytes(kMaxKeyBytes) <= kRingBytes / 2);

bool isOf(uint16_t kind, Channel::End sender) {
  const auto between = [&](MessageKind first, MessageKind last) {
    return kind >= static_cast<uint16_t>(first) && kind <= static_cast<uint16_t>(last);
  };
  return sender == Channel::End::owner ? between(MessageKind::persist, MessageKind::scrub)
                                       : between(MessageKind::persisted, MessageKind::alive);
}

void copyIn(ByteRing& ring, uint64_t at, const void* data, size_t bytes) {
  if (bytes == 0) return;
  const uint64_t from = at % kRingBytes;
  const size_t first = std::min<uint64_t>(bytes, kRingBytes - from);
  std::memcpy(ring.bytes + from, data, first);
  if (first < bytes) std::memcpy(ring.bytes, static_cast<const char*>(data) + first, bytes - first);
}

void copyOut(const ByteRing& ring, uint64_t at, void* to, size_t bytes) {
  if (bytes == 0) return;
  const uint64_t from = at % kRingBytes;
  const size_t first = std::min<uint64_t>(bytes, kRingBytes - from);
  std::memcpy(to, ring.bytes + from, first);
  if (first < bytes) std::memcpy(static_cast<char*>(to) + first, ring.bytes, bytes - first);
}

}  // namespace

Channel::Channel(SsddFile& file, End end, int peerBell)
    : out_(end == End::owner ? file.toSsdd : file.toOwner),
      in_(end == End::owner ? file.toOwner : file.toSsdd),
      end_(end),
      peerBell_(peerBell) {}

void Channel::ring() { bell::ring(peerBell_); }

Channel::Received Channel::refuse(const char* what, uint64_t value) {
  why_ = std::string(what) + " " + std::to_string(value);
  waiting_.clear();
  return Received::broken;
}

void Channel::send(const Message& message) {
  FLUXON_CHECK(isOf(static_cast<uint16_t>(message.kind), end_) && message.key.size() <= kMaxKeyBytes, "a message that cannot be sent");
  if (broken()) return;
  if (!waiting_.empty() || !put(message)) {
    if (broken()) return;
    waiting_.push_back(message);
    if (waiting_.size() == 1) flush();
  }
}

// False: broken, or no room.
bool Channel::fits(uint64_t bytes) {
  const uint64_t used = tail_ - out_.head.load(std::memory_order_seq_cst);
  if (used > kRingBytes) {
    refuse("the reader's head lies outside of the ring: bytes used", used);
    return false;
  }
  return kRingBytes - used >= bytes;
}

bool Channel::put(const Message& message) {
  const uint64_t bytes = frameBytes(message.key.size());
  if (!fits(bytes)) return false;
  const Frame frame{static_cast<uint16_t>(message.kind),
                    static_cast<uint16_t>(message.code),
                    static_cast<uint32_t>(message.key.size()),
                    message.id,
                    message.putId.value,
                    message.offset,
                    message.bytes};
  static constexpr char kZeros[8] = {};
  copyIn(out_, tail_, &frame, sizeof frame);
  copyIn(out_, tail_ + sizeof frame, message.key.data(), message.key.size());
  copyIn(out_, tail_ + sizeof frame + message.key.size(), kZeros, bytes - sizeof frame - message.key.size());
  const uint64_t begin = tail_;
  tail_ += bytes;
  out_.tail.store(tail_, std::memory_order_seq_cst);
  // A reader that was rung and has not come to that frame yet is on its way.
  if (out_.asleep.load(std::memory_order_seq_cst) == 0) return true;
  if (rungFor_ != UINT64_MAX && out_.head.load(std::memory_order_seq_cst) <= rungFor_) return true;
  rungFor_ = begin;
  ring();
  return true;
}

void Channel::flush() {
  const auto move = [&] {
    while (!waiting_.empty() && put(waiting_.front())) waiting_.pop_front();
  };
  move();
  if (!waiting_.empty()) {
    out_.starved.store(1, std::memory_order_seq_cst);
    move();  // the last look at head
  }
  if (waiting_.empty()) out_.starved.store(0, std::memory_order_relaxed);
}

Channel::Received Channel::receive(Message& message) {
  if (broken()) return Received::broken;
  const uint64_t tail = in_.tail.load(std::memory_order_seq_cst);
  const uint64_t left = tail - head_;
  if (left == 0) return Received::nothing;
  if (left > kRingBytes) return refuse("the writer's tail lies outside of the ring: bytes left", left);
  if (left < sizeof(Frame) || left % 8 != 0) return refuse("the ring ends in the middle of a frame: bytes left", left);
  Frame frame;
  copyOut(in_, head_, &frame, sizeof frame);
  if (!isOf(frame.kind, end_ == End::owner ? End::ssdd : End::owner)) return refuse("unknown kind of message", frame.kind);
  if (frame.keyBytes > kMaxKeyBytes) return refuse("a key of bytes", frame.keyBytes);
  const uint64_t bytes = frameBytes(frame.keyBytes);
  if (bytes > left) return refuse("a frame is longer than what there is: bytes", bytes);
  message.kind = static_cast<MessageKind>(frame.kind);
  message.code = codeFromWire(frame.code);
  message.id = frame.id;
  message.putId = PutId(frame.putId);
  message.offset = frame.offset;
  message.bytes = frame.bytes;
  message.key.resize(frame.keyBytes);
  copyOut(in_, head_ + sizeof frame, message.key.data(), frame.keyBytes);
  head_ += bytes;
  in_.head.store(head_, std::memory_order_seq_cst);
  // A writer without room adds nothing until it is rung: once for each tail is enough.
  if (in_.starved.load(std::memory_order_seq_cst) != 0 && left - bytes <= kRingBytes / 2 && tail != relieved_) {
    relieved_ = tail;
    ring();
  }
  return Received::message;
}

void Channel::awake() {
  in_.asleep.store(0, std::memory_order_relaxed);
  if (!broken() && !waiting_.empty()) flush();
}

bool Channel::sleep() {
  in_.asleep.store(1, std::memory_order_seq_cst);
  if (broken() || in_.tail.load(std::memory_order_seq_cst) == head_) return true;
  in_.asleep.store(0, std::memory_order_relaxed);
  return false;
}

}  // namespace fluxon::ssd
