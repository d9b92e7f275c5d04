// OwnerCore: what is on this owner's SSD. ssdd does the I/O (ssd/messages.h says how it is asked); this owner speaks for it.
//
// Life of a persist, of a value that a put has made readable here:
//   queued ──► writing ──persisted──► asked ──(the master takes it)──► over: a replica on the SSD
//     │           └──failed──► over      └──(it does not)──► over: ssdd drops the entry
//     └──given up: too old, while its memory is wanted
//   Until it is over the slot is no victim, and stays retired when it is retired: ssdd reads the bytes, and the master takes a replica
//   only beside the one in memory.
//
// Life of a stage, a value that is brought from here for an owner of another host, by order of the master:
//   loading and readable ──loaded──► readable ──unstage──► (nobody reads or writes it) ──► over: unstaged is said, the extent is free
//   Peers read what is loaded already. A failed load fails them; the stage stays until the master ends it.
//
// Invariants
//   1. Of an entry that the master may name, a later put or delete is acknowledged only when ssdd has dropped it, or when its life is
//      over: no load and no inventory finds it then, not even in the next life of this process. The directory's header names the one
//      life of the SSD that counts; it changes before an answer relies on that.
//   2. An invalidation is passed on before anything that may be loaded later: messages to ssdd keep their order. A load that was under
//      way is a flight like any other: the bound of its key decides.
//   3. What ssdd has and the master has not taken is dead when this life, or the term, ends (Message forget, and messages.h).
//      The master forgets such an entry by this owner's word alone, and that is said after ssdd was told to drop it.
//   4. What has gone from the SSD by itself is told after the commit that made it known: ssdd keeps an entry until the master has
//      decided about it.
// Why nothing older comes back after both this process and the master have died: the next life lists what ssdd has kept, which by
// (1) and (3) holds no version below an acknowledged one, unless the record on disk names another life: then the list is refused.
#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {
namespace {

constexpr uint64_t kWritingBytesAtOnce = uint64_t{256} << 20;
constexpr Duration kQueuedPatience = seconds(1);        // a value whose memory is wanted waits so long for its write to begin
constexpr Duration kSsdPatience = seconds(1);           // for an invalidation, for a word of a list: ssdd never waits for a disk there
constexpr Duration kDiskPatience = seconds(4);          // for the end of some write, and for the end or some progress of some load
constexpr Duration kEvictedPatience = milliseconds(10);  // what has gone from the SSD is told together
constexpr size_t kEvictedAtOnce = 256;
constexpr size_t kMostEvicted = 4096;  // told to the master and not answered; and as many that wait for that

}  // namespace

// --- who is there

Incarnation OwnerCore::describeSsd() {
  described_ = true;
  toldSsd_ = ssdLife_;
  directory_.setSsd(ssdLife_);
  return ssdLife_;
}

void OwnerCore::ssdAttached(Incarnation life, Time now) {
  FLUXON_CHECK(!ssdLife_, "a second ssdd is attached");
  ssdLife_ = life;
  directory_.setSsd(life);
  awaitsSsd_ = false;
  tellSsd();
  flush(now);
}

void OwnerCore::ssdGone(Time now) {
  if (ssdLife_) ssdLost(now);
  flush(now);
}

// An ssdd that does not do what it should is not believed any more.
void OwnerCore::giveUpSsd(const char* why, Time now) {
  host_.ssdStartOver(why);
  ssdLost(now);
}

// What was on the SSD is over. Loads under way are when the host says that they have ended, since they may write until then; those who
// wait for them need not wait for that.
void OwnerCore::ssdLost(Time now) {
  FLUXON_MARK("owner: it loses its SSD");
  ++counters_.ssdLost;
  lostSsd_ = std::exchange(ssdLife_, {});
  directory_.setSsd({});
  while (!persists_.empty()) {
    ++counters_.persistsFailed;
    endPersist(persists_.begin()->first);
  }
  evicted_.clear();
  listing_ = 0;
  ssdInventory_.clear();
  ssdReported_ = 0;
  tellSsd();
  leaveLoads(now);
  for (const auto& [id, invalidation] : std::exchange(invalidating_, {})) {
    if (invalidation.order) invalidated(invalidation);
  }
  for (const auto& [id, caller] : std::exchange(scrubs_, {})) answerCode(caller, Code::unavailable, "ssdd has ended");
  if (reportEnds_) endReport(now);
}

