// One shard of the SSD tier: where records go, what may be overwritten, who waits.
#include "storage/shard_ring.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ssd/record.h"

namespace fluxon::ssdd {
namespace {

constexpr uint32_t kBlock = 512;

Version version(const std::string& key, uint64_t putId) { return {key, PutId(putId)}; }

// A ring of 16 blocks. Payloads are given in blocks: one of n takes n + 1.
struct Shard {
  KeyIndex index;
  ShardRing ring{index, ShardId(7), 16 * kBlock, kBlock};

  Claim claim(const std::string& key, uint64_t putId, uint64_t blocks) { return ring.claim(version(key, putId), blocks * kBlock); }
  WriteGuard writing(const std::string& key, uint64_t putId, uint64_t blocks) {
    Claim claimed = claim(key, putId, blocks);
    REQUIRE(std::holds_alternative<WriteGuard>(claimed));
    return std::get<WriteGuard>(std::move(claimed));
  }
  CommitPin committing(const std::string& key, uint64_t putId, uint64_t blocks) {
    std::optional<CommitPin> pin = writing(key, putId, blocks).commit(1);
    REQUIRE(pin);
    return std::move(*pin);
  }
  void put(const std::string& key, uint64_t putId, uint64_t blocks) { committing(key, putId, blocks); }
  QueuedClaim blocked(const std::string& key, uint64_t putId, uint64_t blocks) {
    Claim claimed = claim(key, putId, blocks);
    REQUIRE(std::holds_alternative<BlockedByBusyIo>(claimed));
    return std::get<BlockedByBusyIo>(std::move(claimed)).claim;
  }
  bool readable(const std::string& key, uint64_t putId) { return index.pin(key, PutId(putId)).has_value(); }
  std::vector<Version> evicted() { return ring.takeEvicted(); }
};

bool granted(const Claim& claim) { return std::holds_alternative<WriteGuard>(claim); }
bool isBlocked(const Claim& claim) { return std::holds_alternative<BlockedByBusyIo>(claim); }
bool isOutdated(const Claim& claim) { return std::holds_alternative<Outdated>(claim); }
QueuedClaim queuedOf(Claim claim) { return std::get<BlockedByBusyIo>(std::move(claim)).claim; }
std::vector<Version> rest(Walk& walk) {
  std::vector<Version> found;
  size_t steps = SIZE_MAX;
  while (const std::optional<ReadPin> pin = walk.next(steps)) found.push_back(pin->version());
  CHECK(walk.done());
  return found;
}
std::vector<Version> rest(Walk&& walk) { return rest(walk); }

}  // namespace

TEST_CASE("shard ring: a record is its header block and the payload in whole blocks, one behind the other") {
  Shard shard;
  WriteGuard first = shard.writing("a", 1, 0);
  Claim second = shard.ring.claim(version("b", 1), 1);
  REQUIRE(granted(second));
  CHECK(first.fileOffset() == 0);
  CHECK(first.recordBytes() == kBlock);
  CHECK(first.shard() == ShardId(7));
  CHECK(std::get<WriteGuard>(second).fileOffset() == kBlock);
  CHECK(std::get<WriteGuard>(second).recordBytes() == 2 * kBlock);
  CHECK(std::get<WriteGuard>(second).payloadBytes() == 1);
  CHECK(shard.ring.usedBytes() == 3 * kBlock);
}

TEST_CASE("shard ring: only what is committed can be read, by its own put_id") {
  Shard shard;
  {
    WriteGuard guard = shard.writing("a", 5, 1);
    CHECK_FALSE(shard.readable("a", 5));
    REQUIRE(std::move(guard).commit(77));
  }
  CHECK_FALSE(shard.readable("a", 4));
  CHECK_FALSE(shard.readable("a", 6));
  CHECK_FALSE(shard.readable("b", 5));
  const std::optional<ReadPin> pin = shard.index.pin("a", PutId(5));
  REQUIRE(pin);
  CHECK(pin->payloadCrc() == 77);
  CHECK(pin->payloadBytes() == kBlock);
  CHECK(pin->current());
}

TEST_CASE("shard ring: a write that is not committed leaves nothing to read, and may be claimed again") {
  Shard shard;
  shard.writing("a", 1, 1);
  CHECK_FALSE(shard.readable("a", 1));
  CHECK(shard.index.size() == 0);
  CHECK(shard.ring.deadBytes() == 2 * kBlock);
  shard.put("a", 1, 1);
  CHECK(shard.readable("a", 1));
}

TEST_CASE("shard ring: a record never crosses the end of the file") {
  Shard shard;
  shard.put("a", 1, 8);
  shard.put("b", 1, 3);  // 9 + 4 of 16 blocks
  const WriteGuard guard = shard.writing("c", 1, 3);
  CHECK(guard.fileOffset() == 0);
  CHECK(shard.evicted() == std::vector{version("a", 1)});
  CHECK(shard.readable("b", 1));
  CHECK(shard.ring.usedBytes() == 8 * kBlock);
}

TEST_CASE("shard ring: a record as long as the shard is taken, a longer one is too large") {
  Shard shard;
  shard.put("a", 1, 2);
  CHECK(std::holds_alternative<TooLarge>(shard.claim("b", 1, 16)));
  CHECK(std::holds_alternative<TooLarge>(shard.ring.claim(version("c", 1), UINT64_MAX)));
  CHECK(shard.readable("a", 1));
  CHECK(shard.writing("b", 1, 15).fileOffset() == 0);
  CHECK(shard.evicted() == std::vector{version("a", 1)});
}

TEST_CASE("shard ring: a version is outdated by itself and by newer ones") {
  Shard shard;
  shard.put("a", 5, 1);
  CHECK(isOutdated(shard.claim("a", 5, 1)));
  CHECK(isOutdated(shard.claim("a", 4, 1)));
  CHECK(shard.readable("a", 5));
}

TEST_CASE("shard ring: a newer version makes the older unreadable, also if it does not come to the disk itself") {
  Shard shard;
  shard.put("a", 1, 1);
  shard.put("b", 1, 1);
  const std::optional<ReadPin> pin = shard.index.pin("b", PutId(1));
  CHECK(std::holds_alternative<TooLarge>(shard.claim("a", 2, 16)));
  shard.writing("b", 2, 1);
  CHECK_FALSE(shard.readable("a", 1));
  CHECK_FALSE(shard.readable("b", 1));
  CHECK_FALSE(pin->current());
}

TEST_CASE("shard ring: a newer version in another shard makes the older unreadable") {
  Shard shard;
  shard.put("a", 1, 1);
  ShardRing other(shard.index, ShardId(8), 16 * kBlock, kBlock);
  std::get<WriteGuard>(other.claim(version("a", 2), 0)).payloadBytes();
  CHECK_FALSE(shard.readable("a", 1));
  CHECK(shard.ring.deadBytes() == 2 * kBlock);
}

TEST_CASE("shard ring: an invalidated version cannot be read, committed or reported as evicted") {
  Shard shard;
  shard.put("a", 3, 1);
  CHECK_FALSE(shard.index.invalidate("a", PutId(3)));
  CHECK(shard.readable("a", 3));
  std::optional<ReadPin> pin = shard.index.pin("a", PutId(3));
  CHECK(shard.index.invalidate("a", PutId(4)));
  CHECK_FALSE(shard.readable("a", 3));
  CHECK_FALSE(pin->current());
  pin.reset();

  WriteGuard guard = shard.writing("b", 3, 1);
  CHECK(guard.wanted());
  CHECK(shard.index.invalidate("b", PutId(9)));
  CHECK_FALSE(guard.wanted());
  CHECK_FALSE(std::move(guard).commit(1));
  CHECK_FALSE(shard.readable("b", 3));

  shard.put("c", 1, 15);
  CHECK(shard.evicted().empty());
}

TEST_CASE("shard ring: a version that the master has not taken is dropped") {
  Shard shard;
  shard.committing("a", 1, 1).ignored();
  CHECK_FALSE(shard.readable("a", 1));
  shard.put("b", 2, 1);
  CHECK_FALSE(shard.index.drop("b", PutId(1)));
  CHECK(shard.readable("b", 2));
  CHECK(shard.index.drop("b", PutId(2)));
  CHECK_FALSE(shard.readable("b", 2));
}

TEST_CASE("shard ring: a write that is not finished stops the tail, also when its version is dead") {
  Shard shard;
  WriteGuard guard = shard.writing("a", 1, 1);
  QueuedClaim claim = shard.blocked("b", 1, 15);
  CHECK(shard.index.invalidate("a", PutId(2)));
  claim = queuedOf(shard.ring.retry(std::move(claim)));
  CHECK_FALSE(std::move(guard).commit(1));
  CHECK(granted(shard.ring.retry(std::move(claim))));
  CHECK(shard.evicted().empty());
}

TEST_CASE("shard ring: a read pin stops the tail, also when its version is dead") {
  Shard shard;
  shard.put("a", 1, 1);
  std::optional<ReadPin> pin = shard.index.pin("a", PutId(1));
  QueuedClaim claim = shard.blocked("b", 1, 15);
  CHECK(shard.index.invalidate("a", PutId(2)));
  claim = queuedOf(shard.ring.retry(std::move(claim)));
  pin.reset();
  CHECK(granted(shard.ring.retry(std::move(claim))));
}

TEST_CASE("shard ring: a commit pin stops the tail and its version stays readable") {
  Shard shard;
  std::optional<CommitPin> pin = shard.committing("a", 1, 1);
  QueuedClaim claim = shard.blocked("b", 1, 15);
  claim = queuedOf(shard.ring.retry(std::move(claim)));
  CHECK(shard.readable("a", 1));
  CHECK(shard.evicted().empty());
  pin.reset();
  CHECK(granted(shard.ring.retry(std::move(claim))));
  CHECK(shard.evicted() == std::vector{version("a", 1)});
}

TEST_CASE("shard ring: what stands in the way of a waiting writer takes no new readers and is told as evicted once") {
  Shard shard;
  shard.put("a", 1, 1);
  std::optional<ReadPin> pin = shard.index.pin("a", PutId(1));
  QueuedClaim claim = shard.blocked("b", 1, 15);
  CHECK(shard.readable("a", 1));  // the claim may yet go to another shard
  claim = queuedOf(shard.ring.retry(std::move(claim)));
  CHECK_FALSE(shard.readable("a", 1));
  CHECK(pin->current());
  CHECK(shard.evicted() == std::vector{version("a", 1)});
  pin.reset();
  CHECK(granted(shard.ring.retry(std::move(claim))));
  CHECK(shard.evicted().empty());
}

TEST_CASE("shard ring: what leaves can still be invalidated under its readers") {
  Shard shard;
  shard.put("a", 1, 1);
  const std::optional<ReadPin> pin = shard.index.pin("a", PutId(1));
  const QueuedClaim claim = queuedOf(shard.ring.retry(shard.blocked("b", 1, 15)));
  CHECK(shard.index.invalidate("a", PutId(2)));
  CHECK_FALSE(pin->current());
}

TEST_CASE("shard ring: only what is needed is evicted, oldest first, also by a claim that is blocked") {
  Shard shard;
  shard.put("a", 1, 3);
  shard.put("b", 1, 3);
  shard.put("c", 1, 3);
  shard.put("d", 1, 3);
  const std::optional<ReadPin> pin = shard.index.pin("c", PutId(1));
  shard.writing("e", 1, 1);
  CHECK(shard.evicted() == std::vector{version("a", 1)});
  const QueuedClaim claim = shard.blocked("f", 1, 9);
  CHECK(shard.evicted() == std::vector{version("b", 1)});
  CHECK(shard.readable("d", 1));
}

TEST_CASE("shard ring: claims that wait are served in order, and a later one that would fit waits too") {
  Shard shard;
  shard.put("a", 1, 7);
  std::optional<ReadPin> pin = shard.index.pin("a", PutId(1));
  QueuedClaim first = shard.blocked("b", 1, 15);
  QueuedClaim second = shard.blocked("c", 1, 0);  // 8 blocks are free
  pin.reset();
  second = queuedOf(shard.ring.retry(std::move(second)));
  {
    Claim served = shard.ring.retry(std::move(first));
    REQUIRE(granted(served));
    second = queuedOf(shard.ring.retry(std::move(second)));
  }
  CHECK(granted(shard.ring.retry(std::move(second))));
  CHECK_FALSE(shard.ring.anyWaiting());
}

TEST_CASE("shard ring: a claim that is given up or invalidated while it waits holds nobody up") {
  Shard shard;
  shard.put("a", 1, 7);
  const std::optional<ReadPin> pin = shard.index.pin("a", PutId(1));
  std::optional<QueuedClaim> givenUp = shard.blocked("b", 1, 15);
  QueuedClaim invalid = shard.blocked("c", 1, 14);
  QueuedClaim superseded = shard.blocked("d", 1, 13);
  QueuedClaim last = shard.blocked("d", 2, 0);
  givenUp.reset();
  CHECK(shard.index.invalidate("c", PutId(2)));
  CHECK(granted(shard.ring.retry(std::move(last))));
  CHECK(isOutdated(shard.ring.retry(std::move(invalid))));
  CHECK(isOutdated(shard.ring.retry(std::move(superseded))));
  CHECK(isBlocked(shard.claim("b", 1, 15)));
}

TEST_CASE("shard ring: a walk finds what is committed and decided, oldest first") {
  Shard shard;
  shard.put("a", 1, 1);
  shard.put("b", 2, 2);
  shard.put("c", 3, 0);
  const CommitPin undecided = shard.committing("d", 4, 1);
  const WriteGuard guard = shard.writing("e", 5, 1);
  shard.index.drop("b", PutId(2));
  CHECK(shard.ring.committed() == 3);
  CHECK(rest(Walk(shard.ring)) == std::vector{version("a", 1), version("c", 3)});
}

TEST_CASE("shard ring: a walk goes on behind what has ended meanwhile, and ends where the head was") {
  Shard shard;
  for (const char* key : {"a", "b", "c", "d"}) shard.put(key, 1, 3);
  Walk walk(shard.ring);
  size_t steps = 1;
  CHECK(walk.next(steps)->version() == version("a", 1));
  CHECK_FALSE(walk.next(steps));
  CHECK_FALSE(walk.done());
  shard.put("e", 1, 7);  // over a and b, of which b comes next
  shard.index.drop("c", PutId(1));
  CHECK(rest(walk) == std::vector{version("d", 1)});
  shard.put("f", 1, 15);
  CHECK(walk.done());
}

TEST_CASE("shard ring: a claim that waits is wanted until it is given up for dead") {
  Shard shard;
  const WriteGuard guard = shard.writing("a", 1, 1);
  const QueuedClaim claim = shard.blocked("b", 1, 15);
  CHECK(claim.wanted());
  shard.index.invalidate("b", PutId(2));
  CHECK_FALSE(claim.wanted());
}

// --- against a model -----------------------------------------------------------------------------------------------------------

namespace {

// The file as a disk that takes its time: a write puts its first half there when it begins and the other half when it ends.
// Beside it what the ring should know, kept without positions: extents of the file in the order of their age.
class Model {
 public:
  Model(uint64_t seed, uint64_t blocks, uint32_t shards) : random_(seed), disk_(shards, std::vector<uint64_t>(blocks)), held_(shards) {
    for (uint32_t n = 0; n < shards; ++n) rings_.push_back(std::make_unique<ShardRing>(index_, ShardId(n), blocks * kBlock, kBlock));
  }

