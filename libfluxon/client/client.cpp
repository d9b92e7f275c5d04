#include "client/client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/hash.h"
#include "client/copy.h"
#include "client/fork.h"

namespace fluxon::client {
namespace {

constexpr int kMostHops = 3;                    // nodes that a put asks, one after the other
constexpr Duration kLook = milliseconds(100);   // between looks at a clock that goes on while the machine sleeps
constexpr Duration kRefusalLasts = seconds(1);  // before a neighbour that has not taken this client is asked again
constexpr int kSpins = 1000;                    // before somebody who is waited for may need this processor

// Threads are spread over the shards of hazards, counters, touches and gates by the order of their first call.
unsigned threadNumber() {
  static std::atomic<unsigned> next{0};
  static thread_local const unsigned mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine % shm::kHazardShards;
}
static_assert(shm::kCounterShards == shm::kHazardShards && shm::kTouchShards == shm::kHazardShards);

void add(shm::Word& counter, uint64_t n) { counter.fetch_add(n, std::memory_order_relaxed); }

unsigned latencyBucket(int64_t ns) {
  unsigned bucket = 0;
  while (bucket + 1 < shm::kLatencyBuckets && ns >= int64_t{32} << bucket) ++bucket;
  return bucket;
}

void touch(Attachment& attachment, unsigned thread, uint64_t slotRef) {
  shm::TouchShard& shard = attachment.file().touches[thread];
  const uint64_t at = shard.head.fetch_add(1, std::memory_order_relaxed);
  shard.slots[at % shm::kTouchesPerShard].store(shm::slotOfRef(slotRef), std::memory_order_relaxed);
}

void hold(Attachment& attachment, const shm::Hit& hit, bool isOwn, Held& held) {
  held.data = hit.data;
  held.length = hit.length;
  held.putId = hit.putId;
  held.source = isOwn ? Source::local : Source::neighbour;
  held.attachment = &attachment;
  held.byRing = false;
  held.word = hit.hazard.index;
  held.slotRef = hit.slotRef;
}

uint64_t masterOf(const Attachment& attachment) { return attachment.view().header->servingMaster.load(std::memory_order_acquire); }

// A get that asked has been answered.
void count(Attachment& own, const Held& held) {
  shm::CounterShard& counters = own.file().counters[threadNumber()];
  const auto one = [&](shm::Word& hits, shm::Word& bytes) {
    add(hits, 1);
    add(bytes, held.length);
  };
  switch (held.source) {
    case Source::local: return one(counters.askedHits, counters.askedBytes);
    case Source::neighbour: return one(counters.neighbourHits, counters.neighbourBytes);
    case Source::remote: return one(counters.remoteHits, counters.remoteBytes);
    case Source::ssd: return one(counters.ssdHits, counters.ssdBytes);
    case Source::remoteSsd: return one(counters.remoteSsdHits, counters.remoteSsdBytes);
  }
}

// Blocks, but never past the deadline.
void sleepFor(int64_t ns, Time deadline) {
  ns = std::min(ns, (deadline - bootTime()).ns);
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  if (ns > 0) ::nanosleep(&time, nullptr);
}

Error forked() { return {Code::forked, "open a client of its own after fork"}; }

// An owner of another build may say nothing of replicas.
Done doneOf(const Reply& reply) {
  return {PutId(reply.putId), static_cast<uint32_t>(std::clamp<uint64_t>(reply.valueBytes, 1, UINT8_MAX))};
}

Error asError(const Reply& reply) { return {reply.code, reply.payload}; }

// A call that changes nothing and was not answered may be repeated; of one that changes something the outcome is unknown.
Error ofRead(Error error) { return error.code == Code::outcomeUnknown ? Error{Code::unavailable, std::move(error.detail)} : error; }
Error ofChange(Error error) { return error.code == Code::timedOut ? Error{Code::outcomeUnknown, std::move(error.detail)} : error; }

}  // namespace

class Client::InGate {
 public:
  InGate(Client& client, unsigned thread) : inside_(client.gates_[thread].inside[client.epoch_.load(std::memory_order_relaxed) & 1]) {
    inside_.fetch_add(1, std::memory_order_seq_cst);
    set = client.set_.load(std::memory_order_seq_cst);
  }
  ~InGate() { inside_.fetch_sub(1, std::memory_order_release); }
  const Set* set;

