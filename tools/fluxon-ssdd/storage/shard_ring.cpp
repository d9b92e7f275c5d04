#include "shard_ring.h"

#include "base/check.h"
#include "ssd/record.h"

namespace fluxon::ssdd {
namespace {

#ifdef FLUXON_MUTATE_IGNORED_PINS
constexpr bool kIgnoredPins = true;  // for the test that shows that pins matter
#else
constexpr bool kIgnoredPins = false;
#endif

bool held(const Entry& entry) { return entry.writers + entry.commitPins + entry.readPins > 0 && !kIgnoredPins; }

}  // namespace

// --- guards ------------------------------------------------------------------------------------------------------------------

Guard::~Guard() {
  if (!entry_) return;
  FLUXON_CHECK(begin_ >= ring_->tail(), "ssd ring: tail has passed an entry that is held");
  --(entry_->*count_);
}

ShardId Guard::shard() const { return ring_->id(); }
uint64_t Guard::fileOffset() const { return begin_ % ring_->capacity(); }
void Guard::kill() { ring_->index_.die(*entry_); }

void CommitPin::ignored() && {
  CommitPin ended = std::move(*this);
  ended.kill();
}

WriteGuard::~WriteGuard() {
  if (entry_ && begin_ >= ring_->tail() && entry_->state == EntryState::writing) kill();
}

std::optional<CommitPin> WriteGuard::commit(uint32_t payloadCrc) && {
  const WriteGuard ended = std::move(*this);
  Entry& entry = *ended.entry_;
  if (entry.state != EntryState::writing) return std::nullopt;
  entry.payloadCrc = payloadCrc;
  entry.state = EntryState::committed;
  ++ended.ring_->committed_;
  return CommitPin(entry);
}

bool ReadPin::current() const {
  // A pin that the tail has passed is a bug; its bytes are not given out in any case.
  return begin_ >= ring_->tail() && entry_->state != EntryState::dead;
}

QueuedClaim::~QueuedClaim() {
  if (!ring_) return;
  ring_->index_.die(*at_);
  ring_->waiting_.erase(at_);
}

// --- index -------------------------------------------------------------------------------------------------------------------

KeyIndex::~KeyIndex() { FLUXON_CHECK(entries_.empty(), "ssd index: a ring outlives it"); }

Entry* KeyIndex::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second;
}

void KeyIndex::forget(const Entry& entry) {
  const auto found = entries_.find(entry.version.key);
  FLUXON_CHECK(found != entries_.end() && found->second == &entry, "ssd index: a live entry is not in it");
  entries_.erase(found);
}

void KeyIndex::die(Entry& entry) {
  if (entry.state == EntryState::dead) return;
  forget(entry);
  if (entry.state != EntryState::waiting) entry.ring->dead_ += entry.bytes;
  if (entry.state == EntryState::committed) --entry.ring->committed_;
  entry.state = EntryState::dead;
}

std::optional<ReadPin> KeyIndex::pin(std::string_view key, PutId putId) {
  Entry* const entry = find(key);
  if (!entry || entry->version.putId != putId || entry->state != EntryState::committed) return std::nullopt;
  return ReadPin(*entry);
}

bool KeyIndex::invalidate(std::string_view key, PutId below) {
  Entry* const entry = find(key);
  if (!entry || entry->version.putId >= below) return false;
  die(*entry);
  return true;
}

bool KeyIndex::drop(std::string_view key, PutId putId) {
  Entry* const entry = find(key);
  if (!entry || entry->version.putId != putId) return false;
  die(*entry);
  return true;
}

// --- ring --------------------------------------------------------------------------------------------------------------------

ShardRing::ShardRing(KeyIndex& index, ShardId id, uint64_t shardBytes, uint32_t blockBytes)
    : index_(index), id_(id), capacity_(shardBytes / blockBytes * blockBytes), blockBytes_(blockBytes) {
  FLUXON_CHECK(ssd::validBlockBytes(blockBytes) && capacity_ > 0, "ssd ring: shape");
}

ShardRing::~ShardRing() {
  FLUXON_CHECK(waiting_.empty(), "ssd ring: a claim outlives it");
  FLUXON_CHECK(walks_.empty(), "ssd ring: a walk outlives it");
  for (const Entry& entry : entries_) {
    FLUXON_CHECK(!held(entry), "ssd ring: a guard outlives it");
    if (entry.state != EntryState::dead) index_.forget(entry);
  }
}