  void run(uint64_t wraps) {
    while (std::any_of(rings_.begin(), rings_.end(), [&](const auto& ring) { return ring->head() < wraps * ring->capacity(); })) {
      step();
      if (++steps_ > 1'000'000) FAIL("no progress");
    }
    while (!writes_.empty() || !commits_.empty() || !reads_.empty() || !waits_.empty()) {
      if (!writes_.empty()) finishWrite();
      if (!commits_.empty()) endCommit();
      if (!reads_.empty()) finishRead();
      retryFirst();
    }
    check();
  }

  uint64_t blocked = 0, reads = 0, evictions = 0, stale = 0, walks = 0;

 private:
  struct Piece {  // of the file
    uint64_t first, blocks;
    Version version;
    bool committed = false, dead = false, told = false;  // told as evicted
    bool committing = false;
    unsigned holders = 0;
  };
  using PieceRef = std::shared_ptr<Piece>;
  struct Writing {
    WriteGuard guard;
    PieceRef piece;
  };
  struct Committing {
    CommitPin pin;
    PieceRef piece;
  };
  struct Reading {
    ReadPin pin;
    PieceRef piece;
  };
  struct Waiting {
    uint32_t shard;
    QueuedClaim claim;
    Version version;
    uint64_t blocks;
    bool dead = false;
  };

