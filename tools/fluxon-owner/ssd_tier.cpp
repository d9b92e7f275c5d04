#include "ssd_tier.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr Duration kPatience = seconds(1);               // for an invalidation, for a word of a list: ssdd never waits for a disk there
constexpr Duration kEvictedPatience = milliseconds(10);  // what has gone from the SSD is told together
constexpr size_t kEvictedAtOnce = 256;
constexpr size_t kMostEvicted = 4096;  // told to the master and not answered; more wait for that

}  // namespace

SsdTier::SsdTier(Settings settings, shm::DirectoryWriter& directory, Host& host, MasterCalls& calls, const Standing& standing,
                 Retirement& retirement, Loads loads)
    : directory_(directory),
      host_(host),
      calls_(calls),
      standing_(standing),
      retirement_(retirement),
      loads_(std::move(loads)),
      segmentBytes_(settings.persists.segmentBytes),
      persists_(settings.persists, directory, host, calls, retirement, watch_),
      awaited_(settings.awaited) {}

// --- who is there

Incarnation SsdTier::describe() {
  described_ = true;
  toldLife_ = life_;
  directory_.setSsd(life_);
  return life_;
}

void SsdTier::attached(Incarnation life) {
  FLUXON_CHECK(!life_, "a second ssdd is attached");
  life_ = life;
  directory_.setSsd(life);
  awaited_ = false;
  tellLife();
}

void SsdTier::gone(Time now) {
  if (life_) lose(now);
}

void SsdTier::giveUp(const char* why, Time now) {
  host_.ssdStartOver(why);
  lose(now);
}

void SsdTier::lose(Time now) {
  FLUXON_MARK("owner: it loses its SSD");
  ++counters_.ssdLost;
  lost_ = std::exchange(life_, {});
  directory_.setSsd({});
  persists_.lose();
  evicted_.clear();
  listing_ = 0;
  list_.clear();
  tellLife();
  watch_.forget();
  loads_.leaveAll("ssdd has ended", now);
  for (const auto& [id, invalidation] : std::exchange(invalidating_, {})) answer(invalidation);
  for (const auto& [id, caller] : std::exchange(scrubs_, {})) host_.answerCode(caller, Code::unavailable, "ssdd has ended");
}

void SsdTier::tellLife() {
  if (!standing_.listening() || toldLife_ == life_) return;
  toldLife_ = life_;
  calls_.send(rpc::SsdLife{.life = life_});
}

// --- what it says

void SsdTier::heard(const ssd::Message& message, Time now) {
  watch_.heard(now);
  switch (message.kind) {
    case ssd::MessageKind::persisted: return persists_.persisted(message.id, message.code, now);
    case ssd::MessageKind::stalled:
      if (!persists_.stalled(message.id, now)) loads_.stalled(message.id, now);
      return;
    case ssd::MessageKind::evicted:
      ++counters_.ssdEvicted;
      if (!standing_.listening()) return;  // the list that the next term asks for does not name it
      if (evicted_.empty()) evictedSince_ = now;
      evicted_.push_back({message.key, message.putId});
      return;
    case ssd::MessageKind::listed: return listed(message, now);
    case ssd::MessageKind::done: return done(message);
    default: return;  // the host sends no others here
  }
}

void SsdTier::done(const ssd::Message& message) {
  if (message.id == listing_) {
    listing_ = 0;
  } else if (const auto scrub = scrubs_.find(message.id); scrub != scrubs_.end()) {
    Answer result;
    result.code = message.code;
    result.valueBytes = message.bytes;
    result.offset = message.offset;
    host_.answer(scrub->second, std::move(result));
    scrubs_.erase(scrub);
  } else if (const auto asked = invalidating_.find(message.id); asked != invalidating_.end()) {
    const Invalidation invalidation = std::move(asked->second);
    invalidating_.erase(asked);
    answer(invalidation);
  }
}

// The owner checks the list: the master would take nonsense in it for this owner's.
void SsdTier::listed(const ssd::Message& message, Time now) {
  if (listing_ == 0 || message.id != listing_) return;
  if (message.key.empty() || !message.putId || extentBytes(message.bytes) > segmentBytes_) return giveUp("it lists what cannot be", now);
  listSaid_ = now;
  list_.push_back({message.key, message.putId, message.bytes});
}

// --- replicas on the SSD

void SsdTier::persist(uint32_t slot, Time now) {
  // A value with a key lease is no victim, and must not come back in another term, where nobody knows its lease.
  if (life_ && !directory_.lease(slot)) persists_.begin(newTask(), slot, now);
}

void SsdTier::invalidate(const rpc::Invalidate& order, std::vector<uint32_t> retired, Time now) {
  Invalidation invalidation{order.order, now, std::move(retired)};
  // The entries are gone when ssdd has said so: it remembers that even if this process dies.
  if (life_ && !order.below.empty()) return ask(order.below, std::move(invalidation));
  answer(invalidation);
}

