// An engine that breaks as devices break: it hands requests on to another engine and does to them what it was told. A fault meets the
// next request of its direction that is submitted; several queue up. Its eventFd() rings for delayed completions as well.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "storage/file_engine.h"

namespace fluxon::ssdd {

class FailingEngine final : public FileEngine {
 public:
  struct Fault {
    int error = 0;       // 0: succeeds
    uint64_t bytes = 0;  // moved before the error; whole blocks
    Duration delay{};    // between the other engine's completion and ours; the buffers are the kernel's until then
  };

  explicit FailingEngine(FileEngine& inner);
  ~FailingEngine() override;

  void failNext(Direction, Fault);
  // From now on completions are kept until `window` of them, or all that are pending, are there, and come in a random order.
  void reorder(uint64_t seed, size_t window);

  const char* name() const override { return "failing"; }
  FileRef addFile(int fd) override { return inner_.addFile(fd); }
  Error addMemory(const iovec& memory) override { return inner_.addMemory(memory); }
  void dropMemory(const iovec& inside) override { inner_.dropMemory(inside); }
  bool submit(const Request&) override;
  void start() override { inner_.start(); }
  void cancel(uint64_t tag) override;
  void wait(size_t count, Time until, std::vector<Completion>&) override;
  void close(std::vector<Completion>&) override;
  size_t pending() const override { return inner_.pending() + held_.size(); }
  int eventFd() override;
  IoCounters counters() const override { return inner_.counters(); }
  // The most reads that were submitted and not handed out. Any thread.
  size_t mostReads() const { return mostReads_; }

 private:
  struct Pending {
    uint64_t tag;
    Fault fault;
    bool read;
  };
  struct Held {
    Completion completion;
    Time due;
    bool read;
  };
  void hold(const std::vector<Completion>& fromInner);
  size_t due(Time now) const;
  Time nextDue(Time after) const;
  void setTimer();

  FileEngine& inner_;
  std::deque<Fault> readFaults_, writeFaults_;
  std::map<uint64_t, Pending> pending_;  // by the tag that the other engine sees
  uint64_t nextTag_ = 1;
  std::vector<Held> held_;
  std::optional<std::mt19937_64> random_;
  size_t window_ = 1;
  int epoll_ = -1, timer_ = -1;
  size_t reads_ = 0;
  std::atomic<size_t> mostReads_{0};
};

}  // namespace fluxon::ssdd