  uint64_t below(uint64_t end) { return std::uniform_int_distribution<uint64_t>(0, end - 1)(random_); }
  std::string randomKey() { return "k" + std::to_string(below(24)); }
  static uint64_t pattern(const Piece& piece) { return piece.version.putId.value; }

  void step() {
    switch (below(16)) {
      // clang-format off
      case 0: case 1: case 2: case 3: newClaim(); break;
      case 4: case 5: case 6: if (!writes_.empty()) finishWrite(); break;
      case 7: case 8: if (!commits_.empty()) endCommit(); break;
      case 9: case 10: case 11: beginRead(); break;
      case 12: case 13: if (!reads_.empty()) finishRead(); break;
      case 14: kill(); break;
      case 15: giveUp(); break;
        // clang-format on
    }
    if (below(2)) retryFirst();
    if (below(2)) walk();
    check();
  }

  void forgetOlder(const std::string& key, PutId below) {
    const auto at = newest_.find(key);
    if (at != newest_.end() && at->second->version.putId < below) at->second->dead = true, newest_.erase(at);
    for (auto& line : waits_) {
      for (Waiting& each : line.second) {
        if (each.version.key == key && each.version.putId < below) each.dead = true;
      }
    }
  }

  void newClaim() {
    const auto shard = static_cast<uint32_t>(below(rings_.size()));
    const uint64_t blocks = below(20) == 0 ? disk_[shard].size() + below(2) : 1 + below(disk_[shard].size() / 3);
    const Version wanted{randomKey(), PutId(++putIds_)};
    forgetOlder(wanted.key, wanted.putId);
    Claim claimed = rings_[shard]->claim(wanted, (blocks - 1) * kBlock);
    tell(shard);
    if (blocks > disk_[shard].size()) {
      CHECK(std::holds_alternative<TooLarge>(claimed));
    } else if (granted(claimed)) {
      for (const Waiting& each : waits_[shard]) CHECK(each.dead);
      if (waits_[shard].empty()) waits_.erase(shard);
      begin(shard, std::get<WriteGuard>(std::move(claimed)), wanted, blocks);
    } else {
      REQUIRE(isBlocked(claimed));
      ++blocked;
      waits_[shard].push_back({shard, queuedOf(std::move(claimed)), wanted, blocks});
    }
  }