 private:
  std::atomic<uint64_t>& inside_;
};

Attachment* Client::Set::find(const std::string& node) const {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Attachment* each) { return each->node() == node; });
  return found == all.end() ? nullptr : *found;
}

Result<std::unique_ptr<Client>> Client::connect(const std::string& root, const std::string& cluster, const std::string& node,
                                                const std::string& name, bool prefault, Time deadline, Attachment::As as) {
  Result<shm::Paths> paths = shm::Paths::of(root, cluster);
  if (!paths) return paths.error();
  std::string chosen = node;
  if (chosen.empty()) {
    const std::vector<std::string> nodes = paths->nodes();
    if (nodes.empty()) {
      return Error{Code::unavailable, "no owner of cluster " + cluster + " on this host (" + paths->clusterDir() +
                                          "; another root: FLUXON_SHM_ROOT, or shm_root of the options)"};
    }
    if (nodes.size() > 1) {
      std::string names;
      for (const std::string& each : nodes) names += (names.empty() ? "" : ", ") + each;
      return Error{Code::invalidArgument, "this host has several nodes (" + names + "): name one"};
    }
    chosen = nodes.front();
  } else if (!validName(chosen)) {
    return Error{Code::invalidArgument, "node name '" + chosen + "' (accepted: 1 to 32 of A-Z a-z 0-9 _ - ., no leading .)"};
  }
  std::unique_ptr<Client> client(new Client);
  client->paths_ = std::move(paths).value();
  client->node_ = chosen;
  client->name_ = name;
  client->forkGeneration_ = forkGeneration();
  client->as_ = as;
  auto set = std::make_unique<Set>();
  set->all.reserve(1);
  Result<Attachment*> own = Attachment::attach(client->paths_, chosen, name, as, deadline);
  if (!own) return own.error();
  if (prefault) own.value()->prefault();
  set->own = own.value();
  set->all.push_back(own.value());
  client->set_.store(set.release(), std::memory_order_seq_cst);
  return client;
}

Client::~Client() {
  Set* set = set_.load(std::memory_order_relaxed);
  if (!set || !alive()) return;  // a child leaves everything to its parent
  for (Attachment* attachment : set->all) attachment->retire();
  delete set;
}

bool Client::alive() const { return forkGeneration() == forkGeneration_; }

bool Client::probeAll(std::string_view key, Held& held) {
  if (!alive()) return false;
  static thread_local uint32_t sample = 0;
  const bool timed = sample++ % shm::kLatencySampling == 0;
  const int64_t begun = timed ? bootTime().ns : 0;
  const uint64_t hash = keyHash(key);
  const unsigned thread = threadNumber();
  const InGate inside(*this, thread);
  Attachment* const mine = inside.set->own;
  for (Attachment* attachment : inside.set->all) {
    const bool isOwn = attachment == mine;
    uint64_t master = shm::kAnyMaster;
    if (!isOwn) {
      if (!mine || (master = masterOf(*mine)) == 0) break;  // the own owner has no master yet: nobody can say what is the latest
    }
    shm::Hit hit;
    shm::Probe outcome = shm::probe(attachment->view(), attachment->hazards(), thread, key, hash, hit, master);
    if (outcome == shm::Probe::hit && !isOwn && masterOf(*mine) != master) {
      attachment->drop(hit.hazard);
      outcome = shm::Probe::lapsed;
    }
    if (outcome == shm::Probe::hit) {
      hold(*attachment, hit, isOwn, held);
      shm::CounterShard& counters = mine->file().counters[thread];
      add(isOwn ? counters.hits : counters.neighbourHits, 1);
      add(isOwn ? counters.hitBytes : counters.neighbourBytes, hit.length);
      touch(*attachment, thread, hit.slotRef);
      if (timed) {
        const int64_t ns = bootTime().ns - begun;
        add(counters.latency[latencyBucket(ns)], 1);
        add(counters.latencySumNs, static_cast<uint64_t>(ns));
      }
      return true;
    }
    shm::CounterShard& counters = attachment->file().counters[thread];
    add(outcome == shm::Probe::lapsed     ? counters.leaseLapsed
        : outcome == shm::Probe::noHazard ? counters.hazardsFull
                                          : counters.probesMissed,
        1);
  }
  return false;
}

