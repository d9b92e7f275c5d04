#include "client/command_ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/bell.h"
#include "base/cgroup.h"
#include "shm/node_socket.h"

namespace fluxon::client {
namespace {

constexpr Duration kLook = milliseconds(100);  // between looks whether the owner is still there
constexpr Duration kSpin{20'000};

// A waiting thread that spins takes its processor from the owner where there are few.
unsigned processors() {
  static const unsigned usable = usableProcessors();
  return usable;
}

uint32_t of(shm::CommandState state) { return static_cast<uint32_t>(state); }

}  // namespace

CommandRing::CommandRing(shm::ClientFile& file, const shm::DirectoryHeader& header, Owner owner)
    : file_(file), header_(header), life_(header.life.load()), bell_(owner.bell), socket_(owner.socket), spin_(processors() > 2) {
  // Giving a slot or a grant back needs no memory.
  free_.reserve(shm::kCommandSlots);
  abandoned_.reserve(shm::kCommandSlots);
  aborts_.reserve(shm::kCommandSlots);
  for (uint32_t i = shm::kCommandSlots; i-- > 0;) free_.push_back(i);
}

bool CommandRing::suspect() const {
  return header_.life.load(std::memory_order_acquire) != life_ || header_.servingIncarnation.load(std::memory_order_acquire) == 0 ||
         bootTime().ns >= static_cast<int64_t>(header_.leaseUntilNs.load(std::memory_order_acquire));
}

bool CommandRing::dead() const { return shm::hungUp(socket_); }

// Under the lock. Nothing: all are under way.
std::optional<uint32_t> CommandRing::freeSlot() {
  if (!free_.empty()) {
    const uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  const auto released = std::find_if(abandoned_.begin(), abandoned_.end(), [&](uint32_t index) {
    return file_.commands[index].state.load(std::memory_order_acquire) == of(shm::CommandState::free);
  });
  if (released == abandoned_.end()) return std::nullopt;
  const uint32_t index = *released;
  abandoned_.erase(released);
  return index;
}

Result<uint32_t> CommandRing::takeSlot(Time deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    post();
    if (const std::optional<uint32_t> index = freeSlot()) return *index;
    if (bootTime() >= deadline) return Error{Code::tooMany, std::to_string(shm::kCommandSlots) + " commands are under way"};
    if (dead()) return Error{Code::unavailable, "the owner has ended"};
    freed_.wait_for(lock, std::chrono::nanoseconds(std::min(kLook, deadline - bootTime()).ns));
  }
}

void CommandRing::giveSlot(uint32_t index, bool abandoned) {
  const std::lock_guard lock(mutex_);
  (abandoned ? abandoned_ : free_).push_back(index);
  post();
  freed_.notify_one();
}

// Under the lock: aborts that have waited for a slot. Nobody waits for their answers, so they are abandoned from the beginning.
void CommandRing::post() {
  bool posted = false;
  while (!aborts_.empty()) {
    const std::optional<uint32_t> index = freeSlot();
    if (!index) break;
    shm::CommandSlot& slot = file_.commands[*index];
    slot.request = {.kind = static_cast<uint32_t>(shm::CommandKind::abort), .slotRef = aborts_.back()};
    aborts_.pop_back();
    slot.waiting.store(0, std::memory_order_relaxed);
    slot.state.store(of(shm::CommandState::abandoned), std::memory_order_release);
    submit(*index);
    abandoned_.push_back(*index);
    posted = true;
  }
  if (posted) ring();
}

void CommandRing::abort(uint64_t slotRef) {
  const std::lock_guard lock(mutex_);
  aborts_.push_back(slotRef);
  post();
}

// Under the lock. How many commands the owner has taken when it has taken this one.
uint32_t CommandRing::submit(uint32_t index) {
  const uint32_t tail = file_.ring.tail.load(std::memory_order_relaxed);
  file_.ring.entries[tail % shm::kCommandSlots].store(index, std::memory_order_release);
  file_.ring.tail.store(tail + 1, std::memory_order_seq_cst);
  return tail + 1;
}

void CommandRing::ring() const {
  // seq_cst against the owner, which first announces that it sleeps and then looks at the tails once more.
  if (header_.controlAsleep.load(std::memory_order_seq_cst) == 0) return;
  bell::ring(bell_);
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

// Why a command that was submitted has no answer.
Error CommandRing::unanswered(uint32_t ticket) const {
  if (dead()) return {Code::outcomeUnknown, "the owner has ended"};
  const bool taken = static_cast<int32_t>(file_.ring.head.load(std::memory_order_acquire) - ticket) >= 0;
  return {Code::timedOut, taken ? "no answer: the owner runs and waits for its master or another owner (fluxonctl status)"
                                : "the owner does not take commands: it is stopped or has too much to do"};
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
  // The owner gets an earlier deadline, so that its explanation of a wait that failed comes in time.
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
  uint32_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = submit(index);
  }
  ring();
  if (!await(slot, call.deadline)) {
    uint32_t expected = of(shm::CommandState::submitted);
    if (slot.state.compare_exchange_strong(expected, of(shm::CommandState::abandoned), std::memory_order_seq_cst)) {
      giveSlot(index, true);
      return unanswered(ticket);
    }
  }
  struct Give {
    CommandRing& ring;
    shm::CommandSlot& slot;
    uint32_t index;
    ~Give() {
      slot.state.store(of(shm::CommandState::free), std::memory_order_release);
      ring.giveSlot(index, false);
    }
  };
  const Give give{*this, slot, index};
  return readReply(slot.answer, file_.payloads[index]);
}

}  // namespace fluxon::client
