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
  const auto found = pending_.find(reply.id);
  if (found == pending_.end()) {  // answered already: a repetition
    FLUXON_MARK("owner: a reply comes twice");
    return;
  }
  Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.request.kind == rpc::RequestKind::putStart) --putsAsked_;
  if (reply.code == Code::fenced) {
    FLUXON_MARK("owner: an answer says that it is fenced");
    fenced_ = true;
  }
  replied(pending, reply, now);
  sendHeldBack();
}

void OwnerCore::replied(Pending& pending, const rpc::Reply& reply, Time now) {
  using Kind = rpc::RequestKind;
  switch (pending.request.kind) {
    case Kind::heartbeat: {
      const auto beat = beats_.find(reply.id);
      if (beat == beats_.end()) return;
      const Time until = beat->second + lease_;
      if (reporting_ && reply.code == Code::ok) leaseFrom_ = std::max(leaseFrom_, beat->second);
      beats_.erase(beat);
      if (reporting_) return;
      if (reply.code == Code::ok && until.ns > directory_.leaseUntilNs()) directory_.setLease(until.ns);
      if (serving(now)) lapsed_ = false;
      return;
    }
    case Kind::putStart: return putStarted(pending, reply, now);
    case Kind::putDone: case Kind::putReserved: return putEnded(pending, reply, now);
    case Kind::getStart: return gotRoute(pending, reply, now);
    case Kind::getDone: return landed(pending, reply, now);
    case Kind::inventory: return reported(pending.request, reply, now);
    case Kind::ssdCommit: return ssdCommitted(pending, reply);
    case Kind::reserve: return reserve_.answered(pending.request.bytes, reply.offsets);
    case Kind::stat: case Kind::remove: case Kind::countPrefix: case Kind::list:
    case Kind::leaseGrant: case Kind::leaseKeepAlive: case Kind::leaseRevoke: break;
    case Kind::spread:
      if (!pending.given) answerPut(pending, reply.count);
      return;
    case Kind::ssdEvicted: evictedTold_ -= pending.request.items.size(); [[fallthrough]];
    case Kind::putAbort: case Kind::release: case Kind::dropped: case Kind::invalidateDone: case Kind::reclaimDone:
    case Kind::ssdLife: case Kind::staged: case Kind::unstaged:
      if (reply.code != Code::ok && reply.code != Code::fenced) ++counters_.refused;
      return;
  }
  if (pending.given) return;
  Answer answer;
  answer.code = reply.code;
  answer.putId = reply.putId;
  answer.valueBytes = pending.request.kind == Kind::countPrefix ? reply.count : reply.bytes;
  answer.lease = reply.lease;
  answer.payload = reply.detail;
  for (const std::string& node : reply.nodes) answer.payload += node + "\n";
  if (pending.request.kind == Kind::list) {
    // As many entries as the payload area takes; the client asks on from the last one.
    for (const rpc::ListedKey& entry : reply.entries) {
      const size_t size = sizeof(shm::ListEntry) + (entry.key.size() + 7) / 8 * 8;
      if (answer.payload.size() + size > shm::kPayloadBytes) break;
      const shm::ListEntry head{static_cast<uint32_t>(entry.key.size()), 0, entry.bytes, entry.putId.value};
      answer.payload.append(reinterpret_cast<const char*>(&head), sizeof head);
      answer.payload.append(entry.key).append(size - sizeof head - entry.key.size(), '\0');
    }
  }
  host_.answer(pending.caller, std::move(answer));
}

