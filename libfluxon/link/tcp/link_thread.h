// The thread of a tcp link, and the mailbox between it and the control thread.
//
// Invariants
//   1. Only the link's thread touches connections, fetches and exports; the control thread posts closures and takes events.
//   2. The mailbox outlives the link while a thread looks up the name of a peer, since that thread holds it too.
//   3. The thread ends only when no operation is in flight.
//   4. At most kMostUnproved accepted connections have not proved that they know the secret: one more closes the oldest of them, since an
//      honest peer needs milliseconds. At most kMostProved have: one more closes the one that has been idle for the longest time, or itself
//      if none is idle. So a stranger keeps nobody out.
#pragma once

#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "link/tcp/puller.h"
#include "link/tcp/serving_connection.h"
#include "link/tcp/settings.h"

namespace fluxon::link::tcp {

constexpr size_t kMostUnproved = 128, kMostProved = 512;

class LinkThread;

class Mailbox {
 public:
  using Message = std::function<void(LinkThread&)>;
  // Errors: system.
  static Result<std::shared_ptr<Mailbox>> create();
  void post(Message);
  std::vector<Message> takeMessages();
  void tell(LinkEvents&);
  LinkEvents takeEvents();
  int wakeFd() const { return wake_.get(); }
  int eventFd() const { return events_.get(); }

 private:
  std::mutex mutex_;  // of the two lists; held for as long as a push or a swap takes
  std::vector<Message> messages_;
  LinkEvents told_;
  shm::Descriptor wake_, events_;
};

class LinkThread final : public IoSink {
 public:
  LinkThread(const Settings&, const net::Secret&, const std::string& node, const shm::DirectoryView&, shm::ClientFile& hazards,
             std::shared_ptr<Mailbox>, shm::Descriptor listener);
  ~LinkThread();  // ends and joins the thread
  Error run();    // starts it, and waits until it knows its engine

  Mailbox& mailbox() { return *mailbox_; }
  const CounterSet<std::atomic<uint64_t>>& counters() const { return counters_; }
  bool uring() const { return uring_; }

  // For messages.
  Puller& puller() { return *puller_; }
  ValueSource& source() { return source_; }
  void setIncarnation(Incarnation);
  void stop();

 private:
  void loop(std::promise<void>& ready);
  void completed(Operation&, int result) override;
  void onAccepted(int result);
  void listen();
  void exportChanged(uint64_t exportId);
  void makeRoom();
  void sweep();
  void onDue();
  void tellEvents();
  void resolve(const std::string& peerKey, const std::string& address);

  const Settings settings_;
  const net::Secret secret_;
  const std::string node_;
  const std::shared_ptr<Mailbox> mailbox_;
  const shm::Descriptor listener_;
  CounterSet<std::atomic<uint64_t>> counters_;
  LinkEvents events_;
  ValueSource source_;
  std::atomic<bool> uring_{false};
  std::thread thread_;

  // From here on: made and destroyed by the thread.
  std::unique_ptr<IoEngine> engine_;
  std::unique_ptr<LinkContext> context_;
  std::unique_ptr<Puller> puller_;
  std::vector<std::unique_ptr<ServingConnection>> serving_;
  Operation accept_, wake_;
  Time acceptAgain_ = Time::never();  // the system was short of descriptors
  bool stopping_ = false;
};

}  // namespace fluxon::link::tcp
