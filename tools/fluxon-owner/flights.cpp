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
void OwnerCore::gotRoute(Pending& pending, const rpc::Reply& reply, Time now) {
  const std::string key = pending.request.key;
  controls_.at(key).asking = false;
  if (reply.code == Code::ok && reply.fetch) return fly(pending, reply, now);
  Command& asked = pending.asked;
  if (pending.given) {
  } else if (answerLocal(pending.caller, asked)) {
  } else if (mustWait(asked)) {
    FLUXON_MARK("owner: a put or a reclaim begins while a get asks for its route");
    controls_[key].waiting.push_back({pending.caller, std::move(asked)});
    --controls_.at(key).open;
    return;
  } else if (reply.code != Code::ok || reply.peer.node == settings_.node) {
    // A route to ourselves that we cannot serve is one that we have given up; the master is about to hear of it.
    if (reply.code == Code::ok) FLUXON_MARK("owner: a route to itself that it has given up");
    if (reply.code == Code::ok || reply.code == Code::miss) counters_.ringMisses += !asked.sentHere();
    answerCode(pending.caller, reply.code == Code::ok ? Code::miss : reply.code, reply.detail);
  } else if (!asked.far && !host_.neighbour(reply.peer)) {
    FLUXON_MARK("owner: a neighbour of its route cannot be reached");
    asked.far = true;
    askRoute(pending.caller, std::move(asked), now);
  } else {
    Answer answer;
    answer.node = reply.peer.node;
    answer.putId = reply.putId;
    answer.valueBytes = reply.bytes;
    if (reply.ssd) answer.source = shm::AnswerSource::ssd;
    host_.answer(pending.caller, std::move(answer));
  }
  // Those who waited for this answer ask by themselves: there is no flight to share.
  for (Waiting& waiting : controls_.at(key).waiting) waiting.command.alone = true;
  close(key, now);
}

// The master has given a place for the value.
void OwnerCore::fly(Pending& pending, const rpc::Reply& reply, Time now) {
  const std::string key = pending.request.key;
  Fetch fetch{0, reply.peer, key, reply.putId, reply.exportId, reply.sourceOffset, reply.offset, reply.bytes, pending.asked.deadline,
              reply.ssd};
  Flight flown{0, reply.putId, pending.request.id, {}, reply.peer.node};
  if (reply.ssd) flown.source = shm::AnswerSource::ssd;
  if (reply.exportId) flown.source = shm::AnswerSource::peerSsd;
  const std::optional<uint32_t> slot = pending.given ? std::nullopt : startFlight(std::move(flown), std::move(fetch), now);
  if (!slot) {
    if (pending.given) FLUXON_MARK("owner: nobody wants a flight any more");
    if (pending.given) refuseFlight(pending.request.id, {}, Code::unavailable, reply.offset, true);
    if (!pending.given) answerCode(pending.caller, Code::noSpace, "the directory is full (max_keys)");
    return close(key, now);
  }
  const uint64_t flight = nextTask_ - 1;
  std::deque<Waiting> others = takeWaiting(key, 0);
  Control& control = controls_.at(key);
  control.flight = flight;
  control.waiting.push_back({pending.caller, std::move(pending.asked), flight});
  // Those who waited for this answer join, unless an invalidation was faster than it.
  for (Waiting& waiting : others) get(waiting.caller, std::move(waiting.command), now);
}

// A copy that the master wants here.
void OwnerCore::replicate(const rpc::MasterMessage& message, Time now) {
  if (message.items.size() != 1) return;
  if (!begins(message.command)) {
    FLUXON_MARK("owner: an order for a copy comes twice");
    return;
  }
  const rpc::Version& item = message.items.front();
  ++counters_.copiesOrdered;
  const Duration patience = milliseconds(static_cast<int64_t>(std::min<uint64_t>(message.timeLeftMs, 86'400'000)));
  open(item.key);
  Fetch fetch{0,           message.peer, item.key, item.putId, message.exportId, message.sourceOffset, item.offset,
              item.bytes,  now + patience};
  Flight flight{0, item.putId, {}, message.command, message.peer.node, bool(message.exportId)};
  if (!startFlight(std::move(flight), std::move(fetch), now)) close(item.key, now);
}

// Puts the extent into the directory before anything writes there. Nothing: refused, and the master told.
std::optional<uint32_t> OwnerCore::startFlight(Flight flight, Fetch fetch, Time now) {
  const uint64_t size = extentBytes(fetch.bytes);
  if (fetch.key.empty() || fetch.key.size() > kMaxKeyBytes || size > segmentBytes_ || fetch.offset > segmentBytes_ - size) {
    refuseFlight(flight.asked, flight.ordered, Code::protocol, fetch.offset, false);
    return std::nullopt;
  }
  const OperationId operation = flight.asked ? flight.asked : flight.ordered;
  const std::optional<uint32_t> slot =
      directory_.grant(fetch.key, keyHash(fetch.key), fetch.offset, fetch.bytes, fetch.ssd ? kSsdWriter.value : 0, operation);
  if (!slot) {
    ++counters_.directoryFull;
    refuseFlight(flight.asked, flight.ordered, Code::noSpace, fetch.offset, true);
    return std::nullopt;
  }
  ++(fetch.ssd ? counters_.ssdLoads : counters_.fetches);
  flight.slot = *slot;
  flight.since = now;
  if (fetch.ssd) loadBegins(flight, now);
  fetch.id = nextTask_++;
  flights_.emplace(fetch.id, std::move(flight));
  host_.fetch(std::move(fetch));
  return slot;
}

