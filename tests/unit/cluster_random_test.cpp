// One master and a few owners on two hosts under a seeded scheduler: messages are delayed and overtake each other (those of an owner
// to its master excepted), connections are lost, leases lapse, owners are fenced and join again, owners and the master are killed and
// started again over what they left, clients put, get, fetch, hold, delete and die.
//
// Checked all the time: a reader never sees a value that had been replaced or deleted before its read began; the bytes that a
// holder holds stay. Checked when all is quiet: nothing is in flight, and master and owners agree on every extent.
// FLUXON_SEEDS=n runs n seeds, FLUXON_SEED=s runs one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <sstream>

#include "master_fixture.h"
#include "owner_fixture.h"

namespace fluxon {
namespace {

using owner::Answer;
using owner::Caller;
using owner::Command;
using shm::CommandKind;
using shm::SlotState;

constexpr uint64_t kSegmentSize = 512 * 1024;
constexpr int kKeys = 6;
constexpr Duration kLease = milliseconds(400);

// What clients know: when each operation began and ended. A read of value w is stale if another put or delete of the key began
// after w had ended, and ended before the read began.
class History {
 public:
  uint64_t begin(int key, Time now) {
    ops_.push_back({key, now, Time::never(), State::open});
    return ops_.size() - 1;
  }
  void end(uint64_t op, Time now) {
    ops_[op].end = now;
    ops_[op].state = State::done;
    std::vector<Ended>& ended = ended_[ops_[op].key];
    ended.push_back({now, std::max(ops_[op].begin, ended.empty() ? Time{0} : ended.back().latestBegin)});
  }
  void aborted(uint64_t op) { ops_[op].state = State::aborted; }
  bool wasAborted(uint64_t op) const { return ops_.at(op).state == State::aborted; }
  bool stale(uint64_t written, Time readBegan) const {
    const Op& w = ops_.at(written);
    const auto ended = ended_.find(w.key);
    if (w.state != State::done || ended == ended_.end()) return false;
    const std::vector<Ended>& all = ended->second;
    const auto after = std::lower_bound(all.begin(), all.end(), readBegan, [](const Ended& e, Time t) { return e.end < t; });
    return after != all.begin() && std::prev(after)->latestBegin > w.end;
  }
  int keyOf(uint64_t op) const { return ops_.at(op).key; }
  size_t size() const { return ops_.size(); }

 private:
  enum class State : uint8_t { open, done, aborted };
  struct Op {
    int key;
    Time begin, end;
    State state;
  };
  struct Ended {
    Time end, latestBegin;  // latest beginning of all that ended until then
  };
  std::vector<Op> ops_;
  std::map<int, std::vector<Ended>> ended_;
};

class Sim;

// FLUXON_TRACE=key prints what happens to that key, and to the processes.
const char* const kTrace = std::getenv("FLUXON_TRACE");
template <class... Parts>
void trace(Time now, std::string_view key, const Parts&... parts) {
  if (!kTrace || (!key.empty() && key != kTrace)) return;
  std::ostringstream line;
  line << now.ns / 1000 << " ";
  (line << ... << parts);
  std::fprintf(stderr, "%s\n", line.str().c_str());
}

struct OwnerProcess final : owner::Host {
  OwnerProcess(Sim& s, std::string nodeName)
      : sim(s),
        name(std::move(nodeName)),
        shape(shm::DirectoryWriter::shapeFor(64, kSegmentSize)),
        directoryPages(shm::directoryFileBytes(shape.buckets, shape.overflowSlots)),
        keyPages(shm::keysFileBytes(shape.keysBytes)),
        segment(kSegmentSize),
        memory(shm::DirectoryWriter::layout(directoryPages.data(), keyPages.data(), shape, Incarnation(1), "c", name)),
        writer(std::make_unique<shm::DirectoryWriter>(memory, shape)),
        owned(std::make_unique<owner::OwnerCore>(owner::OwnerCore::Settings{name}, *writer, segment.data(), kSegmentSize, *this)) {}

