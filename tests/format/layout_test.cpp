// Files in shared memory, byte by byte. Processes of different builds map the same files: a layout that changes must change
// kFormatVersion, and this.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/hash.h"
#include "shm/client_format.h"
#include "shm/directory_writer.h"
#include "shm/segment_format.h"
#include "ssd/channel.h"

namespace fluxon::shm {
namespace {

std::string hex(const void* data, size_t length) {
  std::string text;
  char pair[3];
  for (size_t i = 0; i < length; ++i) {
    std::snprintf(pair, sizeof pair, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += pair;
    if (i % 8 == 7 && i + 1 < length) text += ' ';
  }
  return text;
}

struct Pages {
  explicit Pages(size_t size) : data(static_cast<char*>(std::aligned_alloc(4096, size))) { std::memset(data, 0, size); }
  ~Pages() { std::free(data); }
  char* data;
};

struct Golden {
  DirectoryWriter::Shape shape{1, 64, 8192, 1 << 20};
  Pages directory{directoryFileBytes(1, 64)}, keys{keysFileBytes(8192)};
  DirectoryWriter writer{DirectoryWriter::layout(directory.data, keys.data, shape, Incarnation(0x0123456789abcdef), "clu", "nod"), shape};
};

TEST_CASE("layout: the directory's header") {
  Golden g;
  g.writer.setLease(0x1122334455667788);
  g.writer.setServing(Incarnation(0xaabb));
  CHECK(hex(g.directory.data, 64) ==
        "464c584449524531 0200000080010000 0020000000000000 efcdab8967452301 0000000000000000 0000000000000000 0000000000000000 "
        "0000000000000000");
  CHECK(hex(g.directory.data + 64, 80) ==
        "636c750000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
        "6e6f640000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000");
  CHECK(hex(g.directory.data + 144, 48) ==
        "0100000040000000 8001000000000000 c001000000000000 0000100000000000 0020000000000000 0000000000000000");
  CHECK(hex(g.directory.data + 192, 32) == "8877665544332211 bbaa000000000000 0000000000000000 0000000000000000");
  g.writer.setMaster(Incarnation(0xccdd));
  CHECK(hex(g.directory.data + 320, 16) == "ddcc000000000000 0000000000000000");
}

TEST_CASE("layout: the header of keys") {
  Golden g;
  CHECK(hex(g.keys.data, 64) ==
        "464c584b45595331 0200000040000000 0030000000000000 efcdab8967452301 0000000000000000 0000000000000000 0000000000000000 "
        "0000000000000000");
}

TEST_CASE("layout: a tag, a slot and its key") {
  Golden g;
  const uint32_t slot = g.writer.grant("key", 0x1020304050607080, 0x3000, 300, 5, OperationId(6)).value();
  g.writer.submit(slot);
  g.writer.commit(slot, PutId(Term(3), 17), KeyLeaseId(6));
  CHECK(slot == 0);
  CHECK(hex(g.directory.data + 384, 8) == "8070605040302010");
  CHECK(hex(g.directory.data + 448, 64) ==
        "0300000001000000 8070605040302010 1100000000300000 0030000000000000 2c01000000000000 0300000000000000 0500000000000000 "
        "0600000000000000");
  CHECK(hex(g.keys.data + 64, 3) == "6b6579");
}

TEST_CASE("layout: states, slot words, references and key records") {
  CHECK(slotWord(7, SlotState::committed) == 0x0000000700000003);
  CHECK(slotRef(5, 7) == 0x0000000500000007);
  CHECK(keyRecord(0x1234, 0x56) == 0x12340056);
  CHECK(tagOf(0) == 1);
  CHECK(firstBucket(0x0000000500000003, 4) == 3);
  CHECK(secondBucket(0x0000000500000003, 4) == 1);
  CHECK(static_cast<int>(SlotState::free) == 0);
  CHECK(static_cast<int>(SlotState::retired) == 5);
}

TEST_CASE("layout: the hash of keys is part of the format") {
  CHECK(keyHash("") == 0x2d06800538d394c2);
  CHECK(keyHash("key") == 0xbbea0d63a05165e3);
  CHECK(keyHash(std::string(4096, 'k')) == 0xf14c78536cd0075e);
}

TEST_CASE("layout: the segment's header and where its values begin") {
  CHECK(kSegmentDataOffset == 4096);
  CHECK(sizeof(SegmentHeader) == 80);
  CHECK(offsetof(SegmentHeader, dataBytes) == 64);
  CHECK(offsetof(SegmentHeader, populatedBytes) == 72);
  CHECK(std::string(kSegmentMagic) == "FLXSEGM1");
}

TEST_CASE("layout: a client's file") {
  CHECK(std::string(kClientMagic) == "FLXCLNT1");
  CHECK(offsetof(ClientFile, hazards) == 4096);
  CHECK(sizeof(HazardShard) == 4160);
  CHECK(offsetof(HazardShard, words) == 64);
  CHECK(offsetof(ClientFile, held) == 40960);
  CHECK(offsetof(HeldTable, words) == 64);
  CHECK(offsetof(ClientFile, counters) == 77824);
  CHECK(sizeof(CounterShard) == 384);
  CHECK(offsetof(ClientFile, touches) == 80896);
  CHECK(sizeof(TouchShard) == 16448);
  CHECK(offsetof(ClientFile, ring) == 212992);
  CHECK(offsetof(SubmissionRing, head) == 64);
  CHECK(offsetof(SubmissionRing, entries) == 128);
  CHECK(offsetof(ClientFile, commands) == 213632);
  CHECK(sizeof(CommandSlot) == 192);
  CHECK(offsetof(CommandSlot, request) == 8);
  CHECK(offsetof(CommandSlot, answer) == 56);
  CHECK(offsetof(ClientFile, payloads) == 241664);
  CHECK(sizeof(ClientFile) == 1290240);
  CHECK(offsetof(ClientHeader, detached) == 128);
}

TEST_CASE("layout: the messages of attaching") {
  CHECK(std::string(kAttachMagic) == "FLXATTC1");
  CHECK(offsetof(AttachRequest, kind) == 12);
  CHECK(offsetof(AttachRequest, number) == 16);
  CHECK(offsetof(AttachRequest, name) == 24);
  CHECK(offsetof(AttachReply, code) == 12);
  CHECK(offsetof(AttachReply, number) == 16);
  CHECK(offsetof(AttachReply, clientId) == 24);
  CHECK(offsetof(AttachReply, clockNs) == 32);
  CHECK(offsetof(AttachReply, detail) == 40);
  CHECK(static_cast<int>(AttachKind::attachOwner) == 4);
}

TEST_CASE("layout: a command and its answer") {
  CommandRequest request{};
  request.kind = static_cast<uint32_t>(CommandKind::putInline);
  request.flags = kRejectIfExists | kRejectIfInFlight | kHold | kLocalOnly | kBringHere;
  request.keyBytes = 0x11;
  request.extraBytes = 0x22;
  request.valueBytes = 0x33;
  request.slotRef = 0x44;
  request.lease = 0x55;
  request.deadlineNs = 0x66;
  CHECK(hex(&request, sizeof request) ==
        "030000002f000000 1100000022000000 3300000000000000 4400000000000000 5500000000000000 6600000000000000");
  CommandAnswer answer{};
  answer.code = 1;
  answer.payloadUsed = 2;
  answer.slotRef = 3;
  answer.putId = 4;
  answer.offset = 5;
  answer.valueBytes = 6;
  answer.lease = 7;
  answer.node[0] = 'n';
  CHECK(hex(&answer, 56) ==
        "0100000002000000 0300000000000000 0400000000000000 0500000000000000 0600000000000000 0700000000000000 6e00000000000000");
  CHECK(offsetof(CommandAnswer, held) == 88);
  CHECK(offsetof(CommandAnswer, source) == 92);
  CHECK(static_cast<int>(CommandKind::scrub) == 14);
}

TEST_CASE("layout: what an owner and its ssdd share") {
  using namespace ssd;
  CHECK(std::string(kSsddMagic) == "FLXSSDD1");
  CHECK(std::string(kSsddAttachMagic) == "FLXSSDA1");
  CHECK(offsetof(SsddHeader, life) == 64);
  CHECK(offsetof(SsddHeader, segmentBytes) == 88);
  CHECK(offsetof(SsddHeader, givenUp) == 96);
  CHECK(offsetof(SsddFile, status) == 4096);
  CHECK(offsetof(SsddStatus, device) == 256);
  CHECK(offsetof(ShownDevice, capacityBytes) == 128);
  CHECK(offsetof(ShownDevice, oldestNs) == 216);
  CHECK(offsetof(ShownDevice, state) == 232);
  CHECK(offsetof(SsddStatus, shard) == 4480);
  CHECK(sizeof(ShownShard) == 96);
  CHECK(offsetof(SsddFile, toSsdd) == 24576);
  CHECK(offsetof(ByteRing, starved) == 8);
  CHECK(offsetof(ByteRing, head) == 64);
  CHECK(offsetof(ByteRing, asleep) == 72);
  CHECK(offsetof(ByteRing, bytes) == 128);
  CHECK(offsetof(SsddFile, toOwner) == 1077248);
  CHECK(sizeof(SsddFile) == 2129920);
  CHECK(kSsddVersion == 2);
  CHECK(offsetof(SsddAttach, capacityBytes) == 32);
  CHECK(offsetof(SsddAttached, code) == 12);
  CHECK(offsetof(SsddAttached, clockNs) == 16);
  CHECK(offsetof(SsddAttached, detail) == 24);
}

TEST_CASE("layout: a message between an owner and its ssdd") {
  using namespace ssd;
  const auto file = std::make_unique<SsddFile>();
  Channel owner(*file, Channel::End::owner, -1);
  owner.send({.kind = MessageKind::persist, .id = 0x11, .key = "key", .putId = PutId(0x22), .offset = 0x33, .bytes = 0x44});
  owner.send({.kind = MessageKind::decided, .id = 0x55, .code = Code::corrupt});
  CHECK(file->toSsdd.tail == 88);
  CHECK(hex(file->toSsdd.bytes, 88) ==
        "0100000003000000 1100000000000000 2200000000000000 3300000000000000 4400000000000000 6b65790000000000 "
        "0200210000000000 5500000000000000 0000000000000000 0000000000000000 0000000000000000");
  CHECK(static_cast<int>(MessageKind::scrub) == 8);
  CHECK(static_cast<int>(MessageKind::done) == 37);
}

}  // namespace
}  // namespace fluxon::shm
