#include "base/line_writer.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/thread.h"

namespace fluxon {

Result<LineWriter*> LineWriter::start(int fd, Notice notice) {
  auto* writer = new LineWriter(fd, std::move(notice));
  // Signals are for the threads that expect them.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> thread = startThread([writer] { writer->run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread) {
    delete writer;
    return thread.error();
  }
  thread->detach();
  return writer;
}

void LineWriter::add(std::string line) {
  const std::lock_guard lock(mutex_);
  if (bytes_ + line.size() > kMostBytes) {
    ++dropped_;
    ++unsaid_;
    return;
  }
  if (unsaid_ > 0 && !refused_) {
    lines_.push_back(notice_(std::exchange(unsaid_, 0)));
    bytes_ += lines_.back().size();
  }
  bytes_ += line.size();
  lines_.push_back(std::move(line));
  added_.notify_one();
}

bool LineWriter::drain(Duration patience) {
  std::unique_lock lock(mutex_);
  return drained_.wait_for(lock, std::chrono::nanoseconds(patience.ns), [this] { return bytes_ == 0; });
}

uint64_t LineWriter::dropped() {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // Those that found no room are said when there is some, though nothing may be added for long.
    if (lines_.empty() && unsaid_ > 0 && !refused_) {
      lines_.push_back(notice_(std::exchange(unsaid_, 0)));
      bytes_ += lines_.back().size();
    }
    added_.wait(lock, [this] { return !lines_.empty(); });
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    const uint64_t unsaid = refused_ ? std::exchange(unsaid_, 0) : 0;
    lock.unlock();
    // After a refusal the notice comes with the first line that gets through; it is no line that is missed itself.
    const bool written = (unsaid == 0 || write(notice_(unsaid))) && write(line);
    lock.lock();
    bytes_ -= line.size();
    refused_ = !written;
    if (!written) {
      ++dropped_;
      unsaid_ += unsaid + 1;
    }
    if (bytes_ == 0) drained_.notify_all();
  }
}

bool LineWriter::write(const std::string& line) const {
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + at, line.size() - at);
    if (n >= 0) {
      at += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {  // whoever gave it to us does not block
      pollfd room{fd_, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace fluxon
