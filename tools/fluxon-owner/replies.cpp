// OwnerCore: answers of the master.
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {
namespace {

constexpr Duration kSpreadPatience = seconds(5);  // for the copies of one put

}  // namespace

void OwnerCore::reply(const rpc::Reply& reply, Time now) {
  std::optional<Call> call = calls_.take(reply.id);
  if (!call) return;
  if (reply.code == Code::fenced) {
    FLUXON_MARK("owner: an answer says that it is fenced");
    standing_.fence();
  }
  if (rpc::fits(call->request, reply)) {
    replied(*call, reply, now);
  } else {
    const uint64_t before = counters_.refused;
    replied(*call, {reply.id, Code::protocol, "the master gave an answer that is none to what it was asked", {}}, now);
    counters_.refused = before + 1;  // whoever else was told
  }
  calls_.sendHeldBack();
}

// Nobody else is told.
void OwnerCore::noteRefusal(Code code) {
  if (code != Code::ok && code != Code::fenced) ++counters_.refused;
}

void OwnerCore::replied(Call& call, const rpc::Reply& reply, Time now) {
  struct To {
    OwnerCore& core;
    Call& call;
    const rpc::Reply& reply;
    Time now;
    void operator()(const rpc::Heartbeat&) { core.standing_.beatAnswered(reply.id, reply.code, now); }
    void operator()(const rpc::PutStart&) { core.putStarted(call, reply, now); }
    void operator()(const rpc::PutDone&) { core.putEnded(call, reply, now); }
    void operator()(const rpc::PutReserved&) { core.putEnded(call, reply, now); }
    void operator()(const rpc::GetStart&) { core.gotRoute(call, reply, now); }
    void operator()(const rpc::GetDone&) { core.landed(call, reply, now); }
    void operator()(const rpc::ReplicateDone&) { core.landed(call, reply, now); }
    void operator()(const rpc::InventoryPage& page) { core.reported(page, reply, now); }
    void operator()(const rpc::SsdCommit&) { core.ssdCommitted(call, reply); }
    void operator()(const rpc::Reserve& asked) {
      const auto* reserved = reply.as<rpc::Reserved>();
      core.reserve_.answered(asked.extentBytes, reserved ? reserved->offsets : std::vector<uint64_t>());
    }
    void operator()(const rpc::Spread&) {
      const auto* ended = reply.as<rpc::SpreadEnded>();
      if (call.caller) core.answerPut(call, ended ? ended->replicas : 1);
    }
    void operator()(const rpc::StatKey&) { core.answerQuestion(call, reply); }
    void operator()(const rpc::RemoveKey&) { core.answerQuestion(call, reply); }
    void operator()(const rpc::CountKeys&) { core.answerQuestion(call, reply); }
    void operator()(const rpc::ListKeys&) { core.answerQuestion(call, reply); }
    void operator()(const rpc::LeaseGrant&) { core.answerQuestion(call, reply); }
    void operator()(const rpc::LeaseKeepAlive&) { core.answerQuestion(call, reply); }
    void operator()(const rpc::LeaseRevoke&) { core.answerQuestion(call, reply); }
    void operator()(const rpc::SsdEvicted& told) {
      core.evictedTold_ -= told.values.size();
      core.noteRefusal(reply.code);
    }
    void operator()(const rpc::PutAbort&) { core.noteRefusal(reply.code); }
    void operator()(const rpc::Release&) { core.noteRefusal(reply.code); }
    void operator()(const rpc::Dropped&) { core.noteRefusal(reply.code); }
    void operator()(const rpc::InvalidateDone&) { core.noteRefusal(reply.code); }
    void operator()(const rpc::ReclaimDone&) { core.noteRefusal(reply.code); }
    void operator()(const rpc::SsdLife&) { core.noteRefusal(reply.code); }
    void operator()(const rpc::Staged&) { core.noteRefusal(reply.code); }
    void operator()(const rpc::Unstaged&) { core.noteRefusal(reply.code); }
  };
  std::visit(To{*this, call, reply, now}, call.request.body);
}

// What the master has said to a client that only asked.
void OwnerCore::answerQuestion(const Call& call, const rpc::Reply& reply) {
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
  } else if (const auto* kept = call.request.as<rpc::LeaseKeepAlive>(); kept && reply.code == Code::ok) {
    answer.lease = kept->lease;
  } else if (const auto* revoked = call.request.as<rpc::LeaseRevoke>(); revoked && reply.code == Code::ok) {
    answer.lease = revoked->lease;
  } else if (const auto* page = reply.as<rpc::KeyPage>()) {
    // As many entries as the payload area takes; the client asks on from the last one.
    for (const rpc::ListedKey& entry : page->keys) {
      const size_t size = sizeof(shm::ListEntry) + (entry.key.size() + 7) / 8 * 8;
      if (answer.payload.size() + size > shm::kPayloadBytes) break;
      const shm::ListEntry head{static_cast<uint32_t>(entry.key.size()), 0, entry.bytes, entry.putId.value};
      answer.payload.append(reinterpret_cast<const char*>(&head), sizeof head);
      answer.payload.append(entry.key).append(size - sizeof head - entry.key.size(), '\0');
    }
  }
  host_.answer(call.caller, std::move(answer));
}

