#include "client/command_ring.h"

#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace fluxon::client {
namespace {

constexpr Duration kLook = milliseconds(100);  // between looks whether the owner is still there
constexpr Duration kSpin{20'000};

uint32_t of(shm::CommandState state) { return static_cast<uint32_t>(state); }

}  // namespace

CommandRing::CommandRing(shm::ClientFile& file, const shm::DirectoryHeader& header, int bell, int socket)
    : file_(file),
      header_(header),
      life_(header.life.load()),
      bell_(bell),
      socket_(socket),
      spin_(std::thread::hardware_concurrency() > 2) {
  for (uint32_t i = shm::kCommandSlots; i-- > 0;) free_.push_back(i);
}

bool CommandRing::suspect() const {
  return header_.life.load(std::memory_order_acquire) != life_ || header_.servingIncarnation.load(std::memory_order_acquire) == 0 ||
         bootTime().ns >= static_cast<int64_t>(header_.leaseUntilNs.load(std::memory_order_acquire));
}

bool CommandRing::dead() const {
  char byte;
  const ssize_t n = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

Result<uint32_t> CommandRing::takeSlot(Time deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!free_.empty()) {
      const uint32_t index = free_.back();
      free_.pop_back();
      return index;
    }
    const auto released = std::find_if(abandoned_.begin(), abandoned_.end(), [&](uint32_t index) {
      return file_.commands[index].state.load(std::memory_order_acquire) == of(shm::CommandState::free);
    });
    if (released != abandoned_.end()) {
      const uint32_t index = *released;
      abandoned_.erase(released);
      return index;
    }
    if (bootTime() >= deadline) return Error{Code::tooMany, std::to_string(shm::kCommandSlots) + " commands are under way"};
    if (dead()) return Error{Code::unavailable, "the owner has ended"};
    freed_.wait_for(lock, std::chrono::nanoseconds(std::min(kLook, deadline - bootTime()).ns));
  }
}

void CommandRing::giveSlot(uint32_t index, bool abandoned) {
  const std::lock_guard lock(mutex_);
  (abandoned ? abandoned_ : free_).push_back(index);
  freed_.notify_one();
}

void CommandRing::submit(uint32_t index) {
  {
    const std::lock_guard lock(mutex_);
    const uint32_t tail = file_.ring.tail.load(std::memory_order_relaxed);
    file_.ring.entries[tail % shm::kCommandSlots].store(index, std::memory_order_release);
    file_.ring.tail.store(tail + 1, std::memory_order_seq_cst);
  }
  // seq_cst against the owner, who first says that it sleeps and then looks at the tails once more.
  if (header_.controlAsleep.load(std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the bell rings already.
  [[maybe_unused]] const ssize_t rung = ::write(bell_, &one, sizeof one);
}

// False: the deadline has passed, or the owner has ended.
bool CommandRing::await(shm::CommandSlot& slot, Time deadline) const {
  const auto done = [&] { return slot.state.load(std::memory_order_acquire) == of(shm::CommandState::completed); };
  if (spin_) {
    for (const Time until = bootTime() + kSpin; bootTime() < until;) {
      if (done()) return true;
      __builtin_ia32_pause();
    }
  }
  slot.waiting.store(1, std::memory_order_seq_cst);
  while (!done()) {
    const Time now = bootTime();
    if (now >= deadline) return done();
    const int64_t ns = std::min((deadline - now).ns, kLook.ns);
    const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
    const bool slept =
        ::syscall(SYS_futex, &slot.state, FUTEX_WAIT, of(shm::CommandState::submitted), &timeout, nullptr, 0) != 0 && errno == ETIMEDOUT;
    if (slept && dead()) return done();
  }
  return true;
}

Result<Reply> CommandRing::call(const Call& call) {
  if (call.key.size() > kMaxKeyBytes || call.extra.size() > shm::kPayloadBytes - kMaxKeyBytes) {
    return Error{Code::invalidKey,
                 std::to_string(std::max(call.key.size(), call.extra.size())) + " bytes (1 to " + std::to_string(kMaxKeyBytes) + ")"};
  }
  const Result<uint32_t> taken = takeSlot(call.deadline);
  if (!taken) return taken.error();
  const uint32_t index = taken.value();
  shm::CommandSlot& slot = file_.commands[index];
  // The owner hears of an earlier end, so that what it has to say about a wait that failed comes in time.
  const Duration margin = std::min((call.deadline - bootTime()) / 10, milliseconds(100));
  slot.request = {static_cast<uint32_t>(call.kind),
                  call.flags,
                  static_cast<uint32_t>(call.key.size()),
                  static_cast<uint32_t>(call.extra.size()),
                  call.valueBytes,
                  call.slotRef,
                  call.lease,
                  call.deadline.ns - margin.ns};
  if (!call.key.empty()) std::memcpy(file_.payloads[index], call.key.data(), call.key.size());
  if (!call.extra.empty()) std::memcpy(file_.payloads[index] + call.key.size(), call.extra.data(), call.extra.size());
  slot.waiting.store(0, std::memory_order_relaxed);
  slot.state.store(of(shm::CommandState::submitted), std::memory_order_release);
  submit(index);
  if (!await(slot, call.deadline)) {
    uint32_t expected = of(shm::CommandState::submitted);
    if (slot.state.compare_exchange_strong(expected, of(shm::CommandState::abandoned), std::memory_order_seq_cst)) {
      giveSlot(index, true);
      return dead() ? Error{Code::outcomeUnknown, "the owner has ended"} : Error{Code::timedOut, "the owner did not answer"};
    }
  }
  Reply reply = readReply(slot.answer, file_.payloads[index]);
  slot.state.store(of(shm::CommandState::free), std::memory_order_release);
  giveSlot(index, false);
  return reply;
}

}  // namespace fluxon::client