void OwnerCore::loadBegins(Flight& flight, Time now) {
  flight.load = true;
  flight.ssd = ssdLife_;
  if (ssdLife_ && loads_++ == 0) loaded_ = now;
}

void OwnerCore::loadEnds(const Flight& flight, Time now) {
  if (!flight.ssd || flight.ssd != ssdLife_) return;
  --loads_;
  loaded_ = now;
}

// Gets ask for another source, after the master has been told; so do those who fetch what is staged. The extents stay what they are.
void OwnerCore::leaveLoads(Time now) {
  loads_ = 0;
  for (const auto& [id, flight] : flights_) {
    if (!flight.load || flight.orphan) continue;
    if (flight.staged) {
      const Export& exported = exports_.at(flight.staged);
      if (exported.readable && !exported.ending) host_.exportFailed(flight.staged);
      continue;
    }
    const std::string key(directory_.key(flight.slot));
    if (controls_.at(key).flight == id) controls_.at(key).flight = 0;
    for (Waiting& waiting : takeWaiting(key, id)) {
      FLUXON_MARK("owner: a get does not wait for the end of an ssdd's load");
      waiting.command.avoid = settings_.node;
      waiting.command.alone = true;
      putOff(waiting.caller, std::move(waiting.command), "ssdd has ended", now);
    }
  }
}

// ssdd has not dropped yet what the master has refused of its list.
bool OwnerCore::dropsRefused() const {
  return std::any_of(invalidating_.begin(), invalidating_.end(), [](const auto& each) { return !each.second.order; });
}

void OwnerCore::tellSsd() {
  if (!listening_ || toldSsd_ == ssdLife_) return;
  toldSsd_ = ssdLife_;
  rpc::Request life;
  life.kind = rpc::RequestKind::ssdLife;
  life.count = ssdLife_.value;
  request(std::move(life), {}, shm::CommandKind{});
}

// When ssdd is to have answered what it was asked. Without an end to that no change of a key and no term would go on, and memory that is
// being persisted would not come free; gets would wait for what never comes.
Time OwnerCore::ssdDue() const {
  Time due = Time::never();
  if (!invalidating_.empty()) due = invalidating_.begin()->second.when + kSsdPatience;
  if (writing_ > 0) due = std::min(due, wrote_ + kDiskPatience);
  if (loads_ > 0) due = std::min(due, loaded_ + kDiskPatience);
  if (listing_ != 0) due = std::min(due, ssdSaid_ + kSsdPatience);
  return due;
}

void OwnerCore::tickSsd(Time now) {
  if (now < ssdDue()) return;
  FLUXON_MARK("owner: an ssdd says nothing");
  giveUpSsd("it does not answer", now);
}

Time OwnerCore::ssdWake() const {
  Time next = Time::never();
  if (!evicted_.empty() && evictedTold_ < kMostEvicted && listening_ && !reporting_) next = evictedSince_ + kEvictedPatience;
  return std::min(next, ssdDue());
}

void OwnerCore::ssd(const ssd::Message& message, Time now) {
  switch (message.kind) {
    case ssd::MessageKind::persisted: persisted(message, now); break;
    case ssd::MessageKind::evicted:
      ++counters_.ssdEvicted;
      if (!listening_) break;  // the list that the next term asks for does not name it
      if (evicted_.empty()) evictedSince_ = now;
      evicted_.push_back({message.key, message.putId});
      break;
    case ssd::MessageKind::listed:
      listed(message, now);
      break;
    case ssd::MessageKind::done:
      if (message.id == listing_) {
        listing_ = 0;
      } else if (const auto scrub = scrubs_.find(message.id); scrub != scrubs_.end()) {
        Answer answer;
        answer.code = message.code;
        answer.valueBytes = message.bytes;
        answer.offset = message.offset;
        host_.answer(scrub->second, std::move(answer));
        scrubs_.erase(scrub);
      } else if (const auto asked = invalidating_.find(message.id); asked != invalidating_.end()) {
        const Invalidation invalidation = std::move(asked->second);
        invalidating_.erase(asked);
        if (invalidation.order) invalidated(invalidation);
        if (reportEnds_ && !dropsRefused()) endReport(now);
      }
      break;
    default: break;  // the host sends no others here
  }
  flush(now);
}

// What the master would take for nonsense of this owner does not get as far as that.
void OwnerCore::listed(const ssd::Message& message, Time now) {
  if (listing_ == 0 || message.id != listing_) return;
  if (message.key.empty() || !message.putId || extentBytes(message.bytes) > segmentBytes_)
    return giveUpSsd("it lists what cannot be", now);
  ssdSaid_ = now;
  ssdInventory_.push_back({message.key, message.putId, 0, message.bytes, {}, true});
}