namespace {

Source sourceOf(shm::AnswerSource source) {
  switch (source) {
    case shm::AnswerSource::memory: return Source::local;
    case shm::AnswerSource::peer: return Source::remote;
    case shm::AnswerSource::ssd: return Source::ssd;
    case shm::AnswerSource::peerSsd: return Source::remoteSsd;
  }
  return Source::local;
}

}  // namespace

// The owner has answered with a slot of its own: hold it, by a hazard or, when none is free, by a held word.
// timedOut: it is gone already; ask again.
Error Client::follow(Attachment& attachment, const Reply& reply, std::string_view key, uint64_t master, Time deadline, Held& held) {
  if (reply.held != 0) return takeHeld(attachment, reply, sourceOf(reply.source), held);
  const uint32_t index = shm::slotOfRef(reply.slotRef);
  if (index >= attachment.view().slotCount) return {Code::corrupt, "a slot outside the directory"};
  const uint64_t incarnation = attachment.view().header->servingIncarnation.load(std::memory_order_acquire);
  const uint64_t expected = shm::slotWord(shm::generationOfRef(reply.slotRef), shm::SlotState::committed);
  shm::Hit hit;
  const unsigned thread = threadNumber();
  const shm::Probe outcome = shm::holdSlot(attachment.view(), attachment.hazards(), thread, index, expected, key, incarnation, master, hit);
  const bool isOwn = attachment.node() == node_;
  if (outcome == shm::Probe::hit) {
    hold(attachment, hit, isOwn, held);
    touch(attachment, thread, hit.slotRef);
    return {};
  }
  if (outcome != shm::Probe::noHazard) return {Code::timedOut, "the value went away while it was being reached"};
  const Result<Reply> counted =
      attachment.ring().call({.kind = shm::CommandKind::get, .flags = shm::kHold | shm::kLocalOnly, .key = key, .deadline = deadline});
  if (!counted) return ofRead(counted.error());
  const Reply& answer = counted.value();
  if (answer.code == Code::miss) return {Code::timedOut, "the value went away while it was being reached"};
  if (answer.code != Code::ok) return asError(answer);
  return takeHeld(attachment, answer, isOwn ? Source::local : Source::neighbour, held);
}

// The owner has set a held word for this answer.
Error Client::takeHeld(Attachment& attachment, const Reply& answer, Source source, Held& held) {
  if (answer.held == 0 || answer.held > shm::kHeldWords || answer.offset > attachment.view().segmentBytes ||
      answer.valueBytes > attachment.view().segmentBytes - answer.offset) {
    return {Code::corrupt, "a held word or an extent out of range"};
  }
  attachment.use();
  const char* const data = attachment.view().segment + answer.offset;
  held = {data, answer.valueBytes, PutId(answer.putId), source, &attachment, true, answer.held - 1, answer.slotRef};
  touch(attachment, threadNumber(), answer.slotRef);
  return {};
}

