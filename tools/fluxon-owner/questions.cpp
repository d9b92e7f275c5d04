#include "questions.h"

#include <optional>
#include <utility>

namespace fluxon::owner {
namespace {

std::optional<rpc::Request::Body> requestOf(const Command& command, uint64_t left) {
  using Kind = shm::CommandKind;
  switch (command.kind) {
    case Kind::exists:
    case Kind::stat: return rpc::StatKey{.key = command.key, .timeLeftMs = left};
    case Kind::remove: return rpc::RemoveKey{.key = command.key, .timeLeftMs = left};
    case Kind::countPrefix: return rpc::CountKeys{.prefix = command.key, .timeLeftMs = left};
    case Kind::list: return rpc::ListKeys{.prefix = command.key, .after = command.extra, .limit = command.valueBytes, .timeLeftMs = left};
    case Kind::leaseGrant: return rpc::LeaseGrant{.ttlMs = command.valueBytes};
    case Kind::leaseKeepAlive: return rpc::LeaseKeepAlive{.lease = command.lease};
    case Kind::leaseRevoke: return rpc::LeaseRevoke{.lease = command.lease, .timeLeftMs = left};
    default: return std::nullopt;
  }
}

// Lists as many entries as the payload area takes; the client asks on from the last one.
std::string listingOf(const rpc::KeyPage& page) {
  std::string listing;
  for (const rpc::ListedKey& entry : page.keys) {
    const size_t size = sizeof(shm::ListEntry) + (entry.key.size() + 7) / 8 * 8;
    if (listing.size() + size > shm::kPayloadBytes) break;
    const shm::ListEntry head{static_cast<uint32_t>(entry.key.size()), 0, entry.bytes, entry.putId.value};
    listing.append(reinterpret_cast<const char*>(&head), sizeof head);
    listing.append(entry.key).append(size - sizeof head - entry.key.size(), '\0');
  }
  return listing;
}

}  // namespace

bool Questions::ask(Caller caller, const Command& command, Time now) {
  std::optional<rpc::Request::Body> request = requestOf(command, timeLeftMs(command.deadline, now));
  if (!request) return false;
  removes_ += command.kind == shm::CommandKind::remove;
  if (standing_.takesRequests(now))
    calls_.send(std::move(*request), caller);
  else
    host_.answerCode(caller, Code::unavailable, standing_.noLease());
  return true;
}

void Questions::answered(const Call& call, const rpc::Reply& reply) {
  if (!call.caller) return;
  Answer answer;
  answer.code = reply.code;
  answer.payload = reply.detail;
  if (const auto* stat = reply.as<rpc::KeyStat>()) {
    answer.putId = stat->putId;
    answer.valueBytes = stat->bytes;
    answer.lease = stat->lease;
    for (const std::string& node : stat->nodes) answer.payload += node + "\n";
  } else if (const auto* count = reply.as<rpc::KeyCount>()) {
    answer.valueBytes = count->keys;
  } else if (const auto* granted = reply.as<rpc::LeaseGranted>()) {
    answer.lease = granted->lease;
  } else if (const auto* page = reply.as<rpc::KeyPage>()) {
    answer.payload = listingOf(*page);
  }
  if (const auto* kept = call.request.as<rpc::LeaseKeepAlive>(); kept && reply.code == Code::ok) answer.lease = kept->lease;
  if (const auto* revoked = call.request.as<rpc::LeaseRevoke>(); revoked && reply.code == Code::ok) answer.lease = revoked->lease;
  host_.answer(call.caller, std::move(answer));
}

}  // namespace fluxon::owner