void SsdTier::dropRefused(const std::vector<rpc::Version>& below, Time now) { ask(below, {std::nullopt, now, {}}); }

bool SsdTier::dropsRefused() const {
  return std::any_of(invalidating_.begin(), invalidating_.end(), [](const auto& each) { return !each.second.order; });
}

void SsdTier::ask(const std::vector<rpc::Version>& below, Invalidation invalidation) {
  const uint64_t id = newTask();
  for (const rpc::Version& item : below) {
    const bool last = &item == &below.back();
    host_.ssd({ssd::MessageKind::invalidate, last ? id : 0, item.key, item.putId});
  }
  invalidating_[id] = std::move(invalidation);
}

// The master may name the retired slots until it hears this answer, so they are added only now.
void SsdTier::answer(const Invalidation& invalidation) {
  if (!invalidation.order) return;
  calls_.send(rpc::InvalidateDone{.order = *invalidation.order});
  retirement_.add(invalidation.retired);
}

void SsdTier::scrub(Caller caller) {
  if (!life_) {
    host_.answerCode(caller, Code::unavailable, "no ssdd is attached");
    return;
  }
  const uint64_t id = newTask();
  scrubs_[id] = caller;
  host_.ssd({ssd::MessageKind::scrub, id});
}

// --- loads

Incarnation SsdTier::loadBegins(Time now) {
  if (life_) watch_.begins(now);
  return life_;
}

void SsdTier::loadEnds(Incarnation life, Time now) {
  if (leaveLoad(life)) watch_.heard(now);
}

bool SsdTier::loadStalls(Incarnation& life) {
  if (!leaveLoad(life)) return false;
  FLUXON_MARK("owner: a load stalls");
  return true;
}

bool SsdTier::leaveLoad(Incarnation& life) {
  if (!life || std::exchange(life, {}) != life_) return false;
  watch_.ends();
  return true;
}

bool SsdTier::dropUnreadable(const std::string& key, PutId putId, Code code) {
  if (code != Code::miss && code != Code::corrupt && code != Code::system) return false;
  if (life_) host_.ssd({ssd::MessageKind::drop, 0, key, putId});
  return true;
}

void SsdTier::goneAtOnce(const std::string& key, PutId putId) {
  evicted_.push_back({key, putId});
  evictedSince_ = Time{0};
}

// --- the list

void SsdTier::beginList(Time now) {
  list_.clear();
  if (!life_) return;
  listing_ = newTask();
  listSaid_ = now;
  evicted_.clear();  // is not named
  host_.ssd({ssd::MessageKind::list, listing_});
}

rpc::SsdValue SsdTier::takeListed() {
  rpc::SsdValue value = std::move(list_.front());
  list_.pop_front();
  return value;
}

// --- when

// Reports to the master what has been persisted, and what has been evicted.
void SsdTier::tellNews(Time now) {
  persists_.tell();
  if (evicted_.empty() || (evicted_.size() < kEvictedAtOnce && now < evictedSince_ + kEvictedPatience)) return;
  const size_t count = std::min(evicted_.size(), kMostEvicted - told_);
  if (count == 0) return;
  const auto end = evicted_.begin() + static_cast<ptrdiff_t>(count);
  rpc::SsdEvicted gone{.values = {std::make_move_iterator(evicted_.begin()), std::make_move_iterator(end)}};
  evicted_.erase(evicted_.begin(), end);
  told_ += count;
  calls_.send(std::move(gone));
}

// When ssdd must have answered. Without this timeout a silent ssdd would block invalidations and terms, hold the memory of values that
// are being persisted, and keep gets waiting for ever.
Time SsdTier::due() const {
  Time due = watch_.due();
  if (!invalidating_.empty()) due = std::min(due, invalidating_.begin()->second.when + kPatience);
  if (listing_ != 0) due = std::min(due, listSaid_ + kPatience);
  return due;
}

void SsdTier::tick(Time now) {
  if (now < due()) return;
  FLUXON_MARK("owner: an ssdd says nothing");
  giveUp("it does not answer", now);
}

Time SsdTier::nextWake() const {
  const bool tells = standing_.joined() && !calls_.holdsBack() && told_ < kMostEvicted && !evicted_.empty();
  return std::min(tells ? evictedSince_ + kEvictedPatience : Time::never(), due());
}

// Requests to ssdd and its reports of the old term are void. Its contents stay with the values, and go with them.
void SsdTier::endTerm(Retirement::Values values, Time now) {
  described_ = false;
  invalidating_.clear();
  persists_.endTerm();
  list_.clear();
  listing_ = 0;
  told_ = 0;
  if (!life_) return;
  if (values == Retirement::Values::dropped) return giveUp("what this node has is given up", now);
  host_.ssd({ssd::MessageKind::forget, newTask()});
}

SsdCounters SsdTier::counters() const { return {{persists_.counters(), counters_}}; }

}  // namespace fluxon::owner
