// OwnerCore: flights, the copies that this owner brings from others. Their life and who may join them: owner_core.h.
#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {
namespace {

constexpr unsigned kMostSsdFailures = 3;

}  // namespace

// The answer to a getStart.
void OwnerCore::gotRoute(Call& call, const rpc::Reply& reply, Time now) {
  const std::string key = call.request.as<rpc::GetStart>()->key;
  controls_.asked(key);
  if (reply.as<rpc::FetchFrom>() || reply.as<rpc::LoadHere>()) return fly(call, reply, now);
  const auto* there = reply.as<rpc::ReadAt>();
  Command& asked = std::get<Command>(call.about);
  if (!call.caller) {
  } else if (answerLocal(call.caller, asked)) {
  } else if (mustWait(asked)) {
    FLUXON_MARK("owner: a put or a reclaim begins while a get asks for its route");
    controls_.waitInstead(key, call.caller, std::move(asked));
    return;
  } else if (!there || there->owner.node == settings_.node) {
    // A route to ourselves that we cannot serve is one that we have given up; the master is about to hear of it.
    if (there) FLUXON_MARK("owner: a route to itself that it has given up");
    if (there || reply.code == Code::miss) counters_.ringMisses += !asked.get.sentHere();
    host_.answerCode(call.caller, there ? Code::miss : reply.code, reply.detail);
  } else if (!asked.far && !host_.neighbour(there->owner)) {
    FLUXON_MARK("owner: a neighbour of its route cannot be reached");
    asked.far = true;
    askRoute(call.caller, std::move(asked), now);
  } else {
    Answer answer;
    answer.node = there->owner.node;
    answer.putId = there->putId;
    answer.valueBytes = there->bytes;
    if (there->ssd) answer.source = shm::AnswerSource::ssd;
    host_.answer(call.caller, std::move(answer));
  }
  controls_.askAlone(key);
  controls_.close(key, now);
}

// The master has given a place for the value.
void OwnerCore::fly(Call& call, const rpc::Reply& reply, Time now) {
  const std::string key = call.request.as<rpc::GetStart>()->key;
  Command& asked = std::get<Command>(call.about);
  Fetch fetch{.key = key, .deadline = asked.deadline};
  Flight flown{.asked = call.request.id};
  if (const auto* load = reply.as<rpc::LoadHere>()) {
    fetch.putId = load->putId, fetch.bytes = load->bytes, fetch.offset = load->offset;
    fetch.ssd = true;
    flown.node = settings_.node;
    flown.source = shm::AnswerSource::ssd;
  } else {
    const rpc::FetchFrom& from = *reply.as<rpc::FetchFrom>();
    fetch.putId = from.putId, fetch.bytes = from.bytes, fetch.offset = from.offset;
    fetch.peer = from.source;
    if (from.exported) fetch.exportId = from.exported->id, fetch.sourceOffset = from.exported->offset;
    flown.node = from.source.node;
    if (from.exported) flown.source = shm::AnswerSource::peerSsd;
  }
  flown.putId = fetch.putId;
  if (!call.caller) {
    FLUXON_MARK("owner: nobody wants a flight any more");
    refuseFlight(flown, Code::unavailable, fetch.offset);
    return controls_.close(key, now);
  }
  const PutId putId = fetch.putId;
  const std::optional<uint64_t> flight = startFlight(std::move(flown), std::move(fetch), now);
  if (!flight) {
    host_.answerCode(call.caller, Code::noSpace, "the directory is full (max_keys)");
    return controls_.close(key, now);
  }
  for (Interest& other : controls_.beginFlight(key, *flight, putId, call.caller, std::move(asked)))
    get(other.caller, std::move(other.command), now);
}

// A copy that the master wants here.
void OwnerCore::carryOut(const rpc::Replicate& order, Time now) {
  if (!begins(order.order)) {
    FLUXON_MARK("owner: an order for a copy comes twice");
    return;
  }
  ++counters_.copiesOrdered;
  const Duration patience = milliseconds(static_cast<int64_t>(std::min<uint64_t>(order.timeLeftMs, 86'400'000)));
  controls_.open(order.key);
  Fetch fetch{.peer = order.source,
              .key = order.key,
              .putId = order.putId,
              .offset = order.offset,
              .bytes = order.bytes,
              .deadline = now + patience};
  if (order.exported) fetch.exportId = order.exported->id, fetch.sourceOffset = order.exported->offset;
  Flight flight{
      .putId = order.putId, .ordered = order.order, .node = order.source.node, .exported = order.exported.has_value()};
  if (!startFlight(std::move(flight), std::move(fetch), now)) controls_.close(order.key, now);
}

