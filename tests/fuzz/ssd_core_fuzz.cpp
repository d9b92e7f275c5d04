// The logic of an ssdd, whose owner says whatever is well formed, and whose disk answers in any order and with any error. Jobs stay
// within shard and segment, nobody writes what another job uses, each persist and load is answered as often as it was asked for, and
// when the owner has gone and the disk has answered nothing is left.
#include <algorithm>
#include <map>

#include "base/extent.h"
#include "fuzz.h"
#include "ssd/record.h"
#include "ssd_core.h"

namespace fluxon::fuzz {
namespace {

using namespace ssdd;
using ssd::Message;
using ssd::MessageKind;

enum class Act : uint8_t { say, finish, progress, work, pass, gone, attach, startOver, acts };

constexpr uint32_t kBlock = 512;
constexpr uint64_t kShardBytes = 40 * kBlock, kShards = 3, kSegmentBytes = 1 << 16;

class Ssdd final : public ssdd::Host, public Disk {
 public:
  Ssdd() : core_({spec(0), spec(0), spec(1)}, *this, *this) { attach(); }

  void act(Act what, Input& in) {
    switch (what) {
      case Act::say: say(in); break;
      case Act::finish: finish(in.take<uint8_t>(), in.take<uint8_t>()); break;
      case Act::progress: progress(in.take<uint8_t>()); break;
      case Act::work: core_.work(); break;
      case Act::pass: now_ = now_ + milliseconds(int64_t{in.take<uint8_t>()} * 10); break;
      case Act::gone: gone(); break;
      case Act::attach:
        if (core_.drained()) attach();
        break;
      default:
        if (core_.drained()) core_.startOver(), FLUXON_CHECK(!core_.hasEntries(), "it starts over with something");
    }
    FLUXON_CHECK(core_.drained() == (!attached_ && jobs_.empty()), "drained");
  }

  // The owner goes, the disk answers.
  void end() {
    gone();
    const size_t jobs = jobs_.size();
    for (size_t n = 0; n < jobs; ++n) finish(0, 0);
    FLUXON_CHECK(jobs_.empty() && core_.drained(), "something begins without an owner, or does not end");
    size_t entries = 0;
    for (const ShardGauges& each : core_.shards()) {
      FLUXON_CHECK(each.readPins + each.commitPins + each.writers + each.waiting == 0, "something is held for nobody");
      FLUXON_CHECK(each.headPosition - each.tailPosition <= each.capacityBytes && each.usedBytes <= each.capacityBytes, "a ring");
      entries += each.entries;
    }
    FLUXON_CHECK(entries == core_.entries(), "entries");
    core_.startOver();
  }
  bool anyDone() const { return anyDone_; }

 private:
  enum class Kind { write, read, check };
  struct Job {
    Kind kind;
    JobId id;
    uint64_t shard, begin, end, bytes, told = 0;
    bool cancelled = false;
  };

  static ShardSpec spec(uint64_t device) { return {DeviceIndex(device), kShardBytes, kBlock}; }

  void attach() {
    core_.ownerAttached(kSegmentBytes);
    attached_ = true;
  }
  void gone() {
    core_.ownerGone();
    attached_ = false;
    open_.clear();
  }
  void say(Input& in) {
    static constexpr MessageKind kKinds[] = {MessageKind::persist,  MessageKind::decided, MessageKind::load,   MessageKind::invalidate,
                                             MessageKind::drop,     MessageKind::list,    MessageKind::forget, MessageKind::scrub,
                                             MessageKind::persisted};  // the last one is none of an owner's
    Message message;
    const auto what = in.take<uint8_t>(), awkward = in.take<uint8_t>();
    message.kind = kKinds[what % std::size(kKinds)];
    message.id = in.take<uint8_t>() % 16;
    message.key = std::string(in.take<uint8_t>() % 8, 'k');
    message.putId = PutId(in.take<uint8_t>() % 32);
    message.offset = uint64_t{in.take<uint8_t>()} * 64;
    message.bytes = in.take<uint16_t>() % (kShardBytes + kBlock);
    message.code = in.take<uint8_t>() % 4 ? Code::ok : Code::miss;
    if (awkward & 1) message.id = in.take<uint64_t>();
    if (awkward & 2) message.putId = PutId(in.take<uint64_t>());
    if (awkward & 4) message.offset = in.take<uint64_t>();
    if (awkward & 8) message.bytes = in.take<uint64_t>();
    if (awkward & 16) message.code = codeFromWire(in.take<uint16_t>());
    if (!attached_) return;
    if (message.kind == MessageKind::persist) ++open_[{MessageKind::persisted, message.id}];
    if (message.kind == MessageKind::load) ++open_[{MessageKind::loaded, message.id}];
    if (!core_.message(message, now_).ok()) gone();  // as the service does
  }

  // --- Host
  void send(Message message) override {
    FLUXON_CHECK(attached_, "something is said to nobody");
    anyDone_ |= message.kind == MessageKind::loaded && message.code == Code::ok;
    if (message.kind != MessageKind::persisted && message.kind != MessageKind::loaded) return;
    const auto asked = open_.find({message.kind, message.id});
    FLUXON_CHECK(asked != open_.end(), "an answer to nothing, or a second one");
    if (--asked->second == 0) open_.erase(asked);
  }

