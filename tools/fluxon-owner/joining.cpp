#include "joining.h"

#include <cstdlib>
#include <utility>

#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr size_t kEndsNamed = 16;

}  // namespace

Joining::Joining(OwnerCore& core, shm::DirectoryHeader& header, std::string cluster, rpc::Registration place)
    : core_(core), header_(header), cluster_(std::move(cluster)), registration_(std::move(place)) {
  if (const Incarnation last(header_.contentIncarnation.load()); last) registration_.ends.push_back(last);
}

Error Joining::met(const rpc::Hello& hello, Time now) {
  if (hello.protocol != rpc::kProtocolVersion) return {Code::protocol, rpc::otherProtocol("the master", hello.protocol)};
  if (hello.cluster != cluster_) return {Code::badConfig, "the master serves cluster '" + hello.cluster + "', not '" + cluster_ + "'"};
  // Terms count within one cluster id: a cluster whose state was made anew begins again.
  const uint64_t cluster = std::strtoull(hello.clusterId.c_str(), nullptr, 16);
  const uint64_t before = header_.clusterId.load(std::memory_order_relaxed);
  const uint64_t highest = before == cluster ? header_.highestTerm.load(std::memory_order_relaxed) : 0;
  const bool known = hello.term.value == highest && hello.master.value == header_.highestMaster.load(std::memory_order_relaxed);
  if (hello.term.value < highest || (hello.term.value == highest && !known)) {
    return {Code::unavailable,
            "the master of term " + std::to_string(hello.term.value) + " has been replaced by one of term " + std::to_string(highest)};
  }
  met_ = hello.term;
  metMaster_ = hello.master;
  anew_ = before != cluster || met_ != term_ || metMaster_ != master_ || core_.fenced();
  if (anew_ && ((before != 0 && before != cluster) || core_.contentRefused())) {
    core_.drop(now);
  } else if (anew_) {
    core_.keep(now);
  }
  remember(cluster, hello);
  return {};
}

// This process may end between any two of the stores; what the header says then must refuse only a master that has been replaced. So the
// master is stored before its term: the other way round the new term would name the old master. And the term of the old cluster is
// cleared before the id of the new one is stored.
void Joining::remember(uint64_t cluster, const rpc::Hello& hello) {
  const auto store = [](shm::Word& word, uint64_t value) {
    FLUXON_MAY_END();
    word.store(value, std::memory_order_seq_cst);
  };
  if (header_.clusterId.load(std::memory_order_relaxed) != cluster) {
    store(header_.highestTerm, 0);
    store(header_.clusterId, cluster);
  }
  store(header_.highestMaster, hello.master.value);
  store(header_.highestTerm, hello.term.value);
}

const rpc::Registration& Joining::begin(Incarnation fresh, Time now) {
  if (anew_) {
    early_.clear();  // for another life
    // The master knows that the lives before the one that served last have ended; of many that never served, it suffices to name the
    // first and the latest.
    std::vector<Incarnation>& ends = registration_.ends;
    if (registration_.incarnation && registration_.incarnation.value == header_.contentIncarnation.load()) ends.clear();
    if (registration_.incarnation) ends.push_back(registration_.incarnation);
    if (ends.size() > kEndsNamed) ends.erase(ends.begin() + 1);
    registration_.incarnation = fresh;
    registration_.occupied = core_.occupied();
    registration_.adopts = core_.content();
    registration_.values = core_.values();
    registration_.ssdLife = core_.describeSsd();
  }
  registration_.sent = sent_ = now;
  return registration_;
}

Result<Joining::Answered> Joining::answered(const rpc::Registered& answer, Time now) {
  if (answer.code == Code::fenced) {
    FLUXON_MARK("owner: the registration of a fenced life is refused");
    term_ = Term();  // next time anew
  }
  if (answer.code != Code::ok) return Error{answer.code, answer.detail};
  if (anew_ && registration_.adopts && !answer.inventory) {
    FLUXON_MARK("owner: the master does not know its values");
    core_.drop(now);
    return Answered::again;
  }
  term_ = met_;
  master_ = metMaster_;
  joined_ = true;
  const Duration lease = milliseconds(static_cast<int64_t>(answer.leaseMs));
  if (anew_) {
    core_.setMaster(master_);
    const auto inventory = answer.inventory ? OwnerCore::Inventory::wanted : OwnerCore::Inventory::none;
    core_.registered(registration_.incarnation, lease, sent_, inventory, now);
  } else {
    FLUXON_MARK("owner: registers again in the same life");
    core_.reconnected(lease, sent_);
  }
  for (const rpc::MasterMessage& message : std::exchange(early_, {})) core_.message(message, now);
  return Answered::joined;
}

void Joining::heard(Incarnation life, rpc::MasterMessage message, Time now) {
  if (life != registration_.incarnation) return;
  if (!joined_) {
    FLUXON_MARK("owner: an order comes before the answer to its registration");
    return early_.push_back(std::move(message));
  }
  core_.message(message, now);
}

void Joining::lost() {
  joined_ = false;
  early_.clear();
}

bool Joining::fenced() {
  if (!joined_ || !core_.fenced()) return false;
  joined_ = false;
  term_ = Term();
  return true;
}

}  // namespace fluxon::owner