// --- persist

bool OwnerCore::stillThere(uint64_t ref, PutId putId) const {
  const uint32_t slot = shm::slotOfRef(ref);
  return directory_.ref(slot) == ref && directory_.state(slot) == shm::SlotState::committed && directory_.putId(slot) == putId;
}

void OwnerCore::persist(uint32_t slot, Time now) {
  // A value with a key lease is no victim, and must not come back in another term, where nobody knows its lease.
  if (!ssdLife_ || directory_.lease(slot)) return;
  ++counters_.persists;
  const uint64_t id = nextTask_++;
  Persist& persist = persists_[id];
  persist.ref = directory_.ref(slot);
  persist.key = directory_.key(slot);
  persist.putId = directory_.putId(slot);
  persist.bytes = directory_.payloadBytes(slot);
  persist.since = now;
  persisting_[slot] = id;
  persistQueue_.insert(id);
  pumpPersists(now);
}

void OwnerCore::pumpPersists(Time now) {
  // A disk that does not answer holds no more than a part of the memory.
  const uint64_t most = std::min(kWritingBytesAtOnce, segmentBytes_ / 4);
  while (!persistQueue_.empty() && writing_ < settings_.persistsAtOnce && writingBytes_ < most) {
    const uint64_t id = *persistQueue_.begin();
    persistQueue_.erase(persistQueue_.begin());
    Persist& persist = persists_.at(id);
    if (!stillThere(persist.ref, persist.putId)) {
      FLUXON_MARK("owner: a value goes before it is persisted");
      ++counters_.persistsGivenUp;
      endPersist(id);
      continue;
    }
    persist.state = Persist::State::writing;
    if (++writing_ == 1) wrote_ = now;
    writingBytes_ += persist.bytes;
    host_.ssd({ssd::MessageKind::persist, id, persist.key, persist.putId, directory_.offset(shm::slotOfRef(persist.ref)), persist.bytes});
  }
}

// Its memory is free to go.
void OwnerCore::endPersist(uint64_t id) {
  const auto found = persists_.find(id);
  if (found->second.state == Persist::State::writing) {
    --writing_;
    writingBytes_ -= found->second.bytes;
  }
  const uint32_t slot = shm::slotOfRef(found->second.ref);
  persists_.erase(found);
  persistQueue_.erase(id);
  persisting_.erase(slot);
  if (directory_.state(slot) == shm::SlotState::retired) nextRetiredScan_ = Time{0};
}

// May a victim go? One that is being persisted stays; not for ever, when an SSD is much slower than what comes in.
bool OwnerCore::yieldsPersist(uint32_t slot, Time now) {
  const auto found = persisting_.find(slot);
  if (found == persisting_.end()) return true;
  const Persist& persist = persists_.at(found->second);
  if (persist.state != Persist::State::queued || now < persist.since + kQueuedPatience) return false;
  FLUXON_MARK("owner: a persist is given up for its memory");
  ++counters_.persistsGivenUp;
  endPersist(found->second);
  return true;
}

// Of a retired value. What only waits is given up: its turn may be far away.
bool OwnerCore::readBySsd(uint32_t slot) {
  const auto found = persisting_.find(slot);
  if (found == persisting_.end()) return false;
  if (persists_.at(found->second).state != Persist::State::queued) return true;
  FLUXON_MARK("owner: a retired value is persisted no more");
  ++counters_.persistsGivenUp;
  endPersist(found->second);
  return false;
}

void OwnerCore::persisted(const ssd::Message& message, Time now) {
  const auto found = persists_.find(message.id);
  if (found == persists_.end() || found->second.state != Persist::State::writing) return;  // forgotten: its entry is dead
  Persist& persist = found->second;
  wrote_ = now;
  if (message.code != Code::ok) {
    ++counters_.persistsFailed;
    endPersist(message.id);
  } else if (!stillThere(persist.ref, persist.putId)) {
    FLUXON_MARK("owner: a value goes while it is persisted");
    ++counters_.persistsIgnored;
    host_.ssd({ssd::MessageKind::decided, message.id, {}, {}, 0, 0, Code::miss});
    endPersist(message.id);
  } else {
    persist.state = Persist::State::asked;
    --writing_;
    writingBytes_ -= persist.bytes;
    commits_.push_back(message.id);
  }
  pumpPersists(now);
}

