#include "puts.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr Duration kSpreadPatience = seconds(5);  // for the copies of one put

bool isInline(const Command& command) { return command.kind == shm::CommandKind::putInline; }

}  // namespace

// --- granted

void Puts::start(Caller caller, Command command, Time now) {
  counters_.puts += command.attempts == 0;
  if (isInline(command)) {
    counters_.putsInline += command.attempts == 0;
    command.valueBytes = command.extra.size();
  }
  if (command.key.empty()) {
    host_.answerCode(caller, Code::invalidKey, "empty");
    return;
  }
  if (!standing_.takesRequests(now)) return retries_.putOff(caller, std::move(command), standing_.noLease(), now);
  // A put that the master may refuse asks it first, before an older value of ours is retired for it.
  const std::string asker = isInline(command) ? std::string() : command.extra;  // a neighbour, whose client fills the value here
  const bool plain = !command.put.rejects() && !command.lease && asker.empty();
  const std::optional<uint64_t> offset = plain ? reserve_.take(extentBytes(command.valueBytes), now) : std::nullopt;
  controls_.open(command.key);
  if (offset) return startAt(*offset, caller, command, now);
  rpc::PutStart start{.key = command.key,
                      .bytes = command.valueBytes,
                      .mode = command.put,
                      .lease = command.lease,
                      .timeLeftMs = timeLeftMs(command.deadline, now),
                      .onBehalfOf = asker};
  calls_.send(std::move(start), caller, std::move(command));
}

// Begins a put in an extent of the reserve.
void Puts::startAt(uint64_t offset, Caller caller, const Command& command, Time now) {
  const ClientId writer = isInline(command) ? ClientId() : caller.client;
  const std::optional<uint32_t> slot =
      directory_.grant(command.key, keyHash(command.key), offset, command.valueBytes, writer.value, OperationId());
  if (!slot) {
    ++counters_.putsWithoutSlot;
    reserve_.give(extentBytes(command.valueBytes), offset);
    host_.answerCode(caller, Code::noSpace, directory_.fullOf());
    return controls_.close(command.key, now);
  }
  ++counters_.putsFromReserve;
  Put put{.client = writer, .mode = command.put, .replicas = command.replicas, .lease = command.lease, .since = now};
  grant(*slot, std::move(put), caller, command, now);
}

void Puts::started(Call& call, const rpc::Reply& reply, Time now) {
  const OperationId operation = call.request.id;
  const rpc::PutStart& asked = *call.request.as<rpc::PutStart>();
  const Command& command = std::get<Command>(call.about);
  if (reply.code != Code::ok) {
    ++counters_.putsFailed;
    host_.answerCode(call.caller, reply.code, reply.detail);
    return controls_.close(asked.key, now);
  }
  if (const auto* elsewhere = reply.as<rpc::PutElsewhere>()) {
    // The master wants the value at another owner of this host: the client goes there.
    FLUXON_MARK("owner: a put is sent on to a neighbour");
    const rpc::Peer& neighbour = elsewhere->neighbour;
    if (call.caller && host_.neighbour(neighbour)) {
      Answer there;
      there.node = neighbour.node;
      host_.answer(call.caller, std::move(there));
    } else {
      host_.answerCode(call.caller, Code::unavailable, "node " + neighbour.node + ", which shall have the value, cannot be reached");
    }
    return controls_.close(asked.key, now);
  }
  const rpc::PutGranted& given = *reply.as<rpc::PutGranted>();
  const uint64_t size = extentBytes(asked.bytes);
  if (size > segment_.size || given.offset > segment_.size - size) {
    ++counters_.putsFailed;
    refuseGrant(operation, call.caller, Code::protocol, "the master granted an extent outside the segment");
    return controls_.close(asked.key, now);
  }
  const ClientId writer = isInline(command) ? ClientId() : call.caller.client;
  const std::optional<uint32_t> slot = directory_.grant(asked.key, keyHash(asked.key), given.offset, asked.bytes, writer.value, operation);
  if (!slot) {
    ++counters_.putsWithoutSlot;
    retirement_.freeExtent(given.offset);
    refuseGrant(operation, call.caller, Code::noSpace, directory_.fullOf());
    return controls_.close(asked.key, now);
  }
  Put put{.place = given.home ? Place::elsewhere : Place::here,
          .client = writer,
          .operation = operation,
          .putId = given.putId,
          .mode = asked.mode,
          .replicas = command.replicas,
          .lease = asked.lease,
          .since = now};
  grant(*slot, std::move(put), call.caller, command, now);
}

void Puts::refuseGrant(OperationId put, Caller caller, Code code, const char* why) {
  calls_.send(rpc::PutAbort{.put = put});
  host_.answerCode(caller, code, why);
}

