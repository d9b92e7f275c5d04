// A record: one version of one value in a shard. Page: fluxon-ssd(5).
//
//   | header block: RecordHeader, zeros | payload | zeros up to the next block |
//
// Blocks are as long as direct I/O on the shard's file system asks for, 512 bytes at least, so header and payload each begin where
// it may begin. Only its header says where a record ends; a record never crosses the end of its file.
// The bytes come from a disk: anything wrong in them is an error, never a check. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/result.h"

namespace fluxon::ssd {

// The contents of a header.
struct Record {
  uint64_t keyHash;
  PutId putId;
  uint64_t payloadBytes;
  uint32_t payloadCrc;  // crc32c

  bool operator==(const Record&) const = default;
};

struct RecordHeader {
  char magic[8];
  uint32_t version;
  uint32_t blockBytes;  // length of the header block: where the payload begins
  uint64_t keyHash;
  uint64_t putId;
  uint64_t payloadBytes;
  uint32_t payloadCrc;
  uint32_t reserved[4];  // 0
  uint32_t blockCrc;     // crc32c of the whole header block, with 0 in this field
};
static_assert(sizeof(RecordHeader) == 64 && offsetof(RecordHeader, payloadCrc) == 40 && offsetof(RecordHeader, blockCrc) == 60);

constexpr char kRecordMagic[9] = "FLXRECO1";
constexpr uint32_t kRecordVersion = 1;
constexpr uint32_t kLeastBlockBytes = 512;
constexpr uint32_t kMostBlockBytes = 64 * 1024;

// A power of two from kLeastBlockBytes to kMostBlockBytes.
constexpr bool validBlockBytes(uint64_t bytes) {
  return bytes >= kLeastBlockBytes && bytes <= kMostBlockBytes && (bytes & (bytes - 1)) == 0;
}

// Bytes that a payload takes in a shard, its header block included. A payload too close to 2^64 gives the largest multiple of a block.
constexpr uint64_t recordBytes(uint64_t payloadBytes, uint32_t blockBytes) {
  const uint64_t most = UINT64_MAX & ~(uint64_t{blockBytes} - 1);
  if (payloadBytes > most - blockBytes) return most;
  return blockBytes + ((payloadBytes + blockBytes - 1) & ~(uint64_t{blockBytes} - 1));
}

// Fills the header block, `blockBytes` long.
void encodeHeader(const Record& record, char* block, uint32_t blockBytes);

// corrupt: it is no header block, with the field that is wrong and its value. `spaceBytes`: what lies between the block's beginning
// and the end of the shard or extent, into which the record must fit.
Result<Record> parseHeader(const char* block, uint32_t blockBytes, uint64_t spaceBytes);

// corrupt: these are not the bytes that the record was written with.
Error checkPayload(const Record& record, const char* payload);

}  // namespace fluxon::ssd
