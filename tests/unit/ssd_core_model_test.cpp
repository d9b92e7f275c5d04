// An ssdd, its owner and its devices at random: what the owner may believe at each moment is what it finds.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ssd/record.h"
#include "ssd_core.h"

namespace fluxon::ssdd {
namespace {

using ssd::Message;
using ssd::MessageKind;

constexpr uint32_t kBlock = 512;
constexpr uint64_t kSegmentBytes = 1 << 20;

// The disk takes its time: a write puts its first half there when it begins and the other half when it ends. Each block is a word.
class Model final : public Host, public Disk {
 public:
  explicit Model(uint64_t seed)
      : random_(seed), blocks_(3, std::vector<uint64_t>(40)), core_({shard(0), shard(0), shard(1)}, *this, *this) {
    core_.ownerAttached(kSegmentBytes);
  }

  void run(unsigned steps) {
    for (unsigned n = 0; n < steps; ++n) step();
    while (!jobs_.empty() || !toDecide_.empty() || core_.hasWork()) {
      if (!jobs_.empty()) finish(false);
      if (!toDecide_.empty()) decide();
      if (core_.hasWork()) core_.work();
    }
    CHECK(persists_.empty());
    CHECK(loads_.empty());
    CHECK_FALSE(list_);
    CHECK_FALSE(forgetting_);
    CHECK_FALSE(scrubbing_);
    CHECK(core_.entries() == there_.size());
    for (const ShardGauges& each : core_.shards()) CHECK(each.readPins + each.commitPins + each.writers + each.waiting == 0);
  }

  uint64_t reads = 0, stale = 0, evictions = 0, lists = 0, lives = 0, scrubs = 0, stalls = 0;

 private:
  struct Version {
    PutId putId;
    uint64_t bytes;
    bool operator==(const Version&) const = default;
  };
  struct Persist {
    std::string key;
    Version version;
    bool dead = false;  // ended by the owner itself
  };
  struct Load {
    std::string key;
    PutId putId;
    bool dead = false;
    bool stalled = false;  // it may be a miss
  };
  struct Job {
    enum class Kind { write, read, check } kind;
    JobId id;
    uint64_t shard, first, blocks;
    PutId putId;
    bool cancelled = false;
    uint64_t device() const { return shard / 2; }
  };
  struct List {
    uint64_t id;
    std::map<std::string, Version> asked, named;
  };

  static ShardSpec shard(uint64_t device) { return {DeviceIndex(device), 40 * kBlock, kBlock}; }
  uint64_t below(uint64_t end) { return std::uniform_int_distribution<uint64_t>(0, end - 1)(random_); }
  std::string randomKey() { return "k" + std::to_string(below(30)); }
  void say(const Message& message) { REQUIRE(core_.message(message, now_).ok()); }

  // --- Disk
  Job begin(Job::Kind kind, JobId id, ssdd::ShardId shard, uint64_t fileOffset, uint64_t payloadBytes, PutId putId) {
    const Job made{kind, id, shard.value, fileOffset / kBlock, ssd::recordBytes(payloadBytes, kBlock) / kBlock, putId};
    for (const Job& each : jobs_) {
      if (each.shard != made.shard || each.first >= made.first + made.blocks || made.first >= each.first + each.blocks) continue;
      REQUIRE_MESSAGE((each.kind != Job::Kind::write && kind != Job::Kind::write), "bytes are written while a job uses them");
    }
    jobs_.push_back(made);
    return made;
  }
  void write(const WriteJob& job) override {
    const Job made = begin(Job::Kind::write, job.id, job.shard, job.fileOffset, job.payloadBytes, job.putId);
    for (uint64_t n = 0; n < made.blocks / 2; ++n) blocks_[made.shard][made.first + n] = job.putId.value;
  }
  void read(const ReadJob& job) override { begin(Job::Kind::read, job.id, job.shard, job.fileOffset, job.payloadBytes, loading_); }
  void check(const CheckJob& job) override { begin(Job::Kind::check, job.id, job.shard, job.fileOffset, job.payloadBytes, job.putId); }
  void cancelQueued(DeviceIndex device) override {
    for (Job& job : jobs_) job.cancelled = job.cancelled || (job.device() == device.value && below(2));
  }

