// FileEngine over one io_uring. All operations that may start go to the kernel with one system call, which also waits.
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bell.h"
#include "base/check.h"
#include "io_queues.h"

namespace fluxon::ssdd {
namespace {

constexpr unsigned kFiles = 256;
constexpr size_t kMostBytesOfCall = 1 << 30;  // a call's length has 32 bits; what is left is resumed
constexpr unsigned kPieces = 1 << 14;         // of registered memory: the most that the kernel has
// Completions are collected when this thread asks for them and not by interrupting it, and an entry that fails does not hold back
// those behind it. Kernels before 6.1 do not know the first two.
constexpr unsigned kCheapest = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL;

class UringEngine final : public FileEngine {
 public:
  explicit UringEngine(const EngineSettings& settings) : depth_(settings.depth), queues_(settings, settings.depth) {}
  ~UringEngine() override {
    if (made_) {
      std::vector<Completion> nobodys;
      if (works_) close(nobodys);
      // The kernel lets a ring go some time later, and what is registered only with it: files with their locks, and pages.
      if (hasTable_) ::io_uring_unregister_files(&ring_);
      if (!free_.empty() || !pieces_.empty()) ::io_uring_unregister_buffers(&ring_);
      ::io_uring_queue_exit(&ring_);
    }
    if (events_ >= 0) ::close(events_);
  }

  // Each of the three system calls is tried, as a kernel may refuse any of them: what it refuses, or nothing.
  std::string open() {
    const auto refused = [](const char* call, int result) { return std::string(call) + ": " + std::strerror(-result); };
    int result = ::io_uring_queue_init(depth_, &ring_, kCheapest);
    if (result == -EINVAL) result = ::io_uring_queue_init(depth_, &ring_, 0);
    if (result != 0) return refused("io_uring_setup", result);
    made_ = true;
    constexpr unsigned kNeeded = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if ((ring_.features & kNeeded) != kNeeded) return refused("io_uring_setup", -ENOSYS);
    if (result = tryRegister(); result != 0) return refused("io_uring_register", result);
    if (result = tryEnter(); result != 0) return refused("io_uring_enter", result);
    hasTable_ = ::io_uring_register_files_sparse(&ring_, kFiles) == 0;
    works_ = true;
    return {};
  }

  const char* name() const override { return "io_uring"; }

  FileRef addFile(int fd) override {
    if (!hasTable_ || files_ == kFiles || ::io_uring_register_files_update(&ring_, files_, &fd, 1) != 1) return FileRef::descriptor(fd);
    return FileRef::registered(static_cast<int>(files_++));
  }

  Error addMemory(const iovec& memory) override {
    if (free_.empty() && pieces_.empty()) {
      const int result = ::io_uring_register_buffers_sparse(&ring_, kPieces);
      if (result != 0) return systemError("a table of memory for io_uring", -result);
      for (unsigned i = kPieces; i-- > 0;) free_.push_back(i);
    }
    if (free_.empty()) return {Code::tooMany, "pieces of memory for io_uring"};
    const int result = ::io_uring_register_buffers_update_tag(&ring_, free_.back(), &memory, nullptr, 1);
    if (result != 1) return systemError("registering memory for io_uring", result < 0 ? -result : EINVAL);
    pieces_.insert(after(memory.iov_base), {memory, free_.back()});
    free_.pop_back();
    return {};
  }

  void dropMemory(const iovec& inside) override {
    const auto* const end = static_cast<char*>(inside.iov_base) + inside.iov_len;
    std::erase_if(pieces_, [&](const Piece& piece) {
      if (piece.memory.iov_base < inside.iov_base || piece.memory.iov_base >= end) return false;
      const iovec none{};
      const int result = ::io_uring_register_buffers_update_tag(&ring_, piece.index, &none, nullptr, 1);
      FLUXON_CHECK(result == 1, "io_uring keeps memory that is to be dropped");
      free_.push_back(piece.index);
      return true;
    });
  }

  bool submit(const Request& request) override {
    FLUXON_CHECK(!closed_, "a request for a closed engine");
    return queues_.submit(request);
  }

  void start() override {
    if (prepare()) enter(0, Time::never());
  }

  void cancel(uint64_t tag) override {
    if (queues_.cancel(tag)) ring();
  }

  void wait(size_t count, Time until, std::vector<Completion>& to) override {
    if (events_ >= 0) {
      ++systemCalls_;
      bell::clear(events_);  // before the completions are collected: what comes later rings anew
    }
    const size_t wanted = std::min(count, queues_.pending());
    for (;;) {
      const bool prepared = prepare();
      const size_t missing = wanted - std::min(wanted, queues_.ended());
      // With something queued each completion makes room for another start.
      const size_t least = queues_.queued() > 0 ? std::min<size_t>(missing, 1) : std::min(missing, queues_.inFlight());
      if (prepared || queues_.inFlight() > 0) enter(static_cast<unsigned>(least), until);
      collect();
      if (queues_.ended() >= wanted || (until != Time::never() && bootTime() >= until)) break;
    }
    start();
    queues_.takeEnded(to);
  }

  void close(std::vector<Completion>& to) override {
    closed_ = true;
    queues_.cancelQueued();
    wait(queues_.pending(), Time::never(), to);
  }

  size_t pending() const override { return queues_.pending(); }

  int eventFd() override {
    if (events_ < 0) {
      events_ = bell::make();
      if (events_ < 0) return -1;
      if (const int result = ::io_uring_register_eventfd(&ring_, events_); result != 0) {
        ::close(std::exchange(events_, -1));
        errno = -result;
        return -1;
      }
      ring();  // for what came before
    }
    return events_;
  }

