#include "owner_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::owner {

OwnerCore::OwnerCore(Settings settings, shm::DirectoryWriter& directory, char* segment, uint64_t segmentBytes, Host& host)
    : directory_(directory),
      host_(host),
      calls_({settings.straggles, settings.stragglers, settings.ahead}, host),
      standing_(directory, calls_),
      controls_([this](Caller caller, Command command, Time now) { gets_.get(caller, std::move(command), now); }),
      retirement_(directory, host, calls_, standing_, controls_,
                  {[this](uint32_t slot, Time now) { return ssd_.yields(slot, now); }, [this](uint32_t slot) { return ssd_.reads(slot); }}),
      ssd_({{settings.persistsAtOnce, segmentBytes}, settings.awaitsSsd}, directory, host, calls_, standing_, retirement_,
           {[this](const char* why, Time now) {
              flights_.leaveLoads(why, now);
              stages_.leaveLoads();
            },
            [this](uint64_t task, Time now) {
              if (!stages_.stalled(task)) flights_.stalled(task, now);
            }}),
      publications_(directory, standing_, retirement_, controls_, ssd_),
      exports_(directory, host, standing_, retirement_, controls_),
      stages_(directory, segmentBytes, host, calls_, retirement_, ssd_),
      flights_(directory, segmentBytes, host, calls_, standing_, retries_, controls_, retirement_, ssd_, publications_),
      gets_(settings.node, directory, host, calls_, standing_, controls_, flights_),
      puts_(directory, {segment, segmentBytes}, host, calls_, standing_, retries_, controls_, retirement_, publications_, exports_),
      questions_(host, calls_, standing_),
      inventory_({settings.inventoryPage, settings.inventoryPageKeys, settings.pagesAtOnce}, directory, calls_, standing_, retirement_,
                 ssd_),
      orders_(host, controls_, retirement_, ssd_, flights_, stages_, puts_),
      replies_({calls_, standing_, ssd_, flights_, gets_, puts_, questions_, inventory_}) {}

// --- clients

void OwnerCore::command(Caller caller, Command command, Time now) {
  using Kind = shm::CommandKind;
  switch (command.kind) {
    case Kind::get: gets_.get(caller, std::move(command), now); break;
    case Kind::putStart:
    case Kind::putInline: puts_.start(caller, std::move(command), now); break;
    case Kind::commit: puts_.commit(caller, command, now); break;
    case Kind::abort: puts_.abort(caller, command, now); break;
    case Kind::scrub: ssd_.scrub(caller); break;
    case Kind::exists:
      if (serving(now) && gets_.answerLocal(caller, command)) break;
      [[fallthrough]];
    default:
      if (!questions_.ask(caller, command, now)) host_.answerCode(caller, Code::protocol, "unknown command");
      break;
  }
  flush(now);
}

void OwnerCore::clientGone(ClientId client, Time now) {
  puts_.clientGone(client, now);
  controls_.clientGone(client);
  retries_.clientGone(client);
  retirement_.lookAgain(now);  // its hazards are gone
  flush(now);
}

// The serving lease has run out, or the term is over. Callers get an answer, or their commands are put off; when the replies come the
// parts undo the effects.
void OwnerCore::lapse(Time now) {
  calls_.lapse(retries_, now);
  for (const Interest& interest : controls_.lapse()) host_.answerCode(interest.caller, Code::unavailable, "the master does not answer");
}

// --- the master

void OwnerCore::message(const rpc::MasterMessage& message, Time now) {
  if (const auto* reply = std::get_if<rpc::Reply>(&message))
    replies_.heard(*reply, now);
  else
    orders_.carryOut(message, now);
  flush(now);
}

void OwnerCore::scanned(uint64_t scan, const std::vector<bool>& held, Time now) {
  retirement_.scanned(scan, held, now);
  flush(now);
}

void OwnerCore::fetched(uint64_t flight, const Error& error, Time now) {
  if (!stages_.loaded(flight, error.code, now)) flights_.fetched(flight, error, now);
  flush(now);
}

void OwnerCore::unexported(ExportId id, Time now) {
  if (rpc::isStaged(id))
    stages_.unexported(id);
  else
    exports_.unexported(id, now);
  flush(now);
}

void OwnerCore::loading(uint64_t flight, uint64_t bytes, Time now) {
  if (!stages_.loading(flight, bytes, now) && flights_.has(flight)) ssd_.loadSays(now);
  flush(now);
}

void OwnerCore::ssdAttached(Incarnation life, Time now) {
  ssd_.attached(life);
  flush(now);
}

void OwnerCore::ssdGone(Time now) {
  ssd_.gone(now);
  flush(now);
}

void OwnerCore::ssd(const ssd::Message& message, Time now) {
  ssd_.heard(message, now);
  flush(now);
}

void OwnerCore::heartbeat(const std::vector<uint32_t>& touched, Time now) {
  constexpr Duration kReserveIdle = seconds(10);
  if (!standing_.heartbeat(touched, now)) return;
  puts_.shrinkReserve(Time{now.ns - kReserveIdle.ns});
  flush(now);
}