  void send(const rpc::Request&) override;
  bool answer(Caller, Answer) override;
  void scan(uint64_t, std::vector<uint64_t>) override;
  void fetch(owner::Fetch) override;
  void cancelFetches() override;
  void exportValue(PutId id, uint64_t offset, uint64_t bytes) override { exported[id] = {offset, bytes}; }
  void unexport(PutId id) override;
  bool neighbour(const rpc::Peer& peer) override { return peer.hostId == host(); }
  void leave() override;
  std::string host() const { return name == "n1" ? "h1" : "h0"; }
  // Killed, and started again over what is left.
  void restart();
  void letGo(uint64_t client, uint64_t ref) {
    std::multiset<uint64_t>& refs = clients.at(client);
    refs.erase(refs.find(ref));
  }

  Sim& sim;
  std::string name;
  shm::DirectoryWriter::Shape shape;
  owner::Pages directoryPages, keyPages, segment;
  shm::DirectoryWriter::Memory memory;
  std::unique_ptr<shm::DirectoryWriter> writer;
  std::unique_ptr<owner::OwnerCore> owned;
  shm::DirectoryWriter& directory() const { return *writer; }
  owner::OwnerCore& core() const { return *owned; }
  uint64_t life = 0;  // what was begun in an earlier one ends nowhere
  std::map<PutId, std::pair<uint64_t, uint64_t>> exported;
  std::set<uint64_t> fetching;
  uint64_t masterLife = 0;  // of the master that has confirmed this incarnation
  std::set<uint64_t> busyLeaving;  // connections on which it has said farewell

  // The connection: messages of an earlier one are lost.
  uint64_t connection = 0;
  bool joined = false;
  bool known = false;  // the master has confirmed this incarnation
  bool refused = false;  // it did not want the values
  bool late = false;   // what was sent over the last connection still arrives
  bool mayLose = true;
  Incarnation incarnation;
  std::shared_ptr<master::Member> member;
  Time lastArrival{0};  // requests keep their order

  std::map<uint64_t, std::multiset<uint64_t>> clients;  // living clients → slotRefs that their hazard and held words name
  std::map<std::pair<uint64_t, uint32_t>, std::function<bool(const Answer&)>> calls;  // open commands
};

class Sim final : public master::Outbox {
 public:
  explicit Sim(uint64_t seed)
      : random(seed) {
    startMaster();
    for (uint64_t i = 0; i < 2 + seed % 2; ++i) owners.push_back(std::make_unique<OwnerProcess>(*this, "n" + std::to_string(i)));
  }

  // What happened, to be sure that it did.
  struct Tally {
    uint64_t reads = 0, published = 0, overwritten = 0, evicted = 0, busy = 0, invalidated = 0, fenced = 0, noSpace = 0, fromReserve = 0,
             rejoins = 0, fetches = 0, made = 0, temporary = 0, revived = 0, masters = 0, restarts = 0, elsewhere = 0, copies = 0, left = 0;
  } tally;

  // A master with what the last one had on disk.
  void startMaster() {
    ++masterLife;
    trace(now, "", "master ", masterLife);
    if (masterCore) tally.masters++, count(*masterCore);
    masterCore = std::make_unique<master::MasterCore>(
        master::MasterCore::Identity{"c", "id", Term(masterLife), Incarnation(5 + masterLife)},
        master::Settings{kLease, milliseconds(300), milliseconds(50)}, disk.members,
        now + kLease + kLease / 100 + milliseconds(50), *this);
    disk.version = 0;
    for (auto& o : owners) {
      o->member = nullptr;
      lose(*o);
    }
  }
  void persist() override {
    at(delay(), [this, life = masterLife] {
      if (life != masterLife) return;
      disk = masterCore->durable();
      masterCore->persisted(disk.version, now);
    });
  }

