#include "device_worker.h"

#include <cerrno>
#include <cstring>

#include "base/crc32c.h"
#include "base/extent.h"

namespace fluxon::ssdd {
namespace {

using Kind = DiskResult::Kind;

void raise(std::atomic<uint64_t>& to, uint64_t n) { to.fetch_add(n, std::memory_order_relaxed); }

Error deviceError(bool write, const std::string& path, int number) {
  if (number == ECANCELED) return {Code::unavailable, "ssdd ends"};
  Error error = systemError((write ? "write " : "read ") + path, number);
  if (number == ENOSPC || number == EDQUOT) error.code = Code::noSpace;
  return error;
}

}  // namespace

DeviceWorker::DeviceWorker(const ssd::Root& root, FileEngine& engine, WriteMode mode, uint64_t bufferBytes, DeviceCounters& counters)
    : root_(root),
      engine_(engine),
      mode_(mode),
      block_(root.blockBytes),
      counters_(counters),
      buffers_(bufferBytes, std::max<uint64_t>(4096, root.blockBytes), engine) {
  for (const ssd::Shard& shard : root.shards) files_.push_back(engine_.addFile(shard.fd.get()));
}

void DeviceWorker::add(const DiskJob& asked) {
  Job& job = jobs_.emplace_back();
  job.asked = asked;
  job.self = std::prev(jobs_.end());
  (job.isWrite() ? writes_ : reads_).push_back(&job);
}

void DeviceWorker::cancelQueued(std::vector<DiskResult>& results) {
  for (auto* queue : {&reads_, &writes_}) {
    std::erase_if(*queue, [&](Job* job) {
      if (job->started) return false;
      job->error = {Code::unavailable, "the job was taken back"};
      end(*job, results);
      return true;
    });
  }
}

bool DeviceWorker::step(std::vector<DiskResult>& results) {
  completions_.clear();
  engine_.wait(0, Time{}, completions_);
  for (const Completion& each : completions_) finish(each, results);
  const bool reads = startReads(results), writes = startWrites(results);
  noteOldest();
  if (reads || writes) engine_.start();
  return reads || writes || !completions_.empty();
}

void DeviceWorker::close(std::vector<DiskResult>& results) {
  cancelQueued(results);
  reads_.clear();
  writes_.clear();
  for (Job& job : jobs_) {
    if (job.error.ok()) job.error = {Code::unavailable, "ssdd ends"};
  }
  completions_.clear();
  engine_.close(completions_);
  for (const Completion& each : completions_) finish(each, results);
  for (auto job = jobs_.begin(); job != jobs_.end();) end(*job++, results);
  noteOldest();
}

// --- starting ------------------------------------------------------------------------------------------------------------------

bool DeviceWorker::mayRead(const Job& job) const {
  if (!job.error.ok()) return false;
  if (job.isCheck()) return job.inFlight == 0 && (!job.started || job.next < job.payloadBytes());
  return job.next < job.payloadBytes() && job.next - job.counted < kReadWindow * kChunkBytes;
}

bool DeviceWorker::startReads(std::vector<DiskResult>& results) {
  bool any = false;
  while (!reads_.empty() && readsInEngine_ < kMostReads) {
    Job& job = *reads_.front();
    const Started started = job.isCheck() ? startCheck(job) : startRead(job);
    if (started == Started::noRoom) break;
    any = true;
    reads_.pop_front();
    if (started == Started::nothingLeft) {
      endIfOver(job, results);
    } else if (mayRead(job)) {
      reads_.push_back(&job);
    }
  }
  return any;
}

// Starts writes, with at most some ms of copying; then it is the reads' turn. A job that has had its share queues behind the others with
// its rest.
bool DeviceWorker::startWrites(std::vector<DiskResult>& results) {
  uint64_t bytes = 0;
  bool any = false;
  while (!writes_.empty() && writesInEngine_ < kMostWrites && writeBytesInEngine_ < kMostWriteBytes && bytes < kChunkBytes) {
    Job& job = *writes_.front();
    const uint64_t before = job.next;
    const Started started = startWrite(job);
    if (started == Started::noRoom) break;
    any = true;
    bytes += job.next - before + block_;
    if (started == Started::yes && !job.headerStarted) {
      if (job.next % kWriteQuantum != 0 || writes_.size() == 1) continue;
      writes_.push_back(&job);
    }
    writes_.pop_front();
    if (started == Started::nothingLeft) endIfOver(job, results);
  }
  return any;
}

void DeviceWorker::sendOff(Job& job, Io io, uint64_t fileOffset, iovec buffer, std::span<const iovec> parts) {
  io.job = &job;
  io.began = bootTime();
  inEngine_.push_back(io);
  inEngine_.back().self = std::prev(inEngine_.end());
  const bool write = job.isWrite();
  const bool taken = engine_.submit({.direction = write ? Direction::write : Direction::read,
                                     .file = files_[job.asked.shard],
                                     .offset = job.asked.fileOffset + fileOffset,
                                     .buffer = buffer,
                                     .parts = parts,
                                     .tag = reinterpret_cast<uintptr_t>(&inEngine_.back())});
  FLUXON_CHECK(taken, "the engine's channel is full");
  ++job.inFlight;
  job.started = true;
  ++(write ? writesInEngine_ : readsInEngine_);
  if (write) writeBytesInEngine_ += io.requestBytes;
}

DeviceWorker::Started DeviceWorker::startRead(Job& job) {
  if (!job.error.ok() || job.next == job.payloadBytes()) return Started::nothingLeft;
  Io io{};
  io.at = job.next;
  io.bytes = std::min(kChunkBytes, job.payloadBytes() - job.next);
  io.requestBytes = alignUp(io.bytes, block_);
  char* target = job.asked.payload + io.at;
  io.scratch = reinterpret_cast<uintptr_t>(target) % block_ != 0 || io.at + io.requestBytes > extentBytes(job.payloadBytes());
  if (io.scratch) {
    io.bufferBytes = io.requestBytes;
    target = io.buffer = buffers_.take(io.bufferBytes);
    if (!target) return Started::noRoom;
  }
  job.next += io.bytes;
  sendOff(job, io, block_ + io.at, {target, io.requestBytes}, {});
  return Started::yes;
}

DeviceWorker::Started DeviceWorker::startCheck(Job& job) {
  if (!mayRead(job)) return Started::nothingLeft;
  Io io{};
  io.header = !job.started;
  io.at = job.next;
  io.bytes = std::min(kChunkBytes, job.payloadBytes() - job.next);
  io.scratch = true;
  io.requestBytes = (io.header ? block_ : 0) + alignUp(io.bytes, block_);
  io.bufferBytes = io.requestBytes;
  io.buffer = buffers_.take(io.bufferBytes);
  if (!io.buffer) return Started::noRoom;
  job.next += io.bytes;
  sendOff(job, io, io.header ? 0 : block_ + io.at, {io.buffer, io.requestBytes}, {});
  return Started::yes;
}

DeviceWorker::Started DeviceWorker::startWrite(Job& job) {
  if (!job.error.ok()) return Started::nothingLeft;
  if (job.started && job.next == job.payloadBytes()) return startHeader(job);
  Io io{};
  io.header = job.payloadBytes() <= kChunkBytes;
  io.at = job.next;
  io.bytes = std::min(kChunkBytes, job.payloadBytes() - job.next);
  const char* const payload = job.asked.payload + io.at;
  const bool inPlace = mode_ == WriteMode::iovec && reinterpret_cast<uintptr_t>(payload) % block_ == 0;
  const uint64_t headerBytes = io.header ? block_ : 0;
  const uint64_t straight = inPlace ? io.bytes / block_ * block_ : 0;  // from the segment
  const uint64_t copied = io.bytes - straight;
  io.requestBytes = headerBytes + alignUp(io.bytes, block_);
  io.bufferBytes = io.requestBytes - straight;
  if (io.bufferBytes > 0) {
    io.buffer = buffers_.take(io.bufferBytes);
    if (!io.buffer) return Started::noRoom;
    std::memcpy(io.buffer + headerBytes, payload + straight, copied);
    std::memset(io.buffer + headerBytes + copied, 0, io.bufferBytes - headerBytes - copied);
  }
  job.copied = job.copied || !inPlace;
  job.crc = crc32c(payload, straight, job.crc);
  if (copied > 0) job.crc = crc32c(io.buffer + headerBytes, copied, job.crc);
  job.next += io.bytes;
  if (io.header) {
    job.asked.record.payloadCrc = job.crc;
    ssd::encodeHeader(job.asked.record, io.buffer, root_.blockBytes);
    job.headerStarted = true;
  }
  const uint64_t fileOffset = io.header ? 0 : block_ + io.at;
  if (!inPlace) {
    sendOff(job, io, fileOffset, {io.buffer, io.requestBytes}, {});
    return Started::yes;
  }
  std::vector<iovec> parts;
  const auto part = [&](const char* data, uint64_t bytes) {
    if (bytes > 0) parts.push_back({const_cast<char*>(data), bytes});
  };
  part(io.buffer, headerBytes);
  part(payload, straight);
  part(io.buffer + headerBytes, io.bufferBytes - headerBytes);
  sendOff(job, io, fileOffset, {}, parts);
  return Started::yes;
}

DeviceWorker::Started DeviceWorker::startHeader(Job& job) {
  Io io{};
  io.header = true;
  io.at = job.next;
  io.requestBytes = io.bufferBytes = block_;
  io.buffer = buffers_.take(block_);
  if (!io.buffer) return Started::noRoom;
  job.asked.record.payloadCrc = job.crc;
  ssd::encodeHeader(job.asked.record, io.buffer, root_.blockBytes);
  job.headerStarted = true;
  sendOff(job, io, 0, {io.buffer, block_}, {});
  return Started::yes;
}

// --- ending --------------------------------------------------------------------------------------------------------------------

void DeviceWorker::finish(const Completion& completion, std::vector<DiskResult>& results) {
  Io& io = *reinterpret_cast<Io*>(completion.tag);
  Job& job = *io.job;
  --job.inFlight;
  --(job.isWrite() ? writesInEngine_ : readsInEngine_);
  if (job.isWrite()) writeBytesInEngine_ -= io.requestBytes;
  if (completion.error != 0 && job.error.ok()) {
    job.error = deviceError(job.isWrite(), root_.shards[job.asked.shard].path, completion.error);
  }
  const bool mightRead = mayRead(job) && !job.isCheck();  // then it is in the queue
  if (job.error.ok() && job.isCheck()) takeCheck(job, io);
  if (job.error.ok() && job.asked.kind == Kind::readDone) takeRead(job, io, results);
  if (io.buffer) buffers_.give(io.buffer, io.bufferBytes);
  inEngine_.erase(io.self);
  if (!mightRead && !job.isWrite() && mayRead(job)) reads_.push_back(&job);
  if (endIfOver(job, results) || job.asked.kind == Kind::readDone) return;
  results.push_back({.kind = Kind::progress, .id = job.asked.id});
}

void DeviceWorker::takeRead(Job& job, const Io& io, std::vector<DiskResult>& results) {
  if (io.scratch) {
    std::memcpy(job.asked.payload + io.at, io.buffer, io.bytes);
    job.copied = true;
  }
  job.complete[io.at / kChunkBytes % kReadWindow] = true;
  while (job.counted < job.next) {
    bool& complete = job.complete[job.counted / kChunkBytes % kReadWindow];
    if (!complete) break;
    complete = false;
    count(job, job.asked.payload + job.counted, std::min(kChunkBytes, job.payloadBytes() - job.counted));
  }
  if (job.counted < job.payloadBytes()) results.push_back({.kind = Kind::progress, .id = job.asked.id, .bytes = job.counted});
}

void DeviceWorker::takeCheck(Job& job, const Io& io) {
  const char* payload = io.buffer;
  if (io.header) {
    payload += block_;
    const uint64_t space = ssd::recordBytes(job.payloadBytes(), root_.blockBytes);
    const Result<ssd::Record> record = ssd::parseHeader(io.buffer, root_.blockBytes, space);
    if (!record) {
      job.error = record.error();
      return;
    }
    if (!(record.value() == job.asked.record)) {
      job.error = {Code::corrupt, "record: the header is that of another one, put_id " + toString(record.value().putId)};
      return;
    }
  }
  count(job, payload, io.bytes);
}

void DeviceWorker::count(Job& job, const char* bytes, uint64_t length) {
  job.crc = crc32c(bytes, length, job.crc);
  job.counted += length;
}

// True: the job is over and erased.
bool DeviceWorker::endIfOver(Job& job, std::vector<DiskResult>& results) {
  if (job.inFlight > 0) return false;
  if (job.error.ok()) {
    const bool whole = job.isWrite() ? job.headerStarted : job.counted == job.payloadBytes() && (job.started || !job.isCheck());
    if (!whole) return false;
    if (!job.isWrite() && job.crc != job.asked.record.payloadCrc) {
      job.error = {Code::corrupt, "record: wrong checksum of the payload " + std::to_string(job.crc)};
    }
  } else if (job.isWrite()) {
    std::erase(writes_, &job);
  } else {
    std::erase(reads_, &job);
  }
  end(job, results);
  return true;
}

void DeviceWorker::end(Job& job, std::vector<DiskResult>& results) {
  const bool write = job.isWrite(), good = job.error.ok();
  if (job.error.code != Code::unavailable) {
    if (!good) raise(write ? counters_.writeErrors : counters_.readErrors, 1);
    if (good && !job.isCheck()) {
      raise(write ? counters_.writes : counters_.reads, 1);
      if (!job.copied) raise(write ? counters_.writesDirect : counters_.readsDirect, 1);
      raise(write ? counters_.writtenBytes : counters_.readBytes, job.payloadBytes());
    }
  }
  if (job.error.code == Code::corrupt) {
    job.error.detail = root_.shards[job.asked.shard].path + " at " + std::to_string(job.asked.fileOffset) + ": " + job.error.detail;
  }
  (write ? counters_.writesQueued : counters_.readsQueued).fetch_sub(1, std::memory_order_relaxed);
  results.push_back({.kind = job.asked.kind, .id = job.asked.id, .payloadCrc = write ? job.crc : 0, .error = std::move(job.error)});
  jobs_.erase(job.self);
}

void DeviceWorker::noteOldest() { counters_.oldestNs.store(inEngine_.empty() ? 0 : inEngine_.front().began.ns, std::memory_order_relaxed); }

}  // namespace fluxon::ssdd
