#include "ssd/record.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "base/crc32c.h"

namespace fluxon::ssd {
namespace {

uint32_t blockCrc(RecordHeader header, const char* block, uint32_t blockBytes) {
  header.blockCrc = 0;
  const uint32_t crc = crc32c(reinterpret_cast<const char*>(&header), sizeof header);
  return crc32c(block + sizeof header, blockBytes - sizeof header, crc);
}

Error corrupt(const char* what, uint64_t value) { return {Code::corrupt, std::string("record: ") + what + " " + std::to_string(value)}; }

}  // namespace

void encodeHeader(const Record& record, char* block, uint32_t blockBytes) {
  FLUXON_CHECK(validBlockBytes(blockBytes), "record: block length");
  std::memset(block, 0, blockBytes);
  RecordHeader header{};
  std::memcpy(header.magic, kRecordMagic, sizeof header.magic);
  header.version = kRecordVersion;
  header.blockBytes = blockBytes;
  header.keyHash = record.keyHash;
  header.putId = record.putId.value;
  header.payloadBytes = record.payloadBytes;
  header.payloadCrc = record.payloadCrc;
  header.blockCrc = blockCrc(header, block, blockBytes);
  std::memcpy(block, &header, sizeof header);
}

Result<Record> parseHeader(const char* block, uint32_t blockBytes, uint64_t spaceBytes) {
  FLUXON_CHECK(validBlockBytes(blockBytes), "record: block length");
  if (spaceBytes < blockBytes) return corrupt("no room for a header block in", spaceBytes);
  RecordHeader header;
  std::memcpy(&header, block, sizeof header);
  if (std::memcmp(header.magic, kRecordMagic, sizeof header.magic) != 0) return Error{Code::corrupt, "record: wrong magic"};
  if (header.version != kRecordVersion) return corrupt("unknown version", header.version);
  if (header.blockBytes != blockBytes) return corrupt("header block of another length", header.blockBytes);
  if (const uint32_t crc = blockCrc(header, block, blockBytes); header.blockCrc != crc) return corrupt("wrong checksum of the header", crc);
  for (const uint32_t reserved : header.reserved) {
    if (reserved != 0) return corrupt("reserved field is", reserved);
  }
  if (header.putId == 0) return corrupt("put_id is", header.putId);
  if (recordBytes(header.payloadBytes, blockBytes) > spaceBytes) return corrupt("payload too long:", header.payloadBytes);
  return Record{header.keyHash, PutId(header.putId), header.payloadBytes, header.payloadCrc};
}

Error checkPayload(const Record& record, const char* payload) {
  const uint32_t crc = crc32c(payload, record.payloadBytes);
  return crc == record.payloadCrc ? Error{} : corrupt("wrong checksum of the payload", crc);
}

}  // namespace fluxon::ssd
