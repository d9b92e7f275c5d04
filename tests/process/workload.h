// Clients that put, get, hold and delete a few keys of a cluster as fast as they are let, each in a process of its own that may be
// killed at any moment. What they do stands in a History, which decides whether the answers were right.
#pragma once

#include <fluxon/fluxon.hpp>
#include <sys/types.h>

#include <atomic>
#include <vector>

#include "history.h"

namespace fluxon::test {

class Workload {
 public:
  struct Shape {
    uint32_t keys = 12;
    size_t largest = 200'000;     // bytes of a value
    uint32_t timeoutMs = 2000;    // of each call
    uint32_t pauseUs = 500;       // between calls
    size_t capacity = 3'000'000;  // of the history
  };
  explicit Workload(Shape shape);
  ~Workload();

  // A client process of two threads, attached to the node that the options name.
  void add(const ConnectOptions& options);
  size_t clients() const { return clients_.size(); }
  // SIGKILL, and another one in its place.
  void replace(size_t client);
  // No operation begins any more; returns when all have ended, false if some did not within 30 s.
  bool finish();
  const History& history() const { return history_; }

 private:
  struct Client {
    ConnectOptions options;
    pid_t pid;
  };
  pid_t begin(const ConnectOptions& options);
  void run(const ConnectOptions& options, uint32_t number, unsigned seed);

  Shape shape_;
  History history_;
  std::atomic<bool>* stop_;  // shared with the clients
  std::vector<Client> clients_;
  uint32_t numbers_ = 0;
};

}  // namespace fluxon::test
