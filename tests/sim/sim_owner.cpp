#include "sim_owner.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/mark.h"
#include "client_ring.h"
#include "world.h"

namespace fluxon::sim {
namespace {

constexpr uint64_t kMaxKeys = 64;
constexpr size_t kInventoryPage = 2;  // inventories have several pages
constexpr size_t kPagesAtOnce = 3;
constexpr Duration kLastPuts = seconds(1);  // that an owner which stops waits for

}  // namespace

Memory::Pages Memory::pages(size_t bytes) {
  const size_t whole = (bytes + 4095) / 4096 * 4096;
  Pages memory(static_cast<char*>(std::aligned_alloc(4096, whole)));
  std::memset(memory.get(), 0, whole);
  return memory;
}

Memory::Memory(const std::string& node, const shm::DirectoryWriter::Shape& shape, Incarnation made)
    : directory_(pages(shm::directoryFileBytes(shape.buckets, shape.overflowSlots))),
      keys_(pages(shm::keysFileBytes(shape.keysBytes))),
      segment_(pages(shape.segmentBytes)),
      memory_(shm::DirectoryWriter::layout(directory_.get(), keys_.get(), shape, made, "c", node)) {}

SimOwner::SimOwner(World& world, Scheduler& scheduler, Place place)
    : Process(scheduler, place.node),
      world_(world),
      place_(std::move(place)),
      shape_(shm::DirectoryWriter::shapeFor(kMaxKeys, place_.segmentBytes)) {}

// --- lives

void SimOwner::start() {
  begin();
  cluster_ = nextCluster_;
  scheduler_.log(name(), " starts, in cluster ", cluster_);
  ending_ = leaving_ = false;
  bool adopted = false;
  if (memory_) {
    shm::DirectoryWriter::endServing(memory_->header());
    Result<std::unique_ptr<shm::DirectoryWriter>> writer = shm::DirectoryWriter::adopt(memory_->directory(), shape_);
    SIM_CHECK(writer.ok(), name(), " cannot adopt its files: ", writer.error().message());
    writer_ = std::move(writer).value();
    adopted = true;
  } else {
    memory_ = std::make_shared<Memory>(place_.node, shape_, world_.newLife());
    writer_ = std::make_unique<shm::DirectoryWriter>(memory_->directory(), shape_);
  }
  owner::Host& host = *this;
  leftBehind_ = adopted && ssdd_ && ssdd_->locked();
  const owner::OwnerCore::Settings settings{.node = place_.node,
                                            .inventoryPage = kInventoryPage,
                                            .pagesAtOnce = kPagesAtOnce,
                                            .persistsAtOnce = world_.persistsAtOnce(),
                                            .straggles = 4,
                                            .stragglers = 3,
                                            .ahead = 16,
                                            .awaitsSsd = leftBehind_ && writer_->ssd()};
  core_ = std::make_unique<owner::OwnerCore>(settings, *writer_, memory_->segment(), place_.segmentBytes, host);
  rpc::Registration registration;
  registration.node = place_.node;
  registration.hostId = place_.host;
  registration.label = place_.label;
  registration.link = place_.link ? "link" : "";
  registration.segmentBytes = place_.segmentBytes;
  registration.maxKeys = kMaxKeys;
  joining_ = std::make_unique<owner::Joining>(*core_, memory_->header(), "c", registration);
  if (adopted) {
    std::set<uint64_t> living;
    for (const auto& [id, client] : attached_) living.insert(id);
    if (leftBehind_) living.insert(owner::kSsdWriter.value);
    core_->adopt(living, scheduler_.now());
  }
  if (leftBehind_) {
    awaitLocks();
    later(world_.lease(), [this] {
      if (leftBehind_) core_->ssdNotComing();
    });
  }
  while (clients_.size() < 2) attach();
  later({1}, [this] { connect(); });
  later({1}, [this] { beat(); });
}

void SimOwner::kill(Files files) {
  if (!up()) return;
  scheduler_.log(name(), files == Files::lost ? " is killed, its files are lost" : " is killed");
  world_.tally.count(core_->counters());
  if (connection_) world_.cut(*this, connection_);
  connection_ = nullptr;
  queue_.clear();
  calls_.clear();
  exported_.clear();
  if (channel_) {
    if (scheduler_.oneIn(3)) channel_->kept = channel_->heard + scheduler_.pick(channel_->sent - channel_->heard + 1);
    cutSsd();
  }
  loads_.clear();
  adrift_.clear();
  fetches_.clear();
  reading_.clear();
  for (Hazard& hazard : std::exchange(hazards_, {})) hazard.clear();
  joining_ = nullptr;
  core_ = nullptr;
  end();
  if (files == Files::kept) return;
  for (const auto& client : std::vector(clients_)) world_.die(client);
  attached_.clear();
  shm::DirectoryWriter::endServing(memory_->header());
  memory_ = nullptr;
  writer_ = nullptr;
}

void SimOwner::stopInOrder(bool forGood) {
  if (!up() || std::exchange(ending_, true)) return;
  scheduler_.log(name(), forGood ? " leaves for good" : " is told to end");
  leaving_ = forGood;
  finishStop(scheduler_.now() + kLastPuts);
}

// Puts that the master is deciding are waited for.
void SimOwner::finishStop(Time until) {
  if (writer_->count(shm::SlotState::pending) > 0 && scheduler_.now() < until)
    return later(milliseconds(1), [this, until] { finishStop(until); });
  const bool keeps = core_->stop(scheduler_.now()) && !leaving_;
  auto ended = std::make_shared<bool>(false);
  const auto gone = [this, ended, keeps] {
    if (std::exchange(*ended, true)) return;
    kill(keeps ? Files::kept : Files::lost);
    world_.restartLater(*this);
  };
  if (connection_ && connection_->member && world_.deliverable(connection_)) {
    world_.toMaster(connection_, [this, to = connection_, keeps, gone, life = life()](SimMaster& master) {
      master.left(*to->member, keeps ? master::MasterCore::Content::kept : master::MasterCore::Content::gone);
      const uint64_t version = master.core().durable().version;
      world_.whenDurable(master, version, [this, gone, life] {
        if (life == this->life()) later(world_.delay(), gone);
      });
    });
  }
  later(seconds(1), gone);
}

void SimOwner::leave() {
  if (!leaving_) ++world_.tally.left;
  later({1}, [this] { stopInOrder(true); });
}

// --- the master

void SimOwner::again() {
  later(scheduler_.between(milliseconds(5), milliseconds(100)), [this] { connect(); });
}

void SimOwner::connect() {
  if (connection_ || ending_) return;
  if (!world_.reachesMaster(*this)) return again();
  connection_ = std::make_shared<Connection>();
  connection_->owner = this;
  connection_->master = &world_.masterOf(*this);
  connection_->masterLife = connection_->master->life();
  world_.toMaster(connection_, [this, from = connection_](SimMaster& master) {
    world_.reply(*this, from, [this, hello = master.hello()] { met(hello); });
  });
}

void SimOwner::met(const rpc::Hello& hello) {
  if (ending_) return;
  if (world_.endsMidway(8)) endAfter = static_cast<int64_t>(scheduler_.pick(8));
  if (Error error = joining_->met(hello, scheduler_.now()); !error.ok()) {
    scheduler_.log(name(), " will not talk to the master: ", error.message());
    return lose();
  }
  join();
}

void SimOwner::join() {
  if (!joining_->ready()) {
    return later(milliseconds(1), [this, on = connection_] {
      if (connection_ == on) join();
    });
  }
  const rpc::Registration registration = joining_->begin(world_.newLife(), scheduler_.now());
  if (world_.registrationStalls()) {
    // It is long on its way, and the connection is given up meanwhile.
    connection_->lastArrival = scheduler_.now() + scheduler_.upTo(world_.lease());
    later(scheduler_.upTo(milliseconds(20)), [this, on = connection_] {
      if (connection_ == on) lose();
    });
  }
  world_.toMaster(connection_, [this, registration, from = connection_](SimMaster& master) {
    const SimMaster::Registration result = master.registerOwner(registration);
    if (!result.member) return world_.reply(*this, from, [this, answer = result.answer] { joinAnswered(answer); });
    // A refused one leaves the session of an earlier one as it is: what was sent by that may still be on its way.
    from->member = result.member;
    from->number = result.connection;
    // Its connection may have ended meanwhile, and the master heard of that before it knew whose it was.
    if (!from->open) master.lost(*from->member, from->number);
    world_.whenDurable(master, result.version,
                       [this, from, answer = result.answer] { world_.reply(*this, from, [this, answer] { joinAnswered(answer); }); });
  });
}

void SimOwner::joinAnswered(const rpc::Registered& answer) {
  if (ending_) return;
  if (world_.endsMidway(8)) endAfter = static_cast<int64_t>(scheduler_.pick(8));
  const Result<owner::Joining::Answered> result = joining_->answered(answer, scheduler_.now());
  if (!result) {
    scheduler_.log(name(), " is refused: ", result.error().message());
    lose();
  } else if (result.value() == owner::Joining::Answered::again) {
    scheduler_.log(name(), " drops its values");
    join();
  } else {
    scheduler_.log(name(), " joined as ", joining_->registration().incarnation.value, core_->reporting() ? ", reports" : "");
    if (core_->reporting()) world_.ownerReports(*this);
  }
}

void SimOwner::lose() {
  if (!connection_) return;
  world_.cut(*this, connection_);
  disconnected();
}

void SimOwner::ended(const std::shared_ptr<Connection>& connection) {
  if (connection_ == connection) disconnected();
}

void SimOwner::disconnected() {
  scheduler_.log(name(), " has no connection");
  connection_ = nullptr;
  queue_.clear();
  joining_->lost();
  if (!ending_) again();
}

void SimOwner::hear(const std::shared_ptr<Connection>& on, Incarnation to, const rpc::MasterMessage& message) {
  if (connection_ != on || !on->open) return;
  // Pages are slow, and so are their answers: the next pages wait for them.
  if (const auto* reply = std::get_if<rpc::Reply>(&message); reply && pages_.erase({to, reply->id}) > 0) {
    if (const Duration takes = world_.pageTime(); takes.ns != 0) return later(takes, [this, on, to, message] { hear(on, to, message); });
  }
  world_.show(name(), message);
  joining_->heard(to, message, scheduler_.now());
}

void SimOwner::heartbeat() {
  std::vector<uint32_t> touched;
  if (scheduler_.oneIn(2)) touched.push_back(static_cast<uint32_t>(scheduler_.pick(writer_->slotCount())));
  core_->heartbeat(touched, scheduler_.now());
  afterEvent();
}

void SimOwner::beat() {
  heartbeat();
  later(world_.lease() / 5, [this] { beat(); });
}

void SimOwner::send(const rpc::Request& request) {
  if (!joining_->joined()) return;
  queue_.push_back(request);
  if (request.is<rpc::InventoryPage>()) pages_.emplace(joining_->registration().incarnation, request.id);
}

// Now and then it is killed in the midst, between two stores into what its next life reads.
void SimOwner::perform(const std::function<void()>& what) {
  endAfter = world_.endsMidway(2000) ? static_cast<int64_t>(scheduler_.pick(8)) : -1;
  try {
    what();
  } catch (const EndedHere&) {
    scheduler_.log(name(), " does not come to the end of something");
    world_.endMidway(*this);
  }
  endAfter = -1;
}

void SimOwner::afterEvent() {
  if (!up()) return;
  if (connection_ && !queue_.empty() && joining_->joined()) {
    for (const rpc::Request& request : queue_) world_.show(name(), request);
    const std::shared_ptr<Connection> to = connection_;
    world_.toMaster(to, [to, requests = std::exchange(queue_, {}), open = core_->unanswered()](SimMaster& master) {
      master.handle(*to->member, to->number, requests, open.lowest, open.stragglers);
    });
  }
  if (joining_->fenced()) {
    scheduler_.log(name(), " is fenced");
    lose();
  }
}

void SimOwner::tick() {
  core_->tick(scheduler_.now());
  afterEvent();
}

bool SimOwner::serving() const {
  return memory_ && scheduler_.now().ns < static_cast<int64_t>(memory_->header().leaseUntilNs.load()) &&
         memory_->header().servingIncarnation.load() != 0;
}

bool SimOwner::neighbours(const SimOwner& other) const {
  if (&other == this) return true;
  if (other.place_.host != place_.host || !memory_ || !other.memory_) return false;
  const uint64_t master = memory_->header().servingMaster.load();
  return master != 0 && other.memory_->header().servingMaster.load() == master;
}

std::optional<uint32_t> SimOwner::committed(const std::string& key) const {
  return memory_ ? writer_->committed(key, keyHash(key)) : std::nullopt;
}

// --- clients

std::shared_ptr<Client> SimOwner::attach() {
  auto client = std::make_shared<Client>();
  client->id = world_.newClient();
  client->home = this;
  clients_.push_back(client);
  attached_[client->id] = client;
  return client;
}

void SimOwner::clientGone(const std::shared_ptr<Client>& client) {
  std::erase(clients_, client);
  std::erase_if(calls_, [&](const auto& call) { return call.second.client == client; });
  if (attached_.erase(client->id) == 0 || !up()) return;
  later(world_.delay(), [this, id = client->id] { core_->clientGone(ClientId(id), scheduler_.now()); });
}

void SimOwner::command(const std::shared_ptr<Client>& client, owner::Command command, std::function<void(const owner::Answer&)> then,
                       Duration patience) {
  if (!up() || ending_) return;
  attached_[client->id] = client;
  const owner::Caller caller{ClientId(client->id), nextCall_++};
  const std::pair<uint64_t, uint32_t> id{client->id, caller.slot};
  calls_[id] = {client, std::move(then), false, false};
  command.deadline = scheduler_.now() + std::max(patience, kDeadline);
  later(scheduler_.upTo({20'000}), [this, id, caller, command = std::move(command)]() mutable {
    const auto call = calls_.find(id);
    if (call == calls_.end()) return;  // its client has died
    call->second.taken = true;
    if (call->second.given && !owner::afterwards(command.kind)) {
      calls_.erase(call);
      return;
    }
    if (ending_) return;
    core_->command(caller, std::move(command), scheduler_.now());
  });
  scheduler_.at(patience, [this, id, life = life()] {
    if (life != this->life()) return;
    const auto call = calls_.find(id);
    if (call == calls_.end()) return;
    ++world_.tally.givenUp;
    call->second.given = true;
    call->second.then = nullptr;
  });
}

bool SimOwner::answer(owner::Caller caller, owner::Answer answer) {
  const auto found = calls_.find({caller.client.value, caller.slot});
  if (found == calls_.end()) return false;
  const Call call = std::move(found->second);
  calls_.erase(found);
  if (call.given || call.client->dead) return false;
  // Set before the client hears of it.
  if (answer.hold) call.client->hold(memory_.get(), answer.slotRef);
  call.then(answer);
  return true;
}

void SimOwner::scan(uint64_t id, std::vector<uint64_t> refs) {
  // Sometimes a thread gets no time for a while.
  later(scheduler_.oneIn(10) ? scheduler_.upTo(milliseconds(200)) : world_.delay(), [this, id, refs = std::move(refs)] {
    const std::vector<bool> held = world_.heldOf(*memory_, refs);
    std::vector<bool> all = held;
    for (size_t i = 0; i < refs.size(); ++i) all[i] = all[i] || reading_.count(refs[i]) != 0;
    core_->scanned(id, all, scheduler_.now());
  });
}

// --- other owners

bool SimOwner::neighbour(const rpc::Peer& peer) {
  const SimOwner* const other = world_.owner(peer.node);
  return other && other->up() && other->memory_ && peer.hostId == place_.host && other->place_.host == place_.host &&
         other->memory_->header().servingIncarnation.load() == peer.incarnation.value;
}

void SimOwner::fetch(owner::Fetch fetch) {
  if (fetch.ssd) return fetchFromSsd(fetch);
  fetches_.emplace(fetch.id, false);
  SimOwner* const peer = world_.owner(fetch.peer.node);
  SIM_CHECK(peer, "a fetch from node ", fetch.peer.node);
  if (!rpc::isStaged(fetch.exportId) && neighbour(fetch.peer)) return fetchNeighbour(std::move(fetch), *peer);
  fetchByLink(std::move(fetch), *peer);
}

// A thread of ours reads the neighbour's segment, under a hazard like any client; what is exported, without.
void SimOwner::fetchNeighbour(owner::Fetch fetch, SimOwner& peer) {
  later(world_.delay(), [this, fetch = std::move(fetch), &peer] {
    if (fetches_.at(fetch.id)) return fetchEnded(fetch.id, {Code::unavailable, "given up"});
    const std::shared_ptr<Memory> from = peer.memory_;
    uint64_t source = fetch.sourceOffset, ref = 0;
    if (!from) return fetchEnded(fetch.id, {Code::unavailable, "cannot attach"});
    if (!fetch.exportId) {
      const std::optional<uint32_t> slot = peer.committed(fetch.key);
      if (!slot || !peer.serving() || from->header().servingIncarnation.load() != fetch.peer.incarnation.value ||
          peer.directory().putId(*slot) != fetch.putId)
        return fetchEnded(fetch.id, {Code::miss, "another version"});
      source = peer.directory().offset(*slot);
      ref = peer.directory().ref(*slot);
      peer.reading_.insert(ref);
      hazards_.push_back({&peer, peer.life(), ref});
    }
    std::memcpy(memory_->segment() + fetch.offset, from->segment() + source, fetch.bytes / 2);
    later(world_.delay(), [this, fetch, &peer, from, source, ref] {
      const uint64_t half = fetch.bytes / 2;
      std::memcpy(memory_->segment() + fetch.offset + half, from->segment() + source + half, fetch.bytes - half);
      const auto hazard = std::find_if(hazards_.begin(), hazards_.end(), [&](const Hazard& h) { return h.at == &peer && h.ref == ref; });
      if (hazard != hazards_.end()) {
        hazard->clear();
        hazards_.erase(hazard);
      }
      fetchEnded(fetch.id, {});
    });
  });
}

void SimOwner::Hazard::clear() {
  if (life == at->life()) at->reading_.erase(at->reading_.find(ref));
}

// Over the wire: the peer protects what it reads, and says when it cannot.
void SimOwner::fetchByLink(owner::Fetch fetch, SimOwner& peer) {
  const auto fail = [this, id = fetch.id](Error error) { later(world_.delay(), [this, id, error] { fetchEnded(id, error); }); };
  if (!world_.reaches(*this, peer)) return fail({Code::unavailable, "no connection"});
  if (!peer.up()) return fail({Code::unavailable, "connection refused"});
  peer.later(world_.delay(), [this, fetch, &peer, fail, life = life()] {
    if (life != this->life()) return;
    peer.serveLink(fetch, *this, life, fail);
  });
  // A peer that is stopped or dead says nothing: the deadline ends it.
  const Time deadline = std::min(fetch.deadline, scheduler_.now() + seconds(5));
  later({std::max<int64_t>(1, (deadline - scheduler_.now()).ns)}, [this, id = fetch.id] {
    const auto open = fetches_.find(id);
    if (open != fetches_.end()) fetchEnded(id, {Code::timedOut, "the peer says nothing"});
  });
}

// At the peer.
void SimOwner::serveLink(const owner::Fetch& fetch, SimOwner& to, uint64_t life, std::function<void(Error)> fail) {
  SimOwner& peer = *this;
  uint64_t source = 0, ref = 0;
  if (life != to.life() || !to.fetches_.count(fetch.id)) return;
  if (peer.joining_->registration().incarnation != fetch.peer.incarnation) return fail({Code::unavailable, "another life"});
  if (fetch.exportId) {
    const auto known = peer.exported_.find(fetch.exportId);
    if (known == peer.exported_.end() || known->second.ending || known->second.failed) return fail({Code::miss, "nothing is exported"});
    SIM_CHECK(known->second.bytes == fetch.bytes, "an export of another length");
    if (known->second.ready < fetch.bytes) {
      return peer.later(milliseconds(1), [this, fetch, &to, life, fail] { serveLink(fetch, to, life, fail); });
    }
    ++known->second.readers;
    source = known->second.offset;
  } else {
    const std::optional<uint32_t> slot = peer.committed(fetch.key);
    if (!slot || !peer.serving() || peer.directory().putId(*slot) != fetch.putId) return fail({Code::miss, "no such value"});
    SIM_CHECK(peer.directory().payloadBytes(*slot) == fetch.bytes, "a value of another length");
    source = peer.directory().offset(*slot);
    ref = peer.directory().ref(*slot);
    peer.reading_.insert(ref);
  }
  std::string bytes(peer.memory_->segment() + source, fetch.bytes / 2);
  peer.later(world_.delay(), [this, fetch, &peer, &to, fail, source, ref, life, bytes = std::move(bytes)]() mutable {
    bytes.append(peer.memory_->segment() + source + fetch.bytes / 2, fetch.bytes - fetch.bytes / 2);
    if (ref != 0) peer.reading_.erase(peer.reading_.find(ref));
    if (fetch.exportId) {
      Export& exported = peer.exported_.at(fetch.exportId);
      --exported.readers;
      if (exported.ending && exported.readers == 0) {
        peer.exported_.erase(fetch.exportId);
        peer.core_->unexported(fetch.exportId, scheduler_.now());
      }
    }
    if (life != to.life()) return;
    if (!world_.reaches(to, peer) || scheduler_.oneIn(world_.linkFailsOneIn())) return fail({Code::unavailable, "connection lost"});
    to.later(world_.delay(), [&to, fetch, bytes = std::move(bytes)] {
      // Until its end has been told bytes may still arrive, given up or not.
      const auto open = to.fetches_.find(fetch.id);
      if (open == to.fetches_.end()) return;
      std::memcpy(to.memory_->segment() + fetch.offset, bytes.data(), bytes.size());
      to.fetchEnded(fetch.id, open->second ? Error{Code::unavailable, "given up"} : Error{});
    });
  });
}

// --- its SSD

Code SimOwner::attachSsd(Incarnation content, bool empty) {
  if (ending_ || channel_) return Code::unavailable;
  return core_->takesSsd(content, empty) ? Code::ok : Code::fenced;
}

void SimOwner::attachedSsd(const std::shared_ptr<Channel>& channel, Incarnation content) {
  scheduler_.log(name(), " has its ssdd, content ", content.value);
  channel_ = channel;
  calm();
  core_->ssdAttached(content, scheduler_.now());
}

// What an ssdd that has died may have written is over.
void SimOwner::calm() {
  for (const uint64_t id : std::exchange(adrift_, {})) core_->fetched(id, {Code::unavailable, "ssdd has ended"}, scheduler_.now());
  if (!std::exchange(leftBehind_, false)) return;
  core_->clientGone(owner::kSsdWriter, scheduler_.now());
  core_->ssdNotComing();
}

void SimOwner::awaitLocks() {
  later(milliseconds(10), [this] {
    if (adrift_.empty() && !leftBehind_) return;
    ssdd_->locked() ? awaitLocks() : calm();
  });
}

void SimOwner::cutSsd() {
  const std::shared_ptr<Channel> channel = std::exchange(channel_, nullptr);
  channel->open = false;
  // It reads what is in the ring before it takes the end for the end.
  channel->lastToSsdd = std::max(channel->lastToSsdd, scheduler_.now() + world_.delay());
  ssdd_->later(channel->lastToSsdd - scheduler_.now() + Duration{1}, [this, channel] { ssdd_->ended(channel); });
  if (!loads_.empty() && adrift_.empty() && up()) awaitLocks();
  adrift_.insert(loads_.begin(), loads_.end());
  loads_.clear();
}

void SimOwner::ssdStartOver(const char* why) {
  scheduler_.log(name(), " cuts its ssdd off: ", why);
  if (channel_) cutSsd();
}

// ssdd has died.
void SimOwner::channelEnded(const std::shared_ptr<Channel>& channel) {
  channel->open = false;
  if (!up()) return;
  later(world_.delay(), [this, channel] {
    if (channel_ != channel) return;
    cutSsd();
    core_->ssdGone(scheduler_.now());
  });
}

void SimOwner::toSsdd(const ssd::Message& message) {
  if (!channel_) return;
  channel_->lastToSsdd = std::max(channel_->lastToSsdd, scheduler_.now() + world_.delay());
  ssdd_->later(channel_->lastToSsdd - scheduler_.now(),
               [this, channel = channel_, number = channel_->sent++, message] { ssdd_->hear(channel, number, message); });
}

void SimOwner::hearSsd(const std::shared_ptr<Channel>& channel, const ssd::Message& message) {
  if (!channel->open) return;
  channel->lastToOwner = std::max(channel->lastToOwner, scheduler_.now() + world_.delay());
  later(channel->lastToOwner - scheduler_.now(), [this, channel, message] {
    if (channel_ != channel) return;
    if (message.kind == ssd::MessageKind::progress) {
      if (loads_.count(message.id)) core_->loading(message.id, message.bytes, scheduler_.now());
      return;
    }
    if (message.kind != ssd::MessageKind::loaded) return core_->ssd(message, scheduler_.now());
    if (loads_.erase(message.id) == 0) return;
    core_->fetched(message.id, message.code == Code::ok ? Error{} : Error{message.code, "its SSD does not give it"}, scheduler_.now());
  });
}

void SimOwner::ssd(ssd::Message message) { toSsdd(message); }

void SimOwner::fetchFromSsd(const owner::Fetch& fetch) {
  if (!channel_) {
    return later({1}, [this, id = fetch.id] { core_->fetched(id, {Code::unavailable, "no ssdd"}, scheduler_.now()); });
  }
  loads_.insert(fetch.id);
  toSsdd({ssd::MessageKind::load, fetch.id, fetch.key, fetch.putId, fetch.offset, fetch.bytes});
}

void SimOwner::exportProgress(ExportId id, uint64_t ready) {
  Export& exported = exported_.at(id);
  SIM_CHECK(ready >= exported.ready && ready <= exported.bytes, name(), ": an export goes backwards, or beyond its end");
  exported.ready = ready;
}
void SimOwner::exportFailed(ExportId id) { exported_.at(id).failed = true; }

void SimOwner::fetchEnded(uint64_t id, Error error) {
  if (fetches_.erase(id) == 0) return;
  core_->fetched(id, error, scheduler_.now());
}

void SimOwner::cancelFetches() {
  for (auto& [id, given] : fetches_) given = true;
}

void SimOwner::unexport(ExportId id) {
  const auto found = exported_.find(id);
  SIM_CHECK(found != exported_.end(), "the end of an export that is none");
  found->second.ending = true;
  later(world_.delay(), [this, id] {
    const auto known = exported_.find(id);
    if (known == exported_.end() || known->second.readers > 0) return;
    exported_.erase(known);
    core_->unexported(id, scheduler_.now());
  });
}

// No two slots share a byte.
void SimOwner::check() const {
  if (!memory_) return;
  std::map<uint64_t, uint64_t> extents;
  for (uint32_t slot = 0; slot < writer_->slotCount(); ++slot) {
    if (writer_->state(slot) == shm::SlotState::free) continue;
    const uint64_t from = writer_->offset(slot), to = from + extentBytes(writer_->payloadBytes(slot));
    SIM_CHECK(to <= place_.segmentBytes, name(), ": slot ", slot, " has an extent outside the segment");
    SIM_CHECK(extents.emplace(from, to).second, name(), ": two slots have the extent at ", from);
  }
  uint64_t end = 0;
  for (const auto& [from, to] : extents) {
    SIM_CHECK(from >= end, name(), ": extents overlap at ", from);
    end = to;
  }
}

}  // namespace fluxon::sim
