// LineWriter: lines for a descriptor whose other side is somebody else: a pipe that nobody empties, a terminal that is stopped, a file
// on a disk that hangs. add() never waits for it. A thread of the writer's own does, which nothing waits for in turn.
//
// poll(2) and O_NONBLOCK would not do instead: a regular file is always writable to them and write(2) waits nevertheless; of a pipe
// with several writers the room that poll has seen may be gone; and O_NONBLOCK is of the open file description, which is shared with
// whoever started us. spdlog's asynchronous logger has the thread, but joins it at exit, behind whatever it waits for, and has no
// bounded flush.
//
// Invariants: 1. At most kMostBytes wait. A line that finds no room is left out, not an older one: what happened first explains most.
// 2. Lines that were left out, or that the descriptor has refused, are counted, and said in one line as soon as there is room, at the
// place where they are missing. 3. A writer is never destroyed: its thread may be in write(2) when the process ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace fluxon {

class LineWriter {
 public:
  static constexpr uint64_t kMostBytes = 1 << 20;
  // The line that says how many were left out.
  using Notice = std::function<std::string(uint64_t lines)>;

  // Lives as long as the process, never null. The descriptor stays the caller's, who may not close it. system: there is no thread.
  static Result<LineWriter*> start(int fd, Notice);
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // With its newline. Any thread.
  void add(std::string line);
  // Waits until all that was added is written, at most for that long. False: it is not.
  bool drain(Duration patience);
  // Lines that nobody got, so far.
  uint64_t dropped();

 private:
  LineWriter(int fd, Notice notice) : fd_(fd), notice_(std::move(notice)) {}
  [[noreturn]] void run();
  // Blocks. False: the descriptor has refused.
  bool write(const std::string& line) const;

  const int fd_;
  const Notice notice_;
  std::mutex mutex_;  // of what follows; never held while the descriptor is waited for
  std::condition_variable added_, drained_;
  std::deque<std::string> lines_;
  uint64_t bytes_ = 0;  // of them, and of the one being written
  uint64_t dropped_ = 0, unsaid_ = 0;
  bool refused_ = false;  // the last write
};

}  // namespace fluxon