void OwnerCore::putStarted(Pending& pending, const rpc::Reply& reply, Time now) {
  const rpc::Request& asked = pending.request;
  if (reply.code != Code::ok) {
    ++counters_.putsFailed;
    if (!pending.given) answerCode(pending.caller, reply.code, reply.detail);
    return close(asked.key, now);
  }
  if (!reply.peer.node.empty() && !reply.fetch) {
    // An owner of this host shall have it: the client goes there.
    FLUXON_MARK("owner: a put is sent on to a neighbour");
    if (!pending.given && host_.neighbour(reply.peer)) {
      Answer there;
      there.node = reply.peer.node;
      host_.answer(pending.caller, std::move(there));
    } else if (!pending.given) {
      answerCode(pending.caller, Code::unavailable, "node " + reply.peer.node + ", which shall have the value, cannot be reached");
    }
    return close(asked.key, now);
  }
  const bool isInline = pending.command == shm::CommandKind::putInline;
  const uint64_t size = extentBytes(asked.bytes);
  if (size > segmentBytes_ || reply.offset > segmentBytes_ - size) {
    ++counters_.putsFailed;
    rpc::Request abort;
    abort.kind = rpc::RequestKind::putAbort;
    abort.put = asked.id;
    request(std::move(abort), {}, shm::CommandKind::abort);
    if (!pending.given) answerCode(pending.caller, Code::protocol, "the master granted an extent outside the segment");
    return close(asked.key, now);
  }
  const std::optional<uint32_t> slot = directory_.grant(asked.key, keyHash(asked.key), reply.offset, asked.bytes,
                                                        isInline ? 0 : pending.caller.client.value, asked.id);
  if (!slot) {
    ++counters_.directoryFull;
    rpc::Request abort;
    abort.kind = rpc::RequestKind::putAbort;
    abort.put = asked.id;
    request(std::move(abort), {}, shm::CommandKind::abort);
    releases_.push_back(reply.offset);
    if (!pending.given) answerCode(pending.caller, Code::noSpace, "the directory is full (max_keys)");
    return close(asked.key, now);
  }
  puts_[*slot] = Put{isInline ? ClientId() : pending.caller.client, asked.id, reply.putId, asked.flags, asked.lease, false};
  puts_[*slot].elsewhere = reply.fetch;
  puts_[*slot].since = now;
  if (isInline && !pending.given) {
    std::memcpy(segment_ + reply.offset, pending.asked.extra.data(), pending.asked.extra.size());
    return submit(*slot, pending.caller, pending.command, now);
  }
  Answer answer;
  answer.slotRef = directory_.ref(*slot);
  answer.putId = reply.putId;
  answer.offset = reply.offset;
  answer.valueBytes = asked.bytes;
  if (pending.given || !host_.answer(pending.caller, std::move(answer))) {
    FLUXON_MARK("owner: nobody takes a grant");
    giveUpPut(*slot, true);
    close(asked.key, now);
  }
}