  void finish(bool mayFail) {
    std::swap(jobs_[below(jobs_.size())], jobs_.back());
    if (mayFail && jobs_.back().device() == hangs_) return;
    const Job job = jobs_.back();
    jobs_.pop_back();
    Error error;
    if (job.cancelled) {
      error.code = Code::unavailable;
    } else if (job.kind == Job::Kind::write) {
      for (uint64_t n = job.blocks / 2; n < job.blocks; ++n) blocks_[job.shard][job.first + n] = job.putId.value;
      if (mayFail && below(60) == 0) error.code = Code::noSpace;
      if (mayFail && below(600) == 0) error.code = Code::system;
    } else {
      for (uint64_t n = 0; n < job.blocks; ++n) REQUIRE(blocks_[job.shard][job.first + n] == job.putId.value);
      if (mayFail && below(30) == 0) error.code = Code::corrupt;
    }
    if (job.kind == Job::Kind::write) {
      core_.written(job.id, error.ok() ? Result<uint32_t>(static_cast<uint32_t>(job.putId.value)) : Result<uint32_t>(error), now_);
    } else if (job.kind == Job::Kind::check) {
      core_.checked(job.id, error, now_);
    } else {
      ++reads;
      if (below(3) == 0) core_.progress(job.id, kBlock, now_);
      readCode_ = error.code;
      core_.readDone(job.id, error, now_);
    }
    if (error.code != Code::corrupt) return;
    for (auto& [_, load] : loads_) load.dead = load.dead || load.putId == job.putId;
  }

  // --- Host: the owner hears
  void send(Message said) override {
    REQUIRE(attached_);
    switch (said.kind) {
      case MessageKind::persisted: {
        const auto at = persists_.find(said.id);
        REQUIRE(at != persists_.end());
        if (said.code == Code::ok) {
          CHECK_FALSE(at->second.dead);
          CHECK(forgotten_.count(said.id) == 0);
          toDecide_.push_back(said.id);
        } else {
          persists_.erase(at);
        }
        break;
      }
      case MessageKind::evicted: {
        const auto at = there_.find(said.key);
        REQUIRE_MESSAGE((at != there_.end() && at->second.putId == said.putId), "evicted is what is there");
        there_.erase(at);
        if (list_) list_->named.erase(said.key);
        ++evictions;
        break;
      }
      case MessageKind::progress:
        if (said.id != scrubbing_) CHECK_FALSE(loads_.at(said.id).dead);
        break;
      case MessageKind::loaded: {
        const auto at = loads_.find(said.id);
        REQUIRE(at != loads_.end());
        stale += at->second.dead;
        const Code expected = at->second.dead ? Code::miss : readCode_;
        CHECK((said.code == expected || (at->second.stalled && said.code == Code::miss)));
        loads_.erase(at);
        break;
      }
      case MessageKind::listed: {
        REQUIRE(list_);
        const Version version{said.putId, said.bytes};
        REQUIRE(list_->asked.count(said.key) == 1);
        CHECK(list_->asked[said.key] == version);
        CHECK((there_.count(said.key) == 1 && there_[said.key] == version));
        CHECK(list_->named.emplace(said.key, version).second);
        break;
      }
      case MessageKind::done: done(said); break;
      case MessageKind::alive: break;
      case MessageKind::stalled:
        if (const auto load = loads_.find(said.id); load != loads_.end())
          load->second.stalled = true;
        else
          CHECK(persists_.count(said.id) == 1);
        ++stalls;
        break;
      default: FAIL("no message for an owner");
    }
  }

