// ShardRing: the layout of one shard file (a log that wraps); KeyIndex: the newest version of each key over all rings.
//
// A ring gives each record a contiguous run of blocks and moves forward only. Positions count bytes since the ring was made and never wrap;
// position p lies at byte p mod capacity of the file. Entries lie between tail (the begin of the oldest) and head in the order in which the
// ring gave them out. A record that does not fit before the end of the file begins at the file's beginning; no entry has the rest at the
// end. The tail makes room for the head: it passes the oldest entries until the new record fits.
//
//          no room yet            it is the first      commit            a writer waits for its readers
//   claim ------------> waiting ------------> writing ----------> committed -------------> leaving
//     |                    |                     ^ |                  |                       |
//     +--------------------|---- room -----------+ | aborted,         | invalid, dropped,     | invalid, dropped,
//                          | given up, invalid,    | invalid,         | newer claim           | newer claim
//                          v newer claim           v newer claim      v                       v
//                        dead                    dead               dead                    dead
// Who owns the bytes. waiting: the entry has none yet. writing: the WriteGuard, whose I/O may be in flight. committed: all pins; nobody
// writes. leaving: read pins that are left; there are no new ones. dead: guards that are left, else nobody. The tail passes committed,
// leaving and dead entries that no guard holds; then they are gone.
//
// Invariants
//   1. head - tail <= capacity; entries do not overlap in position, so not in the file either; each begins and ends with a block and
//      lies in one piece.
//   2. The tail passes no entry that a guard holds (WriteGuard, CommitPin, ReadPin).
//   3. The index has at most one entry a key, and no dead one. A version that is not newer than the index's is refused, and a newer
//      one makes the older dead before anything else is looked at: when the newer version does not come to the disk, the older one is
//      not readable either. The index does not remember the dead: an older version that is claimed after them is committed, and
//      the master does not take it (CommitPin::ignored).
//   4. Every committed entry ends in exactly one way: told as evicted (takeEvicted), or made dead by its put_id (invalidate, drop,
//      newer claim).
//   5. The ring serves waiting claims in the order in which they came; nobody overtakes them.
// Why no reader sees overwritten bytes: only an entry that ends above b + capacity writes the bytes of an entry [b, e) again (1). claim()
// gives out such a position only after the tail has passed b, which it cannot while the reader's pin lives (2). The pin begins while the
// entry is in the index and committed, so not passed yet, and on the ring's one thread nothing comes between that look and the pin. So all
// I/O between pin and unpin reads the bytes that the entry's own writer has written in full, since commit() comes after the last of them.
// The same argument with WriteGuard shows that two writes never overlap, even if the first one's entry has died meanwhile: whoever has I/O
// in flight keeps its guard until the completion is there.
//
// Thread: one for all rings of an index. No clock, no I/O, no call back into the caller. Guards end before their ring, rings before
// their index. Walks end before their ring.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"

namespace fluxon::ssdd {

using ShardId = Id<struct ShardTag>;

struct Version {
  std::string key;
  PutId putId;

  bool operator==(const Version&) const = default;
};

class ShardRing;
class Walk;

enum class EntryState : uint8_t { waiting, writing, committed, leaving, dead };

// For the guards, ShardRing and KeyIndex alone.
struct Entry {
  ShardRing* ring;
  Version version;
  uint64_t payloadBytes;
  uint64_t bytes;  // of the record
  uint64_t begin = 0;
  EntryState state = EntryState::waiting;
  uint32_t payloadCrc = 0;
  uint32_t writers = 0;  // guards of each kind
  uint32_t commitPins = 0;
  uint32_t readPins = 0;
};

// One count of one entry, which ends with it.
class Guard {
 public:
  Guard(Guard&& other) noexcept
      : entry_(std::exchange(other.entry_, nullptr)), ring_(other.ring_), begin_(other.begin_), count_(other.count_) {}
  Guard& operator=(Guard&& other) noexcept {
    std::swap(entry_, other.entry_), std::swap(ring_, other.ring_), std::swap(begin_, other.begin_), std::swap(count_, other.count_);
    return *this;
  }

  ShardId shard() const;
  uint64_t fileOffset() const;  // of the record: its header block
  uint64_t recordBytes() const { return entry_->bytes; }
  uint64_t payloadBytes() const { return entry_->payloadBytes; }
  const Version& version() const { return entry_->version; }

 protected:
  Guard(Entry& entry, uint32_t Entry::*count) : entry_(&entry), ring_(entry.ring), begin_(entry.begin), count_(count) { ++(entry.*count); }
  ~Guard();
  void kill();  // the entry dies

  Entry* entry_;  // nullptr: moved from
  ShardRing* ring_;
  uint64_t begin_;

 private:
  uint32_t Entry::*count_;
};

// The master is being told of the entry: its bytes stay until it has answered.
class CommitPin : public Guard {
 public:
  // The master has not taken the version: the entry is dead.
  void ignored() &&;

 private:
  friend class WriteGuard;
  explicit CommitPin(Entry& entry) : Guard(entry, &Entry::commitPins) {}
};

// Bytes that may be written. Ends, once there is no I/O in flight: commit, or else the entry is dead.
class WriteGuard : public Guard {
 public:
  WriteGuard(WriteGuard&&) noexcept = default;
  WriteGuard& operator=(WriteGuard&&) noexcept = default;
  ~WriteGuard();
  // False: the version is dead, nobody needs the write any more.
  bool wanted() const { return entry_->state == EntryState::writing; }
  // All bytes are on the disk. Nothing: the version has died meanwhile, and no master is to be told.
  std::optional<CommitPin> commit(uint32_t payloadCrc) &&;

