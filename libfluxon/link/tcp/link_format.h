// The bytes of a data connection after its handshake (net/handshake.h). Page: fluxon-link(5).
//
//   the side that connected (target)                     the side that listens (source)
//   FrameHeader, `count` ReadRecords, each with its key ────►
//                                            ◄──── PieceHeader, `length` bytes of the value     for each record, in their order
//
// The source answers when the bytes are there: those of an export may still be coming, and all answers behind them wait too. A target
// asks for values and never names an address of the source; it never writes into a source. All fields are little-endian. Neither side
// trusts a number: the source answers a record that makes no sense with Code::protocol and closes the connection at a frame that makes
// none; the target closes it at the first answer that is not to its question.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace fluxon::link::tcp {

constexpr char kFrameMagic[5] = "FLXR";
constexpr uint32_t kReadKind = 1;

constexpr uint32_t kMaxFrameRecords = 1024;
constexpr uint64_t kMaxPieceBytes = uint64_t{64} << 20;

struct FrameHeader {
  char magic[4];
  uint32_t kind;   // kReadKind
  uint32_t count;  // of records, 1 to kMaxFrameRecords
  uint32_t bytes;  // of all records with their keys
};

// One piece of one value. Its key follows, padded with zeros to a multiple of 8.
struct ReadRecord {
  uint64_t tag;  // comes back in the answer
  uint64_t keyHash;
  uint64_t putId;       // the version that is wanted
  uint64_t exportId;    // 0: the value of the key; else the extent exported under this id, and key, keyHash and putId mean nothing
  uint64_t valueBytes;  // length of the whole value
  uint64_t offset;      // of the piece in the value
  uint64_t length;      // of the piece, up to kMaxPieceBytes
  uint32_t keyBytes;    // up to kMaxKeyBytes
  uint32_t reserved;
};

struct PieceHeader {
  uint64_t tag;
  uint64_t offset;
  uint64_t length;  // as asked; 0 if code is not ok
  uint32_t code;    // Code: miss, unavailable (not serving), tooMany (no hazard word is free), system (bytes of an export), protocol
  uint32_t crc32c;  // of the payload that follows
};
static_assert(sizeof(FrameHeader) == 16 && sizeof(ReadRecord) == 64 && sizeof(PieceHeader) == 32);

constexpr uint64_t paddedKeyBytes(uint64_t keyBytes) { return (keyBytes + 7) & ~uint64_t{7}; }
constexpr uint64_t kMaxRecordBytes = sizeof(ReadRecord) + paddedKeyBytes(kMaxKeyBytes);
constexpr uint64_t kMaxFrameBytes = kMaxFrameRecords * kMaxRecordBytes;

}  // namespace fluxon::link::tcp