  void done(const Message& said) {
    if (list_ && said.id == list_->id) {
      for (const auto& [key, version] : list_->asked) {
        const auto at = there_.find(key);
        CHECK(list_->named.count(key) == (at != there_.end() && at->second == version));
      }
      list_.reset();
      ++lists;
    } else if (said.id == scrubbing_) {
      scrubbing_ = 0;
      ++scrubs;
    } else if (said.id == forgetting_) {
      for (const uint64_t id : forgotten_) CHECK((persists_.count(id) == 0 && loads_.count(id) == 0));
      forgetting_ = 0;
    } else {
      REQUIRE(said.id == invalidating_);
    }
  }

  // --- the owner does
  void end(const std::string& key, PutId bound) {
    const auto at = there_.find(key);
    if (at != there_.end() && at->second.putId < bound) {
      there_.erase(at);
      if (list_) list_->named.erase(key);
    }
    for (auto& [_, persist] : persists_) persist.dead = persist.dead || (persist.key == key && persist.version.putId < bound);
    for (auto& [_, load] : loads_) load.dead = load.dead || (load.key == key && load.putId < bound);
  }

  void persist() {
    const std::string key = randomKey();
    const Version version{PutId(++putIds_), below(20) == 0 ? 40 * kBlock : below(12) * kBlock};
    end(key, version.putId);
    persists_[++ids_] = {key, version};
    say({.kind = MessageKind::persist, .id = ids_, .key = key, .putId = version.putId, .bytes = version.bytes});
  }
  void decide() {
    std::swap(toDecide_[below(toDecide_.size())], toDecide_.back());
    const uint64_t id = toDecide_.back();
    toDecide_.pop_back();
    const bool taken = below(6) != 0;
    const Persist persist = persists_.at(id);
    persists_.erase(id);
    if (taken && !persist.dead) there_[persist.key] = persist.version;
    say({.kind = MessageKind::decided, .id = id, .code = taken ? Code::ok : Code::miss});
  }
  void load() {
    if (persists_.empty() || below(8)) {
      if (there_.empty()) return;
      auto at = there_.begin();
      std::advance(at, below(there_.size()));
      const size_t before = jobs_.size();
      loads_[++ids_] = {at->first, at->second.putId};
      loading_ = at->second.putId;
      const std::string key = at->first;
      loads_[ids_].stalled = core_.devices()[0].state != DeviceState::serving || core_.devices()[1].state != DeviceState::serving;
      say({.kind = MessageKind::load, .id = ids_, .key = key, .putId = loading_, .bytes = at->second.bytes});
      REQUIRE_MESSAGE((jobs_.size() > before || there_.count(key) == 0), "what is there is not read");
      return;
    }
    const Persist persist = std::next(persists_.begin(), static_cast<long>(below(persists_.size())))->second;  // not there yet
    loads_[++ids_] = {persist.key, persist.version.putId, true};
    say({.kind = MessageKind::load, .id = ids_, .key = persist.key, .putId = persist.version.putId, .bytes = persist.version.bytes});
    REQUIRE_MESSAGE(loads_.count(ids_) == 0, "what is undecided is read");
  }
  void invalidate() {
    const std::string key = randomKey();
    const PutId bound(putIds_ - std::min<uint64_t>(putIds_, below(40)));
    end(key, bound);
    invalidating_ = ++ids_;
    say({.kind = MessageKind::invalidate, .id = ids_, .key = key, .putId = bound});
  }
  void drop() {
    if (there_.empty()) return;
    const std::string key = std::next(there_.begin(), static_cast<long>(below(there_.size())))->first;
    const PutId putId = there_[key].putId;
    end(key, PutId(putId.value + 1));
    say({.kind = MessageKind::drop, .key = key, .putId = putId});
  }
  void list() {
    if (list_) return;
    list_ = List{++ids_, there_, {}};
    say({.kind = MessageKind::list, .id = ids_});
  }
  void scrub() {
    if (scrubbing_) return;
    scrubbing_ = ++ids_;
    say({.kind = MessageKind::scrub, .id = ids_});
  }
  void forget() {
    if (forgetting_) return;
    forgotten_.clear();
    for (const uint64_t id : toDecide_) persists_.erase(id);
    toDecide_.clear();
    for (const auto& [id, _] : persists_) forgotten_.insert(id);
    for (const auto& [id, _] : loads_) forgotten_.insert(id);
    forgetting_ = ++ids_;
    say({.kind = MessageKind::forget, .id = ids_});
  }
  void otherOwner() {
    attached_ = false;
    core_.ownerGone();
    persists_.clear(), loads_.clear(), toDecide_.clear(), forgotten_.clear();
    list_.reset();
    scrubbing_ = forgetting_ = 0;
    while (!jobs_.empty()) {
      CHECK_FALSE(core_.drained());
      finish(false);
    }
    REQUIRE(core_.drained());
    CHECK(core_.entries() == there_.size());
    if (below(2)) {
      core_.startOver();
      there_.clear();
      CHECK_FALSE(core_.hasEntries());
    }
    core_.ownerAttached(kSegmentBytes);
    attached_ = true;
    ++lives;
  }

