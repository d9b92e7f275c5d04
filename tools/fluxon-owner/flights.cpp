#include "flights.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr unsigned kMostSsdFailures = 3;
constexpr uint64_t kMostPatienceMs = 86'400'000;

}  // namespace

// --- its beginning

std::optional<uint64_t> Flights::begin(ForGet purpose, Fetch fetch, std::string node, shm::AnswerSource source, Time now) {
  Flight flight{.purpose = purpose, .putId = fetch.putId, .node = std::move(node), .source = source};
  return start(std::move(flight), std::move(fetch), now);
}

void Flights::decline(ForGet purpose, uint64_t offset) {
  FLUXON_MARK("owner: nobody wants a flight any more");
  report(purpose, Code::unavailable);
  retirement_.freeExtent(offset);
}

void Flights::begin(const rpc::Replicate& order, Time now) {
  ++counters_.copiesOrdered;
  controls_.open(order.key);
  Fetch fetch{.peer = order.source,
              .key = order.key,
              .putId = order.putId,
              .offset = order.offset,
              .bytes = order.bytes,
              .deadline = now + milliseconds(static_cast<int64_t>(std::min(order.timeLeftMs, kMostPatienceMs)))};
  Flight flight{.purpose = Copy{order.order}, .putId = order.putId, .node = order.source.node};
  if (order.exported) {
    flight.purpose = Homecoming{order.order};
    fetch.exportId = order.exported->id;
    fetch.sourceOffset = order.exported->offset;
  }
  if (!start(std::move(flight), std::move(fetch), now)) controls_.close(order.key, now);
}

std::optional<uint64_t> Flights::start(Flight flight, Fetch fetch, Time now) {
  const uint64_t size = extentBytes(fetch.bytes);
  if (fetch.key.empty() || fetch.key.size() > kMaxKeyBytes || size > segmentBytes_ || fetch.offset > segmentBytes_ - size) {
    report(flight.purpose, Code::protocol);  // the extent is none of ours
    return std::nullopt;
  }
  const auto* get = std::get_if<ForGet>(&flight.purpose);
  const auto* copy = std::get_if<Copy>(&flight.purpose);
  const OperationId operation = get ? get->get : OperationId(copy ? copy->order.value : std::get<Homecoming>(flight.purpose).order.value);
  const std::optional<uint32_t> slot =
      directory_.grant(fetch.key, keyHash(fetch.key), fetch.offset, fetch.bytes, fetch.ssd ? kSsdWriter.value : 0, operation);
  if (!slot) {
    ++counters_.flightsWithoutSlot;
    report(flight.purpose, Code::noSpace);
    retirement_.freeExtent(fetch.offset);
    return std::nullopt;
  }
  if (fetch.ssd)
    ssd_.countLoad();
  else
    ++counters_.fetches;
  flight.slot = *slot;
  flight.since = now;
  if (fetch.ssd) flight.load = ssd_.loadBegins(now);
  const uint64_t id = fetch.id = ssd_.newTask();
  flights_.emplace(id, std::move(flight));
  host_.fetch(std::move(fetch));
  return id;
}

void Flights::report(const Purpose& purpose, Code code, Call::About about) {
  if (const auto* get = std::get_if<ForGet>(&purpose)) {
    calls_.send(rpc::GetDone{.get = get->get, .code = code}, {}, std::move(about));
  } else if (const auto* copy = std::get_if<Copy>(&purpose)) {
    calls_.send(rpc::ReplicateDone{.order = copy->order, .code = code}, {}, std::move(about));
  } else if (const auto* home = std::get_if<Homecoming>(&purpose)) {
    calls_.send(rpc::ReplicateDone{.order = home->order, .code = code}, {}, std::move(about));
  }
}

// --- its bytes

void Flights::fetched(uint64_t id, const Error& error, Time now) {
  const auto found = flights_.find(id);
  FLUXON_CHECK(found != flights_.end(), "a fetch that is not under way has ended");
  const Flight flight = std::move(found->second);
  flights_.erase(found);
  if (flight.load) ssd_.loadEnds(*flight.load, now);
  if (std::holds_alternative<Nobody>(flight.purpose)) {
    FLUXON_MARK("owner: a flight ends after its term");
    return retirement_.free(flight.slot);
  }
  const std::string key(directory_.key(flight.slot));
  Interests waited = controls_.endFlight(key, id);
  if (flight.load) ssd_.dropUnreadable(key, flight.putId, error.code);
  if (error.ok()) return arrived(flight, waited);
  failed(flight, key, error, std::move(waited), now);
}

