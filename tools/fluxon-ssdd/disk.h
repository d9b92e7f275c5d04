// Disk: the seam between the logic of ssdd and its devices. The logic (ssd_core.h) sees no file and no byte of a value; the implementation
// (device.h) computes checksums, handles every alignment, and cuts large values into chunks.
//
//   SsdCore ── write, read, check ──► Disk ── written, progress, read, checked ──► SsdCore
// `progress` of any job is a sign of life of the device; for a read it also says how many bytes are there.
// The disk answers each job exactly once, also after cancelQueued(), and never from within a call of this seam. After the answer, nothing
// of the job touches shard, header or segment.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "storage/shard_ring.h"

namespace fluxon::ssdd {

using JobId = Id<struct JobIdTag>;
using DeviceIndex = Id<struct DeviceIndexTag>;  // from 0

// Writes a whole record: header block, payload from the segment, zeros up to the next block.
struct WriteJob {
  JobId id;
  ShardId shard;
  uint64_t fileOffset;  // of the record
  uint64_t keyHash;
  PutId putId;
  uint64_t segmentOffset;  // of the payload
  uint64_t payloadBytes;
};

// Reads the payload of a record into the segment, and checks it against `payloadCrc` before answering.
struct ReadJob {
  JobId id;
  ShardId shard;
  uint64_t fileOffset;  // of the record
  uint64_t payloadBytes;
  uint32_t payloadCrc;
  uint64_t segmentOffset;  // of the target, whose extent has extentBytes(payloadBytes)
};

// Reads header and payload of a record into the device's own memory and compares them with what they should be.
struct CheckJob {
  JobId id;
  ShardId shard;
  uint64_t fileOffset;
  uint64_t keyHash;
  PutId putId;
  uint64_t payloadBytes;
  uint32_t payloadCrc;
};

class Disk {
 public:
  virtual ~Disk() = default;
  virtual void write(const WriteJob&) = 0;  // -> progress(id) ..., written(id, crc or error)
  virtual void read(const ReadJob&) = 0;    // -> progress(id, bytes that are there from the beginning on) ..., readDone(id, error)
  virtual void check(const CheckJob&) = 0;  // -> progress(id) ..., checked(id, error): corrupt, or what the device says
  // Ends jobs of a device that have started nothing with `unavailable`.
  virtual void cancelQueued(DeviceIndex) = 0;
};

}  // namespace fluxon::ssdd