namespace {

Error namesNonsense(const std::string& node) { return {Code::protocol, "the owner named a node '" + node + "'"}; }

// An owner that answers, and does not take this client: it is full, or of another version or time namespace, or we lack something.
bool takesNoClient(Code code) { return code != Code::timedOut && code != Code::unavailable && code != Code::forked; }

Error sameMaster(const Attachment& mine, const Attachment& there) {
  const uint64_t master = masterOf(mine);
  if (master != 0 && masterOf(there) == master) return {};
  return {Code::unavailable, "node " + there.node() + " serves under another master than node " + mine.node()};
}

struct Use {
  Attachment* attachment;
  ~Use() { attachment->unuse(); }
};

}  // namespace

// unavailable, timedOut: the neighbour has ended or moved the value, and its route is about to change.
Error Client::getFromNeighbour(Attachment& mine, Attachment& there, uint32_t flags, std::string_view key, Time deadline, Held& held) {
  const auto serving = [&] { return there.view().header->servingIncarnation.load(std::memory_order_acquire); };
  const uint64_t master = masterOf(mine), incarnation = serving();
  const Error moved{Code::timedOut, "the value moved faster than it could be reached"};
  if (const Error stranger = sameMaster(mine, there); !stranger.ok()) return stranger;
  const Result<Reply> answer = there.ring().call({.kind = shm::CommandKind::get, .flags = flags, .key = key, .deadline = deadline});
  if (!answer) return ofRead(answer.error());
  if (!answer.value().node.empty() || answer.value().code == Code::miss) return moved;
  if (answer.value().code != Code::ok) return asError(answer.value());
  if (Error error = follow(there, answer.value(), key, master, deadline, held); !error.ok()) return error;
  // What it has answered, it has answered under the master that it had before and has now.
  if (masterOf(there) == master && serving() == incarnation && masterOf(mine) == master) return {};
  release(held);
  return moved;
}

// Asks the own owner, and who it names.
Client::Asked Client::askOnce(uint32_t flags, std::string_view key, Time deadline, Held& held) {
  const Result<Attachment*> mine = own(deadline);
  if (!mine) return {mine.error()};
  const Use useMine{mine.value()};
  const Result<Reply> reply = mine.value()->ring().call({.kind = shm::CommandKind::get, .flags = flags, .key = key, .deadline = deadline});
  if (!reply) return {ofRead(reply.error())};
  if (reply.value().code != Code::ok) return {asError(reply.value())};
  const std::string& node = reply.value().node;
  Error error;
  if (node.empty()) {
    error = follow(*mine.value(), reply.value(), key, shm::kAnyMaster, deadline, held);
  } else {
    if (!validName(node)) return {namesNonsense(node)};
    const Result<Attachment*> there = use(node, deadline);
    if (!there && takesNoClient(there.error().code)) return {there.error(), Asked::Next::bring};
    // An owner brings a value from its own SSD by itself.
    const uint32_t local = reply.value().source == shm::AnswerSource::ssd ? shm::kPlacedHere : shm::kLocalOnly;
    if (!there) {
      error = there.error();
    } else {
      const Use useThere{there.value()};
      error = getFromNeighbour(*mine.value(), *there.value(), local, key, deadline, held);
    }
  }
  if (error.ok()) count(*mine.value(), held);
  const bool again = error.code == Code::timedOut || error.code == Code::unavailable;
  return {std::move(error), again ? Asked::Next::again : Asked::Next::over};
}

Error Client::getByRing(std::string_view key, Time deadline, Held& held) {
  if (!alive()) return forked();
  if (key.empty() || key.size() > kMaxKeyBytes)
    return {Code::invalidKey, std::to_string(key.size()) + " bytes (1 to " + std::to_string(kMaxKeyBytes) + ")"};
  Asked asked;
  uint32_t flags = 0;
  int64_t pauseNs = 200'000;
  do {
    asked = askOnce(flags, key, deadline, held);
    if (asked.next == Asked::Next::over) return asked.error;
    if (asked.next == Asked::Next::bring && !(flags & shm::kBringHere)) {
      flags |= shm::kBringHere;
      continue;
    }
    sleepFor(pauseNs, deadline);
    pauseNs = std::min<int64_t>(pauseNs * 2, 50'000'000);
  } while (bootTime() < deadline);
  return asked.error;
}

