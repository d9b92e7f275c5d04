// Records of the SSD tier: lengths, and that no byte of a header block or payload can change unseen.
#include "ssd/record.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/crc32c.h"

namespace fluxon::ssd {
namespace {

constexpr uint32_t kBlock = 512;
const std::string kPayload = "what is kept";
const Record kRecord{0x1122334455667788, PutId(Term(3), 17), kPayload.size(), crc32c(kPayload.data(), kPayload.size())};

std::vector<char> headerBlock(const Record& record = kRecord, uint32_t blockBytes = kBlock) {
  std::vector<char> block(blockBytes, 'x');
  encodeHeader(record, block.data(), blockBytes);
  return block;
}

// The block with another value in a field, and its checksum made right.
template <class T>
std::vector<char> with(size_t offset, T value) {
  std::vector<char> block = headerBlock();
  std::memcpy(block.data() + offset, &value, sizeof value);
  std::memset(block.data() + offsetof(RecordHeader, blockCrc), 0, 4);
  const uint32_t crc = crc32c(block.data(), block.size());
  std::memcpy(block.data() + offsetof(RecordHeader, blockCrc), &crc, sizeof crc);
  return block;
}

std::string refusal(const std::vector<char>& block, uint64_t space = 2 * kBlock) {
  const Result<Record> record = parseHeader(block.data(), kBlock, space);
  REQUIRE_FALSE(record);
  CHECK(record.error().code == Code::corrupt);
  return record.error().detail;
}

}  // namespace

TEST_CASE("record: a header block and the payload in whole blocks") {
  CHECK(recordBytes(0, 512) == 512);
  CHECK(recordBytes(1, 512) == 1024);
  CHECK(recordBytes(512, 512) == 1024);
  CHECK(recordBytes(513, 512) == 1536);
  CHECK(recordBytes(1000, 512) == 1536);
  CHECK(recordBytes(4097, 4096) == 3 * 4096);
  CHECK(recordBytes((uint64_t{5} << 30) + 1, 4096) == (uint64_t{5} << 30) + 2 * 4096);
  CHECK(recordBytes(UINT64_MAX - 511 - 512, 512) == UINT64_MAX - 511);
  for (const uint64_t most : {UINT64_MAX, UINT64_MAX - 511, UINT64_MAX - 1023 + 1}) CHECK(recordBytes(most, 512) == UINT64_MAX - 511);
}

TEST_CASE("record: what is encoded is parsed, and the rest of the block is zero") {
  for (const uint32_t blockBytes : {512u, 4096u, 65536u}) {
    const std::vector<char> block = headerBlock(kRecord, blockBytes);
    const Result<Record> record = parseHeader(block.data(), blockBytes, 2 * blockBytes);
    REQUIRE(record);
    CHECK(record.value() == kRecord);
    for (size_t at = sizeof(RecordHeader); at < blockBytes; ++at) REQUIRE(block[at] == 0);
  }
}

TEST_CASE("record: the bytes of a header are those of fluxon-ssd(5)") {
  const unsigned char golden[64] = {
      'F',  'L',  'X',  'R',  'E',  'C',  'O',  '1',  1,    0,    0,    0,    0,    2,    0,    0,      // version, blockBytes
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 17,   0,    0,    0,    0,    0x30, 0,    0,      // keyHash, putId
      12,   0,    0,    0,    0,    0,    0,    0,    0x41, 0x9e, 0xbc, 0x1a, 0,    0,    0,    0,      // payloadBytes, payloadCrc
      0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0xf2, 0x4a, 0x61, 0x6a};  // blockCrc
  CHECK(std::memcmp(headerBlock().data(), golden, sizeof golden) == 0);
}

TEST_CASE("record: any flipped bit of a header block is seen") {
  const std::vector<char> good = headerBlock();
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<char> block = good;
    block[bit / 8] = static_cast<char>(block[bit / 8] ^ (1 << bit % 8));
    REQUIRE_FALSE(parseHeader(block.data(), kBlock, 2 * kBlock));
  }
}

TEST_CASE("record: each field is checked, with a right checksum as well") {
  CHECK(refusal(with(offsetof(RecordHeader, magic), 'f')) == "record: wrong magic");
  CHECK(refusal(with(offsetof(RecordHeader, version), 2u)) == "record: unknown version 2");
  CHECK(refusal(with(offsetof(RecordHeader, blockBytes), 4096u)) == "record: header block of another length 4096");
  CHECK(refusal(with(offsetof(RecordHeader, reserved) + 12, 9u)) == "record: reserved field is 9");
  CHECK(refusal(with(offsetof(RecordHeader, putId), uint64_t{0})) == "record: put_id is 0");
  CHECK(refusal(with(offsetof(RecordHeader, payloadBytes), uint64_t{513})) == "record: payload too long: 513");
  CHECK(refusal(with(offsetof(RecordHeader, payloadBytes), UINT64_MAX)) == "record: payload too long: 18446744073709551615");
  CHECK(refusal(headerBlock(), kBlock) == "record: payload too long: 12");
  CHECK(refusal(headerBlock(), kBlock - 1) == "record: no room for a header block in 511");
  CHECK(refusal(std::vector<char>(kBlock)) == "record: wrong magic");
}

TEST_CASE("record: any flipped bit of a payload is seen") {
  CHECK(checkPayload(kRecord, kPayload.data()).ok());
  for (size_t bit = 0; bit < kPayload.size() * 8; ++bit) {
    std::string payload = kPayload;
    payload[bit / 8] = static_cast<char>(payload[bit / 8] ^ (1 << bit % 8));
    CHECK(checkPayload(kRecord, payload.data()).code == Code::corrupt);
  }
}

}  // namespace fluxon::ssd
