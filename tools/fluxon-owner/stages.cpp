#include "stages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr uint64_t kMostPatienceMs = 86'400'000;

}  // namespace

void Stages::begin(const rpc::Stage& order, Time now) {
  const uint64_t size = extentBytes(order.bytes);
  const auto refuse = [&](Code code) { calls_.send(rpc::Staged{.order = order.order, .code = code}); };
  if (order.key.empty() || order.key.size() > kMaxKeyBytes || size > segmentBytes_ || order.to.offset > segmentBytes_ - size ||
      !rpc::isStaged(order.to.id) || stages_.count(order.to.id) != 0)
    return refuse(Code::protocol);
  if (!ssd_.life()) return refuse(Code::miss);
  const std::optional<uint32_t> slot =
      directory_.grant(order.key, keyHash(order.key), order.to.offset, order.bytes, kSsdWriter.value, OperationId(order.order.value));
  if (!slot) {
    ++counters_.stagesWithoutSlot;
    return refuse(Code::noSpace);
  }
  ++counters_.staged;
  const Load load{ssd_.newTask(), ssd_.loadBegins(now)};
  stages_.emplace(order.to.id, Stage{.slot = *slot, .putId = order.putId, .since = now, .load = load});
  loads_.emplace(load.task, order.to.id);
  host_.exportValue(order.to.id, order.to.offset, order.bytes, 0);
  host_.fetch({.id = load.task,
               .key = order.key,
               .putId = order.putId,
               .offset = order.to.offset,
               .bytes = order.bytes,
               .deadline = now + milliseconds(static_cast<int64_t>(std::min(order.timeLeftMs, kMostPatienceMs))),
               .ssd = true});
  calls_.send(rpc::Staged{.order = order.order});
}

void Stages::end(const rpc::Unstage& order) {
  const auto found = stages_.find(order.exportId);
  if (found == stages_.end()) {
    FLUXON_MARK("owner: an order to unstage comes twice");
    calls_.send(rpc::Unstaged{.order = order.order});
    return;
  }
  found->second.end = Unstaged{order.order};
  endExport(order.exportId);
  endIfOver(order.exportId);
}

// --- its load

bool Stages::loading(uint64_t task, uint64_t bytes, Time now) {
  if (adrift_.count(task) != 0) {
    ssd_.loadSays(now);
    return true;
  }
  const auto found = loads_.find(task);
  if (found == loads_.end()) return false;
  ssd_.loadSays(now);
  Stage& stage = stages_.at(found->second);
  if (bytes < stage.load->bytes || bytes > directory_.payloadBytes(stage.slot)) {
    ssd_.giveUp("it counts bytes that cannot be", now);
    return true;
  }
  stage.load->bytes = bytes;
  if (stage.peers == Stage::Peers::read) host_.exportProgress(found->second, bytes);
  return true;
}

bool Stages::loaded(uint64_t task, Code code, Time now) {
  if (const auto adrift = adrift_.find(task); adrift != adrift_.end()) {
    ssd_.loadEnds(adrift->second.life, now);
    retirement_.free(adrift->second.slot);
    adrift_.erase(adrift);
    return true;
  }
  const auto found = loads_.find(task);
  if (found == loads_.end()) return false;
  const ExportId id = found->second;
  loads_.erase(found);
  Stage& stage = stages_.at(id);
  ssd_.loadEnds(stage.load->life, now);
  stage.load.reset();
  if (code == Code::ok) {
    const uint64_t bytes = directory_.payloadBytes(stage.slot);
    ssd_.countLoaded(bytes);
    if (stage.peers == Stage::Peers::read) host_.exportProgress(id, bytes);
  } else {
    ssd_.countFailedLoad();
    // The owner that reads asks the master again, and the master should know by then.
    const std::string key(directory_.key(stage.slot));
    const bool over = std::holds_alternative<TermOver>(stage.end);
    if (!over && ssd_.dropUnreadable(key, stage.putId, code)) ssd_.goneAtOnce(key, stage.putId);
    fail(id, stage);
  }
  endIfOver(id);
  return true;
}

bool Stages::stalled(uint64_t task) {
  if (const auto adrift = adrift_.find(task); adrift != adrift_.end()) {
    ssd_.loadStalls(adrift->second.life);
    return true;
  }
  const auto found = loads_.find(task);
  if (found == loads_.end()) return false;
  Stage& stage = stages_.at(found->second);
  if (!ssd_.loadStalls(stage.load->life)) return true;
  if (!std::holds_alternative<TermOver>(stage.end)) fail(found->second, stage);
  return true;
}

void Stages::leaveLoads() {
  for (const auto& [task, id] : loads_) {
    const Stage& stage = stages_.at(id);
    if (!std::holds_alternative<TermOver>(stage.end)) fail(id, stage);
  }
}

void Stages::fail(ExportId id, const Stage& stage) {
  if (stage.peers == Stage::Peers::read) host_.exportFailed(id);
}

// --- its end

void Stages::endExport(ExportId id) {
  Stage& stage = stages_.at(id);
  if (stage.peers != Stage::Peers::read) return;
  stage.peers = Stage::Peers::ending;
  host_.unexport(id);
}

void Stages::unexported(ExportId id) {
  const auto found = stages_.find(id);
  FLUXON_CHECK(found != stages_.end(), "an export that is none has ended");
  found->second.peers = Stage::Peers::gone;
  endIfOver(id);
}

// The stage is over when it is not wanted and nobody reads or writes the extent any more.
void Stages::endIfOver(ExportId id) {
  const auto found = stages_.find(id);
  if (found == stages_.end()) return;  // over already, if the host said at once that nobody reads
  const Stage& stage = found->second;
  const bool over = std::holds_alternative<TermOver>(stage.end);
  if (stage.peers != Stage::Peers::gone || std::holds_alternative<Wanted>(stage.end)) return;
  if (over && stage.load) {
    FLUXON_MARK("owner: a stage ends after its term, and before its load");
    adrift_.emplace(stage.load->task, Adrift{stage.slot, stage.load->life, stage.since});
    loads_.erase(stage.load->task);
  } else if (stage.load) {
    return;
  } else {
    directory_.release(stage.slot);
  }
  if (over) FLUXON_MARK("owner: a stage ends after its term");
  if (const auto* ended = std::get_if<Unstaged>(&stage.end)) calls_.send(rpc::Unstaged{.order = ended->order});
  stages_.erase(found);
}

std::set<uint32_t> Stages::slots() const {
  std::set<uint32_t> slots;
  for (const auto& [id, stage] : stages_) slots.insert(stage.slot);
  return slots;
}

void Stages::endTerm() {
  std::vector<ExportId> ids;
  for (auto& [id, stage] : stages_) {
    stage.end = TermOver();
    ids.push_back(id);
  }
  for (const ExportId id : ids) {
    if (stages_.count(id) != 0) endExport(id);
    endIfOver(id);
  }
}

Time Stages::oldest(Time now) const {
  Time since = now;
  for (const auto& [id, stage] : stages_) since = std::min(since, stage.since);
  return since;
}

Time Stages::oldestLoad(Time now) const {
  Time since = now;
  for (const auto& [id, stage] : stages_) {
    if (stage.load) since = std::min(since, stage.since);
  }
  for (const auto& [task, load] : adrift_) since = std::min(since, load.since);
  return since;
}

}  // namespace fluxon::owner
