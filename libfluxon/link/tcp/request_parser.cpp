#include "link/tcp/request_parser.h"

#include <cstring>

namespace fluxon::link::tcp {
namespace {

bool saneRecord(const ReadRecord& record) {
  return record.length <= kMaxPieceBytes && record.offset <= record.valueBytes && record.length <= record.valueBytes - record.offset;
}

}  // namespace

RequestParser::Outcome RequestParser::fail(const char* why) {
  why_ = why;
  return Outcome::broken;
}

RequestParser::Outcome RequestParser::next(std::string_view& bytes, ReadRequest& to) {
  if (why_) return Outcome::broken;
  if (recordsLeft_ == 0) {
    FrameHeader header;
    if (bytes.size() < sizeof header) return Outcome::more;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, kFrameMagic, sizeof header.magic) != 0) return fail("no frame begins here");
    if (header.kind != kReadKind) return fail("a frame of an unknown kind");
    if (header.count == 0 || header.count > kMaxFrameRecords) return fail("a frame with too many records, or none");
    if (header.bytes < header.count * sizeof(ReadRecord) || header.bytes > header.count * kMaxRecordBytes)
      return fail("a frame whose length does not fit its records");
    bytes.remove_prefix(sizeof header);
    recordsLeft_ = header.count;
    bytesLeft_ = header.bytes;
  }
  if (bytes.size() < sizeof(ReadRecord)) return Outcome::more;
  ReadRecord record;
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.keyBytes > kMaxKeyBytes) return fail("a key that is too long");
  const uint64_t whole = sizeof record + paddedKeyBytes(record.keyBytes);
  const uint64_t others = (recordsLeft_ - 1) * sizeof(ReadRecord);
  if (whole + others > bytesLeft_ || (recordsLeft_ == 1 && whole != bytesLeft_)) return fail("a record that does not fit its frame");
  if (bytes.size() < whole) return Outcome::more;
  to.record = record;
  to.key.assign(bytes.data() + sizeof record, record.keyBytes);
  to.sane = saneRecord(record);
  bytes.remove_prefix(whole);
  bytesLeft_ -= whole;
  --recordsLeft_;
  return Outcome::request;
}

}  // namespace fluxon::link::tcp
