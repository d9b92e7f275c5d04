// NeighbourLink: the link to owners of this host. Its thread attaches to a neighbour as a client does and copies values out of the mapped
// segment, one after the other. A neighbour that is stopped makes the thread wait, and the fetches behind it too.
//
// The link has only a target's side. A neighbour copies an export from where it lies in this owner's segment (Fetch::exportOffset), so
// this owner publishes nothing: the master ends the export once it has the neighbour's answer.
//
// Control thread, but for what is under "the link's thread".
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "client/client.h"
#include "link/link.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"

namespace fluxon::owner {

class NeighbourLink final : public link::Link {
 public:
  // `paths`: where the neighbours' nodes are found. Errors: system (no descriptor or no thread is left).
  static Result<std::unique_ptr<link::Link>> start(const shm::Paths& paths);
  ~NeighbourLink() override;

  std::string address() const override { return ""; }
  void setIncarnation(Incarnation) override {}

  // Uses only the node of the peer. Waits for no bytes of a stage.
  void fetch(const link::PeerAddress&, std::vector<link::Fetch>) override;
  // A copy that has begun ends by itself.
  void cancel(uint64_t id) override;
  void cancelAll() override;

  void publish(uint64_t, const char*, uint64_t, uint64_t) override {}
  void advance(uint64_t, uint64_t) override {}
  void fail(uint64_t) override {}
  void unpublish(uint64_t exportId) override;

  int eventFd() const override { return bell_.get(); }
  link::LinkEvents reap() override;
  link::LinkCounters counters() const override { return {}; }
  std::string engine() const override { return ""; }

 private:
  struct Copy {
    std::string node;
    link::Fetch fetch;
  };
  NeighbourLink(shm::Paths, shm::Descriptor bell);
  template <class Which>
  void cancelIf(Which);
  void run();
  Error copy(const Copy&);

  const shm::Paths paths_;
  const shm::Descriptor bell_;  // rung under the mutex, for events
  std::mutex mutex_;            // of these four; held for as long as a push or a swap takes
  std::condition_variable wake_;
  std::deque<Copy> todo_;
  link::LinkEvents events_;
  bool ending_ = false;

  // The link's thread.
  std::map<std::string, std::unique_ptr<client::Client>> clients_;  // by node

  std::thread thread_;
};

}  // namespace fluxon::owner
