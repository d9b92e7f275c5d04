// An engine without a kernel: operations end when the target says so, a connection's bytes come from the input.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "link/tcp/io_engine.h"

namespace fluxon::fuzz {

class MemoryEngine final : public link::tcp::IoEngine {
 public:
  bool uring() const override { return false; }
  int socketFlags() const override { return SOCK_NONBLOCK; }
  void start(link::tcp::Operation& operation) override {
    FLUXON_CHECK(!operation.inFlight, "an operation was started twice");
    operation.inFlight = true;
    started_.push_back({&operation, false});
  }
  void cancel(link::tcp::Operation& operation) override {
    for (Started& each : started_) each.cancelled |= each.operation == &operation;
  }
  void wait(Time, std::vector<link::tcp::Completion>&) override { FLUXON_CHECK(false, "nobody waits here"); }

  // What the connection has sent so far.
  const std::string& sent() const { return sent_; }
  std::string takeSent() { return std::exchange(sent_, {}); }
  void toReceive(std::string_view bytes) {
    coming_.erase(0, std::exchange(at_, 0));
    coming_.append(bytes);
  }
  size_t unread() const { return coming_.size() - at_; }
  // The peer has closed: a receive that finds nothing ends.
  void end() { ended_ = true; }

  // Ends the next operation that can end, with `most` bytes at most. False: none can.
  bool step(size_t most) {
    for (size_t i = 0; i < started_.size(); ++i) {
      const Started started = started_[i];
      link::tcp::Operation& operation = *started.operation;
      int result = 0;
      if (started.cancelled) {
        result = -ECANCELED;
      } else if (operation.kind == link::tcp::Operation::Kind::receive) {
        if (unread() == 0 && !ended_) continue;
        result = move(operation, std::min(most, unread()), [&](char* to, size_t bytes) {
          std::memcpy(to, coming_.data() + at_, bytes);
          at_ += bytes;
        });
      } else if (operation.kind == link::tcp::Operation::Kind::send) {
        result = move(operation, most, [&](const char* from, size_t bytes) { sent_.append(from, bytes); });
      }
      started_.erase(started_.begin() + static_cast<ptrdiff_t>(i));
      operation.inFlight = false;
      operation.sink->completed(operation, result);
      return true;
    }
    return false;
  }

 private:
  struct Started {
    link::tcp::Operation* operation;
    bool cancelled;
  };
  template <class Move>
  static int move(const link::tcp::Operation& operation, size_t most, Move each) {
    size_t moved = 0;
    for (size_t i = 0; i < operation.message.msg_iovlen && moved < most; ++i) {
      const iovec& part = operation.message.msg_iov[i];
      const size_t bytes = std::min(part.iov_len, most - moved);
      each(static_cast<char*>(part.iov_base), bytes);
      moved += bytes;
    }
    return static_cast<int>(moved);
  }

  std::vector<Started> started_;
  std::string coming_, sent_;
  size_t at_ = 0;  // of what is to be received
  bool ended_ = false;
};

}  // namespace fluxon::fuzz