  // The bytes that a claim was given: nobody may hold any of them, and what lay there is gone.
  void begin(uint32_t shard, WriteGuard guard, const Version& wanted, uint64_t blocks) {
    CHECK(guard.recordBytes() == blocks * kBlock);
    const uint64_t first = guard.fileOffset() / kBlock;
    REQUIRE(first + blocks <= disk_[shard].size());
    for (const PieceRef& piece : held_[shard]) {
      if (piece->first < first + blocks && first < piece->first + piece->blocks) {
        REQUIRE_MESSAGE(piece->holders == 0, "bytes of a held record are given out");
        REQUIRE_MESSAGE((!piece->committed || piece->dead || piece->told), "a record is overwritten that was not told as evicted");
      }
    }
    std::erase_if(held_[shard], [&](const PieceRef& each) { return each->first < first + blocks && first < each->first + each->blocks; });
    auto piece = std::make_shared<Piece>(Piece{first, blocks, wanted});
    piece->holders = 1;
    held_[shard].push_back(piece);
    newest_[wanted.key] = piece;
    for (uint64_t n = 0; n < blocks / 2; ++n) disk_[shard][first + n] = pattern(*piece);
    writes_.push_back({std::move(guard), piece});
  }

  void finishWrite() {
    Writing writing = take(writes_);
    const auto shard = static_cast<uint32_t>(writing.guard.shard().value);
    Piece& piece = *writing.piece;
    CHECK(writing.guard.wanted() == !piece.dead);
    for (uint64_t n = piece.blocks / 2; n < piece.blocks; ++n) disk_[shard][piece.first + n] = pattern(piece);
    --piece.holders;
    if (below(8) == 0) {  // the write has failed
      if (!piece.dead) newest_.erase(piece.version.key);
      piece.dead = true;
      return;
    }
    std::optional<CommitPin> pin = std::move(writing.guard).commit(static_cast<uint32_t>(piece.version.putId.value));
    REQUIRE(pin.has_value() == !piece.dead);
    if (!pin) return;
    piece.committed = piece.committing = true;
    ++piece.holders;
    commits_.push_back({std::move(*pin), writing.piece});
  }

