// OwnerCore: commands of clients.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {
namespace {

uint64_t timeLeftMs(Time deadline, Time now) { return deadline > now ? static_cast<uint64_t>((deadline - now).ms()) + 1 : 0; }

}  // namespace

void OwnerCore::command(Caller caller, Command command, Time now) {
  using Kind = shm::CommandKind;
  const uint64_t left = timeLeftMs(command.deadline, now);
  switch (command.kind) {
    case Kind::get: get(caller, std::move(command), now); break;
    case Kind::putStart: putStart(caller, std::move(command), now); break;
    case Kind::putInline: putInline(caller, std::move(command), now); break;
    case Kind::commit: commit(caller, command, now); break;
    case Kind::abort: abort(caller, command, now); break;
    case Kind::exists:
      if (serving(now) && directory_.committed(command.key, keyHash(command.key))) {
        answerLocal(caller, command);
        break;
      }
      [[fallthrough]];
    case Kind::stat: forward(caller, rpc::StatKey{.key = command.key, .timeLeftMs = left}, now); break;
    case Kind::remove:
      ++counters_.removes;
      forward(caller, rpc::RemoveKey{.key = command.key, .timeLeftMs = left}, now);
      break;
    case Kind::countPrefix: forward(caller, rpc::CountKeys{.prefix = command.key, .timeLeftMs = left}, now); break;
    case Kind::list:
      forward(caller,
              rpc::ListKeys{.prefix = command.key, .after = command.extra, .limit = command.valueBytes, .timeLeftMs = left}, now);
      break;
    case Kind::leaseGrant: forward(caller, rpc::LeaseGrant{.ttlMs = command.valueBytes}, now); break;
    case Kind::leaseKeepAlive: forward(caller, rpc::LeaseKeepAlive{.lease = command.lease}, now); break;
    case Kind::leaseRevoke: forward(caller, rpc::LeaseRevoke{.lease = command.lease, .timeLeftMs = left}, now); break;
    case Kind::scrub: scrub(caller); break;
    default: host_.answerCode(caller, Code::protocol, "unknown command"); break;
  }
  flush(now);
}

void OwnerCore::forward(Caller caller, rpc::Request::Body question, Time now) {
  if (!standing_.takesRequests(now)) {
    host_.answerCode(caller, Code::unavailable, standing_.noLease());
    return;
  }
  calls_.send(std::move(question), caller);
}

// True: answered, with the committed slot.
bool OwnerCore::answerLocal(Caller caller, const Command& command) {
  const std::optional<uint32_t> slot = directory_.committed(command.key, keyHash(command.key));
  if (!slot) return false;
  Answer answer;
  answer.slotRef = directory_.ref(*slot);
  answer.putId = directory_.putId(*slot);
  answer.offset = directory_.offset(*slot);
  answer.valueBytes = directory_.payloadBytes(*slot);
  answer.hold = command.get.hold;
  host_.answer(caller, std::move(answer));
  return true;
}

// A put of the key is being decided, or its slot is being reclaimed: the answer will be known soon.
bool OwnerCore::mustWait(const Command& command) const {
  bool wait = false;
  directory_.forEach(command.key, keyHash(command.key), [&](uint32_t slot) {
    const shm::SlotState state = directory_.state(slot);
    wait |= state == shm::SlotState::pending || state == shm::SlotState::reclaiming;
  });
  return wait;
}

void OwnerCore::get(Caller caller, Command command, Time now) {
  if (!std::exchange(command.counted, true)) counters_.ringGets += !command.get.sentHere();
  if (!serving(now)) {
    host_.answerCode(caller, Code::unavailable, standing_.noLease());
  } else if (answerLocal(caller, command)) {
  } else if (mustWait(command)) {
    const std::string key = command.key;
    controls_.wait(key, caller, std::move(command));
  } else if (command.get.localOnly) {
    host_.answerCode(caller, Code::miss);
  } else if (!standing_.joined()) {
    host_.answerCode(caller, Code::unavailable, "this owner joins again" + (standing_.apartBecause().empty() ? "" : ": " + standing_.apartBecause()));
  } else {
    askRoute(caller, std::move(command), now);
  }
}

// One get of a key asks; the others wait for its flight, or ask by themselves when there is none.
void OwnerCore::askRoute(Caller caller, Command command, Time now) {
  std::optional<Command> asks = controls_.joinOrAsk(caller, std::move(command));
  if (!asks) return;
  const rpc::NeighbourUse neighbours = asks->get.bringHere ? rpc::NeighbourUse::copy
                                      : asks->far          ? rpc::NeighbourUse::none
                                                           : rpc::NeighbourUse::read;
  rpc::GetStart start{
      .key = asks->key, .neighbours = neighbours, .avoid = asks->avoid, .timeLeftMs = timeLeftMs(asks->deadline, now)};
  calls_.send(std::move(start), caller, std::move(*asks));
}