void OwnerCore::putStarted(Call& call, const rpc::Reply& reply, Time now) {
  const OperationId operation = call.request.id;
  const rpc::PutStart& asked = *call.request.as<rpc::PutStart>();
  if (reply.code != Code::ok) {
    ++counters_.putsFailed;
    host_.answerCode(call.caller, reply.code, reply.detail);
    return controls_.close(asked.key, now);
  }
  if (const auto* elsewhere = reply.as<rpc::PutElsewhere>()) {
    // An owner of this host shall have it: the client goes there.
    FLUXON_MARK("owner: a put is sent on to a neighbour");
    const rpc::Peer& neighbour = elsewhere->neighbour;
    if (call.caller && host_.neighbour(neighbour)) {
      Answer there;
      there.node = neighbour.node;
      host_.answer(call.caller, std::move(there));
    } else if (call.caller) {
      host_.answerCode(call.caller, Code::unavailable, "node " + neighbour.node + ", which shall have the value, cannot be reached");
    }
    return controls_.close(asked.key, now);
  }
  const rpc::PutGranted& grant = *reply.as<rpc::PutGranted>();
  Command& command = std::get<Command>(call.about);
  const bool isInline = command.kind == shm::CommandKind::putInline;
  const uint64_t size = extentBytes(asked.bytes);
  if (size > segmentBytes_ || grant.offset > segmentBytes_ - size) {
    ++counters_.putsFailed;
    calls_.send(rpc::PutAbort{.put = operation});
    host_.answerCode(call.caller, Code::protocol, "the master granted an extent outside the segment");
    return controls_.close(asked.key, now);
  }
  const std::optional<uint32_t> slot = directory_.grant(asked.key, keyHash(asked.key), grant.offset, asked.bytes,
                                                        isInline ? 0 : call.caller.client.value, operation);
  if (!slot) {
    ++counters_.directoryFull;
    calls_.send(rpc::PutAbort{.put = operation});
    retirement_.freeExtent(grant.offset);
    host_.answerCode(call.caller, Code::noSpace, "the directory is full (max_keys)");
    return controls_.close(asked.key, now);
  }
  puts_[*slot] = Put{.client = isInline ? ClientId() : call.caller.client,
                     .operation = operation,
                     .putId = grant.putId,
                     .mode = asked.mode,
                     .replicas = command.replicas,
                     .lease = asked.lease,
                     .elsewhere = grant.home.has_value(),
                     .since = now};
  if (isInline && call.caller) {
    std::memcpy(segment_ + grant.offset, command.extra.data(), command.extra.size());
    return submit(*slot, call.caller, now);
  }
  Answer answer;
  answer.slotRef = directory_.ref(*slot);
  answer.putId = grant.putId;
  answer.offset = grant.offset;
  answer.valueBytes = asked.bytes;
  if (!call.caller || !host_.answer(call.caller, std::move(answer))) {
    FLUXON_MARK("owner: nobody takes a grant");
    giveUpPut(*slot, true);
    controls_.close(asked.key, now);
  }
}

void OwnerCore::putEnded(Call& call, const rpc::Reply& reply, Time now) {
  const uint32_t slot = std::get<Call::Slot>(call.about).slot;
  FLUXON_CHECK(puts_.count(slot) && directory_.state(slot) == shm::SlotState::pending, "answer to a put that is not pending");
  const std::string key(directory_.key(slot));
  const std::vector<uint32_t> replaced = std::move(puts_.at(slot).replaced);
  const bool elsewhere = puts_.at(slot).elsewhere;
  const KeyLeaseId lease = puts_.at(slot).lease;
  const PutId own = puts_.at(slot).putId;
  const uint8_t replicas = puts_.at(slot).replicas;
  puts_.erase(slot);
  Code code = reply.code;
  const auto* ended = reply.as<rpc::PutEnded>();
  const rpc::PutEnded decided = ended ? *ended : rpc::PutEnded();
  const PutId putId = decided.putId;
  const bool published = decided.published && !elsewhere;
  // What was retired for a put that did not become the route may be the route still: the master hears of it before its release.
  if (!published) {
    if (!replaced.empty()) FLUXON_MARK("owner: what was retired for a put that did not become the route");
    retirement_.dropped(replaced);
  }
  retirement_.add(replaced);
  const bool current = controls_.bound(key) <= putId;
  // Replies may overtake each other: an older put of the key that is answered later must not bring back its value.
  if (published && current) controls_.raise(key, putId);
  if (published && current && serving(now)) {
    counters_.putBytes += directory_.payloadBytes(slot);
    if (undecided(slot)) {
      FLUXON_MARK("owner: a published value waits for another put of its key");
      published_.emplace(slot, Published{putId, lease, true});
      controls_.open(key);
    } else {
      retirement_.add(retirement_.retireOlder(slot, putId));
      directory_.commit(slot, putId, lease);
      persist(slot, now);
    }
  } else if (elsewhere) {
    if (code == Code::ok && current) controls_.raise(key, putId);
    if (code != Code::ok) ++counters_.putsFailed;
    endExport(ExportId(own.value));  // the slot goes when nobody reads it any more
  } else {
    if (published) retirement_.dropped({key, putId, directory_.offset(slot)});
    if (published && !current) FLUXON_MARK("owner: a published value is older than the bound of its key");
    if (published && current) FLUXON_MARK("owner: a put is published after the lease");
    if (published && current) code = Code::outcomeUnknown;  // our lease has run out: others may not wait for us any more
    if (code != Code::ok) ++counters_.putsFailed;
    retirement_.free(slot);
  }
  if (call.caller && code == Code::ok && decided.published && replicas > 1) {
    // The put is done; its caller waits for the copies that it asked for.
    rpc::Spread spread{.value = {key, putId}, .replicas = replicas, .timeLeftMs = static_cast<uint64_t>(kSpreadPatience.ms())};
    calls_.send(std::move(spread), call.caller);
  } else if (call.caller) {
    Answer answer;
    answer.code = code;
    answer.putId = putId;
    answer.valueBytes = 1;
    answer.payload = reply.detail;
    host_.answer(call.caller, std::move(answer));
  }
  settlePublished(key, now);
  controls_.close(key, now);
}

