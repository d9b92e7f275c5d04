// What clients do.
#include "base/hash.h"
#include "world.h"

namespace fluxon::sim {
namespace {

using owner::Answer;
using owner::Command;
using shm::CommandKind;

constexpr int kMostHops = 3;

std::string keyName(int key) { return "key" + std::to_string(key % kKeysOfCluster); }

}  // namespace

SimMaster& World::someMaster() { return faults_.moves != 0 && scheduler_.oneIn(3) ? other_ : master_; }
SimOwner& World::someOwner() { return *owners_[scheduler_.pick(owners_.size())]; }

void World::act() {
  // Actors end with their burst; in between each acts once.
  if (busy_) {
    scheduler_.at(scheduler_.upTo(milliseconds(4)), [this] { act(); });
  } else {
    --actors_;
  }
  ++tally.operations;
  SimOwner& owner = someOwner();
  if (owner.clients().empty()) return;
  const std::shared_ptr<Client> client = owner.clients()[scheduler_.pick(owner.clients().size())];
  const int key = someKey(owner);
  if (reading_ && !scheduler_.oneIn(reading_)) {
    return scheduler_.oneIn(12) ? evictAll() : get(owner, client, key);
  }
  switch (scheduler_.pick(24)) {
    // clang-format off
    case 0: case 1: case 2: case 3: case 4: return put(owner, client, key);
    case 5: case 6: return putInline(owner, client, key);
    case 7: case 8: return remove(owner, client, key);
    case 9: case 10: case 11: return get(owner, client, key);
    case 12: return fill(owner, client);
    case 13: return lease(owner, client);
    case 14: return look(owner, client, key);
    case 15: return fault();
    case 16: case 17: return probe(client, someOwner(), key, scheduler_.now(), "a read at a neighbour");
    default: return probe(client, owner, key, scheduler_.now(), "a read");
      // clang-format on
  }
}

// While a new term learns what there is: at owners that serve again already, of what others may still have to list.
void World::changeInWindow() {
  SimOwner& owner = someOwner();
  if (!owner.joined() || owner.clients().empty()) return;
  const std::shared_ptr<Client>& client = owner.clients()[scheduler_.pick(owner.clients().size())];
  const int key = someKey(owner);
  switch (scheduler_.pick(8)) {
    case 0: return putInline(owner, client, key);
    case 1: return get(owner, client, key);
    // clang-format off
    case 2: case 3: return stat(owner, client, key);
    default: return remove(owner, client, key);
      // clang-format on
  }
}

// How long a client waits for an answer.
Duration World::patience() { return scheduler_.oneIn(12) ? scheduler_.upTo(kDeadline) : kDeadline; }

// Of any size, or of those of pages, so that versions of a key are of the same size.
uint64_t World::valueBytes() {
  if (scheduler_.oneIn(2)) return scheduler_.oneIn(3) ? 40'000 : 1000;
  return scheduler_.oneIn(3) ? 8 + scheduler_.pick(60'000) : 8 + scheduler_.pick(2000);
}

void World::drawMode(Command& put) {
  if (scheduler_.oneIn(6))
    put.put.onExisting = PutMode::OnExisting::reject;
  else if (scheduler_.oneIn(6))
    put.put.onInFlight = PutMode::OnInFlight::reject;
  if (scheduler_.oneIn(6)) put.replicas = 2;
}

// --- puts

void World::put(SimOwner& owner, const std::shared_ptr<Client>& client, int key) {
  const uint64_t op = history_.begin(key, scheduler_.now());
  Command command;
  command.kind = CommandKind::putStart;
  command.key = keyName(key);
  command.valueBytes = valueBytes();
  drawMode(command);
  if (scheduler_.oneIn(3)) command.lease = keyLease_[owner.cluster()];
  scheduler_.log(owner.name(), " client ", client->id, " puts ", command.key, " by operation ", op);
  SimOwner* at = &owner;
  // The bytes are at a neighbour already: a side transfer.
  if (SimOwner& other = someOwner(); scheduler_.oneIn(8) && &other != &owner && owner.neighbours(other)) {
    command.extra = owner.place().node;
    at = &other;
  }
  putAt(*at, client, std::move(command), op, 0);
}

void World::putAt(SimOwner& at, const std::shared_ptr<Client>& client, Command command, uint64_t op, int hops) {
  const auto then = [this, &at, client, command, op, hops](const Answer& grant) {
    if (grant.code != Code::ok) return;
    if (grant.node.empty()) {
      if (command.put.onExisting == PutMode::OnExisting::reject) history_.granted(op, scheduler_.now());
      return write(at, client, grant, command.valueBytes, op);
    }
    SimOwner* const next = owner(grant.node);
    SIM_CHECK(next, "a put is sent to node ", grant.node);
    Command again = command;
    again.put.home = PutMode::Home::here;
    if (hops < kMostHops && at.neighbours(*next)) putAt(*next, client, std::move(again), op, hops + 1);
  };
  at.command(client, command, then, patience());
}

// The client fills its grant, as long as it has it, and then parts with it.
void World::write(SimOwner& at, const std::shared_ptr<Client>& client, const Answer& grant, uint64_t bytes, uint64_t op) {
  const std::shared_ptr<Memory> memory = at.memory();
  const auto fill = [client, memory, grant, bytes](uint64_t with) {
    if (!client->dead) memory->mark(grant.offset, bytes, with);
  };
  if (scheduler_.oneIn(3)) scheduler_.at(scheduler_.upTo(milliseconds(2)), [fill] { fill(UINT64_MAX); });
  const Duration takes = scheduler_.oneIn(40) ? settings_.lease + scheduler_.upTo(settings_.lease) : scheduler_.upTo(milliseconds(4));
  scheduler_.at(milliseconds(2) + takes, [this, &at, client, grant, op, fill] {
    if (client->dead) return;
    fill(op);
    if (faults_.clientDeaths != 0 && scheduler_.oneIn(40)) {
      ++tally.clientsDead;
      SimOwner& home = *client->home;
      die(client);
      home.attach();
      return;
    }
    finish(at, client, grant, op, scheduler_.oneIn(8) ? CommandKind::abort : CommandKind::commit);
  });
}

void World::finish(SimOwner& at, const std::shared_ptr<Client>& client, const Answer& grant, uint64_t op, CommandKind kind) {
  scheduler_.log(at.name(), " client ", client->id, kind == CommandKind::abort ? " aborts operation " : " commits operation ", op);
  Command command;
  command.kind = kind;
  command.slotRef = grant.slotRef;
  history_.committing(op, scheduler_.now());
  at.command(
      client, command,
      [this, op, kind](const Answer& answer) {
        scheduler_.log("operation ", op, kind == CommandKind::abort ? " aborted: " : " ended: ", codeName(answer.code), " ",
                       toString(answer.putId));
        if (answer.code != Code::ok || op >= history_.size()) return;
        if (kind == CommandKind::abort) return history_.aborted(op);
        history_.end(op, scheduler_.now());
        SIM_CHECK(history_.named(op, answer.putId), "operation ", op, " is done under ", toString(answer.putId),
                  ", but known under another");
        const std::optional<uint64_t> rival = history_.rival(op);
        SIM_CHECK(!rival, "operations ", op, " and ", rival.value_or(0),
                  " both reject an existing key, were in flight together, and are done");
      },
      patience());
}

void World::putInline(SimOwner& owner, const std::shared_ptr<Client>& client, int key) {
  const uint64_t op = history_.begin(key, scheduler_.now());
  Command command;
  command.kind = CommandKind::putInline;
  command.key = keyName(key);
  command.extra.assign(8 + scheduler_.pick(1000), '.');
  command.valueBytes = command.extra.size();
  std::memcpy(command.extra.data(), &op, 8);
  if (command.extra.size() >= 16) std::memcpy(command.extra.data() + command.extra.size() - 8, &op, 8);
  drawMode(command);
  if (scheduler_.oneIn(3)) command.lease = keyLease_[owner.cluster()];
  scheduler_.log(owner.name(), " client ", client->id, " puts ", command.key, " inline by operation ", op);
  putInlineAt(owner, client, std::move(command), op, 0);
}

void World::putInlineAt(SimOwner& at, const std::shared_ptr<Client>& client, Command command, uint64_t op, int hops) {
  const auto then = [this, &at, client, command, op, hops](const Answer& answer) {
    scheduler_.log("operation ", op, " ended: ", codeName(answer.code), " ", toString(answer.putId), " ", answer.node);
    if (answer.code != Code::ok) return;
    if (answer.node.empty()) {
      SIM_CHECK(history_.named(op, answer.putId), "operation ", op, " is done under ", toString(answer.putId), ", but known under another");
      return history_.end(op, scheduler_.now());
    }
    SimOwner* const next = owner(answer.node);
    SIM_CHECK(next, "a put is sent to node ", answer.node);
    Command again = command;
    again.put.home = PutMode::Home::here;
    if (hops < kMostHops && at.neighbours(*next)) putInlineAt(*next, client, std::move(again), op, hops + 1);
  };
  at.command(client, command, then, patience());
}

// Other keys, so that segments are full most of the time.
void World::fill(SimOwner& owner, const std::shared_ptr<Client>& client) {
  const uint64_t op = history_.begin(keyOf(owner, kKeys), scheduler_.now());
  Command command;
  command.kind = CommandKind::putStart;
  command.key = "filler" + std::to_string(scheduler_.pick(20));
  command.valueBytes = 20'000 + scheduler_.pick(30'000);
  putAt(owner, client, std::move(command), op, 0);
}

void World::remove(SimOwner& owner, const std::shared_ptr<Client>& client, int key) {
  const uint64_t op = history_.begin(key, scheduler_.now());
  Command command;
  command.kind = CommandKind::remove;
  command.key = keyName(key);
  scheduler_.log(owner.name(), " client ", client->id, " deletes ", command.key, " by operation ", op);
  owner.command(
      client, command,
      [this, op](const Answer& answer) {
        scheduler_.log("operation ", op, " ended: ", codeName(answer.code));
        if (answer.code == Code::ok || answer.code == Code::miss) history_.end(op, scheduler_.now());
      },
      patience());
  // Who asks whether it exists, soon after or when a new term has learned what there is.
  if (scheduler_.oneIn(2)) return;
  scheduler_.at(scheduler_.upTo(scheduler_.oneIn(2) ? milliseconds(20) : settings_.lease), [this, key] {
    SimOwner& asked = someOwner();
    if (!asked.clients().empty() && asked.cluster() == clusterOf(key)) stat(asked, asked.clients().front(), key);
  });
}

// A key lease that soon ends; some puts are made under it.
void World::lease(SimOwner& owner, const std::shared_ptr<Client>& client) {
  Command command;
  const uint64_t what = scheduler_.pick(8);
  command.lease = keyLease_[owner.cluster()];
  command.kind = !command.lease || what > 2 ? CommandKind::leaseGrant : what == 0 ? CommandKind::leaseRevoke : CommandKind::leaseKeepAlive;
  command.valueBytes = 50 + scheduler_.pick(100);
  owner.command(
      client, command,
      [this, cluster = owner.cluster()](const Answer& answer) {
        if (answer.code == Code::ok) keyLease_[cluster] = answer.lease;
      },
      patience());
}

// --- reads

void World::see(const Memory& memory, uint64_t offset, uint64_t bytes, PutId putId, int key, Time began, const std::string& how) {
  ++tally.reads;
  const std::optional<uint64_t> op = memory.marked(offset, bytes);
  SIM_CHECK(op, how, " of ", keyName(key), " sees a torn value");
  SIM_CHECK(*op < history_.size(), how, " of ", keyName(key), " sees what nobody has put");
  SIM_CHECK(history_.keyOf(*op) == key, how, " of ", keyName(key), " sees a value of another key, operation ", *op);
  SIM_CHECK(!history_.wasAborted(*op), how, " of ", keyName(key), " sees the aborted operation ", *op);
  SIM_CHECK(!history_.stale(*op, began), how, " of ", keyName(key), " sees operation ", *op, ", which had been replaced");
  SIM_CHECK(history_.named(*op, putId), how, " of ", keyName(key), " sees operation ", *op, " under ", toString(putId));
}

// The read without a message: directory_view.h, with the virtual clock. A neighbour has a lease of the same master.
void World::probe(const std::shared_ptr<Client>& client, SimOwner& at, int key, Time began, const char* how) {
  if (!client->home->neighbours(at) || !at.serving()) return;
  const std::optional<uint32_t> slot = at.committed(keyName(key));
  if (!slot) return;
  const shm::DirectoryWriter& directory = at.directory();
  const uint64_t offset = directory.offset(*slot), bytes = directory.payloadBytes(*slot);
  see(*at.memory(), offset, bytes, directory.putId(*slot), key, began, std::string(how) + " at " + at.name());
  if (!scheduler_.oneIn(4)) return;
  const uint64_t ref = directory.ref(*slot);
  client->hold(at.memory().get(), ref);
  hold(client, at.memory(), ref, offset, bytes);
}

// What a client holds stays as it is until it lets go.
void World::hold(const std::shared_ptr<Client>& client, const std::shared_ptr<Memory>& memory, uint64_t ref, uint64_t offset,
                 uint64_t bytes) {
  const std::optional<uint64_t> op = memory->marked(offset, bytes);
  const Duration howLong = scheduler_.oneIn(20) ? settings_.lease + scheduler_.upTo(settings_.lease) : scheduler_.upTo(milliseconds(30));
  scheduler_.at(howLong, [client, memory, ref, offset, bytes, op] {
    if (client->dead) return;
    SIM_CHECK(memory->marked(offset, bytes) == op, "the bytes of a holder of client ", client->id, " at ", offset, " have changed");
    client->letGo(memory.get(), ref);
  });
}

void World::readAll(SimOwner& owner) {
  if (owner.clients().empty()) return;
  for (int key = 0; key < kKeys; ++key) probe(owner.clients().front(), owner, keyOf(owner, key), scheduler_.now(), "a read after a stop");
}

void World::get(SimOwner& owner, const std::shared_ptr<Client>& client, int key) {
  Command command;
  command.kind = CommandKind::get;
  command.key = keyName(key);
  command.get.hold = scheduler_.oneIn(2);
  const Time began = scheduler_.now();
  owner.command(
      client, command,
      [this, &owner, client, key, began](const Answer& answer) {
        if (answer.code != Code::ok) return;
        if (!answer.node.empty()) {
          SimOwner* const next = this->owner(answer.node);
          SIM_CHECK(next, "a get is sent to node ", answer.node);
          if (answer.source == shm::AnswerSource::ssd && !owner.neighbours(*next)) return;
          if (answer.source == shm::AnswerSource::ssd) return getFromSsd(*next, client, key, began);
          return probe(client, *next, key, began, "a get sent on");
        }
        const char* const how = answer.source == shm::AnswerSource::memory ? "a get at " : "a fetch at ";
        see(*owner.memory(), answer.offset, answer.valueBytes, answer.putId, key, began, how + owner.name());
        if (answer.hold) hold(client, owner.memory(), answer.slotRef, answer.offset, answer.valueBytes);
      },
      patience());
}

// A neighbour has it on its SSD, and brings it when it is asked.
void World::getFromSsd(SimOwner& next, const std::shared_ptr<Client>& client, int key, Time began) {
  Command command;
  command.kind = CommandKind::get;
  command.key = keyName(key);
  next.command(
      client, command,
      [this, &next, client, key, began](const Answer& answer) {
        if (answer.code != Code::ok || !answer.node.empty()) return;
        see(*next.memory(), answer.offset, answer.valueBytes, answer.putId, key, began, "a get from an SSD at " + next.name());
        if (answer.hold) hold(client, next.memory(), answer.slotRef, answer.offset, answer.valueBytes);
      },
      patience());
}

void World::look(SimOwner& owner, const std::shared_ptr<Client>& client, int key) {
  static constexpr CommandKind kKinds[] = {CommandKind::exists, CommandKind::countPrefix, CommandKind::scrub};
  const uint64_t which = scheduler_.pick(5);
  if (which == 0) return stat(owner, client, key);
  if (which == 1) return list(owner, client);
  Command command;
  command.kind = kKinds[which - 2];
  command.key = command.kind == CommandKind::countPrefix ? "key" : keyName(key);
  owner.command(
      client, command, [](const Answer&) {}, patience());
}

void World::stat(SimOwner& owner, const std::shared_ptr<Client>& client, int key) {
  Command command;
  command.kind = CommandKind::stat;
  command.key = keyName(key);
  owner.command(
      client, command,
      [this, key, began = scheduler_.now(), name = owner.name()](const Answer& answer) {
        if (answer.code == Code::ok) seeName(answer.putId, key, began, "a stat at " + name);
      },
      patience());
}

void World::list(SimOwner& owner, const std::shared_ptr<Client>& client) {
  Command command;
  command.kind = CommandKind::list;
  command.key = "key";
  command.valueBytes = kKeys;
  owner.command(
      client, command,
      [this, first = keyOf(owner, 0), began = scheduler_.now(), name = owner.name()](const Answer& answer) {
        if (answer.code != Code::ok) return;
        for (size_t at = 0; at < answer.payload.size();) {
          shm::ListEntry entry;
          std::memcpy(&entry, answer.payload.data() + at, sizeof entry);
          const int key = first + std::atoi(answer.payload.c_str() + at + sizeof entry + 3);
          seeName(PutId(entry.putId), key, began, "a list at " + name);
          at += sizeof entry + (entry.keyBytes + 7) / 8 * 8;
        }
      },
      patience());
}

// A key is said to exist, as a version.
void World::seeName(PutId putId, int key, Time began, const std::string& how) {
  const std::optional<uint64_t> op = history_.putOf(key, putId);
  if (!op) return;  // nobody has seen it, or heard of it, yet
  SIM_CHECK(history_.keyOf(*op) == key, how, " names ", toString(putId), " of another key");
  SIM_CHECK(!history_.wasAborted(*op), how, " names ", keyName(key), " of the aborted operation ", *op);
  SIM_CHECK(!history_.stale(*op, began), how, " names ", keyName(key), " of operation ", *op, ", which had been replaced");
}

}  // namespace fluxon::sim