  void endCommit() {
    Committing committing = take(commits_);
    --committing.piece->holders;
    committing.piece->committing = false;
    if (below(6) != 0) return;
    if (!committing.piece->dead) newest_.erase(committing.piece->version.key);
    committing.piece->dead = true;
    std::move(committing.pin).ignored();
  }

  void beginRead() {
    const std::string key = randomKey();
    const auto at = newest_.find(key);
    if (at == newest_.end()) return;
    const PieceRef piece = at->second;
    CHECK_FALSE(index_.pin(key, PutId(piece->version.putId.value + 1)));
    std::optional<ReadPin> pin = index_.pin(key, piece->version.putId);
    CHECK(pin.has_value() == (piece->committed && !piece->told));
    if (!pin) return;
    ++piece->holders;
    CHECK(pin->fileOffset() == piece->first * kBlock);
    CHECK(pin->payloadCrc() == static_cast<uint32_t>(piece->version.putId.value));
    reads_.push_back({std::move(*pin), piece});
  }

  void finishRead() {
    Reading reading = take(reads_);
    const auto shard = static_cast<uint32_t>(reading.pin.shard().value);
    Piece& piece = *reading.piece;
    CHECK(reading.pin.current() == !piece.dead);
    stale += piece.dead;
    for (uint64_t n = 0; n < piece.blocks; ++n) REQUIRE(disk_[shard][piece.first + n] == pattern(piece));
    --piece.holders;
    ++reads;
  }