void Client::release(Held& held) {
  Attachment* const attachment = std::exchange(held.attachment, nullptr);
  if (!attachment || !attachment->alive()) return;
  if (!held.byRing) return attachment->drop({held.word, held.slotRef});
  // A word that names another slot by now is somebody else's: this holder was ended before.
  uint64_t expected = held.slotRef;
  if (held.word >= shm::kHeldWords || expected == 0 ||
      !attachment->file().held.words[held.word].compare_exchange_strong(expected, 0, std::memory_order_acq_rel))
    return;
  attachment->unuse();
}

Error Client::readFrom(const std::string& node, uint64_t offset, uint64_t bytes, Time deadline,
                       const std::function<void(const char*)>& read) {
  const Result<Attachment*> attachment = use(node, deadline);
  if (!attachment) return attachment.error();
  const Use using_{attachment.value()};
  const shm::DirectoryView& view = attachment.value()->view();
  if (offset > view.segmentBytes || bytes > view.segmentBytes - offset) return {Code::corrupt, "an extent outside the segment"};
  read(view.segment + offset);
  return {};
}

Result<Attachment*> Client::own(Time deadline) { return use(node_, deadline); }

// One under the same master.
Result<Attachment*> Client::neighbour(const std::string& node, Time deadline) {
  if (!validName(node)) return namesNonsense(node);
  const Result<Attachment*> mine = own(deadline);
  if (!mine) return mine.error();
  const Use useMine{mine.value()};
  Result<Attachment*> there = use(node, deadline);
  if (!there) return there.error();
  if (Error stranger = sameMaster(*mine.value(), *there.value()); !stranger.ok()) {
    there.value()->unuse();
    return stranger;
  }
  return there;
}

// For the time of an attach: other threads that need the node wait for it, and all others go on.
class Client::Attaching {
 public:
  Attaching(Client& client, std::unique_lock<std::mutex>& lock, const std::string& node) : client_(client), lock_(lock), node_(node) {
    client_.attaching_.insert(node);
    lock_.unlock();
  }
  ~Attaching() {
    lock_.lock();
    client_.attaching_.erase(node_);
    client_.attached_.notify_all();
  }

 private:
  Client& client_;
  std::unique_lock<std::mutex>& lock_;
  std::string node_;
};

// The attachment to a node, made anew if there is none or its owner has ended.
Result<Attachment*> Client::use(const std::string& node, Time deadline) {
  std::unique_lock lock(mutex_);
  Attachment::sweep();
  forgetDead();
  for (;;) {
    if (Attachment* const known = set_.load(std::memory_order_relaxed)->find(node); known && !known->dead()) {
      known->use();
      return known;
    }
    const auto refused = refused_.find(node);
    if (refused != refused_.end() && bootTime() < refused->second.until) return refused->second.error;
    if (!attaching_.contains(node)) break;
    const Duration left = deadline - bootTime();
    if (left.ns <= 0) return Error{Code::timedOut, "node " + node + " does not answer the attach request of another thread"};
    attached_.wait_for(lock, std::chrono::nanoseconds(std::min(left, kLook).ns));
  }
  // An owner counts the client's old file as long as it is there, so that is given up first; but not before there is somebody to ask, for
  // local hits go on until the lease has ended.
  const auto reached = [&] {
    const std::lock_guard again(mutex_);
    std::vector<Attachment*> all = set_.load(std::memory_order_relaxed)->all;
    if (std::erase_if(all, [&](const Attachment* each) { return each->node() == node; }) > 0) replace(std::move(all));
  };
  Result<Attachment*> fresh = [&] {
    const Attaching attaching(*this, lock, node);
    return Attachment::attach(paths_, node, name_, as_, deadline, reached);
  }();
  if (!fresh) {
    if (node != node_ && takesNoClient(fresh.error().code)) refused_[node] = {fresh.error(), bootTime() + kRefusalLasts};
    return fresh.error();
  }
  fresh.value()->use();
  std::vector<Attachment*> all = set_.load(std::memory_order_relaxed)->all;
  all.insert(node == node_ ? all.begin() : all.end(), fresh.value());
  replace(std::move(all));
  return fresh;
}