  void step() {
    now_ = now_ + milliseconds(static_cast<int64_t>(below(100)));
    if (below(400) == 0) hangs_ = hangs_ == kNone ? below(2) : kNone;
    core_.tick(now_);
    switch (below(24)) {
      // clang-format off
      case 0: case 1: case 2: case 3: case 4: persist(); break;
      case 5: case 6: case 7: case 8: case 9: case 10: if (!jobs_.empty()) finish(true); break;
      case 11: case 12: case 13: if (!toDecide_.empty()) decide(); break;
      case 14: case 15: case 16: case 17: load(); break;
      case 18: invalidate(); break;
      case 19: drop(); break;
      case 20: list(); break;
      case 21: if (core_.hasWork()) core_.work(); break;
      case 22: scrub(); break;
      case 23:
        // clang-format on
        if (below(8) == 0) forget();
        if (below(30) == 0) otherOwner();
        break;
    }
    const std::vector<ShardGauges> shards = core_.shards();
    size_t committed = 0;
    for (const ShardGauges& each : shards) {
      REQUIRE(each.usedBytes <= each.capacityBytes);
      committed += each.entries;
    }
    REQUIRE(committed >= there_.size());
  }

  static constexpr uint64_t kNone = UINT64_MAX;
  std::mt19937_64 random_;
  uint64_t hangs_ = kNone;  // a device of which no job ends
  std::vector<std::vector<uint64_t>> blocks_;
  std::vector<Job> jobs_;
  SsdCore core_;
  Time now_{seconds(1000).ns};
  bool attached_ = true;
  std::map<uint64_t, Persist> persists_;  // open
  std::vector<uint64_t> toDecide_;
  std::map<uint64_t, Load> loads_;
  std::map<std::string, Version> there_;  // decided, and not ended
  std::optional<List> list_;
  std::set<uint64_t> forgotten_;
  PutId loading_;
  Code readCode_ = Code::ok;
  uint64_t scrubbing_ = 0, forgetting_ = 0, invalidating_ = 0;
  uint64_t ids_ = 0, putIds_ = 0;
};

}  // namespace

TEST_CASE("ssdd: random owners and devices find what a model finds") {
  uint64_t reads = 0, stale = 0, evictions = 0, lists = 0, lives = 0, scrubs = 0, stalls = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Model model(seed);
    model.run(3000);
    reads += model.reads, stale += model.stale, evictions += model.evictions, lists += model.lists, lives += model.lives;
    scrubs += model.scrubs, stalls += model.stalls;
  }
  CHECK(reads > 10'000);
  CHECK(stale > 1000);
  CHECK(evictions > 1000);
  CHECK(lists > 1000);
  CHECK(lives > 100);
  CHECK(scrubs > 1000);
  CHECK(stalls > 100);
}

}  // namespace fluxon::ssdd