void OwnerCore::ssdCommitted(const Pending& pending, const rpc::Reply& reply) {
  for (size_t i = 0; i < pending.persists.size(); ++i) {
    const uint64_t id = pending.persists[i];
    const auto found = persists_.find(id);
    if (found == persists_.end()) continue;  // of an SSD that is over
    const bool taken = reply.code == Code::ok && std::find(reply.offsets.begin(), reply.offsets.end(), i) == reply.offsets.end();
    if (!taken) FLUXON_MARK("owner: the master does not take what was persisted");
    ++(taken ? counters_.persistsTaken : counters_.persistsIgnored);
    if (taken) counters_.persistedBytes += found->second.bytes;
    host_.ssd({ssd::MessageKind::decided, id, {}, {}, 0, 0, taken ? Code::ok : Code::miss});
    endPersist(id);
  }
}

// What has been persisted, and what has gone.
void OwnerCore::tellSsdNews(Time now) {
  if (!commits_.empty()) {
    rpc::Request commit;
    commit.kind = rpc::RequestKind::ssdCommit;
    std::vector<uint64_t> ids;
    for (const uint64_t id : std::exchange(commits_, {})) {
      const auto found = persists_.find(id);
      if (found == persists_.end()) continue;
      commit.items.push_back({found->second.key, found->second.putId, 0, found->second.bytes, {}, true});
      ids.push_back(id);
    }
    if (!ids.empty()) request(std::move(commit), {}, shm::CommandKind{}).persists = std::move(ids);
  }
  if (evicted_.empty() || (evicted_.size() < kEvictedAtOnce && now < evictedSince_ + kEvictedPatience)) return;
  const size_t count = std::min(evicted_.size(), kMostEvicted - evictedTold_);
  if (count == 0) return;
  rpc::Request gone;
  gone.kind = rpc::RequestKind::ssdEvicted;
  gone.items.assign(std::make_move_iterator(evicted_.begin()), std::make_move_iterator(evicted_.begin() + static_cast<ptrdiff_t>(count)));
  evicted_.erase(evicted_.begin(), evicted_.begin() + static_cast<ptrdiff_t>(count));
  evictedTold_ += count;
  request(std::move(gone), {}, shm::CommandKind{});
}

// While it reports nothing goes to the master but that, and what is listed comes behind what has gone.
bool OwnerCore::hearsSsd() const { return reporting_ || evicted_.size() < kMostEvicted; }

// --- orders

void OwnerCore::invalidateSsd(const std::vector<rpc::Version>& items, Invalidation invalidation) {
  const uint64_t id = nextTask_++;
  for (const rpc::Version& item : items) {
    const bool last = &item == &items.back();
    host_.ssd({ssd::MessageKind::invalidate, last ? id : 0, item.key, item.putId});
  }
  invalidating_[id] = std::move(invalidation);
}

void OwnerCore::stage(const rpc::MasterMessage& message, Time now) {
  if (message.items.size() != 1) return;
  if (!begins(message.command)) return;  // it comes twice, or after its end
  const rpc::Version& item = message.items.front();
  rpc::Request answer;
  answer.kind = rpc::RequestKind::staged;
  answer.command = message.command;
  const uint64_t size = extentBytes(item.bytes);
  const auto refuse = [&](Code code) {
    answer.code = code;
    request(std::move(answer), {}, shm::CommandKind{});
  };
  if (item.key.empty() || item.key.size() > kMaxKeyBytes || size > segmentBytes_ || item.offset > segmentBytes_ - size ||
      !rpc::isStaged(message.exportId) || exports_.count(message.exportId) != 0)
    return refuse(Code::protocol);
  if (!ssdLife_) return refuse(Code::miss);
  const std::optional<uint32_t> slot =
      directory_.grant(item.key, keyHash(item.key), item.offset, item.bytes, kSsdWriter.value, message.command);
  if (!slot) {
    ++counters_.directoryFull;
    return refuse(Code::noSpace);
  }
  ++counters_.staged;
  const uint64_t id = nextTask_++;
  Flight flight;
  flight.slot = *slot;
  flight.since = now;
  flight.putId = item.putId;
  flight.ordered = message.command;
  loadBegins(flight, now);
  flight.staged = message.exportId;
  flights_.emplace(id, std::move(flight));
  Export& exported = exports_[message.exportId];
  exported.slot = *slot;
  exported.since = now;
  exported.staged = true;
  exported.loading = id;
  host_.exportValue(message.exportId, item.offset, item.bytes, 0);
  Fetch fetch;
  fetch.id = id;
  fetch.key = item.key;
  fetch.putId = item.putId;
  fetch.offset = item.offset;
  fetch.bytes = item.bytes;
  fetch.deadline = now + milliseconds(static_cast<int64_t>(std::min<uint64_t>(message.timeLeftMs, 86'400'000)));
  fetch.ssd = true;
  host_.fetch(std::move(fetch));
  request(std::move(answer), {}, shm::CommandKind{});
}

