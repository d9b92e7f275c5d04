// An owner's answer as its client reads it, and the pages of a listing: no more is read than the answer's area has, and entries are
// what stood there.
#include <algorithm>

#include "base/ids.h"
#include "client/reply.h"
#include "fuzz.h"

namespace fluxon::fuzz {
namespace {

using namespace client;

std::string pageOf(const std::vector<Listed>& entries) {
  std::string page;
  for (const Listed& each : entries) {
    const shm::ListEntry entry{static_cast<uint32_t>(each.key.size()), 0, each.valueBytes, each.putId};
    page.append(bytesOf(entry)).append(each.key).append((8 - each.key.size() % 8) % 8, '\0');
  }
  return page;
}

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  const auto answer = in.take<shm::CommandAnswer>();
  // As long as the area, so that a byte beyond is a finding.
  std::vector<char> area(shm::kPayloadBytes);
  std::copy_n(in.rest().data(), std::min(in.rest().size(), area.size()), area.data());
  const Reply reply = readReply(answer, area.data());
  FLUXON_CHECK(reply.payload == std::string_view(area.data(), std::min<size_t>(answer.payloadUsed, area.size())), "another payload");
  FLUXON_CHECK(reply.node.size() <= sizeof answer.node && reply.node.find('\0') == std::string::npos, "the name of a node");
  FLUXON_CHECK(reply.code == codeFromWire(answer.code) && reply.slotRef == answer.slotRef && reply.offset == answer.offset &&
                   reply.valueBytes == answer.valueBytes && reply.held == answer.held && reply.putId == answer.putId,
               "another answer");
  const Result<std::vector<Listed>> entries = readListing(reply.payload);
  if (!entries) {
    FLUXON_CHECK(entries.error().code == Code::protocol, "refused without a reason");
    return false;
  }
  size_t at = 0;
  for (const Listed& each : entries.value()) {
    shm::ListEntry entry;
    FLUXON_CHECK(reply.payload.size() - at >= sizeof entry, "an entry that is not there");
    std::memcpy(&entry, reply.payload.data() + at, sizeof entry);
    FLUXON_CHECK(entry.keyBytes == each.key.size() && entry.valueBytes == each.valueBytes && entry.putId == each.putId, "another entry");
    FLUXON_CHECK(reply.payload.compare(at + sizeof entry, each.key.size(), each.key) == 0, "another key");
    at += sizeof entry + (each.key.size() + 7) / 8 * 8;
  }
  FLUXON_CHECK(at >= reply.payload.size() && at < reply.payload.size() + 8, "bytes that are no entry");
  const Result<std::vector<Listed>> again = readListing(pageOf(entries.value()));
  FLUXON_CHECK(again && again.value().size() == entries.value().size(), "entries that are written as something else");
  return true;
}

std::vector<std::string> seeds() {
  const std::string page = pageOf({{"key", 10, 3}, {"eightbyt", 11, 4}, {std::string(100, 'k'), UINT64_MAX, 5}});
  shm::CommandAnswer answer{};
  answer.payloadUsed = static_cast<uint32_t>(page.size());
  std::memcpy(answer.node, "node", 4);
  shm::CommandAnswer empty{};
  empty.held = 1;
  return {std::string(bytesOf(answer)) + page, std::string(bytesOf(empty))};
}

}  // namespace fluxon::fuzz
