// FileEngine: asynchronous reads and writes in the files of one device. There are two engines: io_uring, and a pool of threads with plain
// pread and pwrite where the kernel refuses io_uring.
//
//             submit            start, wait              wait
//   caller ───────────► queued ─────────────► in flight ──────► caller     who owns the buffers: the caller, the engine, the kernel
//                          └───── cancel, close: ECANCELED ───────┘
//
// Invariants
// 1. wait() or close() returns exactly one completion for each request that submit() has taken.
// 2. From submit() until that completion is in the caller's hands the buffers of the request stay where they are, and nobody reads
//    those of a read or changes those of a write: the kernel may touch them at any time, and cancelling does not end that. close()
//    and the destructor therefore return when the last operation in flight has ended, however long the device takes.
// 3. A completion with error 0 has moved every byte. What the kernel cuts short is resumed inside; a read that meets the end of the
//    file ends with ENODATA. An error is that of this very request.
// 4. At most `depth` operations are in flight; the others wait in a queue of their direction. With reads in flight up to
//    kReadWeight times the writes the next to start is a read, else a write; an empty queue leaves its turn to the other. The
//    weight says what starts next and nothing more: it is no bound and no share of the bandwidth. Reads alone run at depth 1.
// All calls come from the thread that made the engine.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fluxon::ssdd {

constexpr unsigned kIoDepth = 128;
constexpr unsigned kReadWeight = 2;
constexpr size_t kLeastAlignment = 512;

enum class Direction { read, write };

// A file to an engine: an open descriptor, or its place in the engine's own table, which the kernel reaches more cheaply.
class FileRef {
 public:
  FileRef() = default;
  static FileRef descriptor(int fd) { return FileRef(Kind::descriptor, fd); }
  static FileRef registered(int index) { return FileRef(Kind::registered, index); }
  bool isRegistered() const { return kind_ == Kind::registered; }
  int number() const { return number_; }

 private:
  enum class Kind { descriptor, registered };
  FileRef(Kind kind, int number) : kind_(kind), number_(number) {}
  Kind kind_ = Kind::descriptor;
  int number_ = -1;
};

// Offset, addresses and lengths are multiples of the alignment that the engine was made with.
struct Request {
  Direction direction = Direction::read;
  FileRef file;
  uint64_t offset = 0;
  iovec buffer{};                  // one buffer, or
  std::span<const iovec> parts{};  // up to IOV_MAX of them; the list is copied, the bytes are not
  uint64_t tag = 0;                // comes back in the completion; not looked at but by cancel()
};

struct Completion {
  uint64_t tag = 0;
  uint64_t bytes = 0;  // from the first on; all of them if error is 0
  int error = 0;       // errno
};

// Totals since the engine was made.
struct IoCounters {
  uint64_t systemCalls = 0;                      // that move bytes, wait or ring; not those of locks
  uint64_t readsStarted = 0, writesStarted = 0;  // a request counts once, however often it is resumed
  uint64_t resumed = 0;                          // after a short transfer
  uint64_t retried = 0;                          // after EAGAIN or EINTR
};

struct EngineSettings {
  unsigned depth = kIoDepth;
  size_t queued = 1024;                // bound of each queue
  size_t alignment = kLeastAlignment;  // of the device: a power of two
  unsigned threads = 16;               // of the pool: it has no more in flight
};

class FileEngine {
 public:
  virtual ~FileEngine() = default;
  // "io_uring", "threads".
  virtual const char* name() const = 0;

  // Returns the name of the file for requests: the descriptor itself if the engine has no table or no room in it. A file of the
  // table stays open, with its locks, until the engine has ended, whatever happens to the descriptor.
  virtual FileRef addFile(int fd) = 0;
  // Single buffers that lie inside, up to 1 GiB, are not looked up and pinned for each operation. The memory stays pinned, and means the
  // pages that are there now, until it is dropped or the engine has ended. May overlap what was added before. An error (RLIMIT_MEMLOCK,
  // an engine or a kernel that cannot) leaves the engine as it was: everything works without.
  virtual Error addMemory(const iovec&) = 0;
  // What was added and begins inside. No operation uses it.
  virtual void dropMemory(const iovec& inside) = 0;

  // False: the queue is full. What is taken may start at once, or at the next start() or wait(). A request that is not aligned is
  // a bug of the caller.
  [[nodiscard]] virtual bool submit(const Request&) = 0;
  // Starts what the depth allows; does not block.
  virtual void start() = 0;
  // Queued requests with this tag complete with ECANCELED. Operations in flight go on: a disk takes no request back.
  virtual void cancel(uint64_t tag) = 0;
  // Starts what the depth allows, blocks until `count` completions are there (fewer if fewer are pending) or it is `until`, and
  // appends all there are. With a count of 0 it does not block.
  virtual void wait(size_t count, Time until, std::vector<Completion>&) = 0;
  // Cancels what is queued, waits for what is in flight, and appends the completions. Nothing is submitted afterwards.
  virtual void close(std::vector<Completion>&) = 0;

  // Submitted and not yet handed out.
  virtual size_t pending() const = 0;
  // Readable while wait() has completions to hand out, or operations to start anew. wait() clears it. The engine's own.
  // -1, with errno: the system gives none.
  virtual int eventFd() = 0;
  virtual IoCounters counters() const = 0;
};

// Null if the kernel refuses one of the calls; `why` names it.
std::unique_ptr<FileEngine> makeUringEngine(const EngineSettings&, std::string& why);
// system: there are not enough threads.
Result<std::unique_ptr<FileEngine>> makePsyncEngine(const EngineSettings&);

}  // namespace fluxon::ssdd