void Flights::arrived(const Flight& flight, const Interests& waited) {
  const uint64_t bytes = directory_.payloadBytes(flight.slot);
  if (flight.load)
    ssd_.countLoaded(bytes);
  else
    counters_.fetchedBytes += bytes;
  directory_.submit(flight.slot);
  if (std::holds_alternative<Homecoming>(flight.purpose))
    publications_.submitted(flight.slot, retirement_.retireOlder(flight.slot, flight.putId));
  report(flight.purpose, Code::ok, Call::Slot{flight.slot});
  // The gets that waited had asked before the master named this version, or joined while no invalidation had closed the flight, so the
  // master's decision about the copy does not matter to them. Each holds the slot by a held word: until that decision nobody finds it.
  for (const Interest& each : waited) {
    Answer answer;
    answer.slotRef = directory_.ref(flight.slot);
    answer.putId = flight.putId;
    answer.offset = directory_.offset(flight.slot);
    answer.valueBytes = bytes;
    answer.hold = true;
    answer.source = flight.source;
    host_.answer(each.caller, std::move(answer));
  }
}

void Flights::failed(const Flight& flight, const std::string& key, const Error& error, Interests waited, Time now) {
  report(flight.purpose, error.code);
  if (flight.load)
    ssd_.countFailedLoad();
  else
    ++counters_.fetchesFailed;
  retirement_.free(flight.slot);
  const std::string why = "node " + flight.node + ": " + error.message();
  const bool fromSsd = flight.source == shm::AnswerSource::ssd || flight.source == shm::AnswerSource::peerSsd;
  for (Interest& each : waited) {
    // The master has heard that this SSD does not have the value, and few others could have it.
    if (fromSsd && ++each.command.ssdFailures > kMostSsdFailures) {
      FLUXON_MARK("owner: a get is given up after several SSDs");
      host_.answerCode(each.caller, Code::unavailable, why);
      continue;
    }
    each.command.avoid = flight.node;
    each.command.alone = true;
    FLUXON_MARK("owner: a get whose fetch failed asks again");
    retries_.putOff(each.caller, std::move(each.command), why, now);
  }
  controls_.close(key, now);
}

// --- what becomes of it

void Flights::landed(uint32_t slot, const rpc::Reply& reply, Time now) {
  const std::string key(directory_.key(slot));
  const auto* ended = reply.as<rpc::CopyEnded>();
  const rpc::CopyEnded decided = ended ? *ended : rpc::CopyEnded();
  const bool published = decided.published;
  const auto origin = publications_.isSubmitted(slot) ? Publications::Origin::homecoming : Publications::Origin::copy;
  if (origin == Publications::Origin::homecoming && !published) FLUXON_MARK("owner: the copy of a put is not wanted any more");
  publications_.decided(slot, published ? Publications::Outcome::published : Publications::Outcome::other);
  const std::optional<uint32_t> present = directory_.committed(key, directory_.hash(slot));
  const bool newer = present && directory_.putId(*present) >= decided.putId;
  const bool current = controls_.bound(key) <= decided.putId;
  // Whether the copy becomes readable here or not, from here on nothing older does.
  if (published && current) controls_.raise(key, decided.putId);
  if (published && current && standing_.serving(now) && !newer) {
    if (publications_.publish(slot, decided.putId, decided.lease, origin, now) == Publications::Becomes::waits)
      FLUXON_MARK("owner: a copy waits for a put of its key");
  } else {
    if (published) FLUXON_MARK("owner: a copy that is a replica at the master is not readable here");
    if (published) retirement_.dropped({key, decided.putId, directory_.offset(slot)});
    ++counters_.temporary;
    retirement_.retire(slot);
  }
  publications_.publishWaiting(key, now);
  controls_.close(key, now);
}

// --- loads that do nothing

void Flights::stalled(uint64_t id, Time now) {
  const auto found = flights_.find(id);
  if (found == flights_.end() || !found->second.load || !ssd_.loadStalls(*found->second.load)) return;
  leaveLoad(id, found->second, "its SSD does not answer", now);
}

void Flights::leaveLoads(const char* why, Time now) {
  for (const auto& [id, flight] : flights_) leaveLoad(id, flight, why, now);
}

// The gets that wait for the load ask for another source. The extent stays as it is.
void Flights::leaveLoad(uint64_t id, const Flight& flight, const char* why, Time now) {
  if (!flight.load || std::holds_alternative<Nobody>(flight.purpose)) return;
  for (Interest& each : controls_.endFlight(std::string(directory_.key(flight.slot)), id)) {
    FLUXON_MARK("owner: a get does not wait for the end of an ssdd's load");
    each.command.avoid = flight.node;
    each.command.alone = true;
    retries_.putOff(each.caller, std::move(each.command), why, now);
  }
}

std::set<uint32_t> Flights::endTerm() {
  std::set<uint32_t> slots;
  for (auto& [id, flight] : flights_) {
    flight.purpose = Nobody();
    slots.insert(flight.slot);
  }
  return slots;
}

size_t Flights::fetches() const {
  return static_cast<size_t>(std::count_if(flights_.begin(), flights_.end(), [](const auto& each) { return !each.second.load; }));
}

Time Flights::oldest(Time now) const {
  Time since = now;
  for (const auto& [id, flight] : flights_) since = std::min(since, flight.since);
  return since;
}

}  // namespace fluxon::owner
