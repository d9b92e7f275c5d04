// Workload: clients in processes of their own that put, delete, get and hold under a recorder, until they are told to stop.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <vector>

#include "history.h"
#include "hosts.h"

namespace fluxon::test {

class Workload {
 public:
  struct Shape {
    uint64_t keys = 24;
    size_t largest = 60'000;        // bytes of a value
    uint32_t putDeadlineMs = 2500;  // longer than a lease: a put waits for the end of that of a silent owner
    uint32_t getDeadlineMs = 1000;
    int putPercent = 25, removePercent = 3;  // gets otherwise
    useconds_t pauseUs = 1000;               // between operations
  };
  Workload(const Hosts& hosts, Shape shape);
  ~Workload();
  Workload(const Workload&) = delete;

  // A client at the owner of a host; its number. A reader only gets: no put holds it up.
  enum class Role { all, reader };
  uint32_t start(size_t host, Role role = Role::all);
  void kill(uint32_t client);
  void stop(uint32_t client);
  void resume(uint32_t client);
  std::vector<uint32_t> clients() const;
  // Operations that the clients have ended so far, and hits among them.
  uint64_t operations() const { return shared_->operations; }
  uint64_t hits() const { return shared_->hits; }
  // Checks that so many more come within `seconds`.
  void hit(uint64_t hits, double seconds) const;
  // Ends all clients. One that has not ended by itself after twice the longest deadline counts as hung.
  void finish();
  // After finish().
  const History& history() const { return history_; }
  // Checks it, and prints what is wrong with the key's whole story in a file beside the logs.
  void judge() const;

 private:
  struct Shared {
    std::atomic<bool> end{false};
    std::atomic<uint64_t> operations{0}, hits{0};
  };
  struct Running {
    pid_t pid;
    int64_t stoppedNs = 0;  // 0: it runs
  };
  int work(uint32_t client, const ConnectOptions& options, const Shape& shape) const;
  std::string file(uint32_t client) const;

  const Hosts& hosts_;
  Shape shape_;
  Shared* shared_;
  uint32_t count_ = 0;
  std::map<uint32_t, Running> running_;
  History history_;
};

}  // namespace fluxon::test