 private:
  friend class ShardRing;
  explicit WriteGuard(Entry& entry) : Guard(entry, &Entry::writers) {}
};

// Bytes that can be read.
class ReadPin : public Guard {
 public:
  uint32_t payloadCrc() const { return entry_->payloadCrc; }
  // To be asked after the last completion: false if the version was invalidated meanwhile; what was read is not to be used then.
  bool current() const;
  // The master has not answered about it: a CommitPin holds it.
  bool undecided() const { return entry_->commitPins > 0; }

 private:
  friend class KeyIndex;
  friend class Walk;
  explicit ReadPin(Entry& entry) : Guard(entry, &Entry::readPins) {}
};

// A claim that waits for room, in the order of the claims. Its end gives the claim up.
class QueuedClaim {
 public:
  QueuedClaim(QueuedClaim&& other) noexcept : ring_(std::exchange(other.ring_, nullptr)), at_(other.at_) {}
  QueuedClaim& operator=(QueuedClaim&& other) noexcept {
    std::swap(ring_, other.ring_), std::swap(at_, other.at_);
    return *this;
  }
  ~QueuedClaim();
  // False: the version is dead, nobody needs the place any more.
  bool wanted() const { return at_->state != EntryState::dead; }

 private:
  friend class ShardRing;
  QueuedClaim(ShardRing& ring, std::list<Entry>::iterator at) : ring_(&ring), at_(at) {}
  ShardRing* ring_;
  std::list<Entry>::iterator at_;
};

struct BlockedByBusyIo {
  QueuedClaim claim;
};
struct TooLarge {};  // for any place in this shard
struct Outdated {};  // the index knows this version or a newer one, or the claim was invalidated while it waited
using Claim = std::variant<WriteGuard, BlockedByBusyIo, TooLarge, Outdated>;

class KeyIndex {
 public:
  KeyIndex() = default;
  KeyIndex(const KeyIndex&) = delete;
  KeyIndex& operator=(const KeyIndex&) = delete;
  ~KeyIndex();

  // Nothing: this version is not committed here, or about to leave.
  std::optional<ReadPin> pin(std::string_view key, PutId putId);
  // Makes the version of the key dead if it is below `below`, in whatever state. False: there was none.
  bool invalidate(std::string_view key, PutId below);
  // Makes this very version dead: its record is damaged, or the master does not want it.
  bool drop(std::string_view key, PutId putId);
  size_t size() const { return entries_.size(); }

 private:
  friend class ShardRing;
  friend class Guard;
  friend class QueuedClaim;
  struct Hash {
    size_t operator()(std::string_view key) const { return keyHash(key); }
  };

  Entry* find(std::string_view key) const;
  void die(Entry& entry);
  void forget(const Entry& entry);

  std::unordered_map<std::string_view, Entry*, Hash> entries_;  // keys are the entries' own
};

class ShardRing {
 public:
  // `shardBytes` is cut to whole blocks; at least one.
  ShardRing(KeyIndex& index, ShardId id, uint64_t shardBytes, uint32_t blockBytes);
  ShardRing(const ShardRing&) = delete;
  ShardRing& operator=(const ShardRing&) = delete;
  ~ShardRing();

  // Place for the record of a version. BlockedByBusyIo: someone holds bytes that it needs, or claims wait that came before.
  Claim claim(Version version, uint64_t payloadBytes);
  // Once more, after guards have ended. While it waits, the oldest entry in its way takes no new readers.
  Claim retry(QueuedClaim claim);
  bool anyWaiting() const { return !waiting_.empty(); }

  // Committed versions that the tail has passed, or that leave, since the last call. What claim() and retry() evict is here when
  // they return, also when they were blocked.
  std::vector<Version> takeEvicted() { return std::exchange(evicted_, {}); }

  ShardId id() const { return id_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t usedBytes() const { return used_; }  // of all entries, dead ones too
  uint64_t deadBytes() const { return dead_; }  // of dead entries, which wait for the tail
  uint64_t head() const { return head_; }       // position
  uint64_t tail() const { return entries_.empty() ? head_ : entries_.front().begin; }
  size_t committed() const { return committed_; }  // entries

 private:
  friend class Guard;
  friend class WriteGuard;
  friend class QueuedClaim;
  friend class KeyIndex;
  friend class Walk;

  bool makeRoom(uint64_t bytes, uint64_t& begin);
  void pass();
  WriteGuard grant(std::list<Entry>& from, uint64_t begin);
  std::list<Entry>::iterator firstWaiting();

  KeyIndex& index_;
  const ShardId id_;
  const uint64_t capacity_;
  const uint32_t blockBytes_;
  uint64_t head_ = 0;
  uint64_t used_ = 0;
  uint64_t dead_ = 0;
  std::list<Entry> entries_;  // from tail to head
  std::list<Entry> waiting_;  // in the order in which they came
  std::vector<Version> evicted_;
  size_t committed_ = 0;
  std::vector<Walk*> walks_;
};

// Goes over the committed entries of a ring that are decided, oldest first, up to where the ring's head was when the walk began.
// Anything may happen to the ring between two steps: what ends before the walk has come to it is left out. Ends before its ring.
class Walk {
 public:
  explicit Walk(ShardRing&);
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;
  ~Walk();

  // The next one. Looks at `steps` entries at most, and counts them down; nothing: these are used up, or the walk is done.
  std::optional<ReadPin> next(size_t& steps);
  bool done() const { return at_ == ring_.entries_.end() || at_->begin >= end_; }

 private:
  friend class ShardRing;
  ShardRing& ring_;
  std::list<Entry>::iterator at_;
  const uint64_t end_;
};

}  // namespace fluxon::ssdd
