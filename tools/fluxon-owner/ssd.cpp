// OwnerCore: what is on this owner's SSD. ssdd does the I/O (ssd/messages.h says how it is asked); this owner speaks for it.
//
// Life of a persist, of a value that a put has made readable here:
//   queued ──► writing ──persisted──► asked ──(the master takes it)──► over: a replica on the SSD
//     │           ├──failed──► over      └──(it does not)──► over: ssdd drops the entry
//     │           └──stalled──► over: its version is dead, so nobody minds which bytes the disk still takes for it
//     └──given up: too old, while its memory is wanted
//   Until it is over the slot is no victim, and stays retired when it is retired: ssdd reads the bytes, and the master takes a replica
//   only beside the one in memory.
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
//      decided about it. Commits and what has gone are one numbered stream of requests, sent again in its order after a lost
//      connection, and a version is persisted once; so the master never takes away what ssdd still has.
//   5. ssdd is heard whatever the master does. What has gone waits here for a master that is slow or away, and nothing else does: it is no
//      more than the SSD has held and the master has taken, and takes less memory than its entries did at ssdd. To ask ssdd for a list of
//      what is left instead, once there is too much, would need as much for all that lives. A route that is not taken back yet costs a
//      get one miss at ssdd. A new term makes it void: it asks for a list.
// Why nothing older comes back after both this process and the master have died: the next life lists what ssdd has kept, which by
// (1) and (3) holds no version below an acknowledged one, unless the record on disk names another life: then the list is refused.
#include <algorithm>

#include "base/check.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {
namespace {

constexpr uint64_t kWritingBytesAtOnce = uint64_t{256} << 20;
constexpr Duration kQueuedPatience = seconds(1);        // a value whose memory is wanted waits so long for its write to begin
constexpr Duration kSsdPatience = seconds(1);           // for an invalidation, for a word of a list: ssdd never waits for a disk there
constexpr Duration kWordPatience = seconds(4);          // for any word of an ssdd that writes or loads: it says one each half second
constexpr Duration kEvictedPatience = milliseconds(10);  // what has gone from the SSD is told together
constexpr size_t kEvictedAtOnce = 256;
constexpr size_t kMostEvicted = 4096;  // told to the master and not answered; more wait for that

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
  for (const auto& [id, caller] : std::exchange(scrubs_, {})) host_.answerCode(caller, Code::unavailable, "ssdd has ended");
  if (reportEnds_) endReport(now);
}

// The first of a row of writes and loads.
void OwnerCore::asks(Time now) {
  if (writing_ + loads_ == 0) heard_ = now;
}

// A device of the SSD does nothing. Nobody waits for that; the extent of a load stays ssdd's to write until it answers.
void OwnerCore::stalled(uint64_t id, Time now) {
  if (const auto persist = persists_.find(id); persist != persists_.end()) {
    if (persist->second.state != Persist::State::writing) return;
    FLUXON_MARK("owner: a persist stalls");
    ++counters_.persistsFailed;
    ++counters_.persistsStalled;
    endPersist(id);
    return pumpPersists(now);
  }
  const auto flight = flights_.find(id);
  if (flight == flights_.end() || !flight->second.ssd || flight->second.ssd != ssdLife_) return;
  FLUXON_MARK("owner: a load stalls");
  flight->second.ssd = Incarnation();
  --loads_;
  leaveLoad(id, flight->second, "its SSD does not answer", now);
}

// ssdd has not dropped yet what the master has refused of its list.
bool OwnerCore::dropsRefused() const {
  return std::any_of(invalidating_.begin(), invalidating_.end(), [](const auto& each) { return !each.second.order; });
}

void OwnerCore::tellSsd() {
  if (!standing_.listening() || toldSsd_ == ssdLife_) return;
  toldSsd_ = ssdLife_;
  calls_.send(rpc::SsdLife{.life = ssdLife_});
}

// When ssdd is to have answered what it was asked. Without an end to that no change of a key and no term would go on, and memory that is
// being persisted would not come free; gets would wait for what never comes.
Time OwnerCore::ssdDue() const {
  Time due = Time::never();
  if (!invalidating_.empty()) due = invalidating_.begin()->second.when + kSsdPatience;
  if (writing_ + loads_ > 0) due = std::min(due, heard_ + kWordPatience);
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
  const bool tells = standing_.joined() && !calls_.holdsBack() && evictedTold_ < kMostEvicted;
  if (tells && !evicted_.empty()) next = evictedSince_ + kEvictedPatience;
  return std::min(next, ssdDue());
}

