#include "client_ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/mark.h"

namespace fluxon::owner {
namespace {

// The flags that a command of the kind may have.
uint32_t flagsKnown(shm::CommandKind kind) {
  if (kind == shm::CommandKind::putStart || kind == shm::CommandKind::putInline) return shm::kPutFlags;
  return kind == shm::CommandKind::get ? shm::kGetFlags : 0;
}

void wake(shm::Half& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }

}  // namespace

bool afterwards(shm::CommandKind& kind) {
  if (kind == shm::CommandKind::commit) FLUXON_MARK("owner: nobody waits for a commit");
  if (kind == shm::CommandKind::commit) kind = shm::CommandKind::abort;
  return kind == shm::CommandKind::abort;
}

ClientRing::ClientRing(shm::ClientFile& file) : file_(file), head_(file.ring.head.load(std::memory_order_relaxed)) {
  for (uint32_t s = 0; s < shm::kTouchShards; ++s) touchesSeen_[s] = file.touches[s].head.load(std::memory_order_relaxed);
}

bool ClientRing::more() const { return file_.ring.tail.load(std::memory_order_seq_cst) != head_; }

ClientRing::Next ClientRing::next(uint32_t& slot, Command& command) {
  const uint32_t tail = file_.ring.tail.load(std::memory_order_seq_cst);
  if (tail == head_) return Next::nothing;
  if (tail - head_ > shm::kCommandSlots) {
    // The client wrote nonsense: go on from the tail that it names now.
    head_ = tail;
    file_.ring.head.store(head_, std::memory_order_release);
    return Next::refused;
  }
  slot = file_.ring.entries[head_ % shm::kCommandSlots].load(std::memory_order_acquire);
  file_.ring.head.store(++head_, std::memory_order_release);
  if (slot >= shm::kCommandSlots || running_[slot]) return Next::refused;
  const shm::CommandSlot& from = file_.commands[slot];
  const auto state = static_cast<shm::CommandState>(from.state.load(std::memory_order_acquire));
  const bool abandoned = state == shm::CommandState::abandoned;
  if (!abandoned && state != shm::CommandState::submitted) return Next::refused;
  running_[slot] = true;
  const shm::CommandRequest request = from.request;
  // Only the copy counts: the compiler must not read the client's memory again.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const auto kind = static_cast<shm::CommandKind>(request.kind);
  if (request.keyBytes > kMaxKeyBytes || request.extraBytes > shm::kPayloadBytes - kMaxKeyBytes ||
      (request.flags & ~flagsKnown(kind)) != 0) {
    answer(slot, Answer{.code = Code::protocol});
    return Next::refused;
  }
  command = Command{};
  command.kind = kind;
  if (abandoned && !afterwards(command.kind)) {
    answer(slot, Answer{});  // lets the slot go
    return Next::over;
  }
  if (kind == shm::CommandKind::get) {
    const auto has = [&](uint32_t flag) { return (request.flags & flag) != 0; };
    command.get = {has(shm::kHold), has(shm::kLocalOnly), has(shm::kPlacedHere), has(shm::kBringHere)};
  } else {
    command.put = shm::putModeOf(request.flags);
    command.replicas = static_cast<uint8_t>(request.flags >> shm::kReplicasShift);
  }
  command.key.assign(file_.payloads[slot], request.keyBytes);
  command.extra.assign(file_.payloads[slot] + request.keyBytes, request.extraBytes);
  command.valueBytes = request.valueBytes;
  command.slotRef = request.slotRef;
  command.lease = KeyLeaseId(request.lease);
  command.deadline = Time{request.deadlineNs};
  return Next::command;
}

bool ClientRing::answer(uint32_t index, const Answer& from) {
  running_[index] = false;
  shm::CommandSlot& slot = file_.commands[index];
  shm::CommandAnswer& to = slot.answer;
  const uint32_t held = from.hold ? hold(from.slotRef) : 0;
  const bool full = from.hold && held == 0;
  to.code = static_cast<uint32_t>(full ? Code::tooMany : from.code);
  to.held = held;
  to.source = static_cast<uint32_t>(from.source);
  const size_t used = std::min<size_t>(from.payload.size(), shm::kPayloadBytes);
  to.payloadUsed = static_cast<uint32_t>(used);
  std::memcpy(file_.payloads[index], from.payload.data(), used);
  to.slotRef = from.slotRef;
  to.putId = from.putId.value;
  to.offset = from.offset;
  to.valueBytes = from.valueBytes;
  to.lease = from.lease.value;
  std::memset(to.node, 0, sizeof to.node);
  std::memcpy(to.node, from.node.data(), std::min(from.node.size(), sizeof to.node - 1));
  uint32_t expected = static_cast<uint32_t>(shm::CommandState::submitted);
  if (!slot.state.compare_exchange_strong(expected, static_cast<uint32_t>(shm::CommandState::completed), std::memory_order_seq_cst)) {
    if (held != 0) file_.held.words[held - 1].store(0, std::memory_order_release);
    slot.state.store(static_cast<uint32_t>(shm::CommandState::free), std::memory_order_release);
    return false;
  }
  if (slot.waiting.load(std::memory_order_seq_cst) != 0) wake(slot.state);
  return true;
}

// Makes a free held word of the client name the slot, and returns its number; 0: the client has no free one.
uint32_t ClientRing::hold(uint64_t slotRef) {
  shm::HeldTable& held = file_.held;
  for (uint32_t n = 0; n < shm::kHeldWords; ++n) {
    const uint32_t index = (nextHeld_ + n) % shm::kHeldWords;
    if (held.words[index].load(std::memory_order_acquire) != 0) continue;
    nextHeld_ = index + 1;
    if (held.highWater.load(std::memory_order_relaxed) <= index) held.highWater.store(index + 1, std::memory_order_seq_cst);
    held.words[index].store(slotRef, std::memory_order_seq_cst);
    return index + 1;
  }
  return 0;
}

size_t ClientRing::held() const {
  const uint32_t high = std::min(file_.held.highWater.load(std::memory_order_relaxed), shm::kHeldWords);
  return static_cast<size_t>(std::count_if(file_.held.words, file_.held.words + high,
                                           [](const shm::Word& word) { return word.load(std::memory_order_relaxed) != 0; }));
}

}  // namespace fluxon::owner