  void kill() {
    const std::string key = randomKey();
    const PutId bound(putIds_ - std::min<uint64_t>(putIds_, below(12)));
    if (below(2)) {
      forgetOlder(key, bound);
      index_.invalidate(key, bound);
    } else if (const auto at = newest_.find(key); at != newest_.end()) {
      const PieceRef piece = at->second;
      piece->dead = true;
      newest_.erase(at);
      CHECK_FALSE(index_.drop(key, PutId(piece->version.putId.value + 1)));
      if (!piece->told) CHECK(index_.drop(key, piece->version.putId));
      index_.drop(key, piece->version.putId);  // told: leaving, or passed
    }
  }

  void giveUp() {
    for (auto& [shard, line] : waits_) {
      if (!line.empty() && below(4) == 0) line.erase(line.begin() + static_cast<long>(below(line.size())));
    }
    std::erase_if(waits_, [](const auto& each) { return each.second.empty(); });
  }

  // One of those that wait, mostly the first.
  void retryFirst() {
    if (waits_.empty()) return;
    auto line = waits_.begin();
    std::advance(line, below(waits_.size()));
    std::deque<Waiting>& waiting = line->second;
    const uint64_t n = below(3) == 0 ? below(waiting.size()) : 0;
    const bool first = std::all_of(waiting.begin(), waiting.begin() + static_cast<long>(n), [](const Waiting& each) { return each.dead; });
    Waiting each = std::move(waiting[n]);
    Claim claimed = rings_[each.shard]->retry(std::move(each.claim));
    tell(each.shard);
    CHECK(isOutdated(claimed) == each.dead);
    if (isBlocked(claimed)) {
      each.claim = queuedOf(std::move(claimed));
      waiting[n] = std::move(each);
      return;
    }
    waiting.erase(waiting.begin() + static_cast<long>(n));
    if (granted(claimed)) {
      CHECK(first);
      begin(each.shard, std::get<WriteGuard>(std::move(claimed)), each.version, each.blocks);
    }
    if (waiting.empty()) waits_.erase(line);
  }