// Neighbours that have ended for good, or under this life: what they had is mapped no longer than somebody reads it.
void Client::forgetDead() {
  const Set* set = set_.load(std::memory_order_relaxed);
  std::vector<Attachment*> living;
  for (Attachment* each : set->all) {
    if (each->node() == node_ || !each->dead()) living.push_back(each);
  }
  if (living.size() != set->all.size()) replace(std::move(living));
}

// Makes `all` the set; what is not in it any more is retired.
void Client::replace(std::vector<Attachment*> all) {
  auto fresh = std::make_unique<Set>();
  fresh->all = std::move(all);
  fresh->own = fresh->find(node_);
  const Set* const present = fresh.get();
  const std::unique_ptr<Set> old(set_.exchange(fresh.release(), std::memory_order_seq_cst));
  // A get that entered before the exchange may work on the old set; later ones see the new one. New entries go through the other
  // side of the gates after each turn, so the side waited for drains; two turns, for a get may enter through a side that it
  // chose before an earlier one.
  for (int turn = 0; turn < 2; ++turn) {
    const uint64_t side = epoch_.fetch_add(1, std::memory_order_seq_cst) & 1;
    for (Gate& gate : gates_) {
      for (int spins = 0; gate.inside[side].load(std::memory_order_seq_cst) != 0; ++spins) {
        if (spins < kSpins) {
          __builtin_ia32_pause();
        } else {
          ::usleep(50);
        }
      }
    }
  }
  for (Attachment* attachment : old->all) {
    if (std::find(present->all.begin(), present->all.end(), attachment) == present->all.end()) attachment->retire();
  }
}

Result<Reply> Client::command(const Call& call, Effect effect) {
  if (!alive()) return forked();
  Result<Attachment*> mine = own(call.deadline);
  if (!mine) return mine.error();
  const Use useMine{mine.value()};
  Result<Reply> reply = mine.value()->ring().call(call);
  if (!reply) return effect == Effect::change ? ofChange(reply.error()) : ofRead(reply.error());
  return reply;
}

// Asks the own owner, or the one whose segment the caller wants to fill; follows to the one that shall have the value.
Result<Client::Placed> Client::askPlace(const Put& put, shm::CommandKind kind, std::string_view value) {
  if (!alive()) return forked();
  if (put.key.empty() || put.key.size() > kMaxKeyBytes) {
    return Error{Code::invalidKey, std::to_string(put.key.size()) + " bytes (1 to " + std::to_string(kMaxKeyBytes) + ")"};
  }
  const bool side = !put.sourceNode.empty() && put.sourceNode != node_;
  std::string node = side ? put.sourceNode : node_;
  PutMode mode = put.mode;
  for (int hops = 0; hops < kMostHops; ++hops) {
    const Result<Attachment*> attachment = node == node_ ? own(put.deadline) : neighbour(node, put.deadline);
    // The one that shall have the value does not take this client: it passes through the own owner's memory.
    if (!attachment && node != node_ && !side && takesNoClient(attachment.error().code)) {
      node = node_;
      continue;
    }
    if (!attachment) return attachment.error();
    Result<Reply> reply = attachment.value()->ring().call({.kind = kind,
                                                           .flags = shm::flagsOf(mode, put.replicas),
                                                           .key = put.key,
                                                           .extra = side ? std::string_view(node_) : value,
                                                           .valueBytes = put.length,
                                                           .lease = put.lease,
                                                           .deadline = put.deadline});
    if (reply && reply.value().code == Code::ok && reply.value().node.empty()) return Placed{attachment.value(), std::move(reply).value()};
    attachment.value()->unuse();
    if (!reply) return kind == shm::CommandKind::putInline ? ofChange(reply.error()) : ofRead(reply.error());
    if (reply.value().code != Code::ok) return asError(reply.value());
    node = reply.value().node;
    mode.home = PutMode::Home::here;
  }
  return Error{Code::unavailable, "no node keeps the value"};
}

