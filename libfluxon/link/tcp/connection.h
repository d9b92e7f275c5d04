// One tcp connection. At most one send and one receive are in flight; the connection resumes each until it is whole, where the caller
// wants it whole.
//
//   alive ── close() ──► closing ── both operations have completed ──► gone (the link then destroys it)
//
// Invariants
//   1. Memory handed to send() or receive() belongs to the kernel until sent(), received(), or gone.
//   2. After close() nothing more is sent or received, and neither sent() nor received() is called.
//   3. onDue() comes at or after the time set by dueAt(), as long as the connection is alive.
// The link's thread.
#pragma once

#include <sys/uio.h>

#include <optional>
#include <string>

#include "link/tcp/link_context.h"
#include "shm/mapped_file.h"

namespace fluxon::link::tcp {

class Connection : public IoSink {
 public:
  explicit Connection(LinkContext&);
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;

  // Repeated calls change nothing: the first reason stays.
  void close(Error why);
  bool closing() const { return reason_.has_value(); }
  bool gone() const { return closing() && !sending_.op.inFlight && !receiving_.op.inFlight; }
  const Error& reason() const { return *reason_; }
  Time due() const { return due_; }
  virtual void onDue() = 0;
  void completed(Operation&, int result) final;

 protected:
  static constexpr size_t kMostParts = 34;
  static constexpr int kWakeBytes = 64 * 1024;

  // Options of a socket that carries values.
  static void prepare(int fd);
  void use(shm::Descriptor fd);
  void dueAt(Time);
  int socket() const { return fd_.get(); }
  bool sending() const { return sending_.op.inFlight; }
  bool receiving() const { return receiving_.op.inFlight; }

  // All of the parts, then sent().
  void send(const iovec* parts, size_t count);
  // whole: all of the parts, then received(their sum); some: whatever comes first, at least one byte; most: the kernel wakes us
  // when kWakeBytes have come, or all that is missing.
  enum class Want { some, most, whole };
  void receive(const iovec* parts, size_t count, Want);
  void cancelReceive();
  Operation& connecting() { return sending_.op; }

  virtual void connected(int) {}
  virtual void sent() = 0;
  virtual void received(size_t bytes) = 0;
  // The receive was cancelled by cancelReceive() after `bytes` bytes.
  virtual void receiveCancelled(size_t) {}

  LinkContext& link_;

 private:
  struct Flow {
    Operation op;
    iovec parts[kMostParts];
    size_t count = 0;
    size_t at = 0;  // first part that is not done
    uint64_t moved = 0;
    bool wholeWanted = false;
    void take(const iovec* from, size_t n);
    void advance(size_t bytes);
    bool finished() const { return at == count; }
  };
  void lowWater(int bytes);
  void startFlow(Flow&);
  void ended(Flow&, int error);

  shm::Descriptor fd_;
  Flow sending_, receiving_;
  bool cancelled_ = false;  // the receive
  int lowWater_ = 1;        // of the socket
  std::optional<Error> reason_;
  Time due_ = Time::never();
};

}  // namespace fluxon::link::tcp
