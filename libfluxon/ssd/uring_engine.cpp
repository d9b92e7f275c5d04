// IoEngine over one io_uring. All operations that may start go to the kernel with one system call, which also waits.
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "ssd/channels.h"

namespace fluxon::ssd {
namespace {

constexpr unsigned kFiles = 256;
constexpr size_t kMostBytesOfCall = 1 << 30;   // a call's length has 32 bits; what is left is resumed
constexpr size_t kMostBytesOfPiece = 1 << 30;  // of registered memory
// Completions are collected when this thread asks for them and not by interrupting it, and an entry that fails does not hold back
// those behind it. Kernels before 6.1 do not know the first two.
constexpr unsigned kCheapest = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL;

class UringEngine final : public IoEngine {
 public:
  explicit UringEngine(const EngineSettings& settings) : depth_(settings.depth), channels_(settings, settings.depth) {}
  ~UringEngine() override {
    if (made_) {
      std::vector<Completion> nobodys;
      close(nobodys);
      ::io_uring_queue_exit(&ring_);
    }
    if (events_ >= 0) ::close(events_);
  }

  // 0 or negative errno.
  int open() {
    int result = ::io_uring_queue_init(depth_, &ring_, kCheapest);
    if (result == -EINVAL) result = ::io_uring_queue_init(depth_, &ring_, 0);
    if (result != 0) return result;
    made_ = true;
    constexpr unsigned kNeeded = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if ((ring_.features & kNeeded) != kNeeded) return -ENOSYS;
    hasTable_ = ::io_uring_register_files_sparse(&ring_, kFiles) == 0;
    return 0;
  }

  const char* name() const override { return "io_uring"; }

  FileRef addFile(int fd) override {
    if (!hasTable_ || files_ == kFiles || ::io_uring_register_files_update(&ring_, files_, &fd, 1) != 1) return FileRef::descriptor(fd);
    return FileRef::registered(static_cast<int>(files_++));
  }

  Error addMemory(std::span<const iovec> memory) override {
    FLUXON_CHECK(pieces_.empty() && channels_.pending() == 0, "memory is registered once, before the first request");
    for (const iovec& each : memory) {
      for (size_t at = 0; at < each.iov_len; at += kMostBytesOfPiece)
        pieces_.push_back({static_cast<char*>(each.iov_base) + at, std::min(kMostBytesOfPiece, each.iov_len - at)});
    }
    std::sort(pieces_.begin(), pieces_.end(), [](const iovec& a, const iovec& b) { return a.iov_base < b.iov_base; });
    const int result = ::io_uring_register_buffers(&ring_, pieces_.data(), static_cast<unsigned>(pieces_.size()));
    if (result == 0) return {};
    pieces_.clear();
    return systemError("registering memory for io_uring", -result);
  }

  bool submit(const Request& request) override {
    FLUXON_CHECK(!closed_, "a request for a closed engine");
    return channels_.submit(request);
  }

  void start() override {
    if (prepare()) enter(0, Time::never());
  }

  void cancel(uint64_t tag) override {
    if (channels_.cancel(tag)) ring();
  }

  void wait(size_t count, Time until, std::vector<Completion>& to) override {
    if (events_ >= 0) {
      uint64_t rung;  // before the completions are collected: what comes later rings anew
      ++systemCalls_;
      [[maybe_unused]] const ssize_t n = ::read(events_, &rung, sizeof rung);
    }
    const size_t wanted = std::min(count, channels_.pending());
    for (;;) {
      const bool prepared = prepare();
      const size_t missing = wanted - std::min(wanted, channels_.ended());
      // With something queued each completion makes room for another start.
      const size_t least = channels_.queued() > 0 ? std::min<size_t>(missing, 1) : std::min(missing, channels_.inFlight());
      if (prepared || channels_.inFlight() > 0) enter(static_cast<unsigned>(least), until);
      collect();
      if (channels_.ended() >= wanted || (until != Time::never() && bootTime() >= until)) break;
    }
    start();
    channels_.takeEnded(to);
  }

  void close(std::vector<Completion>& to) override {
    closed_ = true;
    channels_.cancelQueued();
    wait(channels_.pending(), Time::never(), to);
  }

  size_t pending() const override { return channels_.pending(); }

  int eventFd() override {
    if (events_ < 0) {
      events_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
    IoCounters all = channels_.counters();
    all.systemCalls = systemCalls_;
    return all;
  }

 private:
  void ring() {
    if (events_ < 0) return;
    ++systemCalls_;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(events_, &one, sizeof one);  // full is readable as well
  }

  // The queue has an entry for each operation of the depth. True if the kernel is to be told of any.
  bool prepare() {
    while (Operation* const operation = channels_.next()) {
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

  // The registered piece that holds all of a buffer, or -1.
  int pieceOf(const iovec& buffer) const {
    const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), buffer.iov_base,
                                        [](const void* base, const iovec& piece) { return base < piece.iov_base; });
    if (after == pieces_.begin()) return -1;
    const iovec& piece = after[-1];
    const size_t at = static_cast<size_t>(static_cast<char*>(buffer.iov_base) - static_cast<char*>(piece.iov_base));
    return at < piece.iov_len && buffer.iov_len <= piece.iov_len - at ? static_cast<int>(after - pieces_.begin() - 1) : -1;
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
      channels_.returned(*static_cast<Operation*>(::io_uring_cqe_get_data(cqe)), cqe->res);
    }
    ::io_uring_cq_advance(&ring_, seen);
  }

  const unsigned depth_;
  Channels channels_;
  io_uring ring_{};
  std::vector<iovec> pieces_;  // registered memory, by address: the index is the kernel's
  uint64_t systemCalls_ = 0;
  int events_ = -1;
  unsigned files_ = 0;
  bool made_ = false, hasTable_ = false, closed_ = false;
};

}  // namespace

std::unique_ptr<IoEngine> makeUringEngine(const EngineSettings& settings, std::string& why) {
  auto engine = std::make_unique<UringEngine>(settings);
  const int result = engine->open();
  if (result == 0) return engine;
  why = std::strerror(-result);
  return nullptr;
}

}  // namespace fluxon::ssd