// Gives the slot to the writer. The bytes of an inline put are here, so the owner submits it at once.
void Puts::grant(uint32_t slot, Put put, Caller caller, const Command& command, Time now) {
  const PutId putId = put.putId;
  puts_[slot] = std::move(put);
  if (caller && isInline(command)) {
    std::memcpy(segment_.bytes + directory_.offset(slot), command.extra.data(), command.extra.size());
    return submit(slot, caller, now);
  }
  Answer answer;
  answer.slotRef = directory_.ref(slot);
  answer.putId = putId;
  answer.offset = directory_.offset(slot);
  answer.valueBytes = directory_.payloadBytes(slot);
  if (caller && host_.answer(caller, std::move(answer))) return;
  FLUXON_MARK("owner: nobody takes a grant");
  const std::string key(directory_.key(slot));
  giveUp(slot);
  controls_.close(key, now);
}

// The put that a commit or abort names, if this client has the grant.
std::optional<Puts::Grant> Puts::granted(Caller caller, const Command& command) const {
  const uint32_t slot = shm::slotOfRef(command.slotRef);
  if (slot >= directory_.slotCount() || directory_.ref(slot) != command.slotRef) return std::nullopt;
  const auto put = puts_.find(slot);
  if (put == puts_.end() || put->second.client != caller.client || put->second.state == State::submitted) return std::nullopt;
  return Grant{slot, std::string(directory_.key(slot))};
}

void Puts::commit(Caller caller, const Command& command, Time now) {
  const std::optional<Grant> grant = granted(caller, command);
  if (!grant) {
    host_.answerCode(caller, Code::invalidArgument, "no such grant");
    return;
  }
  const bool orphan = puts_.at(grant->slot).state == State::orphan;
  if (!orphan && standing_.serving(now) && standing_.listening()) return submit(grant->slot, caller, now);
  giveUp(grant->slot);
  ++counters_.putsFailed;
  host_.answerCode(caller, orphan ? Code::termChanged : Code::unavailable,
                   orphan ? "the put is given up" : "no serving lease: the put is given up");
  controls_.close(grant->key, now);
}

void Puts::abort(Caller caller, const Command& command, Time now) {
  const std::optional<Grant> grant = granted(caller, command);
  if (!grant) {
    host_.answerCode(caller, Code::invalidArgument, "no such grant");
    return;
  }
  giveUp(grant->slot);
  host_.answerCode(caller, Code::ok);
  controls_.close(grant->key, now);
}

void Puts::clientGone(ClientId client, Time now) {
  std::vector<uint32_t> slots;
  for (const auto& [slot, put] : puts_) {
    if (put.client == client && put.state != State::submitted) slots.push_back(slot);
  }
  for (const uint32_t slot : slots) {
    FLUXON_MARK("owner: a client dies with a grant");
    const std::string key(directory_.key(slot));
    giveUp(slot);
    controls_.close(key, now);
  }
}

void Puts::giveUp(uint32_t slot) {
  const Put put = puts_.at(slot);
  puts_.erase(slot);
  const bool orphan = put.state == State::orphan;
  if (orphan) FLUXON_MARK("owner: a put of an earlier term ends");
  if (put.operation && !orphan) calls_.send(rpc::PutAbort{.put = put.operation});
  if (!put.operation && !orphan) {
    reserve_.give(extentBytes(directory_.payloadBytes(slot)), directory_.offset(slot));
    directory_.release(slot);
  } else {
    retirement_.free(slot);
  }
}

// --- submitted

// granted → pending: the bytes are there; the master decides.
void Puts::submit(uint32_t slot, Caller caller, Time now) {
  Put& put = puts_.at(slot);
  put.state = State::submitted;
  directory_.submit(slot);
  // Older values of this owner must be retired before the master publishes the put. A put that an existing key refuses replaces nothing;
  // for one whose value lies elsewhere the master invalidates this owner like any other.
  if (put.place == Place::elsewhere) {
    exports_.begin(ExportId(put.putId.value), slot, now);
  } else {
    const bool replaces = put.mode.onExisting == PutMode::OnExisting::replace;
    publications_.submitted(slot, replaces ? retirement_.retireOlder(slot, put.putId) : std::vector<uint32_t>());
  }
  rpc::Request::Body done = rpc::PutDone{.put = put.operation};
  if (!put.operation) {
    done = rpc::PutReserved{.key = std::string(directory_.key(slot)),
                            .bytes = directory_.payloadBytes(slot),
                            .offset = directory_.offset(slot),
                            .mode = put.mode,
                            .lease = put.lease};
  }
  calls_.send(std::move(done), caller, Call::Slot{slot});
}

