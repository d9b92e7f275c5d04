#include "sim_ssdd.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "ssd/record.h"
#include "world.h"

namespace fluxon::sim {
namespace {

constexpr uint64_t kShardBytes = 192 * 1024;
constexpr size_t kShards = 2;
constexpr uint32_t kBlock = 512;

}  // namespace

SimSsdd::SimSsdd(World& world, Scheduler& scheduler, SimOwner& owner)
    : Process(scheduler, "ssdd-" + owner.name()), world_(world), owner_(owner), shards_(kShards, std::string(kShardBytes, '\0')) {}

void SimSsdd::start() {
  if (up()) return;
  if (inFlight_ > 0) {  // the shards are locked
    scheduler_.at(milliseconds(5), [this] { start(); });
    return;
  }
  begin();
  scheduler_.log(name(), " starts");
  const ssdd::ShardSpec shard{ssdd::DeviceIndex(0), kShardBytes, kBlock};
  ssdd::Disk& disk = *this;
  ssdd::Host& host = *this;
  core_ = std::make_unique<ssdd::SsdCore>(std::vector<ssdd::ShardSpec>(kShards, shard), disk, host);
  content_ = world_.newLife();
  later({1}, [this] { attach(); });
}

void SimSsdd::kill() {
  if (!up()) return;
  scheduler_.log(name(), " is killed");
  ++world_.tally.ssddKills;
  world_.tally.count(core_->counters());
  if (channel_) owner_.channelEnded(channel_);
  channel_ = nullptr;
  core_ = nullptr;
  end();
}

void SimSsdd::attach() {
  if (channel_) return;
  // Until it succeeds: an owner that dies does not answer.
  later(scheduler_.between(milliseconds(5), milliseconds(50)), [this] { attach(); });
  if (!core_->drained() || !owner_.up()) return;
  owner_.later(world_.delay(), [this, life = life()] {
    if (life != this->life() || channel_ || !core_->drained()) return;
    const Code answer = owner_.attachSsd(content_, !core_->hasEntries());
    if (answer == Code::fenced) {
      scheduler_.log(name(), " starts over");
      core_->startOver();
      content_ = world_.newLife();
    }
    if (answer != Code::ok) return;
    channel_ = std::make_shared<Channel>();
    channel_->owner = &owner_;
    channel_->ownerLife = owner_.life();
    channel_->memory = owner_.memory();
    core_->ownerAttached(owner_.place().segmentBytes);
    owner_.attachedSsd(channel_, content_);
  });
}

void SimSsdd::ended(const std::shared_ptr<Channel>& channel) {
  if (channel_ != channel) return;
  scheduler_.log(name(), " has no owner");
  channel_ = nullptr;
  core_->ownerGone();
  later({1}, [this] { attach(); });
}

void SimSsdd::hear(const std::shared_ptr<Channel>& on, const ssd::Message& message) {
  if (channel_ != on) return;
  const Error error = core_->message(message, scheduler_.now());
  SIM_CHECK(error.ok(), name(), " is told nonsense: ", error.message());
}

void SimSsdd::settle() {
  if (!up()) return;
  while (core_->hasWork()) core_->work();
}

void SimSsdd::send(ssd::Message message) {
  if (listing_) return listing_->push_back(std::move(message));
  SIM_CHECK(channel_, name(), " says something to nobody");
  owner_.hearSsd(channel_, message);
}

std::map<std::string, uint64_t> SimSsdd::entries() {
  std::vector<ssd::Message> said;
  listing_ = &said;
  SIM_CHECK(core_->message({ssd::MessageKind::list, UINT64_MAX}, scheduler_.now()).ok(), "a list is refused");
  while (core_->hasWork()) core_->work();
  listing_ = nullptr;
  std::map<std::string, uint64_t> entries;
  for (const ssd::Message& each : said) {
    if (each.kind == ssd::MessageKind::listed) entries[each.key] = each.putId.value;
  }
  return entries;
}

// --- I/O

Duration SimSsdd::ioTime() { return scheduler_.oneIn(10) ? scheduler_.upTo(milliseconds(150)) : scheduler_.upTo(milliseconds(2)); }

// In two parts; both happen whatever becomes of the process.
void SimSsdd::io(Duration first, std::function<void()> begin, std::function<void()> end) {
  ++inFlight_;
  scheduler_.at(first, [this, begin = std::move(begin), end = std::move(end)]() mutable {
    begin();
    scheduler_.at(ioTime(), [this, end = std::move(end)] {
      end();
      --inFlight_;
    });
  });
}

void SimSsdd::touch(ssd::ShardId shard, uint64_t from, uint64_t to, bool write) {
  for (const Touched& other : touched_) {
    const bool apart = other.shard != shard.value || other.to <= from || to <= other.from;
    SIM_CHECK(apart || (!write && !other.write), name(), ": I/O on shard ", shard.value, " from ", from, " to ", to,
              " meets other I/O from ", other.from, " to ", other.to);
  }
  touched_.push_back({shard.value, from, to, write});
}
void SimSsdd::untouch(ssd::ShardId shard, uint64_t from, uint64_t to) {
  const auto found = std::find_if(touched_.begin(), touched_.end(), [&](const Touched& each) {
    return each.shard == shard.value && each.from == from && each.to == to;
  });
  touched_.erase(found);
}

void SimSsdd::write(const ssdd::WriteJob& job) {
  const uint64_t to = job.fileOffset + ssd::recordBytes(job.payloadBytes, kBlock);
  SIM_CHECK(to <= kShardBytes, name(), " writes beyond its shard");
  touch(job.shard, job.fileOffset, to, true);
  const std::shared_ptr<Memory> memory = channel_->memory;
  char* const at = shards_[job.shard.value].data() + job.fileOffset + kBlock;
  const uint64_t half = job.payloadBytes / 2;
  io(ioTime(), [=] { std::memcpy(at, memory->segment() + job.segmentOffset, half); },
     [this, job, to, memory, at, half, life = life()] {
       std::memcpy(at + half, memory->segment() + job.segmentOffset + half, job.payloadBytes - half);
       untouch(job.shard, job.fileOffset, to);
       const bool failed = fails();
       const Code code = scheduler_.oneIn(2) ? Code::noSpace : Code::system;
       const uint32_t crc = crc32c(at, job.payloadBytes);
       if (life != this->life()) return;
       later({1}, [this, job, failed, code, crc] {
         core_->written(job.id, failed ? Result<uint32_t>(Error{code, "the disk fails"}) : Result<uint32_t>(crc), scheduler_.now());
       });
     });
}

void SimSsdd::read(const ssdd::ReadJob& job) {
  const uint64_t to = job.fileOffset + ssd::recordBytes(job.payloadBytes, kBlock);
  touch(job.shard, job.fileOffset, to, false);
  const std::shared_ptr<Memory> memory = channel_->memory;
  char* const at = shards_[job.shard.value].data() + job.fileOffset + kBlock;
  const uint64_t half = job.payloadBytes / 2;
  io(ioTime(), [this, job, memory, at, half, life = life()] {
    std::memcpy(memory->segment() + job.segmentOffset, at, half);
    if (life == this->life()) later({1}, [this, job, half] { core_->progress(job.id, half); });
  }, [this, job, to, memory, at, half, life = life()] {
    std::memcpy(memory->segment() + job.segmentOffset + half, at + half, job.payloadBytes - half);
    untouch(job.shard, job.fileOffset, to);
    const bool failed = fails();
    const bool damaged = crc32c(at, job.payloadBytes) != job.payloadCrc || (failed && scheduler_.oneIn(2));
    if (life != this->life()) return;
    later({1}, [this, job, failed, damaged] {
      core_->readDone(job.id, damaged ? Error{Code::corrupt, "the record is damaged"} : failed ? Error{Code::system, "EIO"} : Error{});
    });
  });
}

void SimSsdd::check(const ssdd::CheckJob& job) {
  const uint64_t to = job.fileOffset + ssd::recordBytes(job.payloadBytes, kBlock);
  touch(job.shard, job.fileOffset, to, false);
  const char* const at = shards_[job.shard.value].data() + job.fileOffset + kBlock;
  io(ioTime(), [] {}, [this, job, to, at, life = life()] {
    untouch(job.shard, job.fileOffset, to);
    const bool damaged = crc32c(at, job.payloadBytes) != job.payloadCrc;
    if (life != this->life()) return;
    later({1}, [this, job, damaged] { core_->checked(job.id, damaged ? Error{Code::corrupt, "damaged"} : Error{}, scheduler_.now()); });
  });
}

}  // namespace fluxon::sim
