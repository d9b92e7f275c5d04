// The header block of a record on an SSD. What is accepted fits into its space and is written as the same block; no bit of a block can be
// flipped unseen.
#include "base/crc32c.h"
#include "fuzz.h"
#include "ssd/record.h"

namespace fluxon::fuzz {
namespace {

using namespace ssd;

constexpr uint32_t kBlock = kLeastBlockBytes;

}  // namespace

// How to treat it, the space in blocks, a bit to flip, and the block.
bool run(std::string_view input) {
  Input in(input);
  const bool seal = in.take<uint8_t>() % 4 != 0;
  const uint64_t space = uint64_t{in.take<uint16_t>()} * kBlock;
  const uint32_t flip = in.take<uint16_t>() % (kBlock * 8);
  std::string block(in.take(kBlock));
  block.resize(kBlock);
  if (seal) {
    std::memset(block.data() + offsetof(RecordHeader, blockCrc), 0, sizeof(uint32_t));
    const uint32_t crc = crc32c(block.data(), block.size());
    std::memcpy(block.data() + offsetof(RecordHeader, blockCrc), &crc, sizeof crc);
  }
  const Result<Record> read = parseHeader(block.data(), kBlock, space);
  if (!read) {
    FLUXON_CHECK(read.error().code == Code::corrupt && !read.error().detail.empty(), "refused without a reason");
    return false;
  }
  FLUXON_CHECK(recordBytes(read.value().payloadBytes, kBlock) <= space, "a record that does not fit");
  std::string again(kBlock, '\xff');
  encodeHeader(read.value(), again.data(), kBlock);
  FLUXON_CHECK(parseHeader(again.data(), kBlock, space).value() == read.value(), "what was written is read as something else");
  block[flip / 8] = static_cast<char>(block[flip / 8] ^ 1 << flip % 8);
  FLUXON_CHECK(!parseHeader(block.data(), kBlock, space), "a flipped bit is believed");
  return true;
}

std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  for (const Record& record : {Record{7, PutId(Term(1), 2), 5000, 9}, Record{0, PutId(1), 1, 0}}) {
    std::string block(kBlock, '\0');
    encodeHeader(record, block.data(), kBlock);
    seeds.push_back(std::string("\0\x40\0\1\0", 5) + block);
    seeds.push_back(std::string("\1\x40\0\1\0", 5) + block);
  }
  return seeds;
}

}  // namespace fluxon::fuzz