// The tail has passed the oldest entry.
void ShardRing::pass() {
  Entry& oldest = entries_.front();
  for (Walk* walk : walks_) {
    if (walk->at_ == entries_.begin()) ++walk->at_;
  }
  if (oldest.state == EntryState::dead) {
    dead_ -= oldest.bytes;
  } else {
    index_.forget(oldest);
    if (oldest.state == EntryState::committed) {
      --committed_;
      evicted_.push_back(std::move(oldest.version));
    }
  }
  used_ -= oldest.bytes;
  entries_.pop_front();
}

// Moves the tail past entries until `bytes` fit at `begin`. False: a guard holds the oldest one.
bool ShardRing::makeRoom(uint64_t bytes, uint64_t& begin) {
  const uint64_t offset = head_ % capacity_;
  begin = offset + bytes > capacity_ ? head_ + (capacity_ - offset) : head_;
  while (!entries_.empty() && begin + bytes > entries_.front().begin + capacity_) {
    if (held(entries_.front())) return false;
    pass();
  }
  return true;
}

// The first entry of `from` gets its bytes.
WriteGuard ShardRing::grant(std::list<Entry>& from, uint64_t begin) {
  entries_.splice(entries_.end(), from, from.begin());
  Entry& entry = entries_.back();
  entry.begin = begin;
  entry.state = EntryState::writing;
  head_ = begin + entry.bytes;
  used_ += entry.bytes;
  FLUXON_CHECK(head_ - tail() <= capacity_, "ssd ring: head has overtaken tail");
  return WriteGuard(entry);
}

// Skips dead claims that still wait, so that they hold nobody up.
std::list<Entry>::iterator ShardRing::firstWaiting() {
  auto at = waiting_.begin();
  while (at != waiting_.end() && at->state == EntryState::dead) ++at;
  return at;
}

Claim ShardRing::claim(Version version, uint64_t payloadBytes) {
  if (Entry* const known = index_.find(version.key)) {
    if (known->version.putId >= version.putId) return Outdated{};
    index_.die(*known);
  }
  const uint64_t bytes = ssd::recordBytes(payloadBytes, blockBytes_);
  if (bytes > capacity_) return TooLarge{};
  const bool inLine = firstWaiting() != waiting_.end();
  std::list<Entry> made;
  made.push_back(Entry{this, std::move(version), payloadBytes, bytes});
  index_.entries_.emplace(made.front().version.key, &made.front());
  uint64_t begin;
  if (!inLine && makeRoom(bytes, begin)) return grant(made, begin);
  waiting_.splice(waiting_.end(), made);
  return BlockedByBusyIo{QueuedClaim(*this, std::prev(waiting_.end()))};
}

Claim ShardRing::retry(QueuedClaim claim) {
  FLUXON_CHECK(claim.ring_ == this, "ssd ring: a claim of another one");
  if (claim.at_->state == EntryState::dead) return Outdated{};
  if (claim.at_ != firstWaiting()) return BlockedByBusyIo{std::move(claim)};
  uint64_t begin;
  if (makeRoom(claim.at_->bytes, begin)) {
    claim.ring_ = nullptr;
    std::list<Entry> first;
    first.splice(first.end(), waiting_, claim.at_);
    return grant(first, begin);
  }
  // Without this, a key that is read without a pause would hold the writer up for good. An entry leaves only after the master knows of it,
  // since ssdd reports evicted after committed.
  Entry& oldest = entries_.front();
  if (oldest.state == EntryState::committed && oldest.commitPins == 0) {
    oldest.state = EntryState::leaving;
    --committed_;
    evicted_.push_back(oldest.version);
  }
  return BlockedByBusyIo{std::move(claim)};
}

// --- walk --------------------------------------------------------------------------------------------------------------------

Walk::Walk(ShardRing& ring) : ring_(ring), at_(ring.entries_.begin()), end_(ring.head_) { ring_.walks_.push_back(this); }
Walk::~Walk() { std::erase(ring_.walks_, this); }

std::optional<ReadPin> Walk::next(size_t& steps) {
  for (; steps > 0 && !done(); --steps) {
    Entry& entry = *at_++;
    if (entry.state != EntryState::committed || entry.commitPins > 0) continue;
    --steps;
    return ReadPin(entry);
  }
  return std::nullopt;
}

}  // namespace fluxon::ssdd
