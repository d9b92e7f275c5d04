#include "sim_ssdd.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "ssd/record.h"
#include "world.h"

namespace fluxon::sim {
namespace {

constexpr uint32_t kBlock = 512;

}  // namespace

SimSsdd::SimSsdd(World& world, Scheduler& scheduler, SimOwner& owner)
    : Process(scheduler, "ssdd-" + owner.name()),
      world_(world),
      owner_(owner),
      // Some disks are full all the time, some are slow.
      shards_(1 + scheduler.pick(2), std::string(size_t{64 * 1024} << scheduler.pick(3), '\0')),
      slow_(scheduler.oneIn(3)),
      devices_(shards_.size() > 1 && scheduler.oneIn(2) ? 2 : 1) {}

void SimSsdd::hang(Duration howLong) {
  const uint64_t which = scheduler_.pick(devices_ + 1);
  for (uint64_t device = 0; device < devices_; ++device) {
    if (which == device || which == devices_) hangsUntil_[device] = std::max(hangsUntil_[device], scheduler_.now() + howLong);
  }
}

void SimSsdd::start() {
  if (up()) return;
  if (inFlight_ > 0) {  // the shards are locked
    scheduler_.at(milliseconds(5), [this] { start(); });
    return;
  }
  begin();
  scheduler_.log(name(), " starts");
  std::vector<ssdd::ShardSpec> specs;
  for (size_t n = 0; n < shards_.size(); ++n) specs.push_back({ssdd::DeviceIndex(n % devices_), shards_[n].size(), kBlock});
  ssdd::Disk& disk = *this;
  ssdd::Host& host = *this;
  core_ = std::make_unique<ssdd::SsdCore>(specs, disk, host);
  content_ = world_.newLife();
  persisted_.clear();
  later({1}, [this] { attach(); });
  later(ssdd::kTick, [this] { tick(); });
}

void SimSsdd::tick() {
  core_->tick(scheduler_.now());
  later(ssdd::kTick, [this] { tick(); });
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
  if (scheduler_.oneIn(2)) {  // what the kernel has not got is never begun
    for (uint64_t device = 0; device < devices_; ++device) cancelQueued(ssdd::DeviceIndex(device));
  }
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
      persisted_.clear();
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

void SimSsdd::hear(const std::shared_ptr<Channel>& on, uint64_t number, const ssd::Message& message) {
  if (channel_ != on || number >= on->kept) return;
  on->heard = number + 1;
  if (message.kind == ssd::MessageKind::persist) asked_[message.id] = message.putId;
  if (message.kind == ssd::MessageKind::load) loading_ = message.putId;
  const Error error = core_->message(message, scheduler_.now());
  SIM_CHECK(error.ok(), name(), " is told nonsense: ", error.message());
}

void SimSsdd::afterEvent() {
  if (!up()) return;
  while (core_->hasWork()) core_->work();
}

void SimSsdd::send(ssd::Message message) {
  if (listing_) return listing_->push_back(std::move(message));
  SIM_CHECK(channel_, name(), " says something to nobody");
  if (message.kind == ssd::MessageKind::persisted && message.code == Code::ok) persisted_.insert(asked_.at(message.id));
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

Duration SimSsdd::ioTime() {
  return scheduler_.oneIn(slow_ ? 2 : 10) ? scheduler_.upTo(milliseconds(150)) : scheduler_.upTo(milliseconds(2));
}

// In two parts, of which the second one happens when the first one has, whatever becomes of the process.
void SimSsdd::io(Io made) {
  ++inFlight_;
  const auto io = std::make_shared<Io>(std::move(made));
  queued_.push_back(io);
  scheduler_.at(ioTime(), [this, io] { step(io); });
}

void SimSsdd::step(const std::shared_ptr<Io>& io) {
  if (io->takenBack) return;
  if (scheduler_.now() < hangsUntil_[io->device]) return scheduler_.at(milliseconds(5), [this, io] { step(io); });
  if (std::exchange(io->begun, true)) {
    io->end();
    --inFlight_;
    return io->over({});
  }
  std::erase(queued_, io);
  io->begin();
  scheduler_.at(ioTime(), [this, io] { step(io); });
}

void SimSsdd::cancelQueued(ssdd::DeviceIndex device) {
  for (const auto& io : std::exchange(queued_, {})) {
    if (io->device != device.value) {
      queued_.push_back(io);
      continue;
    }
    io->takenBack = true;
    --inFlight_;
    io->over({Code::unavailable, "taken back"});
  }
}

void SimSsdd::touch(ssdd::ShardId shard, uint64_t from, uint64_t to, bool write) {
  for (const Touched& other : touched_) {
    const bool apart = other.shard != shard.value || other.to <= from || to <= other.from;
    SIM_CHECK(apart || (!write && !other.write), name(), ": I/O on shard ", shard.value, " from ", from, " to ", to,
              " meets other I/O from ", other.from, " to ", other.to);
  }
  touched_.push_back({shard.value, from, to, write});
}
void SimSsdd::untouch(ssdd::ShardId shard, uint64_t from, uint64_t to) {
  const auto found = std::find_if(touched_.begin(), touched_.end(),
                                  [&](const Touched& each) { return each.shard == shard.value && each.from == from && each.to == to; });
  touched_.erase(found);
}

void SimSsdd::write(const ssdd::WriteJob& job) {
  const uint64_t to = job.fileOffset + ssd::recordBytes(job.payloadBytes, kBlock);
  SIM_CHECK(to <= shards_[job.shard.value].size(), name(), " writes beyond its shard");
  touch(job.shard, job.fileOffset, to, true);
  records_[{job.shard.value, job.fileOffset}] = job.putId;
  const std::shared_ptr<Memory> memory = channel_->memory;
  char* const at = shards_[job.shard.value].data() + job.fileOffset + kBlock;
  const uint64_t half = job.payloadBytes / 2;
  Io made;
  made.device = job.shard.value % devices_;
  made.begin = [=] { std::memcpy(at, memory->segment() + job.segmentOffset, half); };
  made.end = [=] { std::memcpy(at + half, memory->segment() + job.segmentOffset + half, job.payloadBytes - half); };
  made.over = [this, job, to, at, life = life()](Error error) {
    untouch(job.shard, job.fileOffset, to);
    if (error.ok() && fails()) error = {scheduler_.oneIn(2) ? Code::noSpace : Code::system, "the disk fails"};
    const uint32_t crc = crc32c(at, job.payloadBytes);
    if (life != this->life()) return;
    later({1}, [this, job, error, crc] {
      core_->written(job.id, error.ok() ? Result<uint32_t>(crc) : Result<uint32_t>(error), scheduler_.now());
    });
  };
  io(std::move(made));
}

void SimSsdd::read(const ssdd::ReadJob& job) {
  const uint64_t to = job.fileOffset + ssd::recordBytes(job.payloadBytes, kBlock);
  touch(job.shard, job.fileOffset, to, false);
  const PutId record = records_.at({job.shard.value, job.fileOffset});
  SIM_CHECK(record == loading_, name(), " reads ", toString(record), " for who asks for ", toString(loading_));
  const std::shared_ptr<Memory> memory = channel_->memory;
  char* const at = shards_[job.shard.value].data() + job.fileOffset + kBlock;
  const uint64_t half = job.payloadBytes / 2;
  Io made;
  made.device = job.shard.value % devices_;
  made.begin = [this, job, memory, at, half, life = life()] {
    std::memcpy(memory->segment() + job.segmentOffset, at, half);
    if (life == this->life()) later({1}, [this, job, half] { core_->progress(job.id, half, scheduler_.now()); });
  };
  made.end = [=] { std::memcpy(memory->segment() + job.segmentOffset + half, at + half, job.payloadBytes - half); };
  made.over = [this, job, to, at, life = life()](Error error) {
    untouch(job.shard, job.fileOffset, to);
    if (error.ok() && crc32c(at, job.payloadBytes) != job.payloadCrc) error = {Code::corrupt, "the record is damaged"};
    if (error.ok() && fails()) error = {scheduler_.oneIn(2) ? Code::corrupt : Code::system, "the disk fails"};
    if (life == this->life()) later({1}, [this, job, error] { core_->readDone(job.id, error, scheduler_.now()); });
  };
  io(std::move(made));
}

void SimSsdd::check(const ssdd::CheckJob& job) {
  const uint64_t to = job.fileOffset + ssd::recordBytes(job.payloadBytes, kBlock);
  touch(job.shard, job.fileOffset, to, false);
  const char* const at = shards_[job.shard.value].data() + job.fileOffset + kBlock;
  Io made;
  made.device = job.shard.value % devices_;
  made.begin = made.end = [] {};
  made.over = [this, job, to, at, life = life()](Error error) {
    untouch(job.shard, job.fileOffset, to);
    if (error.ok() && crc32c(at, job.payloadBytes) != job.payloadCrc) error = {Code::corrupt, "damaged"};
    if (life == this->life()) later({1}, [this, job, error] { core_->checked(job.id, error, scheduler_.now()); });
  };
  io(std::move(made));
}

}  // namespace fluxon::sim