Result<Granted> Client::grant(const Put& put) {
  Result<Placed> placed = askPlace(put, shm::CommandKind::putStart, {});
  if (!placed) return placed.error();
  const Reply& reply = placed->reply;
  Granted granted{nullptr, put.length, placed->attachment, reply.slotRef};
  struct GiveBack {
    const Granted& granted;
    bool wanted = true;
    ~GiveBack() {
      if (wanted) abort(granted);
    }
  };
  GiveBack back{granted};
  const Result<char*> place = placed->attachment->writable(reply.offset, put.length, put.deadline);
  if (!place) return place.error();
  back.wanted = false;
  granted.data = place.value();
  return granted;
}

Result<Granted> Client::putStart(const Put& put) {
  Result<Granted> granted = grant(put);
  if (granted) granted->attachment->populate(granted->data, put.length, put.deadline);
  return granted;
}

Result<Done> Client::commit(const Granted& granted, Time deadline) {
  if (!granted.attachment->alive()) return forked();
  const Result<Reply> reply =
      granted.attachment->ring().call({.kind = shm::CommandKind::commit, .slotRef = granted.slotRef, .deadline = deadline});
  if (!reply && reply.error().code == Code::tooMany) {
    abort(granted);
    return reply.error();
  }
  granted.attachment->unuse();
  if (!reply) return ofChange(reply.error());
  if (reply.value().code != Code::ok) return asError(reply.value());
  return doneOf(reply.value());
}

// If the owner does not get this, the grant ends with the client.
void Client::abort(const Granted& granted) {
  if (!granted.attachment->alive()) return;
  granted.attachment->ring().abort(granted.slotRef);
  granted.attachment->unuse();
}

Result<Done> Client::put(const Put& put, const void* data) {
  if (put.length <= shm::kInlineValueBytes && (put.sourceNode.empty() || put.sourceNode == node_)) {
    const Result<Placed> placed = askPlace(put, shm::CommandKind::putInline, {static_cast<const char*>(data), put.length});
    if (!placed) return placed.error();
    placed.value().attachment->unuse();
    return doneOf(placed.value().reply);
  }
  const Result<Granted> granted = grant(put);
  if (!granted) return granted.error();
  Attachment& attachment = *granted.value().attachment;
  const Time begun = bootTime();
  attachment.populate(granted.value().data, put.length, Time::never());
  copyValue(granted.value().data, data, put.length);
  add(attachment.file().counters[threadNumber()].copiedBytes, put.length);
  // The deadline bounds what is waited for; moving the caller's own bytes is no waiting, and takes as long as there are bytes.
  return commit(granted.value(), put.deadline + (bootTime() - begun));
}

Result<Stat> Client::stat(std::string_view key, Time deadline) {
  const Result<Reply> reply = command({.kind = shm::CommandKind::stat, .key = key, .deadline = deadline}, Effect::none);
  if (!reply) return reply.error();
  if (reply.value().code != Code::ok) return asError(reply.value());
  return Stat{reply.value().putId, reply.value().valueBytes, reply.value().lease, reply.value().payload};
}

Result<Scrubbed> Client::scrub(Time deadline) {
  const Result<Reply> reply = command({.kind = shm::CommandKind::scrub, .deadline = deadline}, Effect::none);
  if (!reply) return reply.error();
  if (reply.value().code != Code::ok) return asError(reply.value());
  return Scrubbed{reply.value().valueBytes, reply.value().offset};
}

}  // namespace fluxon::client
