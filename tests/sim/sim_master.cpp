#include "sim_master.h"

#include <algorithm>

#include "world.h"

namespace fluxon::sim {
namespace {

const std::string kState = "/var/lib/fluxon/state", kCluster = "c";

}  // namespace

SimMaster::SimMaster(World& world, Scheduler& scheduler, master::Settings settings, std::string name, std::string clusterId)
    : Process(scheduler, std::move(name)), world_(world), settings_(settings), clusterId_(std::move(clusterId)), disk_(scheduler) {}

void SimMaster::start() {
  begin();
  const auto endAndComeBack = [this](const Error& error) {
    scheduler_.log(name(), " cannot start: ", error.message());
    // What it wrote may stand there; a damaged file would need an operator, and never comes from our own writes.
    SIM_CHECK(error.code != Code::corrupt, "the state file is damaged: ", error.message());
    end();
    later(milliseconds(100), [this] { start(); });
  };
  Result<master::DurableState> state = master::loadState(disk_, kState, kCluster, clusterId_);
  if (!state) return endAndComeBack(state.error());
  ++state->term.value;
  state->leaseMs = std::max(state->leaseMs, static_cast<uint64_t>(settings_.lease.ms()));
  if (Error error = master::storeState(disk_, kState, *state); !error.ok()) return endAndComeBack(error);
  SIM_CHECK(state->term.value > begun_, "term ", state->term.value, " begins after term ", begun_);
  begun_ = state->term.value;
  scheduler_.log(name(), " serves term ", state->term.value);
  writer_ = std::make_unique<master::StateWriter>(*state);
  channels_ = {};
  writing_ = false;
  master::Outbox& outbox = *this;
  core_ = std::make_unique<master::MasterCore>(
      master::MasterCore::Identity{kCluster, state->clusterId, state->term, world_.newLife()}, settings_, state->members,
      master::leaseEnd(milliseconds(static_cast<int64_t>(state->leaseMs)), scheduler_.now()), outbox);
}

void SimMaster::kill(Machine machine) {
  if (!up()) return;
  scheduler_.log(name(), machine == Machine::crashes ? "'s machine crashes" : " is killed");
  // A write that is under way ends somewhere in its middle.
  if (writing_) {
    disk_.dieAfter(scheduler_.pick(5));
    (void)master::storeState(disk_, kState, writer_->state());
    disk_.dieAfter(UINT64_MAX);
  }
  if (machine == Machine::crashes) disk_.crash();
  world_.tally.count(core_->counters());
  core_ = nullptr;
  end();
  world_.masterEnded(*this);
}

rpc::Hello SimMaster::hello() const {
  const master::MasterCore::Identity& identity = core_->identity();
  return {identity.clusterId, identity.cluster, identity.term, identity.incarnation};
}

SimMaster::Registration SimMaster::registerOwner(const rpc::Registration& registration) {
  Registration result;
  result.answer = core_->registerOwner(registration, scheduler_.now(), result.member);
  scheduler_.log(name(), ": ", registration.node, " registers as ", registration.incarnation.value, ", adopts ", registration.adopts.value,
                 ": ", codeName(result.answer.code), result.answer.inventory ? ", inventory" : "",
                 core_->recovering() ? ", recovering" : "");
  if (result.member) result.connection = channels_.connected(*result.member);
  result.version = core_->durable().version;
  return result;
}

void SimMaster::handle(master::Member& member, uint64_t connection, std::vector<rpc::Request> requests, OperationId lowest,
                       const std::vector<OperationId>& stragglers) {
  std::vector<std::string> named;  // what may be known to be on its SSD from now on
  for (const rpc::Request& request : requests) {
    const auto all = [&](const auto& values) {
      for (const auto& value : values) named.push_back(value.key);
    };
    if (const auto* commit = request.as<rpc::SsdCommit>()) all(commit->values);
    if (const auto* page = request.as<rpc::InventoryPage>()) all(page->memory), all(page->ssd);
  }
  core_->handle(member, std::move(requests), lowest, scheduler_.now(), stragglers);
  const SimSsdd* const ssdd = named.empty() ? nullptr : world_.owner(member.node())->ssdd();
  const auto known = ssdd && ssdd->content() == member.ssdLife ? member.onSsd->find(member.ssdLife) : member.onSsd->end();
  if (known != member.onSsd->end()) {
    for (const master::KeyEntry* entry : known->second) {
      const bool told = std::find(named.begin(), named.end(), entry->key) != named.end();
      SIM_CHECK(!told || ssdd->hasPersisted(entry->putId), "the master takes ", entry->key, " ", toString(entry->putId),
                " to be on the SSD of ", member.node(), ", which has never had it");
    }
  }
  for (const rpc::MasterMessage& message : channels_.take(member, connection)) world_.toOwner(member, connection, message);
}

void SimMaster::lost(master::Member& member, uint64_t connection) {
  if (channels_.lost(member, connection)) core_->disconnected(member);
}

void SimMaster::left(master::Member& member, master::MasterCore::Content content) { core_->leave(member, content, scheduler_.now()); }

void SimMaster::tick() {
  const Time now = scheduler_.now(), until = heard();
  std::vector<std::shared_ptr<master::Member>> serve;
  for (const auto& [node, member] : core_->members()) {
    if (until < now && member->state == master::MemberState::joined) serve.push_back(member);
  }
  core_->tick(now, until);
  for (const std::shared_ptr<master::Member>& member : serve) {
    const Time word = world_.unheard(*this, member->node());
    SIM_CHECK(member->state != master::MemberState::fenced || word >= member->leaseEnd, "the lease of ", member->node(), " is called over ",
              (*member->leaseEnd - word).ms(), " ms after a word of it has come");
  }
  // What is due by what has not been handled yet is looked at again.
  if (until < now) looksAgain_ = now + milliseconds(1);
  afterEvent();
}

Time SimMaster::nextWake() const {
  if (!up()) return Time::never();
  return std::max(std::min(core_->nextWake(), writer_->nextWake()), looksAgain_);
}

void SimMaster::afterEvent() {
  if (!up()) return;
  while (core_->hasWork()) core_->work();
  write();
  channels_.takeAll([&](master::Member& member, uint64_t connection, const std::vector<rpc::MasterMessage>& messages) {
    for (const rpc::MasterMessage& message : messages) world_.toOwner(member, connection, message);
  });
}

void SimMaster::write() {
  std::optional<master::DurableState> state = writer_->begin(*core_, scheduler_.now());
  if (!state) return;
  writing_ = true;
  world_.masterWrites(*this);
  later(world_.diskTime(), [this, state = std::move(*state)] {
    writing_ = false;
    const Error error = master::storeState(disk_, kState, state);
    const uint64_t version = writer_->ended(error, scheduler_.now());
    if (error.ok()) core_->persisted(version, scheduler_.now());
  });
}

}  // namespace fluxon::sim