// Puts the extent into the directory before anything writes there. Nothing: refused, and the master told.
std::optional<uint64_t> OwnerCore::startFlight(Flight flight, Fetch fetch, Time now) {
  const uint64_t size = extentBytes(fetch.bytes);
  if (fetch.key.empty() || fetch.key.size() > kMaxKeyBytes || size > segmentBytes_ || fetch.offset > segmentBytes_ - size) {
    reportCopy(flight, Code::protocol);  // the extent is none of ours
    return std::nullopt;
  }
  const OperationId operation = flight.asked ? flight.asked : OperationId(flight.ordered.value);
  const std::optional<uint32_t> slot =
      directory_.grant(fetch.key, keyHash(fetch.key), fetch.offset, fetch.bytes, fetch.ssd ? kSsdWriter.value : 0, operation);
  if (!slot) {
    ++counters_.directoryFull;
    refuseFlight(flight, Code::noSpace, fetch.offset);
    return std::nullopt;
  }
  ++(fetch.ssd ? counters_.ssdLoads : counters_.fetches);
  flight.slot = *slot;
  flight.since = now;
  if (fetch.ssd) loadBegins(flight, now);
  const uint64_t id = fetch.id = nextTask_++;
  flights_.emplace(id, std::move(flight));
  host_.fetch(std::move(fetch));
  return id;
}

// Tells the master how a copy ended.
void OwnerCore::reportCopy(const Flight& flight, Code code, Call::About about) {
  rpc::Request::Body done = rpc::GetDone{.get = flight.asked, .code = code};
  if (flight.ordered) done = rpc::ReplicateDone{.order = flight.ordered, .code = code};
  calls_.send(std::move(done), {}, std::move(about));
}

// Nothing is brought to the extent; it goes back.
void OwnerCore::refuseFlight(const Flight& flight, Code code, uint64_t offset) {
  reportCopy(flight, code);
  retirement_.freeExtent(offset);
}

// The bytes are there and checked, or nothing writes into the extent any more.
void OwnerCore::fetched(uint64_t id, const Error& error, Time now) {
  const auto found = flights_.find(id);
  FLUXON_CHECK(found != flights_.end(), "a fetch that is not under way has ended");
  const Flight flight = std::move(found->second);
  flights_.erase(found);
  loadEnds(flight, now);
  if (flight.staged) return stageLoaded(flight, error.code, now);
  if (flight.orphan) {
    FLUXON_MARK("owner: a flight ends after its term");
    retirement_.free(flight.slot);
    return flush(now);
  }
  const std::string key(directory_.key(flight.slot));
  Interests waited = controls_.endFlight(key, id);
  if (error.ok()) {
    const bool own = flight.source == shm::AnswerSource::ssd;
    (own ? counters_.ssdLoadedBytes : counters_.fetchedBytes) += directory_.payloadBytes(flight.slot);
    directory_.submit(flight.slot);
    if (flight.exported) incoming_.emplace(flight.slot, retirement_.retireOlder(flight.slot, flight.putId));
  }
  if (flight.source == shm::AnswerSource::ssd) dropUnreadable(flight.slot, flight.putId, error.code);
  reportCopy(flight, error.code, error.ok() ? Call::About(Call::Slot{flight.slot}) : Call::About());
  if (error.ok()) {
    // Those who waited had asked before the master named this version, or joined while no invalidation had closed the flight: what
    // becomes of the copy does not concern them.
    answerHeld(flight.slot, flight.putId, flight.source, waited);
    return flush(now);
  }
  ++(flight.source == shm::AnswerSource::ssd ? counters_.ssdLoadsFailed : counters_.fetchesFailed);
  retirement_.free(flight.slot);
  const bool fromSsd = flight.source == shm::AnswerSource::ssd || flight.source == shm::AnswerSource::peerSsd;
  for (Interest& waiting : waited) {
    // The master has heard that this SSD does not have the value; there are not many more that could have it.
    if (fromSsd && ++waiting.command.ssdFailures > kMostSsdFailures) {
      FLUXON_MARK("owner: a get is given up after several SSDs");
      host_.answerCode(waiting.caller, Code::unavailable, "node " + flight.node + ": " + error.message());
      continue;
    }
    waiting.command.avoid = flight.node;
    waiting.command.alone = true;
    FLUXON_MARK("owner: a get whose fetch failed asks again");
    retries_.putOff(waiting.caller, std::move(waiting.command), "node " + flight.node + ": " + error.message(), now);
  }
  controls_.close(key, now);
  flush(now);
}