void OwnerCore::ssd(const ssd::Message& message, Time now) {
  heard_ = now;
  switch (message.kind) {
    case ssd::MessageKind::persisted: persisted(message, now); break;
    case ssd::MessageKind::stalled: stalled(message.id, now); break;
    case ssd::MessageKind::evicted:
      ++counters_.ssdEvicted;
      if (!standing_.listening()) break;  // the list that the next term asks for does not name it
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
  ssdInventory_.push_back({message.key, message.putId, message.bytes});
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
  // Disks that do not answer hold no more than a part of the memory.
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
    asks(now);
    ++writing_;
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
  if (directory_.state(slot) == shm::SlotState::retired) retirement_.lookAgain(Time{0});
}

// May a victim go? One that is being persisted stays; not for ever, when an SSD is much slower than what comes in.
bool OwnerCore::yieldsPersist(uint32_t slot, Time now) {
  const auto found = persisting_.find(slot);
  if (found == persisting_.end()) return true;
  const Persist& persist = persists_.at(found->second);
  if (persist.state != Persist::State::queued || now < persist.since + kQueuedPatience) return false;
  FLUXON_MARK("owner: a persist is given up for its memory");
  ++counters_.persistsGivenUp;
  ++counters_.persistsLeftOut;
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
  if (found == persists_.end() || found->second.state != Persist::State::writing) return;  // forgotten or stalled: its entry is dead
  Persist& persist = found->second;
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

void OwnerCore::ssdCommitted(const Call& call, const rpc::Reply& reply) {
  const auto* answer = reply.as<rpc::SsdTaken>();
  const std::vector<uint32_t> ignored = answer ? answer->ignored : std::vector<uint32_t>();
  const std::vector<uint64_t>& ids = std::get<Call::Persists>(call.about).ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t id = ids[i];
    const auto found = persists_.find(id);
    if (found == persists_.end()) continue;  // of an SSD that is over
    const bool taken = answer && std::find(ignored.begin(), ignored.end(), i) == ignored.end();
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
    rpc::SsdCommit commit;
    std::vector<uint64_t> ids;
    for (const uint64_t id : std::exchange(commits_, {})) {
      const auto found = persists_.find(id);
      if (found == persists_.end()) continue;
      commit.values.push_back({found->second.key, found->second.putId, found->second.bytes});
      ids.push_back(id);
    }
    if (!ids.empty()) calls_.send(std::move(commit), {}, Call::Persists{std::move(ids)});
  }
  if (evicted_.empty() || (evicted_.size() < kEvictedAtOnce && now < evictedSince_ + kEvictedPatience)) return;
  const size_t count = std::min(evicted_.size(), kMostEvicted - evictedTold_);
  if (count == 0) return;
  rpc::SsdEvicted gone;
  gone.values.assign(std::make_move_iterator(evicted_.begin()), std::make_move_iterator(evicted_.begin() + static_cast<ptrdiff_t>(count)));
  evicted_.erase(evicted_.begin(), evicted_.begin() + static_cast<ptrdiff_t>(count));
  evictedTold_ += count;
  calls_.send(std::move(gone));
}

// --- orders

void OwnerCore::invalidateSsd(const std::vector<rpc::Version>& below, Invalidation invalidation) {
  const uint64_t id = nextTask_++;
  for (const rpc::Version& item : below) {
    const bool last = &item == &below.back();
    host_.ssd({ssd::MessageKind::invalidate, last ? id : 0, item.key, item.putId});
  }
  invalidating_[id] = std::move(invalidation);
}

void OwnerCore::scrub(Caller caller) {
  if (!ssdLife_) {
    host_.answerCode(caller, Code::unavailable, "no ssdd is attached");
    return;
  }
  const uint64_t id = nextTask_++;
  scrubs_[id] = caller;
  host_.ssd({ssd::MessageKind::scrub, id});
}

}  // namespace fluxon::owner
