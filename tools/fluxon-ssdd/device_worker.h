// DeviceWorker: carries out the jobs of one device. It moves a value in chunks of 4 MiB, each one request of the engine:
//
//   write   | header block, payload, zeros |            up to a chunk: one request
//           | chunk | chunk | ... zeros |, | header |   longer: the header comes last, since it holds the checksum of all
//   read    | chunk | chunk | ...                       up to kReadWindow from the first incomplete one on, counted and summed up in
//                                                       order; the last one is counted when the sum is right
//   check   | header block, payload ... |, | chunk | ...    one after the other
//
// Invariants
//   1. A request takes its buffer when it starts and gives it back when it ends: a job that waits for a buffer holds none (no deadlock).
//   2. A job ends, with one result, when it has no request in flight; after an error it starts no more.
//   3. A read writes nothing outside the target's extent. A write writes whole records only, with zeros after the payload in the last
//      block.
// Reads of jobs go in turn, chunk by chunk. Writes do as well, kWriteQuantum each, so that a large value does not keep others from being
// finished and most are written in one go; and only so many are in the engine that reads find their place there (kMostWrites,
// kMostWriteBytes). Each request that ends and does not end its job is told as progress. One thread: that of the engine.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "buffers.h"
#include "disk.h"
#include "ssd/record.h"
#include "ssd/roots.h"
#include "storage/file_engine.h"

namespace fluxon::ssdd {

constexpr uint64_t kChunkBytes = 4 * kMiB;
constexpr uint64_t kReadWindow = 4;  // chunks
constexpr size_t kMostReads = 256;   // in the engine
constexpr size_t kMostWrites = 32;
constexpr uint64_t kMostWriteBytes = 8 * kChunkBytes;
constexpr uint64_t kWriteQuantum = 4 * kChunkBytes;  // of one job; then the next one has its turn

// How a record comes to the engine. singleBuffer: copied into one buffer. iovec: header, payload where it lies if its address allows it,
// and the last block.
enum class WriteMode { singleBuffer, iovec };

struct DiskResult {
  enum class Kind { written, progress, readDone, checked };
  Kind kind;
  JobId id;
  uint64_t bytes = 0;       // of progress
  uint32_t payloadCrc = 0;  // of written
  Error error{};
};

// Written by the device's thread (queued: by both), read by any.
struct DeviceCounters {
  std::atomic<uint64_t> readsQueued{0}, writesQueued{0};  // jobs without a result; checks are reads
  std::atomic<uint64_t> reads{0}, writes{0};              // records that were read or written, without checks
  std::atomic<uint64_t> readsDirect{0}, writesDirect{0};  // those among them that were not copied
  std::atomic<uint64_t> readBytes{0}, writtenBytes{0};    // payload of these
  std::atomic<uint64_t> readErrors{0}, writeErrors{0};    // jobs that failed
  std::atomic<int64_t> oldestNs{0};                       // when the oldest request in the engine began; 0: there is none
  std::atomic<uint64_t> registeredBytes{0};               // of the segment, from its beginning on: known to the engine
};

// A job, in the terms of one device.
struct DiskJob {
  DiskResult::Kind kind;  // written, readDone or checked
  JobId id;
  size_t shard;  // of this device
  uint64_t fileOffset;
  ssd::Record record;  // payloadCrc: not of a write
  char* payload;       // in the segment; null for a check
};

class DeviceWorker {
 public:
  DeviceWorker(const ssd::Root&, FileEngine&, WriteMode, uint64_t bufferBytes, DeviceCounters&);

  void add(const DiskJob&);
  // Jobs that have started nothing end with `unavailable`.
  void cancelQueued(std::vector<DiskResult>&);
  // Takes completions and starts as many requests as fit. False: it did neither.
  bool step(std::vector<DiskResult>&);
  // Ends all jobs: waits for the requests in flight and starts no more.
  void close(std::vector<DiskResult>&);

 private:
  struct Job {
    DiskJob asked;
    std::list<Job>::iterator self;
    uint64_t next = 0;     // payload bytes that have been started
    uint64_t counted = 0;  // those that are complete, from the beginning on
    uint32_t crc = 0;      // write: of those before next; else of those before counted
    unsigned inFlight = 0;
    bool started = false, headerStarted = false, copied = false;
    std::array<bool, kReadWindow> complete{};  // chunks from `counted` on
    Error error{};

    uint64_t payloadBytes() const { return asked.record.payloadBytes; }
    bool isWrite() const { return asked.kind == DiskResult::Kind::written; }
    bool isCheck() const { return asked.kind == DiskResult::Kind::checked; }
  };
  struct Io {
    Job* job;
    std::list<Io>::iterator self;
    Time began;
    char* buffer;  // null: none
    uint64_t bufferBytes;
    uint64_t at, bytes;  // of the payload
    uint64_t requestBytes;
    bool scratch = false, header = false;
  };
  enum class Started { yes, nothingLeft, noRoom };

  Started startRead(Job&);
  Started startCheck(Job&);
  Started startWrite(Job&);
  Started startHeader(Job&);
  void sendOff(Job&, Io, uint64_t fileOffset, iovec buffer, std::span<const iovec> parts);
  bool mayRead(const Job&) const;
  void finish(const Completion&, std::vector<DiskResult>&);
  void takeRead(Job&, const Io&, std::vector<DiskResult>&);
  void takeCheck(Job&, const Io&);
  void count(Job&, const char* bytes, uint64_t length);
  bool endIfOver(Job&, std::vector<DiskResult>&);
  void end(Job&, std::vector<DiskResult>&);
  bool startReads(std::vector<DiskResult>&);
  bool startWrites(std::vector<DiskResult>&);
  void noteOldest();

  const ssd::Root& root_;
  FileEngine& engine_;
  const WriteMode mode_;
  const uint64_t block_;
  DeviceCounters& counters_;
  Buffers buffers_;
  std::vector<FileRef> files_;  // by shard
  std::list<Job> jobs_;
  std::deque<Job*> reads_;   // that may start another request, checks too
  std::deque<Job*> writes_;  // that have not started all of theirs
  std::list<Io> inEngine_;   // in the order in which they began
  size_t readsInEngine_ = 0, writesInEngine_ = 0;
  uint64_t writeBytesInEngine_ = 0;
  std::vector<Completion> completions_;
};

}  // namespace fluxon::ssdd
