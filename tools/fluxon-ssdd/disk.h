// Disk: what the logic of ssdd asks of its devices, and what comes back. The logic (ssd_core.h) sees no file and no byte of a value;
// whoever stands behind this seam (device.h) computes checksums, finds a way for each alignment, and cuts large values into chunks.
//
//   SsdCore ── write, read, check ──► Disk ── written, progress, read, checked ──► SsdCore
// Progress is a sign of life of the device, of jobs of any kind; of a read it says what is there as well.
// Each job is answered exactly once, also after cancelQueued(), and never from within a call of this seam: from the answer on nothing
// of it touches shard, header or segment.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "storage/shard_ring.h"

namespace fluxon::ssdd {

using JobId = Id<struct JobIdTag>;
using DeviceIndex = Id<struct DeviceIndexTag>;  // from 0

// A whole record: header block, payload out of the segment, zeros up to the next block.
struct WriteJob {
  JobId id;
  ShardId shard;
  uint64_t fileOffset;  // of the record
  uint64_t keyHash;
  PutId putId;
  uint64_t segmentOffset;  // of the payload
  uint64_t payloadBytes;
};

// The payload of a record into the segment; checked against `payloadCrc` before it is over.
struct ReadJob {
  JobId id;
  ShardId shard;
  uint64_t fileOffset;  // of the record
  uint64_t payloadBytes;
  uint32_t payloadCrc;
  uint64_t segmentOffset;  // of the target, whose extent has extentBytes(payloadBytes)
};

// Header and payload of a record, read into memory of the device's own and compared with what they should be.
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
  // Jobs of a device that have started nothing end with `unavailable`.
  virtual void cancelQueued(DeviceIndex) = 0;
};

}  // namespace fluxon::ssdd