  // What is told as evicted is committed, alive and not told before; oldest first.
  void tell(uint32_t shard) {
    size_t from = 0;
    for (const Version& version : rings_[shard]->takeEvicted()) {
      const auto& pieces = held_[shard];
      while (from < pieces.size() && !(pieces[from]->version == version)) ++from;
      REQUIRE_MESSAGE(from < pieces.size(), "evicted is what is there, oldest first");
      Piece& piece = *pieces[from];
      CHECK((piece.committed && !piece.committing && !piece.dead && !piece.told));
      piece.told = true;
      ++evictions;
      // With readers it leaves; without, the tail has passed it and the index does not know it any more.
      if (piece.holders == 0) newest_.erase(version.key);
    }
  }

  void check() {
    for (uint32_t shard = 0; shard < rings_.size(); ++shard) {
      const ShardRing& ring = *rings_[shard];
      REQUIRE(ring.head() - ring.tail() <= ring.capacity());
      REQUIRE(ring.usedBytes() <= ring.capacity());
      REQUIRE(ring.deadBytes() <= ring.usedBytes());
      REQUIRE(ring.anyWaiting() == (waits_.count(shard) != 0));
      REQUIRE(rest(Walk(*rings_[shard])) == decided(shard));
      size_t committed = 0;
      for (const PieceRef& piece : held_[shard]) committed += readable(*piece);
      REQUIRE(ring.committed() == committed);
    }
  }

  static bool readable(const Piece& piece) { return piece.committed && !piece.dead && !piece.told; }
  std::vector<Version> decided(uint32_t shard) {
    std::vector<Version> found;
    for (const PieceRef& piece : held_[shard]) {
      if (readable(*piece) && !piece->committing) found.push_back(piece->version);
    }
    return found;
  }

  // A walk that is long under way: it names what is there, and nothing is left out that was there all the time.
  void walk() {
    if (!walk_) {
      walked_.clear();
      toWalk_ = decided(0);
      walk_.emplace(*rings_[0]);
    }
    size_t steps = below(4);
    while (const std::optional<ReadPin> pin = walk_->next(steps)) {
      const std::vector<Version> there = decided(0);
      REQUIRE(std::find(there.begin(), there.end(), pin->version()) != there.end());
      walked_.push_back(pin->version());
    }
    if (!walk_->done()) return;
    const std::vector<Version> there = decided(0);
    for (const Version& version : toWalk_) {
      if (std::find(there.begin(), there.end(), version) == there.end()) continue;
      REQUIRE(std::count(walked_.begin(), walked_.end(), version) == 1);
    }
    walk_.reset();
    ++walks;
  }

  template <class T>
  T take(std::vector<T>& from) {
    std::swap(from[below(from.size())], from.back());
    T taken = std::move(from.back());
    from.pop_back();
    return taken;
  }

  std::mt19937_64 random_;
  KeyIndex index_;
  std::vector<std::unique_ptr<ShardRing>> rings_;
  std::vector<std::vector<uint64_t>> disk_;  // a word for each block
  std::vector<std::vector<PieceRef>> held_;  // by shard, from the oldest on: what is not overwritten yet
  std::map<std::string, PieceRef> newest_;   // alive
  std::vector<Writing> writes_;
  std::vector<Committing> commits_;
  std::vector<Reading> reads_;
  std::map<uint32_t, std::deque<Waiting>> waits_;
  std::optional<Walk> walk_;
  std::vector<Version> toWalk_, walked_;
  uint64_t putIds_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace

TEST_CASE("shard ring: random claims, reads, commits and invalidations agree with a model over 40 wraps") {
  uint64_t blocked = 0, reads = 0, evictions = 0, stale = 0, walks = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Model model(seed, 48, seed % 2 ? 1 : 3);
    model.run(40);
    blocked += model.blocked, reads += model.reads, evictions += model.evictions, stale += model.stale;
    walks += model.walks;
  }
  CHECK(blocked > 1000);
  CHECK(reads > 1000);
  CHECK(evictions > 1000);
  CHECK(stale > 100);
  CHECK(walks > 1000);
}

}  // namespace fluxon::ssdd