// Another put of the key has been submitted here and not been decided. It waits for no invalidation of this owner: what it has not
// retired when it was submitted must not become readable before its answer, it may be older.
bool OwnerCore::undecided(uint32_t except) const {
  bool found = false;
  directory_.forEach(directory_.key(except), directory_.hash(except), [&](uint32_t slot) {
    const auto put = puts_.find(slot);
    const bool own = put != puts_.end() && !put->second.elsewhere && directory_.state(slot) == shm::SlotState::pending;
    found |= slot != except && (own || incoming_.count(slot) != 0);
  });
  return found;
}

// Values that waited for other puts of their key: the newest is readable now, unless something newer has come.
void OwnerCore::settlePublished(const std::string& key, Time now) {
  std::vector<uint32_t> waiting;
  bool newer = false;
  const PutId bound = controls_.bound(key);
  directory_.forEach(key, keyHash(key), [&](uint32_t slot) {
    if (published_.count(slot)) waiting.push_back(slot);
    newer |= directory_.state(slot) == shm::SlotState::committed;
  });
  if (waiting.empty() || undecided(waiting.front())) return;
  for (const uint32_t slot : waiting) {
    const Published value = published_.at(slot);
    published_.erase(slot);
    if (value.putId == bound && !newer && serving(now)) {
      FLUXON_MARK("owner: a value that waited becomes readable");
      directory_.commit(slot, value.putId, value.lease);
      if (value.put) persist(slot, now);
    } else {
      FLUXON_MARK("owner: a value that waited is none any more");
      retirement_.dropped({key, value.putId, directory_.offset(slot)});
      retirement_.retire(slot);  // those for whom it was fetched may hold it
    }
    controls_.close(key, now);
  }
}

// A put that is done, with as many replicas as could be had: 1 also for a value that has gone meanwhile.
void OwnerCore::answerPut(const Call& call, uint64_t replicas) {
  Answer answer;
  answer.putId = call.request.as<rpc::Spread>()->value.putId;
  answer.valueBytes = std::max<uint64_t>(1, replicas);
  host_.answer(call.caller, std::move(answer));
}

// The serving lease has run out, or the term is over: callers are answered, or try again; effects are undone when the replies come.
void OwnerCore::failPending(Time now) {
  calls_.eachWaited([&](Call& call) {
    FLUXON_MARK("owner: the lease runs out under an open request");
    const Caller caller = call.caller;
    const rpc::Request& request = call.request;
    const auto* put = request.as<rpc::PutStart>();
    if (request.is<rpc::Spread>()) {
      answerPut(call, 1);
    } else if (request.is<rpc::PutDone>() || request.is<rpc::PutReserved>() || request.is<rpc::RemoveKey>() ||
               request.is<rpc::LeaseGrant>() || request.is<rpc::LeaseKeepAlive>() || request.is<rpc::LeaseRevoke>()) {
      host_.answerCode(caller, Code::outcomeUnknown, "the master does not answer");
    } else if (put && put->mode.onInFlight == PutMode::OnInFlight::proceed) {
      // Nothing is granted. A second one that is refused beside another would find the first one in flight.
      FLUXON_MARK("owner: a put waits for its master");
      retries_.putOff(caller, std::move(std::get<Command>(call.about)), "the master does not answer", now);
    } else {
      host_.answerCode(caller, Code::unavailable, "the master does not answer");
    }
    call.abandon();
  });
  for (const Interest& interest : controls_.lapse())
    host_.answerCode(interest.caller, Code::unavailable, "the master does not answer");
}

}  // namespace fluxon::owner