void OwnerCore::loading(uint64_t flight, uint64_t bytes, Time now) {
  const auto found = flights_.find(flight);
  if (found == flights_.end()) return;
  loaded_ = now;
  if (!found->second.staged) return;
  Export& exported = exports_.at(found->second.staged);
  if (bytes < exported.loaded || bytes > directory_.payloadBytes(exported.slot)) {
    giveUpSsd("it counts bytes that cannot be", now);
    return flush(now);
  }
  exported.loaded = bytes;
  if (exported.readable && !exported.ending) host_.exportProgress(found->second.staged, bytes);
}

// A load has failed. What is not there, or damaged, is over for good: ssdd hears that before the master does, so that no list names what
// the master does not know any more.
bool OwnerCore::dropUnreadable(uint32_t slot, PutId putId, Code code) {
  if (code != Code::miss && code != Code::corrupt && code != Code::system) return false;
  if (ssdLife_) host_.ssd({ssd::MessageKind::drop, 0, std::string(directory_.key(slot)), putId});
  return true;
}

void OwnerCore::stageLoaded(const Flight& flight, Code code, Time now) {
  const ExportId id = flight.staged;
  const bool ok = code == Code::ok;
  Export& exported = exports_.at(id);
  exported.loading = 0;
  if (!ok) ++counters_.ssdLoadsFailed;
  // Who asked for it asks again: the master should know by then.
  if (!ok && !exported.orphan && dropUnreadable(exported.slot, flight.putId, code)) {
    evicted_.push_back({std::string(directory_.key(exported.slot)), flight.putId});
    evictedSince_ = Time{now.ns - kEvictedPatience.ns};
  }
  if (ok) counters_.ssdLoadedBytes += directory_.payloadBytes(exported.slot);
  if (exported.readable && !exported.ending) {
    if (ok) host_.exportProgress(id, directory_.payloadBytes(exported.slot));
    if (!ok) host_.exportFailed(id);
  }
  settleStage(id, now);
  flush(now);
}

void OwnerCore::unstage(const rpc::MasterMessage& message, Time now) {
  const auto found = exports_.find(message.exportId);
  if (found == exports_.end()) {
    FLUXON_MARK("owner: an order to unstage comes twice");
    rpc::Request done;
    done.kind = rpc::RequestKind::unstaged;
    done.command = message.command;
    request(std::move(done), {}, shm::CommandKind{});
    return;
  }
  found->second.unstage = message.command;
  endExport(message.exportId);
  settleStage(message.exportId, now);
}

// Its end, when nobody reads or writes the extent any more.
void OwnerCore::settleStage(ExportId id, Time) {
  const auto found = exports_.find(id);
  if (found == exports_.end()) return;  // over already, if the host said at once that nobody reads
  const Export& exported = found->second;
  if (exported.readable || (!exported.unstage && !exported.orphan)) return;
  if (exported.orphan && exported.loading != 0) {
    FLUXON_MARK("owner: a stage ends after its term, and before its load");
    flights_.at(exported.loading).staged = ExportId();  // whose end frees the extent
  } else if (exported.loading != 0) {
    return;
  } else {
    directory_.release(exported.slot);
  }
  if (!exported.orphan) {
    rpc::Request done;
    done.kind = rpc::RequestKind::unstaged;
    done.command = exported.unstage;
    request(std::move(done), {}, shm::CommandKind{});
  } else {
    FLUXON_MARK("owner: a stage ends after its term");
  }
  exports_.erase(found);
}

void OwnerCore::scrub(Caller caller) {
  if (!ssdLife_) {
    answerCode(caller, Code::unavailable, "no ssdd is attached");
    return;
  }
  const uint64_t id = nextTask_++;
  scrubs_[id] = caller;
  host_.ssd({ssd::MessageKind::scrub, id});
}

}  // namespace fluxon::owner
