// FileEngine over a pool of threads, each with one plain call at a time.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/bell.h"
#include "base/check.h"
#include "base/thread.h"
#include "io_queues.h"

namespace fluxon::ssdd {
namespace {

class PsyncEngine final : public FileEngine {
 public:
  explicit PsyncEngine(const EngineSettings& settings)
      : queues_(settings, std::min(settings.depth, settings.threads)), events_(bell::make()) {}
  Error start(unsigned threads) {
    while (threads_.size() < threads) {
      Result<std::thread> thread = startThread([this] { work(); });
      if (!thread) return thread.error();
      threads_.push_back(std::move(thread).value());
    }
    return {};
  }
  ~PsyncEngine() override {
    std::vector<Completion> nobodys;
    close(nobodys);
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    for (std::thread& each : threads_) each.join();
    if (events_ >= 0) ::close(events_);
  }

  const char* name() const override { return "threads"; }
  FileRef addFile(int fd) override { return FileRef::descriptor(fd); }
  Error addMemory(const iovec&) override { return {Code::notEnabled, "threads pin no memory"}; }
  void dropMemory(const iovec&) override {}

  bool submit(const Request& request) override {
    FLUXON_CHECK(!closed_ && !request.file.isRegistered(), "a request for a closed engine, or of another engine's file");
    const std::lock_guard lock(mutex_);
    return queues_.submit(request);
  }

  void start() override {
    size_t startable;
    {
      const std::lock_guard lock(mutex_);
      startable = queues_.queued();
    }
    for (size_t i = 0; i < std::min(startable, threads_.size()); ++i) work_.notify_one();
  }

  void cancel(uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    if (queues_.cancel(tag)) ring();
  }

  void wait(size_t count, Time until, std::vector<Completion>& to) override {
    start();
    size_t wanted = SIZE_MAX;
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        wanted = std::min(std::min(wanted, count), queues_.pending());
        const bool late = until != Time::never() && bootTime() >= until;
        ++systemCalls_;
        bell::clear(events_);  // under the lock, as it is rung: what comes later rings anew
        if (queues_.ended() >= wanted || late) return queues_.takeEnded(to);
        ++systemCalls_;
      }
      pollfd waiting{events_, POLLIN, 0};
      const int64_t left = until == Time::never() ? -1 : std::max<int64_t>(0, (until - bootTime()).ns);
      const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
      ::ppoll(&waiting, 1, left < 0 ? nullptr : &timeout, nullptr);
    }
  }

  void close(std::vector<Completion>& to) override {
    closed_ = true;
    size_t left;
    {
      const std::lock_guard lock(mutex_);
      queues_.cancelQueued();
      left = queues_.pending();
    }
    wait(left, Time::never(), to);
  }

  size_t pending() const override {
    const std::lock_guard lock(mutex_);
    return queues_.pending();
  }
  int eventFd() override { return events_; }

  IoCounters counters() const override {
    const std::lock_guard lock(mutex_);
    IoCounters all = queues_.counters();
    all.systemCalls = systemCalls_;
    return all;
  }

 private:
  void ring() {
    ++systemCalls_;
    bell::ring(events_);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Operation* operation = nullptr;
      work_.wait(lock, [&] { return (operation = queues_.next()) || ending_; });
      if (!operation) return;
      ++systemCalls_;
      lock.unlock();
      const int64_t result = transfer(*operation);
      lock.lock();
      if (queues_.returned(*operation, result)) ring();
    }
  }

  static int64_t transfer(const Operation& operation) {
    const int fd = operation.file().number();
    const std::span<const iovec> left = operation.left();
    const auto at = static_cast<off_t>(operation.offset());
    const auto n = static_cast<int>(left.size());
    ssize_t result;
    if (operation.direction() == Direction::read) {
      result = operation.vectored() ? ::preadv(fd, left.data(), n, at) : ::pread(fd, left[0].iov_base, left[0].iov_len, at);
    } else {
      result = operation.vectored() ? ::pwritev(fd, left.data(), n, at) : ::pwrite(fd, left[0].iov_base, left[0].iov_len, at);
    }
    return result < 0 ? -errno : result;
  }

  mutable std::mutex mutex_;  // over queues_, systemCalls_, ending_
  std::condition_variable work_;
  IoQueues queues_;
  uint64_t systemCalls_ = 0;
  bool ending_ = false;
  bool closed_ = false;  // the caller's thread alone
  const int events_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<FileEngine>> makePsyncEngine(const EngineSettings& settings) {
  auto engine = std::make_unique<PsyncEngine>(settings);
  if (Error error = engine->start(std::min(settings.depth, settings.threads)); !error.ok()) return error;
  return std::unique_ptr<FileEngine>(std::move(engine));
}

}  // namespace fluxon::ssdd