void OwnerCore::putStart(Caller caller, Command command, Time now) {
  counters_.puts += command.attempts == 0;
  if (command.key.empty()) {
    host_.answerCode(caller, Code::invalidKey, "empty");
    return;
  }
  if (!standing_.takesRequests(now)) {
    return retries_.putOff(caller, std::move(command), standing_.noLease(), now);
  }
  const uint64_t size = extentBytes(command.valueBytes);
  // What the master may refuse is asked first, before an older value of ours is given up for it.
  const bool isInline = command.kind == shm::CommandKind::putInline;
  const std::string asker = isInline ? std::string() : command.extra;  // whose request it is, if the value is only filled here
  const bool plain = !command.put.rejects() && !command.lease && asker.empty();
  const std::optional<uint64_t> offset = plain ? reserve_.take(size, now) : std::nullopt;
  controls_.open(command.key);
  if (!offset) {
    rpc::PutStart start{.key = command.key,
                        .bytes = command.valueBytes,
                        .mode = command.put,
                        .lease = command.lease,
                        .timeLeftMs = timeLeftMs(command.deadline, now),
                        .onBehalfOf = asker};
    calls_.send(std::move(start), caller, std::move(command));
    return;
  }
  const std::optional<uint32_t> slot = directory_.grant(command.key, keyHash(command.key), *offset, command.valueBytes,
                                                        isInline ? 0 : caller.client.value, OperationId());
  if (!slot) {
    ++counters_.directoryFull;
    reserve_.give(size, *offset);
    host_.answerCode(caller, Code::noSpace, "the directory is full (max_keys)");
    return controls_.close(command.key, now);
  }
  ++counters_.putsFromReserve;
  puts_[*slot] = Put{.client = isInline ? ClientId() : caller.client,
                     .mode = command.put,
                     .replicas = command.replicas,
                     .lease = command.lease,
                     .since = now};
  if (isInline) {
    std::memcpy(segment_ + *offset, command.extra.data(), command.extra.size());
    return submit(*slot, caller, now);
  }
  Answer answer;
  answer.slotRef = directory_.ref(*slot);
  answer.offset = *offset;
  answer.valueBytes = command.valueBytes;
  if (!host_.answer(caller, std::move(answer))) {
    giveUpPut(*slot, true);
    controls_.close(command.key, now);
  }
}

void OwnerCore::putInline(Caller caller, Command command, Time now) {
  counters_.putsInline += command.attempts == 0;
  command.valueBytes = command.extra.size();
  putStart(caller, std::move(command), now);
}

// The put that a commit or abort names, if this client has the grant.
OwnerCore::Put* OwnerCore::granted(Caller caller, const Command& command, uint32_t& slot) {
  slot = shm::slotOfRef(command.slotRef);
  if (slot >= directory_.slotCount() || directory_.ref(slot) != command.slotRef) return nullptr;
  const auto put = puts_.find(slot);
  if (put == puts_.end() || put->second.client != caller.client || directory_.state(slot) != shm::SlotState::granted) return nullptr;
  return &put->second;
}

void OwnerCore::commit(Caller caller, const Command& command, Time now) {
  uint32_t slot = 0;
  const Put* put = granted(caller, command, slot);
  if (!put) {
    host_.answerCode(caller, Code::invalidArgument, "no such grant");
    return;
  }
  if (!put->orphan && serving(now) && standing_.listening()) return submit(slot, caller, now);
  const std::string key(directory_.key(slot));
  const bool orphan = put->orphan;
  giveUpPut(slot, true);
  ++counters_.putsFailed;
  host_.answerCode(caller, orphan ? Code::termChanged : Code::unavailable,
             orphan ? "the put is given up" : "no serving lease: the put is given up");
  controls_.close(key, now);
}

void OwnerCore::abort(Caller caller, const Command& command, Time now) {
  uint32_t slot = 0;
  if (!granted(caller, command, slot)) {
    host_.answerCode(caller, Code::invalidArgument, "no such grant");
    return;
  }
  const std::string key(directory_.key(slot));
  giveUpPut(slot, true);
  host_.answerCode(caller, Code::ok);
  controls_.close(key, now);
}

}  // namespace fluxon::owner