void OwnerCore::putEnded(Pending& pending, const rpc::Reply& reply, Time now) {
  const uint32_t slot = pending.slot;
  FLUXON_CHECK(puts_.count(slot) && directory_.state(slot) == shm::SlotState::pending, "answer to a put that is not pending");
  const std::string key(directory_.key(slot));
  const std::vector<uint32_t> replaced = std::move(puts_.at(slot).replaced);
  const bool elsewhere = puts_.at(slot).elsewhere;
  const KeyLeaseId lease = puts_.at(slot).lease;
  const PutId own = puts_.at(slot).putId;
  const uint32_t replicas = puts_.at(slot).flags >> shm::kReplicasShift;
  puts_.erase(slot);
  Code code = reply.code;
  const bool published = code == Code::ok && reply.published && !elsewhere;
  // What was retired for a put that did not become the route may be the route still: the master hears of it before its release.
  if (!published) {
    if (!replaced.empty()) FLUXON_MARK("owner: what was retired for a put that did not become the route");
    for (const uint32_t old : replaced) dropped_.push_back({key, directory_.putId(old), directory_.offset(old)});
  }
  awaitReaders(replaced);
  PutId& bound = controls_.at(key).bound;
  const bool current = bound <= reply.putId;
  // Replies may overtake each other: an older put of the key that is answered later must not bring back its value.
  if (published && current) bound = reply.putId;
  if (published && current && serving(now)) {
    counters_.putBytes += directory_.payloadBytes(slot);
    if (undecided(slot)) {
      FLUXON_MARK("owner: a published value waits for another put of its key");
      published_.emplace(slot, Published{reply.putId, lease, true});
      open(key);
    } else {
      awaitReaders(retireOlder(slot, reply.putId));
      directory_.commit(slot, reply.putId, lease);
      persist(slot, now);
    }
  } else if (elsewhere) {
    if (code == Code::ok && current) bound = reply.putId;
    if (code != Code::ok) ++counters_.putsFailed;
    endExport(ExportId(own.value));  // the slot goes when nobody reads it any more
  } else {
    if (published) dropped_.push_back({key, reply.putId, directory_.offset(slot)});
    if (published && !current) FLUXON_MARK("owner: a published value is older than the bound of its key");
    if (published && current) FLUXON_MARK("owner: a put is published after the lease");
    if (published && current) code = Code::outcomeUnknown;  // our lease has run out: others may not wait for us any more
    if (code != Code::ok) ++counters_.putsFailed;
    freeSlot(slot);
  }
  if (!pending.given && code == Code::ok && reply.published && replicas > 1) {
    // The put is done; its caller waits for the copies that it asked for.
    rpc::Request spread;
    spread.kind = rpc::RequestKind::spread;
    spread.key = key;
    spread.items.push_back({key, reply.putId, 0, 0, {}});
    spread.count = replicas;
    spread.timeLeftMs = static_cast<uint64_t>(kSpreadPatience.ms());
    request(std::move(spread), pending.caller, pending.command).putId = reply.putId;
  } else if (!pending.given) {
    Answer answer;
    answer.code = code;
    answer.putId = reply.putId;
    answer.valueBytes = 1;
    answer.payload = reply.detail;
    host_.answer(pending.caller, std::move(answer));
  }
  settlePublished(key, now);
  close(key, now);
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
  const PutId bound = controls_.at(key).bound;
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
      dropped_.push_back({key, value.putId, directory_.offset(slot)});
      directory_.retire(slot);  // those for whom it was fetched may hold it
      awaitReaders({slot});
    }
    close(key, now);
  }
}

// A put that is done, with as many copies as could be had: 1 also for a value that has gone meanwhile.
void OwnerCore::answerPut(const Pending& pending, uint64_t copies) {
  Answer answer;
  answer.putId = pending.putId;
  answer.valueBytes = std::max<uint64_t>(1, copies);
  host_.answer(pending.caller, std::move(answer));
}

// The serving lease has run out, or the term is over: callers are answered, or try again; effects are undone when the replies come.
void OwnerCore::failPending(Time now) {
  const auto failOne = [&](Pending& pending) {
    if (!pending.caller.client || pending.given) return;
    pending.given = true;
    FLUXON_MARK("owner: the lease runs out under an open request");
    switch (pending.request.kind) {
      case rpc::RequestKind::spread: answerPut(pending, 1); break;
      case rpc::RequestKind::putDone: case rpc::RequestKind::putReserved: case rpc::RequestKind::remove:
      case rpc::RequestKind::leaseGrant: case rpc::RequestKind::leaseKeepAlive: case rpc::RequestKind::leaseRevoke:
        answerCode(pending.caller, Code::outcomeUnknown, "the master does not answer");
        break;
      case rpc::RequestKind::putStart:
        // Nothing is granted. A second one must not find the first one in flight.
        if ((pending.request.flags & shm::kRejectIfInFlight) == 0) {
          FLUXON_MARK("owner: a put waits for its master");
          putOff(pending.caller, std::move(pending.asked), "the master does not answer", now);
          break;
        }
        [[fallthrough]];
      default: answerCode(pending.caller, Code::unavailable, "the master does not answer"); break;
    }
  };
  for (auto& [id, pending] : pending_) failOne(pending);
  for (Pending& pending : heldBack_) failOne(pending);
  for (auto& [key, control] : controls_) {
    control.asking = false;
    if (!control.waiting.empty()) FLUXON_MARK("owner: the lease runs out under a get that waits");
    for (const Waiting& waiting : std::exchange(control.waiting, {}))
      answerCode(waiting.caller, Code::unavailable, "the master does not answer");
  }
}

}  // namespace fluxon::owner