  void run() {
    for (auto& o : owners) {
      connect(*o);
      beat(*o);
      for (uint64_t c = 1; c <= 2; ++c) o->clients[c];
    }
    for (int i = 0; i < 8; ++i) at(some(5'000), [this] { act(); });
    advance(now + milliseconds(700));
    quiet();
  }

  // --- scheduling
  uint64_t pick(uint64_t below) { return random() % below; }
  Duration some(int64_t mostUs) { return {static_cast<int64_t>(pick(static_cast<uint64_t>(mostUs) * 1000)) + 1}; }
  Duration delay() { return pick(20) == 0 ? some(20'000) : some(400); }
  void at(Duration in, std::function<void()> what) { events.push({now + in, ++sequence, std::move(what)}); }
  void advance(Time end) {
    for (;;) {
      Time next = events.empty() ? Time::never() : events.top().time;
      next = std::min(next, masterCore->nextWake());
      for (auto& o : owners) next = std::min(next, o->core().nextWake());
      if (next > end) break;
      spins = next > now ? 0 : spins + 1;
      INFO("master wakes at ", masterCore->nextWake().ns, ", now ", now.ns);
      REQUIRE_MESSAGE(spins < 20'000, "time stands still");
      now = std::max(now, next);
      if (!events.empty() && events.top().time <= now) {
        const std::function<void()> what = events.top().what;
        events.pop();
        what();
      }
      if (masterCore->nextWake() <= now) masterCore->tick(now);
      while (masterCore->hasWork()) masterCore->work();
      for (auto& o : owners) {
        if (o->core().nextWake() <= now) o->core().tick(now);
        if (o->joined && o->core().fenced()) lose(*o);
      }
    }
    now = end;
  }

  // --- connections
  void send(master::Member& member, rpc::MasterMessage message) override {
    for (auto& o : owners) {
      if (o->member.get() != &member && o->incarnation.value != member.incarnation().value) continue;
      at(delay(), [this, &p = *o, to = o->connection, message] { deliver(p, to, message); });
    }
  }
  void deliver(OwnerProcess& o, uint64_t to, const rpc::MasterMessage& message) {
    if (o.connection != to) return;
    for (const rpc::Version& item : message.items)
      trace(now, item.key, o.name, " order ", static_cast<int>(message.kind), " ", toString(item.putId), " offset ", item.offset);
    if (o.joined) trace(now, "", o.name, " reply ", message.reply.id.value, " code ", static_cast<int>(message.reply.code), " put ",
                        toString(message.reply.putId), " published ", message.reply.published, " fetch ", message.reply.fetch);
    if (o.joined) return o.core().message(message, now);
    at(some(200), [this, &o, to, message] { deliver(o, to, message); });  // it came before the answer to the registration
  }
  void lose(OwnerProcess& o) {
    trace(now, "", o.name, " loses its connection");
    ++o.connection;
    o.joined = false;
    o.late = pick(2) == 0;
    if (o.member) masterCore->disconnected(*o.member);
    at(pick(6) == 0 && o.mayLose ? kLease + some(400'000) : some(20'000), [this, &o, c = o.connection] {
      if (o.connection == c) connect(o);
    });
  }
  void connect(OwnerProcess& o) {
    const bool anew = !o.known || o.core().fenced() || o.masterLife != masterLife;
    if (anew && (o.refused || o.core().contentRefused() || pick(20) == 0)) {
      o.refused = false;
      o.core().drop(now);
    } else if (anew) {
      o.core().keep(now);
    }
    enroll(o, anew);
  }
  void enroll(OwnerProcess& o, bool anew) {
    if (anew && o.core().unsettled() > 0)
      return at(some(300), [this, &o, anew, c = o.connection] {
        if (o.connection == c) enroll(o, anew);
      });
    rpc::Registration r;
    r.node = o.name;
    r.hostId = o.host();
    r.link = "l";
    if (anew) r.adopts = o.core().content();
    r.incarnation = anew ? Incarnation(++incarnations) : o.incarnation;
    r.segmentBytes = kSegmentSize;
    r.maxKeys = 64;
    if (anew) r.occupied = o.core().occupied();
    if (anew) o.known = false;
    o.incarnation = r.incarnation;
    const Time sent = now;
    at(delay(), [this, &o, anew, r, sent, c = o.connection, life = masterLife] {
      if (o.connection != c || life != masterLife) return;
      std::shared_ptr<master::Member> member;
      const rpc::Registered result = masterCore->registerOwner(r, now, member);
      trace(now, "", o.name, " registers ", r.incarnation.value, " adopts ", r.adopts.value, " code ", static_cast<int>(result.code),
            " inventory ", result.inventory, " recovering ", masterCore->recovering());
      if (result.code == Code::ok) o.member = member;
      enrolled(o, anew, r, result, sent, c, masterCore->durable().version);
    });
  }
  // The answer leaves when the member is durable.
  void enrolled(OwnerProcess& o, bool anew, const rpc::Registration& r, const rpc::Registered& result, Time sent, uint64_t c,
                uint64_t version) {
    at(delay(), [this, &o, anew, r, result, sent, c, version, life = masterLife] {
      if (o.connection != c || life != masterLife) return;
      if (disk.version < version) return enrolled(o, anew, r, result, sent, c, version);
      if (result.code != Code::ok) {
        REQUIRE(result.code == Code::fenced);
        o.known = false;
        return lose(o);
      }
      if (anew && r.adopts && !result.inventory) {
        o.refused = true;
        o.known = false;
        return lose(o);
      }
      o.joined = o.known = true;
      o.masterLife = masterLife;
      o.lastArrival = now;
      const auto inventory = result.inventory ? owner::OwnerCore::Inventory::wanted : owner::OwnerCore::Inventory::none;
      if (anew) o.core().registered(o.incarnation, kLease, sent, inventory, now);
      else o.core().reconnected(kLease, sent);
    });
  }
  void beat(OwnerProcess& o) {
    std::vector<uint32_t> touched;
    if (pick(2)) touched.push_back(static_cast<uint32_t>(pick(o.directory().slotCount())));
    o.core().heartbeat(touched, now);
    at(kLease / 5, [this, &o] { beat(o); });
  }

  // --- clients
  std::string keyName(int key) const { return "key" + std::to_string(key); }
  void command(OwnerProcess& o, uint64_t client, Command c, std::function<bool(const Answer&)> then) {
    const Caller caller{ClientId(client), nextSlot++};
    o.calls[{client, caller.slot}] = std::move(then);
    c.deadline = now + milliseconds(200);
    // A caller may give up before it is answered.
    if (pick(12) == 0) at(some(3000), [&o, client, caller] { o.calls.erase({client, caller.slot}); });
    o.core().command(caller, std::move(c), now);
  }
  // One action of a client of some owner, and the next one later.
  void act() {
    if (!busy) return;
    at(some(4'000), [this] { act(); });
    OwnerProcess& o = *owners[pick(owners.size())];
    auto it = o.clients.begin();
    std::advance(it, static_cast<long>(pick(o.clients.size())));
    const uint64_t client = it->first;
    const int key = static_cast<int>(pick(kKeys));
    switch (pick(24)) {
      case 0: case 1: case 2: case 3: case 4: return put(o, client, key);
      case 5: case 6: return putInline(o, client, key);
      case 7: case 8: return remove(o, client, key);
      case 9: return die(o, client);
      case 10:
        if (pick(4) == 0 && o.joined) return lose(o);
        if (pick(12) == 0) return o.restart();
        if (pick(40) == 0) return startMaster();
        if (pick(20) == 0) (void)masterCore->evictTo(o.name, pick(100), now);
        if (pick(20) == 0) {
          trace(now, "", o.name, " is drained");
          (void)masterCore->drain(o.name, now);
        }
        return;
      case 11: case 12: case 13: return ringGet(o, client, key);
      case 14: return fillUp(o, client);
      case 15: return grantLease(o, client);
      default: return probe(o, client, key);
    }
  }
  uint64_t valueBytes() { return pick(3) == 0 ? 8 + pick(60'000) : 8 + pick(2000); }
  void mark(OwnerProcess& o, uint64_t offset, uint64_t op) { std::memcpy(o.segment.data() + offset, &op, 8); }
  uint64_t marked(OwnerProcess& o, uint64_t offset) {
    uint64_t op = 0;
    std::memcpy(&op, o.segment.data() + offset, 8);
    return op;
  }
  // A key lease that soon ends; some puts are made under it.
  void grantLease(OwnerProcess& o, uint64_t client) {
    Command c;
    c.kind = pick(4) == 0 && lease ? CommandKind::leaseRevoke : CommandKind::leaseGrant;
    c.lease = lease;
    c.valueBytes = 50 + pick(100);
    command(o, client, c, [this](const Answer& answer) {
      if (answer.code == Code::ok) lease = answer.lease;
      return true;
    });
  }
  KeyLeaseId someLease() { return pick(3) == 0 ? lease : KeyLeaseId(); }
  uint32_t someFlags() { return pick(6) == 0 ? shm::kRejectIfExists : pick(6) == 0 ? shm::kRejectIfInFlight : 0; }
  void put(OwnerProcess& o, uint64_t client, int key) {
    const uint64_t op = history.begin(key, now);
    trace(now, keyName(key), o.name, " put ", op);
    Command c;
    c.kind = CommandKind::putStart;
    c.key = keyName(key);
    c.valueBytes = valueBytes();
    c.flags = someFlags();
    c.lease = someLease();
    if (pick(6) == 0) c.flags |= 2u << shm::kReplicasShift;
    command(o, client, c, [this, &o, client, op](const Answer& grant) {
      if (grant.code != Code::ok || !grant.node.empty()) return true;
      at(some(4000), [this, &o, client, op, grant] {
        if (!o.clients.count(client)) return;
        mark(o, grant.offset, op);
        Command next;
        next.kind = pick(8) == 0 ? CommandKind::abort : CommandKind::commit;
        next.slotRef = grant.slotRef;
        if (pick(40) == 0) return die(o, client);
        command(o, client, next, [this, op, aborted = next.kind == CommandKind::abort](const Answer& answer) {
          trace(now, "", "operation ", op, " ended ", static_cast<int>(answer.code), " ", toString(answer.putId), aborted ? " abort" : "");
          if (answer.code == Code::ok) aborted ? history.aborted(op) : history.end(op, now);
          return true;
        });
      });
      return true;
    });
  }
  void putInline(OwnerProcess& o, uint64_t client, int key) {
    const uint64_t op = history.begin(key, now);
    trace(now, keyName(key), o.name, " putInline ", op);
    Command c;
    c.kind = CommandKind::putInline;
    c.key = keyName(key);
    c.extra.assign(8 + pick(1000), '.');
    std::memcpy(c.extra.data(), &op, 8);
    c.flags = someFlags();
    c.lease = someLease();
    command(o, client, c, [this, op](const Answer& answer) {
      trace(now, "", "operation ", op, " ended ", static_cast<int>(answer.code), " ", toString(answer.putId));
      if (answer.code == Code::ok && answer.node.empty()) history.end(op, now);
      return true;
    });
  }
  // Other keys, so that the segment is full most of the time.
  void fillUp(OwnerProcess& o, uint64_t client) {
    const uint64_t op = history.begin(kKeys, now);
    Command c;
    c.kind = CommandKind::putStart;
    c.key = "filler" + std::to_string(pick(20));
    c.valueBytes = 20'000 + pick(30'000);
    command(o, client, c, [this, &o, client, op](const Answer& grant) {
      if (grant.code != Code::ok || !grant.node.empty()) return true;
      mark(o, grant.offset, op);
      Command commit;
      commit.kind = CommandKind::commit;
      commit.slotRef = grant.slotRef;
      at(some(500), [this, &o, client, commit] {
        if (o.clients.count(client)) command(o, client, commit, [](const Answer&) { return true; });
      });
      return true;
    });
  }
  void remove(OwnerProcess& o, uint64_t client, int key) {
    const uint64_t op = history.begin(key, now);
    trace(now, keyName(key), o.name, " remove ", op);
    Command c;
    c.kind = CommandKind::remove;
    c.key = keyName(key);
    command(o, client, c, [this, op](const Answer& answer) {
      trace(now, "", "operation ", op, " ended ", static_cast<int>(answer.code));
      if (answer.code == Code::ok || answer.code == Code::miss) history.end(op, now);
      return true;
    });
  }
  void die(OwnerProcess& o, uint64_t client) {
    o.clients.erase(client);
    for (auto it = o.calls.begin(); it != o.calls.end();) it = it->first.first == client ? o.calls.erase(it) : std::next(it);
    o.clients[++lastClient];
    o.core().clientGone(ClientId(client), now);
  }
  void see(OwnerProcess& o, uint64_t offset, int key, Time began, const char* how) {
    const uint64_t op = marked(o, offset);
    INFO(std::string(how), " of ", keyName(key), " at ", o.name, " saw operation ", op, " at ", now.ns);
    ++tally.reads;
    REQUIRE(op < history.size());
    REQUIRE(history.keyOf(op) == key);
    REQUIRE_FALSE(history.wasAborted(op));
    REQUIRE_FALSE(history.stale(op, began));
  }
  // The read without a message: directory_view.h, with the virtual clock.
  void probe(OwnerProcess& o, uint64_t client, int key) {
    const std::optional<uint32_t> slot = o.directory().committed(keyName(key), keyHash(keyName(key)));
    if (!slot || !o.core().serving(now)) return;
    see(o, o.directory().offset(*slot), key, now, "probe");
    if (pick(4) == 0) holdHazard(o, client, key, *slot);
  }
  void holdHazard(OwnerProcess& o, uint64_t client, int key, uint32_t slot) {
    const uint64_t ref = o.directory().ref(slot), offset = o.directory().offset(slot), op = marked(o, offset);
    o.clients.at(client).insert(ref);
    at(some(30'000), [this, &o, client, ref, offset, op, key] {
      if (!o.clients.count(client)) return;
      INFO("hazard of ", keyName(key), " at ", o.name);
      REQUIRE(marked(o, offset) == op);
      o.letGo(client, ref);
    });
  }
  void ringGet(OwnerProcess& o, uint64_t client, int key) {
    Command c;
    c.kind = CommandKind::get;
    c.key = keyName(key);
    c.flags = pick(2) ? shm::kHold : 0;
    command(o, client, c, [this, &o, client, key, began = now](const Answer& answer) {
      if (answer.code != Code::ok || !answer.node.empty()) return true;
      see(o, answer.offset, key, began, answer.fetched ? "fetch" : "ring get");
      if (!answer.hold) return true;
      o.clients.at(client).insert(answer.slotRef);
      at(some(30'000), [this, &o, client, answer, op = marked(o, answer.offset)] {
        if (!o.clients.count(client)) return;
        REQUIRE(marked(o, answer.offset) == op);
        o.letGo(client, answer.slotRef);
      });
      return true;
    });
  }

  // --- the end: nothing begins any more, everything that was begun ends
  void quiet() {
    busy = false;
    for (auto& o : owners) o->mayLose = false;
    for (auto& o : owners) {
      if (o->member) o->member->draining = false;
    }
    advance(now + seconds(3));
    for (auto& o : owners) {
      if (!o->joined) continue;
      const std::vector<uint64_t> living = [&] {
        std::vector<uint64_t> ids;
        for (const auto& [id, hazards] : o->clients) ids.push_back(id);
        return ids;
      }();
      for (const uint64_t client : living) die(*o, client);
    }
    advance(now + seconds(15));  // the reserve goes back after 10 s without puts
    CHECK(masterCore->inFlightPuts() == 0);
    for (auto& o : owners) agree(*o);
    count(*masterCore);
    for (auto& o : owners) count(*o);
  }
  void count(const master::MasterCore& core) {
    const master::MasterCounters& m = core.counters();
    tally.published += m.putsPublished, tally.overwritten += m.putsOverwritten, tally.evicted += m.evictions, tally.busy += m.evictionsBusy;
    tally.invalidated += m.invalidations, tally.fenced += m.fenced, tally.noSpace += m.noSpace, tally.fetches += m.fetches;
    tally.made += m.replicasMade, tally.revived += m.revived, tally.elsewhere += m.placedElsewhere;
  }
  void count(const OwnerProcess& o) {
    const owner::OwnerCounters& c = o.core().counters();
    tally.fromReserve += c.putsFromReserve, tally.rejoins += c.rejoins, tally.temporary += c.temporary, tally.copies += c.copiesOrdered;
  }
  void agree(OwnerProcess& o) {
    CAPTURE(o.name);
    REQUIRE(o.joined);
    REQUIRE(o.member->state == master::MemberState::joined);
    CHECK(o.core().grants() == 0);
    CHECK(o.core().retired() == 0);
    CHECK(o.core().flights() == 0);
    CHECK(o.core().exports() == 0);
    CHECK(o.member->transfers.empty());
    CHECK(o.core().requestsPending() <= 1);  // a heartbeat
    CHECK(o.member->waiting.empty());
    CHECK(o.member->orders.empty());
    CHECK(o.core().counters().refused == 0);
    std::map<uint64_t, std::pair<std::string, uint64_t>> here, there;
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < o.directory().slotCount(); ++slot) {
      if (o.directory().state(slot) == SlotState::free) continue;
      CHECK((o.directory().state(slot) == SlotState::committed));
      here[o.directory().offset(slot)] = {std::string(o.directory().key(slot)), o.directory().putId(slot).value};
      bytes += extentBytes(o.directory().payloadBytes(slot));
    }
    for (const auto& [offset, record] : o.member->space.records()) {
      if (record.key) there[offset] = {std::string(record.key->key), record.key->putId.value};
    }
    CHECK(here == there);
    const master::MemberSpace& space = o.member->space;
    CHECK(space.capacity() - space.freeBytes() == bytes + o.core().reserveBytes());
    CHECK(space.bytes(master::Use::reserved) == o.core().reserveBytes());
    CHECK(space.bytes(master::Use::unrouted) == 0);
    CHECK(space.bytes(master::Use::inFlight) == 0);
    CHECK(space.bytes(master::Use::reclaiming) == 0);
  }

  struct Event {
    Time time;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const { return std::tie(time, order) > std::tie(other.time, other.order); }
  };
  std::mt19937_64 random;
  Time now{seconds(100).ns};
  std::priority_queue<Event> events;
  uint64_t sequence = 0;
  uint64_t spins = 0;
  bool busy = true;
  std::unique_ptr<master::MasterCore> masterCore;
  uint64_t masterLife = 0;
  master::Durable disk;
  std::vector<std::unique_ptr<OwnerProcess>> owners;
  History history;
  uint64_t incarnations = 10;
  uint64_t lastClient = 10;
  KeyLeaseId lease;
  uint32_t nextSlot = 0;
};

void OwnerProcess::send(const rpc::Request& request) {
  if (!joined) return;  // kept by the core
  trace(sim.now, request.key, name, " request ", request.id.value, " kind ", static_cast<int>(request.kind), " put ", request.put.value,
        " command ", request.command.value);
  for (const rpc::Version& item : request.items) trace(sim.now, item.key, name, " item ", toString(item.putId), " offset ", item.offset);
  // Requests keep their order.
  lastArrival = std::max(lastArrival, sim.now + sim.delay());
  sim.at(lastArrival - sim.now, [this, request, from = connection, lowest = core().lowestUnanswered(), to = member, m = sim.masterLife] {
    if (sim.masterLife != m) return;
    if (connection == from || (late && connection == from + 1)) sim.masterCore->handle(*to, {request}, lowest, sim.now);
  });
}
bool OwnerProcess::answer(Caller caller, Answer given) {
  const auto call = calls.find({caller.client.value, caller.slot});
  if (call == calls.end()) return false;
  const auto then = std::move(call->second);
  calls.erase(call);
  return then(given);
}
void OwnerProcess::scan(uint64_t id, std::vector<uint64_t> refs) {
  sim.at(sim.delay(), [this, id, refs, begun = life] {
    if (life != begun) return;
    std::set<uint64_t> named;
    for (const auto& [client, hazards] : clients) named.insert(hazards.begin(), hazards.end());
    std::vector<bool> held;
    for (const uint64_t ref : refs) held.push_back(named.count(ref) != 0);
    core().scanned(id, held, sim.now);
  });
}
// The bytes move in one moment, some time after they were asked for.
void OwnerProcess::fetch(owner::Fetch fetch) {
  fetching.insert(fetch.id);
  sim.at(sim.delay(), [this, fetch, begun = life] {
    if (life != begun) return;
    const bool cancelled = fetching.erase(fetch.id) == 0;
    Error error{Code::unavailable, "gone"};
    for (auto& peer : sim.owners) {
      if (cancelled || peer->name != fetch.peer.node || sim.pick(10) == 0) continue;
      const auto known = peer->exported.find(fetch.putId);
      const std::optional<uint32_t> slot = peer->directory().committed(fetch.key, keyHash(fetch.key));
      if (fetch.exported && known != peer->exported.end()) {
        REQUIRE(known->second.second == fetch.bytes);
        std::memcpy(segment.data() + fetch.offset, peer->segment.data() + known->second.first, fetch.bytes);
        error = {};
      } else if (!fetch.exported && slot && peer->core().serving(sim.now) && peer->directory().putId(*slot) == fetch.putId) {
        REQUIRE(peer->directory().payloadBytes(*slot) == fetch.bytes);
        std::memcpy(segment.data() + fetch.offset, peer->segment.data() + peer->directory().offset(*slot), fetch.bytes);
        error = {};
      }
    }
    core().fetched(fetch.id, error, sim.now);
  });
}
void OwnerProcess::cancelFetches() { fetching.clear(); }
void OwnerProcess::unexport(PutId id) {
  REQUIRE(exported.erase(id) == 1);
  sim.at(sim.delay(), [this, id, begun = life] {
    if (life == begun) core().unexported(id, sim.now);
  });
}
// Everything is elsewhere: it leaves for good, and comes back as an empty node.
void OwnerProcess::leave() {
  if (!joined || !busyLeaving.insert(connection).second) return;
  trace(sim.now, "", name, " leaves");
  ++sim.tally.left;
  sim.at(sim.delay(), [this, c = connection, m = sim.masterLife, to = member] {
    if (connection != c || sim.masterLife != m) return;
    core().drop(sim.now);
    sim.masterCore->leave(*to, master::MasterCore::Content::gone, sim.now);
    known = false;
    sim.lose(*this);
  });
}
void OwnerProcess::restart() {
  trace(sim.now, "", name, " starts again");
  ++sim.tally.restarts;
  sim.count(*this);
  if (joined) sim.lose(*this);
  if (member) sim.masterCore->disconnected(*member);
  member = nullptr;
  incarnation = Incarnation();
  ++connection;
  ++life;
  known = false;
  fetching.clear();
  exported.clear();
  calls.clear();
  writer->setLease(0);
  writer->setServing(Incarnation());
  Result<std::unique_ptr<shm::DirectoryWriter>> adopted = shm::DirectoryWriter::adopt(memory, shape);
  REQUIRE_MESSAGE(adopted.ok(), adopted.error().message());
  owned = nullptr;
  writer = std::move(adopted).value();
  owned = std::make_unique<owner::OwnerCore>(owner::OwnerCore::Settings{name}, *writer, segment.data(), kSegmentSize, *this);
  std::set<uint64_t> living;
  for (const auto& [id, hazards] : clients) living.insert(id);
  core().adopt(living);
  sim.at(sim.some(20'000), [this, c = connection] {
    if (connection == c) sim.connect(*this);
  });
}

TEST_CASE("cluster: readers see the latest completed put or nothing, and nothing leaks") {
  const char* one = std::getenv("FLUXON_SEED");
  const char* many = std::getenv("FLUXON_SEEDS");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t count = one ? 1 : many ? std::strtoull(many, nullptr, 10) : 100;
  Sim::Tally all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    Sim sim(seed);
    sim.run();
    const Sim::Tally& t = sim.tally;
    all.reads += t.reads, all.published += t.published, all.overwritten += t.overwritten, all.evicted += t.evicted, all.busy += t.busy;
    all.invalidated += t.invalidated, all.fenced += t.fenced, all.noSpace += t.noSpace, all.fromReserve += t.fromReserve,
        all.rejoins += t.rejoins, all.fetches += t.fetches, all.made += t.made, all.temporary += t.temporary, all.revived += t.revived,
        all.masters += t.masters, all.restarts += t.restarts, all.elsewhere += t.elsewhere, all.copies += t.copies,
        all.elsewhere += t.elsewhere, all.left += t.left;
  }
  MESSAGE("reads ", all.reads, ", published ", all.published, ", overwritten ", all.overwritten, ", evicted ", all.evicted, ", busy ",
          all.busy, ", invalidated ", all.invalidated, ", fenced ", all.fenced, ", no space ", all.noSpace, ", from reserve ",
          all.fromReserve, ", joins ", all.rejoins, ", fetches ", all.fetches, ", replicas ", all.made, ", temporary ", all.temporary,
          ", revived ", all.revived, ", masters ", all.masters, ", restarts ", all.restarts, ", copies ", all.copies,
          ", elsewhere ", all.elsewhere, ", left ", all.left);
  for (const uint64_t happened : {all.reads, all.published, all.overwritten, all.evicted, all.busy, all.invalidated, all.fenced,
                                  all.fromReserve, all.fetches, all.made, all.temporary, all.revived, all.masters, all.restarts,
                                  all.copies, all.elsewhere, all.left}) {
    CHECK((happened > 0 || count < 20));
  }
}

}  // namespace
}  // namespace fluxon