void OwnerCore::refuseFlight(OperationId asked, OperationId ordered, Code code, uint64_t offset, bool release) {
  rpc::Request done;
  done.kind = rpc::RequestKind::getDone;
  done.put = asked;
  done.command = ordered;
  done.code = code;
  request(std::move(done), {}, shm::CommandKind{});
  if (release) releases_.push_back(offset);
}

std::deque<OwnerCore::Waiting> OwnerCore::takeWaiting(const std::string& key, uint64_t flight) {
  std::deque<Waiting> taken, left;
  std::deque<Waiting>& all = controls_.at(key).waiting;
  for (Waiting& waiting : all) (waiting.flight == flight ? taken : left).push_back(std::move(waiting));
  all = std::move(left);
  return taken;
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
    freeSlot(flight.slot);
    return flush(now);
  }
  const std::string key(directory_.key(flight.slot));
  Control& control = controls_.at(key);
  if (control.flight == id) control.flight = 0;
  if (error.ok()) {
    const bool own = flight.source == shm::AnswerSource::ssd;
    (own ? counters_.ssdLoadedBytes : counters_.fetchedBytes) += directory_.payloadBytes(flight.slot);
    directory_.submit(flight.slot);
    if (flight.exported) incoming_.emplace(flight.slot, retireOlder(flight.slot, flight.putId));
  }
  if (flight.source == shm::AnswerSource::ssd) dropUnreadable(flight.slot, flight.putId, error.code);
  rpc::Request done;
  done.kind = rpc::RequestKind::getDone;
  done.put = flight.asked;
  done.command = flight.ordered;
  done.code = error.code;
  Pending& pending = request(std::move(done), {}, shm::CommandKind{});
  if (error.ok()) {
    pending.slot = flight.slot;
    // Those who waited had asked before the master named this version, or joined while no invalidation had closed the flight: what
    // becomes of the copy does not concern them.
    answerHeld(flight.slot, flight.putId, flight.source, takeWaiting(key, id));
    return flush(now);
  }
  ++(flight.source == shm::AnswerSource::ssd ? counters_.ssdLoadsFailed : counters_.fetchesFailed);
  freeSlot(flight.slot);
  const bool fromSsd = flight.source == shm::AnswerSource::ssd || flight.source == shm::AnswerSource::peerSsd;
  for (Waiting& waiting : takeWaiting(key, id)) {
    // The master has heard that this SSD does not have the value; there are not many more that could have it.
    if (fromSsd && ++waiting.command.ssdFailures > kMostSsdFailures) {
      FLUXON_MARK("owner: a get is given up after several SSDs");
      answerCode(waiting.caller, Code::unavailable, "node " + flight.node + ": " + error.message());
      continue;
    }
    waiting.command.avoid = flight.node;
    waiting.command.alone = true;
    FLUXON_MARK("owner: a get whose fetch failed asks again");
    putOff(waiting.caller, std::move(waiting.command), "node " + flight.node + ": " + error.message(), now);
  }
  close(key, now);
  flush(now);
}

// The master has decided about the copy.
void OwnerCore::landed(Pending& pending, const rpc::Reply& reply, Time now) {
  if (pending.slot == UINT32_MAX) {
    if (reply.code != Code::ok && reply.code != Code::fenced) ++counters_.refused;
    return;
  }
  const uint32_t slot = pending.slot;
  const std::string key(directory_.key(slot));
  const bool published = reply.code == Code::ok && reply.published;
  const bool put = incoming_.count(slot) != 0;
  if (const auto incoming = incoming_.find(slot); incoming != incoming_.end()) {
    if (!published) {
      FLUXON_MARK("owner: the copy of a put is not wanted any more");
      for (const uint32_t old : incoming->second) dropped_.push_back({key, directory_.putId(old), directory_.offset(old)});
    }
    awaitReaders(incoming->second);
    incoming_.erase(incoming);
  }
  PutId& bound = controls_.at(key).bound;
  const std::optional<uint32_t> present = directory_.committed(key, directory_.hash(slot));
  const bool newer = present && directory_.putId(*present) >= reply.putId;
  const bool current = bound <= reply.putId;
  // Whether it becomes readable here or not: nothing older does any more.
  if (published && current) bound = reply.putId;
  if (published && current && serving(now) && !newer) {
    if (undecided(slot)) {
      FLUXON_MARK("owner: a copy waits for a put of its key");
      published_.emplace(slot, Published{reply.putId, reply.lease, put});
      open(key);
    } else {
      awaitReaders(retireOlder(slot, reply.putId));
      directory_.commit(slot, reply.putId, reply.lease);
      if (put) persist(slot, now);
    }
  } else {
    if (published) FLUXON_MARK("owner: a copy that is a replica at the master is not readable here");
    if (published) dropped_.push_back({key, reply.putId, directory_.offset(slot)});
    ++counters_.temporary;
    directory_.retire(slot);
    awaitReaders({slot});
  }
  settlePublished(key, now);
  close(key, now);
}

// Each of those who waited holds the value by a held word: the master has not decided about it yet, and nobody else finds it.
void OwnerCore::answerHeld(uint32_t slot, PutId putId, shm::AnswerSource source, const std::deque<Waiting>& waiting) {
  for (const Waiting& each : waiting) {
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
  if (listening_ && !reporting_) {
    freeSlot(slot);
  } else {
    FLUXON_MARK("owner: an export ends between terms");
    directory_.release(slot);
  }
  wake(key, now);
  flush(now);
}

void OwnerCore::endExport(ExportId id) {
  const auto found = exports_.find(id);
  if (found == exports_.end() || std::exchange(found->second.ending, true)) return;
  host_.unexport(id);
}

}  // namespace fluxon::owner