  // --- Disk
  void begin(Kind kind, JobId id, ssdd::ShardId shard, uint64_t fileOffset, uint64_t bytes) {
    FLUXON_CHECK(attached_, "a job for nobody");
    const Job made{kind, id, shard.value, fileOffset, fileOffset + ssd::recordBytes(bytes, kBlock), bytes};
    FLUXON_CHECK(made.shard < kShards && made.begin % kBlock == 0 && made.begin < made.end && made.end <= kShardBytes, "not in a shard");
    for (const auto& [_, each] : jobs_) {
      if (each.shard != made.shard || each.begin >= made.end || made.begin >= each.end) continue;
      FLUXON_CHECK(kind != Kind::write && each.kind != Kind::write, "bytes are written while a job uses them");
    }
    FLUXON_CHECK(jobs_.emplace(id, made).second, "a job comes twice");
  }
  static bool inSegment(uint64_t offset, uint64_t bytes) { return offset <= kSegmentBytes && bytes <= kSegmentBytes - offset; }
  void write(const WriteJob& job) override {
    FLUXON_CHECK(inSegment(job.segmentOffset, job.payloadBytes), "a write outside of the segment");
    begin(Kind::write, job.id, job.shard, job.fileOffset, job.payloadBytes);
  }
  void read(const ReadJob& job) override {
    FLUXON_CHECK(inSegment(job.segmentOffset, extentBytes(job.payloadBytes)), "a read outside of the segment");
    begin(Kind::read, job.id, job.shard, job.fileOffset, job.payloadBytes);
  }
  void check(const CheckJob& job) override { begin(Kind::check, job.id, job.shard, job.fileOffset, job.payloadBytes); }
  void cancelQueued(DeviceIndex) override {
    for (auto& [_, job] : jobs_) job.cancelled = true;
  }

  Job* pick(uint8_t which) {
    if (jobs_.empty()) return nullptr;
    return &std::next(jobs_.begin(), which % static_cast<ptrdiff_t>(jobs_.size()))->second;
  }
  void finish(uint8_t which, uint8_t how) {
    static constexpr Code kCodes[] = {Code::ok, Code::ok, Code::ok, Code::noSpace, Code::system, Code::corrupt};
    const Job* const found = pick(which);
    if (!found) return;
    const Job job = *found;
    jobs_.erase(job.id);
    const Error error{job.cancelled && how % 2 ? Code::unavailable : kCodes[how % std::size(kCodes)]};
    switch (job.kind) {
      case Kind::write: core_.written(job.id, error.ok() ? Result<uint32_t>(7u) : Result<uint32_t>(error), now_); break;
      case Kind::read: core_.readDone(job.id, error, now_); break;
      case Kind::check: core_.checked(job.id, error, now_); break;
    }
  }
  void progress(uint8_t which) {
    Job* const job = pick(which);
    if (job) core_.progress(job->id, job->told = (job->told + job->bytes) / 2, now_);
  }

  bool attached_ = false, anyDone_ = false;
  Time now_{0};
  std::map<JobId, Job> jobs_;
  std::map<std::pair<MessageKind, uint64_t>, unsigned> open_;  // asked and not answered
  SsdCore core_;
};

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  Ssdd ssdd;
  while (!in.empty()) ssdd.act(static_cast<Act>(in.take<uint8_t>() % static_cast<uint8_t>(Act::acts)), in);
  ssdd.end();
  return ssdd.anyDone();
}

std::vector<std::string> seeds() {
  const auto act = [](Act what, std::string_view more = {}) { return std::string(1, static_cast<char>(what)).append(more); };
  const auto say = [&](uint8_t kind, uint8_t id, uint8_t keyBytes, uint8_t putId, uint16_t bytes) {
    const char head[] = {static_cast<char>(kind), 0, static_cast<char>(id), static_cast<char>(keyBytes), static_cast<char>(putId), 1};
    return act(Act::say, std::string(head, sizeof head)).append(bytesOf(bytes)) + '\1';
  };
  const std::string done = act(Act::finish, std::string(2, '\0'));
  const auto put = [&](uint8_t id, uint8_t keyBytes, uint8_t putId, uint16_t bytes) {
    return say(0, id, keyBytes, putId, bytes) + done + say(1, id, 0, 0, 0);
  };
  const auto get = [&](uint8_t id, uint8_t keyBytes, uint8_t putId, uint16_t bytes) {
    return say(2, id, keyBytes, putId, bytes) + act(Act::progress, std::string(1, '\0')) + done;
  };
  const std::string first = put(1, 1, 1, 1000) + get(2, 1, 1, 1000);
  std::string wraps = first;
  for (uint8_t i = 2; i < 12; ++i) wraps += put(1, i % 8, i, 15'000);
  return {first, wraps + say(5, 3, 0, 0, 0) + say(7, 4, 0, 0, 0) + act(Act::work) + done + done + act(Act::work),
          first + put(1, 2, 2, 2000) + say(3, 5, 2, 3, 0) + say(4, 0, 1, 1, 0) + say(2, 6, 1, 1, 1000) + say(0, 7, 3, 4, 9000) +
              say(6, 8, 0, 0, 0) + done,
          first + say(0, 1, 1, 2, 500) + act(Act::gone) + done + act(Act::attach) + say(5, 9, 0, 0, 0) + act(Act::work),
          first + act(Act::gone) + act(Act::startOver) + act(Act::attach) + put(1, 1, 2, 100) + get(2, 1, 2, 100)};
}

}  // namespace fluxon::fuzz