void OwnerCore::tick(Time now) {
  if (standing_.lapses(now)) lapse(now);
  while (std::optional<Retries::Entry> due = retries_.takeDue(now)) {
    if (now < due->command.deadline) {
      command(due->caller, std::move(due->command), now);
    } else {
      FLUXON_MARK("owner: a command was put off until its deadline");
      host_.answerCode(due->caller, Code::unavailable, std::move(due->why));
    }
  }
  retirement_.tick(now);
  ssd_.tick(now);
  flush(now);
}

Time OwnerCore::nextWake() const { return std::min({retirement_.nextWake(), standing_.nextWake(), retries_.nextWake(), ssd_.nextWake()}); }

// Sends the master together what has piled up during one call.
void OwnerCore::flush(Time now) {
  if (standing_.reporting()) {
    inventory_.send();
    if (!inventory_.complete()) return;
    inventory_.endTerm();
    retirement_.lookAgain(now);
    standing_.serve(now);
    standing_.heartbeat({}, now);  // tells the master that the values it refused are gone
  }
  if (!standing_.joined()) return;
  // While calls_ holds requests back, reports go on piling up in their parts.
  if (!calls_.holdsBack()) {
    retirement_.tell();
    ssd_.tellNews(now);
    puts_.refill();
  }
  retirement_.flush(now);
}

// --- from one life or term to the next

void OwnerCore::adopt(const std::set<uint64_t>& living, Time now) {
  const bool worthless = !directory_.content();  // the last life ended while it dropped its values
  for (const uint32_t slot : retirement_.adopt(worthless, living)) puts_.adopt(slot, now);
}

// The term is over for this owner. It answers commands under way; grants stay with their writers, as orphans; flights and exports end when
// the host says so; committed values stay committed, or are retired.
void OwnerCore::endTerm(Retirement::Values values, Time now) {
  rejoins_ += standing_.endTerm();
  if (values == Retirement::Values::dropped) {
    inventory_.contentDropped();
    directory_.setLease(0);
    directory_.setServing(Incarnation());
    // The SSD first: an ssdd that is not attached now must not bring its contents later, nor in the next life if this one ends here.
    directory_.setSsd(Incarnation());
    directory_.setContent(Incarnation());
  }
  ssd_.endTerm(values, now);
  lapse(now);
  calls_.endTerm();
  orders_.endTerm();
  inventory_.endTerm();
  publications_.endTerm();
  controls_.endTerm();
  std::set<uint32_t> busy = exports_.slots();
  puts_.endTerm(busy);
  busy.merge(flights_.endTerm());
  busy.merge(stages_.slots());
  if (flights() > 0) FLUXON_MARK("owner: a term ends under a flight");
  if (exports() > 0) FLUXON_MARK("owner: a term ends under an export");
  retirement_.endTerm(values, busy);
  if (flights() > 0) host_.cancelFetches();
  exports_.endTerm();
  stages_.endTerm();
  retirement_.lookAgain(now);
  retirement_.tick(now);
}

bool OwnerCore::stop(Time now) {
  keep(now);
  for (const auto& [when, next] : retries_.takeAll()) host_.answerCode(next.caller, Code::unavailable, "the owner stops");
  directory_.setLease(0);
  directory_.setServing(Incarnation());
  return values() > 0 || ssd_.life();
}

Incarnation OwnerCore::content() const { return values() > 0 || ssd_.life() ? directory_.content() : Incarnation(); }

std::vector<Extent> OwnerCore::occupied() {
  FLUXON_CHECK(flights_.fetches() == 0 && exports() == 0, "occupied extents while bytes are under way");
  return retirement_.occupied();
}

void OwnerCore::registered(Incarnation incarnation, Duration lease, Time sent, Inventory inventory, Time now) {
  standing_.registered(incarnation, lease, sent);
  ssd_.tellLife();
  if (inventory == Inventory::none) {
    FLUXON_CHECK(values() == 0, "joined without an inventory, but with values");
    standing_.serve(now);
  } else {
    inventory_.begin(now);
  }
  flush(now);
}

OwnerCounters OwnerCore::counters() const {
  OwnerCounters all{{puts_.counters(), gets_.counters(), flights_.counters(), stages_.counters(), ssd_.counters(), retirement_.counters(),
                     inventory_.counters(), CoreCounters()}};
  all.removes = questions_.removes(), all.refused = replies_.refused(), all.rejoins = rejoins_;
  all.directoryFull = all.putsWithoutSlot + all.flightsWithoutSlot + all.stagesWithoutSlot;
  all.joinedFlights = controls_.joinedFlights(), all.exports = exports_.begun();
  return all;
}

OwnerCore::Ages OwnerCore::oldest(Time now) const {
  return {.put = now - puts_.oldest(now),
          .grant = now - puts_.oldestGrant(now),
          .flight = now - std::min(flights_.oldest(now), stages_.oldestLoad(now)),
          .exported = now - std::min(exports_.oldest(now), stages_.oldest(now))};
}

}  // namespace fluxon::owner