// The master has decided about the copy.
void OwnerCore::landed(Call& call, const rpc::Reply& reply, Time now) {
  const auto* copy = std::get_if<Call::Slot>(&call.about);
  if (!copy) return noteRefusal(reply.code);
  const uint32_t slot = copy->slot;
  const std::string key(directory_.key(slot));
  const auto* ended = reply.as<rpc::CopyEnded>();
  const rpc::CopyEnded decided = ended ? *ended : rpc::CopyEnded();
  const bool published = decided.published;
  const bool put = incoming_.count(slot) != 0;
  if (const auto incoming = incoming_.find(slot); incoming != incoming_.end()) {
    if (!published) {
      FLUXON_MARK("owner: the copy of a put is not wanted any more");
      retirement_.dropped(incoming->second);
    }
    retirement_.add(incoming->second);
    incoming_.erase(incoming);
  }
  const std::optional<uint32_t> present = directory_.committed(key, directory_.hash(slot));
  const bool newer = present && directory_.putId(*present) >= decided.putId;
  const bool current = controls_.bound(key) <= decided.putId;
  // Whether it becomes readable here or not: nothing older does any more.
  if (published && current) controls_.raise(key, decided.putId);
  if (published && current && serving(now) && !newer) {
    if (undecided(slot)) {
      FLUXON_MARK("owner: a copy waits for a put of its key");
      published_.emplace(slot, Published{decided.putId, decided.lease, put});
      controls_.open(key);
    } else {
      retirement_.add(retirement_.retireOlder(slot, decided.putId));
      directory_.commit(slot, decided.putId, decided.lease);
      if (put) persist(slot, now);
    }
  } else {
    if (published) FLUXON_MARK("owner: a copy that is a replica at the master is not readable here");
    if (published) retirement_.dropped({key, decided.putId, directory_.offset(slot)});
    ++counters_.temporary;
    retirement_.retire(slot);
  }
  settlePublished(key, now);
  controls_.close(key, now);
}

// Each of those who waited holds the value by a held word: the master has not decided about it yet, and nobody else finds it.
void OwnerCore::answerHeld(uint32_t slot, PutId putId, shm::AnswerSource source, const Interests& waiting) {
  for (const Interest& each : waiting) {
    Answer answer;
    answer.slotRef = directory_.ref(slot);
    answer.putId = putId;
    answer.offset = directory_.offset(slot);
    answer.valueBytes = directory_.payloadBytes(slot);
    answer.hold = true;
    answer.source = source;
    host_.answer(each.caller, std::move(answer));
  }
}

void OwnerCore::unexported(ExportId id, Time now) {
  const auto found = exports_.find(id);
  FLUXON_CHECK(found != exports_.end(), "an export that is none has ended");
  if (found->second.staged) {
    found->second.readable = false;
    settleStage(id, now);
    return flush(now);
  }
  const uint32_t slot = found->second.slot;
  const std::string key(directory_.key(slot));
  exports_.erase(found);
  if (standing_.joined()) {
    retirement_.free(slot);
  } else {
    FLUXON_MARK("owner: an export ends between terms");
    directory_.release(slot);
  }
  controls_.wake(key, now);
  flush(now);
}

void OwnerCore::endExport(ExportId id) {
  const auto found = exports_.find(id);
  if (found == exports_.end() || std::exchange(found->second.ending, true)) return;
  host_.unexport(id);
}

}  // namespace fluxon::owner
