#include "world.h"

#include <set>

#include "message_log.h"

namespace fluxon::sim {
namespace {

constexpr uint64_t kSegment = 512 * 1024;
constexpr Duration kMinute = seconds(60);

}  // namespace

void Tally::add(const Tally& other) {
#define FLUXON_ADD(name) name += other.name;
  FLUXON_TALLY(FLUXON_ADD)
#undef FLUXON_ADD
  masters.add(other.masters);
  owners.add(other.owners);
  ssdds.add(other.ssdds);
}

World::World(Options options)
    : options_(options),
      scheduler_(options.seed, options.log),
      began_(scheduler_.now()),
      master_((draw(), *this), scheduler_, settings_, "master", "00000000000000c1"),
      other_(*this, scheduler_, settings_, "other master", "00000000000000c2") {
  for (int i = 0; i < 3; ++i) {
    SimOwner::Place place{"n" + std::to_string(i), i == 1 ? "h1" : "h0", "", kSegment, true};
    owners_.push_back(std::make_unique<SimOwner>(*this, scheduler_, place));
  }
  // All have an SSD, or none, or some.
  const uint64_t which = scheduler_.pick(4);
  for (const auto& owner : owners_) {
    if (which == 0 || (which == 1 && scheduler_.oneIn(2))) continue;
    owner->giveSsd();
    owner->ssdd()->failOneIn(faults_.ssdFails);
  }
}

// What this seed is like. Faults of each kind are absent in half of the seeds: their absence hides nothing, and lets others go deep.
void World::draw() {
  static constexpr int64_t kLeases[] = {400, 1000, 3000};
  settings_.lease = milliseconds(kLeases[scheduler_.pick(3)]);
  settings_.putWait = milliseconds(300 + static_cast<int64_t>(scheduler_.pick(700)));
  settings_.minimumKeyLease = milliseconds(50);
  settings_.mostKeyLeases = 2;
  settings_.stopped = milliseconds(100);
  persistsAtOnce_ = scheduler_.oneIn(2) ? 2 : 16;
  if (options_.faultless || options_.loseMessage != 0) return;
  const auto maybe = [&](uint64_t oneIn) { return scheduler_.oneIn(2) ? 0 : oneIn; };
  faults_.linkFails = scheduler_.oneIn(2) ? UINT64_MAX : 10;
  faults_.cuts = maybe(40);
  faults_.stalls = maybe(2000);
  faults_.partitions = maybe(60);
  faults_.stops = maybe(60);
  faults_.ownerKills = maybe(60);
  faults_.filesLost = maybe(5);
  faults_.masterKills = maybe(80);
  faults_.diskFails = maybe(20);
  faults_.orderly = maybe(100);
  faults_.drains = maybe(150);
  faults_.evictions = maybe(30);
  faults_.clientDeaths = maybe(25);
  faults_.slow = scheduler_.oneIn(3) ? 4 : 20;
  faults_.ssddKills = maybe(30);
  faults_.ssdFails = maybe(scheduler_.oneIn(3) ? 4 : 30);
  faults_.slowPages = scheduler_.oneIn(2);
  faults_.busy = maybe(20);
  faults_.moves = scheduler_.oneIn(8) ? 25 : 0;
}

SimOwner* World::owner(const std::string& node) {
  for (const auto& owner : owners_) {
    if (owner->place().node == node) return owner.get();
  }
  return nullptr;
}

void World::run() {
  for (SimMaster* const master : {&master_, &other_}) {
    if (faults_.diskFails != 0) master->disk().failOneIn(faults_.diskFails);
    if (master == &master_ || faults_.moves != 0) master->start();
  }
  for (const auto& owner : owners_) {
    owner->start();
    if (owner->ssdd()) owner->ssdd()->start();
  }
  advance(scheduler_.now() + milliseconds(50));
  do {
    burst(options_.brief ? milliseconds(150) : scheduler_.between(milliseconds(100), milliseconds(500)));
    calm(options_.brief ? seconds(2) : scheduler_.between(milliseconds(500), seconds(30)));
  } while (!options_.brief && scheduler_.now() - began_ < kMinute);
  hangDisks();
  rest();
}

// --- time

void World::advance(Time end) {
  uint64_t still = 0;
  for (;;) {
    Time next = scheduler_.next();
    const auto consider = [&](const Process& process, Time wake) {
      if (process.up() && !process.stopped()) next = std::min(next, wake);
    };
    for (const SimMaster* const master : {&master_, &other_}) consider(*master, master->nextWake());
    for (const auto& owner : owners_) consider(*owner, owner->nextWake());
    if (next > end) break;
    still = next > scheduler_.now() ? 0 : still + 1;
    SIM_CHECK(still < 20'000, "time stands still");
    scheduler_.advance(next);
    const Time now = scheduler_.now();
    scheduler_.run();
    for (SimMaster* const master : {&master_, &other_}) {
      if (master->up() && !master->stopped() && master->nextWake() <= now) master->tick();
    }
    for (const auto& owner : owners_) {
      if (owner->up() && !owner->stopped() && owner->nextWake() <= now) owner->tick();
    }
  }
  scheduler_.advance(end);
}

void World::burst(Duration length) {
  busy_ = true;
  reading_ = scheduler_.oneIn(2) ? 0 : scheduler_.oneIn(2) ? 4 : 30;
  if (reading_) evictAll();
  for (; actors_ < 8; ++actors_) scheduler_.at(scheduler_.upTo(milliseconds(4)), [this] { act(); });
  advance(scheduler_.now() + length);
  busy_ = false;
}

// What is in memory goes, so that it is read from SSDs.
void World::evictAll() {
  for (const auto& owner : owners_) {
    SimMaster& master = masterOf(*owner);
    if (master.up()) (void)master.core().evictTo(owner->place().node, scheduler_.pick(4), scheduler_.now());
  }
}

// Disks of SSDs that are being read hang, and then a new term comes. They do until the end of what lives without them.
void World::hangDisks() {
  evictAll();
  advance(scheduler_.now() + milliseconds(30));
  const auto hang = [&] {
    for (const auto& owner : owners_) {
      if (owner->ssdd() && scheduler_.oneIn(3)) owner->ssdd()->hang(seconds(1000));
    }
  };
  const bool begun = scheduler_.oneIn(2);  // else before the disk has been told of any read, and ssdd can take it back
  if (!begun) hang();
  for (int key = 0; key < kKeys; ++key) {
    for (const auto& owner : owners_) {
      if (!owner->clients().empty()) get(*owner, owner->clients().front(), keyOf(*owner, key));
    }
  }
  advance(scheduler_.now() + scheduler_.upTo(milliseconds(5)));
  if (begun) hang();
  if (faults_.masterKills != 0) killMaster(master_);
}

// Now and then something happens.
void World::calm(Duration length) {
  const Time end = scheduler_.now() + length;
  while (scheduler_.now() < end) {
    const bool learns = master_.up() && master_.core().recovering() && !scheduler_.oneIn(16);
    advance(std::min(end, scheduler_.now() + scheduler_.upTo(milliseconds(learns ? 20 : 400))));
    if (learns) {
      changeInWindow();
      continue;
    }
    ++actors_;
    act();
    fault();
    for (const auto& owner : owners_) owner->check();
  }
}

// --- network

Duration World::delay() {
  // A packet is lost, and sent again after a while.
  if (faults_.stalls != 0 && scheduler_.oneIn(faults_.stalls)) return scheduler_.upTo(settings_.lease * 2);
  return scheduler_.oneIn(faults_.slow) ? scheduler_.upTo(milliseconds(20)) : scheduler_.upTo({400'000});
}
Duration World::diskTime() { return scheduler_.oneIn(8) ? scheduler_.upTo(milliseconds(100)) : scheduler_.upTo(milliseconds(3)); }

bool World::reachesMaster(const SimOwner& owner) {
  const auto parted = parted_.find({"", owner.place().node});
  return masterOf(owner).up() && (parted == parted_.end() || parted->second <= scheduler_.now());
}
bool World::reaches(const SimOwner& a, const SimOwner& b) const {
  const auto parted = parted_.find(std::minmax(a.place().node, b.place().node));
  return parted == parted_.end() || parted->second <= scheduler_.now();
}

// One more message; true: it is the one that is lost, with its connection.
bool World::lost() { return ++tally.messages == options_.loseMessage; }

void World::toMaster(const std::shared_ptr<Connection>& connection, std::function<void(SimMaster&)> what) {
  if (!connection->open) return;
  if (lost()) return cut(*connection->owner, connection);
  connection->lastArrival = std::max(connection->lastArrival, scheduler_.now() + delay());
  scheduler_.at({std::max<int64_t>(1, (connection->lastArrival - scheduler_.now()).ns)}, [this, connection, what = std::move(what)] {
    SimMaster& master = *connection->master;
    if (!master.up() || connection->masterLife != master.life()) return;
    busyBeforeLeaseEnds(master, connection->owner->name());
    connection->unheard.push_back(scheduler_.now());
    master.later({1}, [this, connection, what] {
      connection->unheard.pop_front();
      if (!connection->open && (connection->drained || (connection->drained = scheduler_.oneIn(3)))) return;
      what(*connection->master);
    });
  });
}

// The word of an owner comes just in time.
void World::busyBeforeLeaseEnds(SimMaster& master, const std::string& node) {
  const auto member = master.core().members().find(node);
  if (faults_.busy == 0 || master.held() || member == master.core().members().end() || !member->second->lives()) return;
  const Duration left = *member->second->leaseEnd - scheduler_.now();
  if (left.ns > 0 && left < milliseconds(50)) master.busy(left + scheduler_.upTo(milliseconds(30)));
}

// When the first word of it came that the master has not handled yet.
Time World::unheard(const SimMaster& master, const std::string& node) {
  const std::shared_ptr<Connection>& connection = owner(node)->connection();
  return !connection || connection->master != &master || connection->unheard.empty() ? Time::never() : connection->unheard.front();
}

void World::reply(SimOwner& owner, const std::shared_ptr<Connection>& connection, std::function<void()> what) {
  if (!connection->open) return;
  if (lost()) return cut(owner, connection);
  owner.later(delay(), [&owner, connection, what = std::move(what)] {
    if (connection->open && owner.connection() == connection) what();
  });
}

void World::toOwner(master::Member& member, uint64_t number, const rpc::MasterMessage& message) {
  for (const auto& owner : owners_) {
    const std::shared_ptr<Connection>& connection = owner->connection();
    if (!connection || connection->member.get() != &member || connection->number != number || !connection->open) continue;
    if (lost()) return cut(*owner, connection);
    owner->later(delay(), [&owner = *owner, connection, to = member.incarnation(), message] { owner.hear(connection, to, message); });
  }
}

// Both ends hear of it, each in its own time.
void World::cut(SimOwner& owner, const std::shared_ptr<Connection>& connection) {
  if (!std::exchange(connection->open, false)) return;
  ++tally.cuts;
  owner.later(delay(), [&owner, connection] { owner.ended(connection); });
  SimMaster& master = *connection->master;
  if (!master.up() || connection->masterLife != master.life()) return;
  master.later(delay(), [&master, connection] {
    if (connection->member && connection->masterLife == master.life()) master.lost(*connection->member, connection->number);
  });
}

void World::whenDurable(SimMaster& master, uint64_t version, std::function<void()> what) {
  if (master.durable(version)) return what();
  master.later(scheduler_.upTo(milliseconds(1)), [this, &master, version, what = std::move(what)] { whenDurable(master, version, what); });
}

void World::masterEnded(const SimMaster& master) {
  for (const auto& owner : owners_) {
    if (owner->connection() && owner->connection()->master == &master) cut(*owner, owner->connection());
  }
}

void World::restartLater(SimOwner& owner) {
  owner.later(scheduler_.oneIn(3) ? settings_.lease + scheduler_.upTo(settings_.lease) : scheduler_.upTo(milliseconds(50)),
              [&owner] { owner.start(); });
}

void World::die(const std::shared_ptr<Client>& client) {
  scheduler_.log("client ", client->id, " of ", client->home->name(), " dies");
  client->dead = true;
  client->held.clear();
  for (const auto& owner : owners_) owner->clientGone(client);
}

std::vector<bool> World::heldOf(const Memory& memory, const std::vector<uint64_t>& refs) const {
  std::set<uint64_t> named;
  for (const auto& owner : owners_) {
    for (const auto& client : owner->clients()) {
      for (const auto& [in, ref] : client->held) {
        if (in == &memory) named.insert(ref);
      }
    }
  }
  std::vector<bool> held;
  for (const uint64_t ref : refs) held.push_back(named.count(ref) != 0);
  return held;
}

// --- faults

void World::fault() {
  const auto happens = [&](uint64_t oneIn) { return oneIn != 0 && scheduler_.oneIn(oneIn); };
  SimOwner& owner = someOwner();
  if (happens(faults_.cuts)) owner.lose();
  if (happens(faults_.partitions)) {
    ++tally.partitions;
    const Duration length = scheduler_.oneIn(2) ? settings_.lease + scheduler_.upTo(settings_.lease) : scheduler_.upTo(milliseconds(200));
    SimOwner& other = someOwner();
    if (&other == &owner) {
      partFromMaster(owner, length);
    } else {
      parted_[std::minmax(owner.place().node, other.place().node)] = scheduler_.now() + length;
      scheduler_.log(owner.name(), " is cut off from ", other.name(), " for ", length.ms(), " ms");
    }
  }
  if (happens(faults_.stops)) {
    ++tally.stops;
    const Duration length = scheduler_.oneIn(2) ? settings_.lease + scheduler_.upTo(settings_.lease) : scheduler_.upTo(milliseconds(300));
    if (scheduler_.oneIn(4)) {
      if (SimMaster& master = someMaster(); master.up()) master.stop(length);
    } else if (owner.up() && !owner.stopped()) {
      // With an answer on its way, which it hears when it goes on; and then its values are read.
      if (scheduler_.oneIn(2)) owner.heartbeat();
      owner.stop(length);
      scheduler_.at(length + Duration{1}, [this, &owner] { readAll(owner); });
    }
  }
  if (happens(faults_.busy)) {
    ++tally.busy;
    const Duration length = scheduler_.upTo(milliseconds(scheduler_.oneIn(4) ? 150 : 10));
    if (scheduler_.oneIn(3)) {
      if (SimMaster& master = someMaster(); master.up()) master.busy(length);
    } else if (owner.up()) {
      owner.busy(length);
    }
  }
  if (owner.ssdd() && happens(faults_.ssddKills)) ssdFault(owner);
  if (happens(faults_.ownerKills)) killOwner(owner, happens(faults_.filesLost) ? SimOwner::Files::lost : SimOwner::Files::kept);
  if (happens(faults_.masterKills)) killMaster(someMaster());
  if (happens(faults_.moves) && owner.up()) {
    ++tally.moves;
    killOwner(owner, SimOwner::Files::kept);
    owner.moveTo(1 - owner.cluster());
  }
  if (happens(faults_.orderly) && owner.up()) {
    ++tally.orderlyStops;
    owner.stopInOrder(false);
  }
  if (happens(faults_.drains) && masterOf(owner).up()) {
    scheduler_.log(owner.name(), " is to be drained");
    (void)masterOf(owner).core().drain(owner.place().node, scheduler_.now());
  }
  if (happens(faults_.evictions) && masterOf(owner).up())
    (void)masterOf(owner).core().evictTo(owner.place().node, scheduler_.pick(100), scheduler_.now());
  if (happens(faults_.clientDeaths) && owner.memory() && !owner.clients().empty()) {
    ++tally.clientsDead;
    die(std::shared_ptr<Client>(owner.clients()[scheduler_.pick(owner.clients().size())]));
    owner.attach();
  }
}

void World::killOwner(SimOwner& owner, SimOwner::Files files) {
  if (!owner.up()) return;
  ++tally.ownerKills;
  tally.filesLost += files == SimOwner::Files::lost;
  owner.kill(files);
  restartLater(owner);
}

// Its ssdd is killed, alone or with it, or stands still, or the disk does.
void World::ssdFault(SimOwner& owner) {
  SimSsdd& ssdd = *owner.ssdd();
  if (scheduler_.oneIn(4)) ssdd.hang(scheduler_.upTo(settings_.lease * 2));
  if (scheduler_.oneIn(3)) {
    if (ssdd.up() && !ssdd.stopped()) ssdd.stop(scheduler_.upTo(seconds(2)));
    return;
  }
  ssdd.kill();
  if (scheduler_.oneIn(4)) killOwner(owner, SimOwner::Files::kept);
  scheduler_.at(scheduler_.upTo(scheduler_.oneIn(3) ? seconds(1) : milliseconds(20)), [&ssdd] { ssdd.start(); });
}

void World::killMaster(SimMaster& master) {
  if (!master.up()) return;
  ++tally.masterKills;
  const bool crash = scheduler_.oneIn(3);
  tally.crashes += crash;
  master.kill(crash ? SimMaster::Machine::crashes : SimMaster::Machine::stays);
  if (scheduler_.oneIn(3)) partFromMaster(someOwner(), scheduler_.upTo(settings_.lease * 2));
  const Duration away = scheduler_.upTo(scheduler_.oneIn(4) ? settings_.lease * 2 : milliseconds(50));
  master.later(away, [&master] { master.start(); });
  // What kills it may kill it again, before the next term has found its feet.
  if (scheduler_.oneIn(3))
    scheduler_.at(away + scheduler_.upTo(settings_.lease / 2), [this, &master] {
      if (faults_.masterKills != 0) killMaster(master);
    });
}

// What it is about to rely on is not on disk yet: a good moment to end.
void World::masterWrites(SimMaster& master) {
  if (faults_.masterKills == 0 || !scheduler_.oneIn(15)) return;
  scheduler_.at(scheduler_.upTo(milliseconds(10)), [this, &master] {
    if (faults_.masterKills != 0) killMaster(master);
  });
}

// A life that ends before the master knows what it has.
void World::ownerReports(SimOwner& owner) {
  if (faults_.ownerKills == 0 || !scheduler_.oneIn(8)) return;
  owner.later(scheduler_.upTo(milliseconds(1)), [this, &owner] {
    if (faults_.ownerKills != 0) killOwner(owner, SimOwner::Files::kept);
  });
}

void World::endMidway(SimOwner& owner) {
  ++tally.endedMidway;
  killOwner(owner, SimOwner::Files::kept);
}

void World::partFromMaster(SimOwner& owner, Duration length) {
  parted_[{"", owner.place().node}] = scheduler_.now() + length;
  scheduler_.log(owner.name(), " is cut off from the master for ", length.ms(), " ms");
  owner.lose();
}

// --- rest

// Faults end, what was begun ends, and nothing is left.
void World::rest() {
  scheduler_.log("no faults any more");
  busy_ = false;
  faults_ = Faults{};
  options_.loseMessage = 0;
  losable = tally.messages;
  for (SimMaster* const master : {&master_, &other_}) master->disk().failOneIn(0);
  for (const auto& owner : owners_) {
    if (owner->ssdd()) owner->ssdd()->failOneIn(0);
  }
  parted_.clear();
  for (const auto& owner : owners_) {  // home
    owner->moveTo(0);
    if (owner->cluster() != 0) killOwner(*owner, SimOwner::Files::kept);
  }
  const auto settle = [&] {
    if (!master_.up()) return;
    for (const auto& [node, member] : master_.core().members()) (void)master_.core().undrain(node);
  };
  settle();
  advance(scheduler_.now() + settings_.lease * 6 + seconds(5));
  settle();
  advance(scheduler_.now() + seconds(2));
  for (const auto& owner : owners_) SIM_CHECK(owner->joined(), owner->name(), " has not joined");
  live();
  for (const auto& owner : owners_) {
    if (owner->ssdd()) owner->ssdd()->recover();
  }
  for (const auto& owner : owners_) {
    for (const auto& client : std::vector(owner->clients())) die(client);
  }
  advance(scheduler_.now() + seconds(15));  // the reserve goes back after 10 s without puts
  for (const auto& [node, member] : master_.core().members()) {
    for (const auto& [operation, put] : *member->puts)
      found("put #", operation.value, " of ", put.key->key, " by ", node, " is left at the master");
  }
  for (const auto& owner : owners_) {
    owner->check();
    agree(*owner);
    if (owner->ssdd()) agreeOnSsd(*owner);
    tally.count(owner->core().counters());
  }
  for (SimMaster* const master : {&master_, &other_}) {
    if (master->up()) tally.count(master->core().counters());
    tally.diskFaults += master->disk().counters().failed + master->disk().counters().shortened;
    tally.tornSectors += master->disk().counters().torn;
  }
}

// A put, a get by each owner and a delete of a key succeed, and are seen.
void World::live() {
  const auto step = [&](SimOwner& owner, owner::Command command, const char* what) {
    std::optional<owner::Answer> answer;
    const auto client = owner.attach();
    const auto then = [&](const owner::Answer& given) { answer = given; };
    owner.command(client, std::move(command), then, seconds(5));
    for (const Time end = scheduler_.now() + seconds(5); !answer && scheduler_.now() < end;) advance(scheduler_.now() + milliseconds(1));
    // Giving up is part of the workload, not of this check: it asks once more.
    SIM_CHECK(answer, what, " at ", owner.name(), " has no answer in time");
    return *answer;
  };
  for (const auto& owner : owners_) {
    owner::Command put;
    put.kind = shm::CommandKind::putInline;
    put.key = "live-" + owner->name();
    put.extra.assign(100, 'x');
    owner::Answer answer = step(*owner, put, "a put");
    if (!answer.node.empty()) {  // a neighbour shall have it
      put.put.home = PutMode::Home::here;
      answer = step(*this->owner(answer.node), put, "a put sent on");
    }
    SIM_CHECK(answer.code == Code::ok, "a put at ", owner->name(), ": ", codeName(answer.code), " ", answer.payload);
    const PutId putId = answer.putId;
    for (const auto& reader : owners_) {
      owner::Command get;
      get.kind = shm::CommandKind::get;
      get.key = put.key;
      get.get.hold = true;
      answer = step(*reader, get, "a get");
      SIM_CHECK(answer.code == Code::ok && (!answer.node.empty() || answer.putId == putId), "a get at ", reader->name(), " of what ",
                owner->name(), " has: ", codeName(answer.code), " ", answer.payload);
    }
    owner::Command remove;
    remove.kind = shm::CommandKind::remove;
    remove.key = put.key;
    answer = step(*owners_[scheduler_.pick(owners_.size())], remove, "a delete");
    SIM_CHECK(answer.code == Code::ok, "a delete: ", codeName(answer.code), " ", answer.payload);
  }
}

void World::agree(SimOwner& owner) {
  const std::string& name = owner.name();
  const std::shared_ptr<master::Member>& member = owner.connection()->member;
  const owner::OwnerCore& core = owner.core();
  SIM_CHECK(member->state == master::MemberState::joined, name, " is no member");
  SIM_CHECK(core.grants() == 0, name, " has ", core.grants(), " grants left");
  SIM_CHECK(core.retired() == 0, name, " has ", core.retired(), " retired slots left");
  SIM_CHECK(core.flights() == 0, name, " has ", core.flights(), " flights left");
  SIM_CHECK(core.exports() == 0, name, " has ", core.exports(), " exports left");
  SIM_CHECK(core.requestsPending() <= 1, name, " has ", core.requestsPending(), " requests left");  // a heartbeat
  SIM_CHECK(core.counters().refused == 0, name, ": the master has refused ", core.counters().refused, " reports");
  SIM_CHECK(member->transfers->empty(), name, " has transfers left");
  SIM_CHECK(member->shortage.waiting().empty(), name, " has waiting requests left");
  SIM_CHECK(member->orders->empty(), name, " has orders left");
  SIM_CHECK(master_.core().invalidating() == 0, name, " or another has invalidations left");
  std::map<uint64_t, std::pair<std::string, uint64_t>> here, there;
  uint64_t bytes = 0;
  const shm::DirectoryWriter& directory = owner.directory();
  for (uint32_t slot = 0; slot < directory.slotCount(); ++slot) {
    if (directory.state(slot) == shm::SlotState::free) continue;
    SIM_CHECK(directory.state(slot) == shm::SlotState::committed, name, " has a slot in state ", static_cast<int>(directory.state(slot)));
    here[directory.offset(slot)] = {std::string(directory.key(slot)), directory.putId(slot).value};
    bytes += extentBytes(directory.payloadBytes(slot));
  }
  for (const auto& [offset, record] : member->space.records()) {
    if (record.key) there[offset] = {std::string(record.key->key), record.key->putId.value};
  }
  SIM_CHECK(here == there, name, " has ", here.size(), " values, the master knows ", there.size(), ", and they differ");
  const master::MemberSpace& space = member->space;
  SIM_CHECK(space.capacity() - space.freeBytes() == bytes + core.reserveBytes(), name, ": ", space.capacity() - space.freeBytes(),
            " bytes are in use at the master, ", bytes, " and ", core.reserveBytes(), " in reserve at the owner");
  SIM_CHECK(space.bytes(master::Use::reserved) == core.reserveBytes(), name, ": the reserves differ");
  for (const master::Use use : {master::Use::unrouted, master::Use::inFlight, master::Use::reclaiming})
    SIM_CHECK(space.bytes(use) == 0, name, ": ", space.bytes(use), " bytes are left in use ", static_cast<int>(use));
}

// What the master names on its SSD is there, and nothing is under way.
void World::agreeOnSsd(SimOwner& owner) {
  SimSsdd& ssdd = *owner.ssdd();
  const std::string& name = owner.name();
  SIM_CHECK(ssdd.up() && ssdd.channel(), name, " has no ssdd");
  const std::shared_ptr<master::Member>& member = owner.connection()->member;
  SIM_CHECK(member->ssdLife == ssdd.content(), name, ": the master knows another life of its SSD");
  SIM_CHECK(owner.core().persists() == 0, name, " has ", owner.core().persists(), " persists left");
  const std::map<std::string, uint64_t> there = ssdd.entries();
  SIM_CHECK(member->onSsd->size() <= member->onSsd->count(ssdd.content()), name, ": the master remembers earlier lives of its SSD");
  const auto named = member->onSsd->find(ssdd.content());
  for (const master::KeyEntry* entry : named == member->onSsd->end() ? std::set<master::KeyEntry*, master::ByName>() : named->second) {
    const auto found = there.find(std::string(entry->key));
    SIM_CHECK(found != there.end() && found->second == entry->putId.value, name, ": the master names ", entry->key, " ",
              toString(entry->putId), " on its SSD, which is not there");
  }
  for (const ssdd::ShardGauges& shard : ssdd.core().shards())
    SIM_CHECK(shard.readPins + shard.commitPins + shard.writers + shard.waiting == 0, name, ": guards of a shard are left");
  tally.count(ssdd.core().counters());
}

// --- log

void World::show(const std::string& who, const rpc::Request& request) {
  if (!scheduler_.logging() || request.is<rpc::Heartbeat>()) return;
  std::ostringstream text;
  tell(text << who << " ► master", request);
  scheduler_.log(text.str());
}

void World::show(const std::string& who, const rpc::MasterMessage& message) {
  if (!scheduler_.logging()) return;
  const auto* const reply = std::get_if<rpc::Reply>(&message);
  if (reply && reply->code == Code::ok && reply->as<rpc::Done>()) return;
  std::ostringstream text;
  tell(text << "master ► " << who, message);
  scheduler_.log(text.str());
}

}  // namespace fluxon::sim
