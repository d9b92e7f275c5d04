#include "client/reply.h"

#include <algorithm>
#include <cstring>

namespace fluxon::client {

Reply readReply(const shm::CommandAnswer& answer, const char* payload) {
  Reply reply;
  reply.code = codeFromWire(answer.code);
  reply.slotRef = answer.slotRef;
  reply.putId = answer.putId;
  reply.offset = answer.offset;
  reply.valueBytes = answer.valueBytes;
  reply.lease = answer.lease;
  reply.held = answer.held;
  reply.source = static_cast<shm::AnswerSource>(std::min(answer.source, shm::kAnswerSources - 1));
  reply.node.assign(answer.node, ::strnlen(answer.node, sizeof answer.node));
  const uint32_t used = answer.payloadUsed;
  reply.payload.assign(payload, std::min(used, shm::kPayloadBytes));
  return reply;
}

Result<std::vector<Listed>> readListing(const std::string& payload) {
  std::vector<Listed> entries;
  for (size_t at = 0; at < payload.size();) {
    shm::ListEntry entry;
    if (payload.size() - at < sizeof entry) return Error{Code::protocol, "a listing is cut off"};
    std::memcpy(&entry, payload.data() + at, sizeof entry);
    at += sizeof entry;
    if (entry.keyBytes > payload.size() - at) return Error{Code::protocol, "a listing is cut off"};
    entries.push_back({payload.substr(at, entry.keyBytes), entry.valueBytes, entry.putId});
    at += std::min<size_t>((uint64_t{entry.keyBytes} + 7) / 8 * 8, payload.size() - at);
  }
  return entries;
}

}  // namespace fluxon::client