  IoCounters counters() const override {
    IoCounters all = queues_.counters();
    all.systemCalls = systemCalls_;
    return all;
  }

 private:
  // 0 or negative errno, of what eventFd() will do.
  int tryRegister() {
    const int events = bell::make();
    if (events < 0) return -errno;
    int result = ::io_uring_register_eventfd(&ring_, events);
    if (result == 0) result = ::io_uring_unregister_eventfd(&ring_);
    ::close(events);
    return result;
  }
  // 0 or negative errno, of a request that does nothing.
  int tryEnter() {
    ::io_uring_prep_nop(::io_uring_get_sqe(&ring_));
    const int result = ::io_uring_submit_and_wait(&ring_, 1);
    if (result < 0) return result;
    io_uring_cqe* done = nullptr;
    if (const int failed = ::io_uring_peek_cqe(&ring_, &done); failed != 0) return failed;
    ::io_uring_cqe_seen(&ring_, done);
    return 0;
  }

  void ring() {
    if (events_ < 0) return;
    ++systemCalls_;
    bell::ring(events_);
  }

  // The queue has an entry for each operation of the depth. True if the kernel is to be told of any.
  bool prepare() {
    while (Operation* const operation = queues_.next()) {
      io_uring_sqe* const sqe = ::io_uring_get_sqe(&ring_);
      FLUXON_CHECK(sqe, "more operations than entries");
      prepare(*sqe, *operation);
      ::io_uring_sqe_set_data(sqe, operation);
    }
    return ::io_uring_sq_ready(&ring_) > 0;
  }

  void prepare(io_uring_sqe& sqe, const Operation& operation) const {
    const bool reads = operation.direction() == Direction::read;
    const int file = operation.file().number();
    const std::span<const iovec> left = operation.left();
    if (operation.vectored()) {
      const auto n = static_cast<unsigned>(left.size());
      reads ? ::io_uring_prep_readv(&sqe, file, left.data(), n, operation.offset())
            : ::io_uring_prep_writev(&sqe, file, left.data(), n, operation.offset());
    } else {
      const auto bytes = static_cast<unsigned>(std::min(left[0].iov_len, kMostBytesOfCall));
      if (const int piece = pieceOf(left[0]); piece >= 0) {
        reads ? ::io_uring_prep_read_fixed(&sqe, file, left[0].iov_base, bytes, operation.offset(), piece)
              : ::io_uring_prep_write_fixed(&sqe, file, left[0].iov_base, bytes, operation.offset(), piece);
      } else {
        reads ? ::io_uring_prep_read(&sqe, file, left[0].iov_base, bytes, operation.offset())
              : ::io_uring_prep_write(&sqe, file, left[0].iov_base, bytes, operation.offset());
      }
    }
    if (operation.file().isRegistered()) sqe.flags |= IOSQE_FIXED_FILE;
  }

  struct Piece {
    iovec memory;
    unsigned index;  // in the kernel's table
  };

  // The first piece that begins behind this.
  std::vector<Piece>::const_iterator after(const void* base) const {
    return std::upper_bound(pieces_.begin(), pieces_.end(), base,
                            [](const void* at, const Piece& piece) { return at < piece.memory.iov_base; });
  }

  // The piece that holds all of a buffer, of those that begin last before it; or -1.
  int pieceOf(const iovec& buffer) const {
    const auto behind = after(buffer.iov_base);
    if (behind == pieces_.begin()) return -1;
    const auto& [piece, index] = behind[-1];
    const size_t at = static_cast<size_t>(static_cast<char*>(buffer.iov_base) - static_cast<char*>(piece.iov_base));
    return at < piece.iov_len && buffer.iov_len <= piece.iov_len - at ? static_cast<int>(index) : -1;
  }

  // Entries that the kernel has not taken (EAGAIN, ENOMEM) stay, and go with the next call.
  void enter(unsigned least, Time until) {
    ++systemCalls_;
    int result;
    if (least == 0) {
      result = ::io_uring_submit_and_get_events(&ring_);
    } else if (until == Time::never()) {
      result = ::io_uring_submit_and_wait(&ring_, least);
    } else {
      const int64_t ns = std::max<int64_t>(0, (until - bootTime()).ns);
      __kernel_timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
      io_uring_cqe* first;
      result = ::io_uring_submit_and_wait_timeout(&ring_, &first, least, &timeout, nullptr);
    }
    FLUXON_CHECK(result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM,
                 "io_uring_enter failed");
  }

  void collect() {
    unsigned head, seen = 0;
    io_uring_cqe* cqe;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      ++seen;
      queues_.returned(*static_cast<Operation*>(::io_uring_cqe_get_data(cqe)), cqe->res);
    }
    ::io_uring_cq_advance(&ring_, seen);
  }

  const unsigned depth_;
  IoQueues queues_;
  io_uring ring_{};
  std::vector<Piece> pieces_;   // by address
  std::vector<unsigned> free_;  // places in the kernel's table
  uint64_t systemCalls_ = 0;
  int events_ = -1;
  unsigned files_ = 0;
  bool made_ = false, works_ = false, hasTable_ = false, closed_ = false;
};

}  // namespace

std::unique_ptr<FileEngine> makeUringEngine(const EngineSettings& settings, std::string& why) {
  auto engine = std::make_unique<UringEngine>(settings);
  std::string refused = engine->open();
  if (refused.empty()) return engine;
  why = std::move(refused);
  return nullptr;
}

}  // namespace fluxon::ssdd
