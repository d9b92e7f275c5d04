#include "client/client.h"

#include <unistd.h>

#include <algorithm>

#include "base/hash.h"
#include "client/copy.h"
#include "client/fork.h"

namespace fluxon::client {
namespace {

constexpr int kMostHops = 3;             // nodes that a put asks, one after the other
constexpr uint32_t kMostReplicas = 255;  // that a command can ask for
constexpr Duration kUndoPatience = seconds(5);  // for giving back what this client has; without an answer it ends with the client

// Threads are spread over the shards of hazards, counters, touches and gates by the order of their first call.
unsigned threadNumber() {
  static std::atomic<unsigned> next{0};
  static thread_local const unsigned mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine % 8;
}
static_assert(shm::kHazardShards == 8 && shm::kCounterShards == 8 && shm::kTouchShards == 8);

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
  held.handle = hit.hazard.index;
}

Error forked() { return {Code::forked, "open a client of its own after fork"}; }

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

Result<std::unique_ptr<Client>> Client::connect(const std::string& root, const std::string& cluster, const std::string& node,
                                                const std::string& name, bool prefault, Time deadline) {
  Result<shm::Paths> paths = shm::Paths::of(root, cluster);
  if (!paths) return paths.error();
  std::string chosen = node;
  if (chosen.empty()) {
    const std::vector<std::string> nodes = paths->nodes();
    if (nodes.empty()) return Error{Code::unavailable, "no owner of cluster " + cluster + " on this host (" + paths->clusterDir() + ")"};
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
  Result<Attachment*> own = Attachment::attach(client->paths_, chosen, name, deadline);
  if (!own) return own.error();
  if (prefault) own.value()->prefault();
  client->set_.store(new Set{{own.value()}}, std::memory_order_seq_cst);
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
  for (Attachment* attachment : inside.set->all) {
    shm::Hit hit;
    const shm::Probe outcome = shm::probe(attachment->view(), attachment->hazards(), thread, key, hash, hit);
    shm::CounterShard& counters = attachment->file().counters[thread];
    if (outcome == shm::Probe::hit) {
      const bool isOwn = attachment == inside.set->all.front();
      hold(*attachment, hit, isOwn, held);
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
Error Client::follow(Attachment& attachment, const Reply& reply, std::string_view key, Time deadline, Held& held) {
  if (reply.held != 0) return takeHeld(attachment, reply, sourceOf(reply.source), held);
  const uint32_t index = shm::slotOfRef(reply.slotRef);
  if (index >= attachment.view().slotCount) return {Code::corrupt, "a slot outside the directory"};
  const uint64_t incarnation = attachment.view().header->servingIncarnation.load(std::memory_order_acquire);
  const uint64_t expected = shm::slotWord(shm::generationOfRef(reply.slotRef), shm::SlotState::committed);
  shm::Hit hit;
  const unsigned thread = threadNumber();
  const shm::Probe outcome = shm::holdSlot(attachment.view(), attachment.hazards(), thread, index, expected, key, incarnation, hit);
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
  held = {attachment.view().segment + answer.offset, answer.valueBytes, PutId(answer.putId), source, &attachment, true, answer.held - 1};
  touch(attachment, threadNumber(), answer.slotRef);
  return {};
}

namespace {

struct Use {
  Attachment* attachment;
  ~Use() { attachment->unuse(); }
};

}  // namespace

// unavailable, timedOut: the neighbour has ended or moved the value, and its route is about to change.
Error Client::getFromNeighbour(const std::string& node, uint32_t flags, std::string_view key, Time deadline, Held& held) {
  const Result<Attachment*> other = neighbour(node, deadline);
  if (!other) return other.error();
  const Use use{other.value()};
  const Result<Reply> there = other.value()->ring().call({.kind = shm::CommandKind::get, .flags = flags, .key = key, .deadline = deadline});
  if (!there) return ofRead(there.error());
  if (!there.value().node.empty()) return {Code::timedOut, "the value moved faster than it could be reached"};
  if (there.value().code == Code::ok) return follow(*other.value(), there.value(), key, deadline, held);
  if (there.value().code == Code::miss) return {Code::timedOut, "the value moved faster than it could be reached"};
  return asError(there.value());
}

Error Client::getByRing(std::string_view key, Time deadline, Held& held) {
  if (!alive()) return forked();
  if (key.empty() || key.size() > kMaxKeyBytes)
    return {Code::invalidKey, std::to_string(key.size()) + " bytes (1 to " + std::to_string(kMaxKeyBytes) + ")"};
  Error last{Code::timedOut, "the value moved faster than it could be reached"};
  int pauseUs = 200;
  do {
    const Result<Attachment*> mine = own(deadline);
    if (!mine) return mine.error();
    const Use useMine{mine.value()};
    const Result<Reply> asked = mine.value()->ring().call({.kind = shm::CommandKind::get, .key = key, .deadline = deadline});
    if (!asked) return ofRead(asked.error());
    if (asked.value().code != Code::ok) return asError(asked.value());
    if (asked.value().node.empty()) {
      last = follow(*mine.value(), asked.value(), key, deadline, held);
    } else {
      // What is on its SSD it brings by itself.
      const uint32_t flags = asked.value().source == shm::AnswerSource::ssd ? 0 : shm::kLocalOnly;
      last = getFromNeighbour(asked.value().node, flags, key, deadline, held);
    }
    if (last.ok() || (last.code != Code::timedOut && last.code != Code::unavailable)) return last;
    ::usleep(static_cast<useconds_t>(pauseUs));
    pauseUs = std::min(pauseUs * 2, 50'000);
  } while (bootTime() < deadline);
  return last;
}

void Client::release(Held& held) {
  Attachment* const attachment = std::exchange(held.attachment, nullptr);
  if (!attachment || !attachment->alive()) return;
  if (!held.byRing) return attachment->drop({static_cast<uint32_t>(held.handle)});
  attachment->file().held.words[held.handle].store(0, std::memory_order_release);
  attachment->unuse();
}

Error Client::copyFrom(const std::string& node, uint64_t offset, uint64_t bytes, char* to, Time deadline) {
  const Result<Attachment*> attachment = use(node, deadline);
  if (!attachment) return attachment.error();
  const Use using_{attachment.value()};
  const shm::DirectoryView& view = attachment.value()->view();
  if (offset > view.segmentBytes || bytes > view.segmentBytes - offset) return {Code::corrupt, "an extent outside the segment"};
  copyValue(to, view.segment + offset, bytes);
  return {};
}

Result<Attachment*> Client::own(Time deadline) { return use(node_, deadline); }
Result<Attachment*> Client::neighbour(const std::string& node, Time deadline) {
  if (!validName(node)) return Error{Code::protocol, "the owner named a node '" + node + "'"};
  return use(node, deadline);
}

// The attachment to a node, made anew if there is none or its owner has ended.
Result<Attachment*> Client::use(const std::string& node, Time deadline) {
  const std::lock_guard lock(mutex_);
  Attachment::sweep();
  const Set* set = set_.load(std::memory_order_relaxed);
  const auto known = std::find_if(set->all.begin(), set->all.end(), [&](const Attachment* each) { return each->node() == node; });
  if (known != set->all.end() && !(*known)->dead()) {
    (*known)->use();
    return *known;
  }
  Result<Attachment*> fresh = Attachment::attach(paths_, node, name_, deadline);
  if (!fresh) return fresh.error();
  fresh.value()->use();
  std::vector<Attachment*> all = set->all;
  if (known == set->all.end()) {
    all.push_back(fresh.value());
    replace(std::move(all), {});
  } else {
    Attachment* const old = *known;
    all[static_cast<size_t>(known - set->all.begin())] = fresh.value();
    replace(std::move(all), {old});
  }
  return fresh;
}

void Client::replace(std::vector<Attachment*> all, const std::vector<Attachment*>& gone) {
  Set* const old = set_.exchange(new Set{std::move(all)}, std::memory_order_seq_cst);
  // A get that entered before the exchange may work on the old set; later ones see the new one. New entries go through the other
  // side of the gates after each turn, so the side waited for drains; two turns, for a get may enter through a side that it
  // chose before an earlier one.
  for (int turn = 0; turn < 2; ++turn) {
    const uint64_t side = epoch_.fetch_add(1, std::memory_order_seq_cst) & 1;
    for (Gate& gate : gates_) {
      while (gate.inside[side].load(std::memory_order_seq_cst) != 0) __builtin_ia32_pause();
    }
  }
  for (Attachment* attachment : gone) attachment->retire();
  delete old;
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
  uint32_t flags = put.flags | std::min<uint32_t>(put.replicas, kMostReplicas) << shm::kReplicasShift;
  for (int hops = 0; hops < kMostHops; ++hops) {
    const Result<Attachment*> attachment = node == node_ ? own(put.deadline) : neighbour(node, put.deadline);
    if (!attachment) return attachment.error();
    Result<Reply> reply = attachment.value()->ring().call({.kind = kind,
                                                           .flags = flags,
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
    flags |= shm::kPlacedHere;
  }
  return Error{Code::unavailable, "no node keeps the value"};
}

Result<Granted> Client::putStart(const Put& put) {
  Result<Placed> placed = askPlace(put, shm::CommandKind::putStart, {});
  if (!placed) return placed.error();
  const Reply& reply = placed->reply;
  Granted granted{nullptr, put.length, placed->attachment, reply.slotRef};
  Result<char*> place = placed->attachment->writable(reply.offset, put.length, put.deadline);
  if (!place) {
    abort(granted);
    return place.error();
  }
  granted.data = place.value();
  return granted;
}

Result<PutId> Client::commit(const Granted& granted, Time deadline) {
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
  return PutId(reply.value().putId);
}

void Client::abort(const Granted& granted) {
  if (!granted.attachment->alive()) return;
  // If this is not heard, the grant ends with the client.
  (void)granted.attachment->ring().call(
      {.kind = shm::CommandKind::abort, .slotRef = granted.slotRef, .deadline = bootTime() + kUndoPatience});
  granted.attachment->unuse();
}

Result<PutId> Client::put(const Put& put, const void* data) {
  if (put.length <= shm::kInlineValueBytes && (put.sourceNode.empty() || put.sourceNode == node_)) {
    const Result<Placed> placed = askPlace(put, shm::CommandKind::putInline, {static_cast<const char*>(data), put.length});
    if (!placed) return placed.error();
    placed.value().attachment->unuse();
    return PutId(placed.value().reply.putId);
  }
  const Result<Granted> granted = putStart(put);
  if (!granted) return granted.error();
  copyValue(granted.value().data, data, put.length);
  add(granted.value().attachment->file().counters[threadNumber()].copiedBytes, put.length);
  return commit(granted.value(), put.deadline);
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