void Puts::decided(const Call& call, const rpc::Reply& reply, Time now) {
  const uint32_t slot = std::get<Call::Slot>(call.about).slot;
  FLUXON_CHECK(puts_.count(slot) && puts_.at(slot).state == State::submitted, "answer to a put that is not pending");
  const std::string key(directory_.key(slot));
  const Put put = puts_.at(slot);
  puts_.erase(slot);
  const Code code = finish(slot, put, key, reply, now);
  if (code != Code::ok) ++counters_.putsFailed;
  const auto* ended = reply.as<rpc::PutEnded>();
  const PutId putId = ended ? ended->putId : PutId();
  if (call.caller && code == Code::ok && ended && ended->published && put.replicas > 1) {
    // The put is done; its caller now waits for the replicas that it asked for.
    rpc::Spread spread{.value = {key, putId}, .replicas = put.replicas, .timeLeftMs = static_cast<uint64_t>(kSpreadPatience.ms())};
    calls_.send(std::move(spread), call.caller);
  } else if (call.caller) {
    Answer answer;
    answer.code = code;
    answer.putId = putId;
    answer.valueBytes = 1;
    answer.payload = reply.detail;
    host_.answer(call.caller, std::move(answer));
  }
  publications_.publishWaiting(key, now);
  controls_.close(key, now);
}

// Decides what becomes of the slot, and returns what the caller is told.
Code Puts::finish(uint32_t slot, const Put& put, const std::string& key, const rpc::Reply& reply, Time now) {
  const auto* ended = reply.as<rpc::PutEnded>();
  const PutId putId = ended ? ended->putId : PutId();
  const bool published = ended && ended->published && put.place == Place::here;
  if (publications_.decided(slot, published ? Publications::Outcome::published : Publications::Outcome::other))
    FLUXON_MARK("owner: what was retired for a put that did not become the route");
  const bool current = controls_.bound(key) <= putId;
  // Replies may overtake each other: an older put of the key that is answered later must not bring back its value.
  if (published && current) controls_.raise(key, putId);
  if (put.place == Place::elsewhere) {
    if (ended && current) controls_.raise(key, putId);
    exports_.end(ExportId(put.putId.value));  // the slot goes when nobody reads it any more
    return reply.code;
  }
  if (published && current && standing_.serving(now)) {
    counters_.putBytes += directory_.payloadBytes(slot);
    if (publications_.publish(slot, putId, put.lease, Publications::Origin::put, now) == Publications::Becomes::waits)
      FLUXON_MARK("owner: a published value waits for another put of its key");
    return reply.code;
  }
  if (published) retirement_.dropped({key, putId, directory_.offset(slot)});
  if (published && !current) FLUXON_MARK("owner: a published value is older than the bound of its key");
  retirement_.free(slot);
  if (!published || !current) return reply.code;
  FLUXON_MARK("owner: a put is published after the lease");
  return Code::outcomeUnknown;  // our lease has run out: others may not wait for us any more
}

void Puts::spread(const Call& call, const rpc::Reply& reply) {
  if (!call.caller) return;
  const auto* ended = reply.as<rpc::SpreadEnded>();
  Answer answer;
  answer.putId = call.request.as<rpc::Spread>()->value.putId;
  answer.valueBytes = std::max<uint64_t>(1, ended ? ended->replicas : 1);  // 1 also for a value that has gone meanwhile
  host_.answer(call.caller, std::move(answer));
}

// --- the reserve

void Puts::reserved(const rpc::Reserve& asked, const rpc::Reply& reply) {
  const auto* given = reply.as<rpc::Reserved>();
  reserve_.answered(asked.extentBytes, given ? given->offsets : std::vector<uint64_t>());
}

void Puts::refill() {
  for (const Reserve::Want& want : reserve_.refill()) calls_.send(rpc::Reserve{.extentBytes = want.extentBytes, .count = want.count});
}

void Puts::shrinkReserve(Time unusedSince) {
  for (const uint64_t offset : reserve_.idleSince(unusedSince)) retirement_.freeExtent(offset);
}

// --- from one life or term to the next

void Puts::adopt(uint32_t slot, Time now) {
  puts_[slot] = {.state = State::orphan, .client = ClientId(directory_.writer(slot)), .since = now};
  controls_.open(std::string(directory_.key(slot)));
}

void Puts::endTerm(const std::set<uint32_t>& exported) {
  reserve_.forget();
  for (auto it = puts_.begin(); it != puts_.end();) {
    const uint32_t slot = it->first;
    if (it->second.state == State::submitted) {
      FLUXON_MARK("owner: a term ends under a put that is being decided");
      if (!exported.count(slot)) directory_.release(slot);
      it = puts_.erase(it);
      continue;
    }
    FLUXON_MARK("owner: a term ends under a grant");
    it->second.state = State::orphan;
    controls_.open(std::string(directory_.key(slot)));
    ++it;
  }
}

Time Puts::oldest(Time now) const {
  Time since = now;
  for (const auto& [slot, put] : puts_) since = std::min(since, put.since);
  return since;
}

Time Puts::oldestGrant(Time now) const {
  Time since = now;
  for (const auto& [slot, put] : puts_) {
    if (put.state != State::submitted) since = std::min(since, put.since);
  }
  return since;
}

}  // namespace fluxon::owner
