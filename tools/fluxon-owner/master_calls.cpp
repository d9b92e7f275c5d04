#include "master_calls.h"

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

// The lease, an inventory, or an answer to an order. What keeps an owner from sending may wait at the master for another owner's answer to
// an order, so two owners that held such answers back would wait for each other for ever. Not the life of an SSD: it must not overtake
// reports about the one before.
bool goesAtOnce(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InvalidateDone>() || request.is<rpc::ReclaimDone>() ||
         request.is<rpc::ReplicateDone>() || request.is<rpc::Staged>() || request.is<rpc::Unstaged>() || request.is<rpc::InventoryPage>();
}

}  // namespace

OperationId MasterCalls::send(rpc::Request::Body body, Caller caller, Call::About about) {
  Call call{{{}, std::move(body)}, caller, std::move(about)};
  if (call.request.is<rpc::PutStart>()) ++putsAsked_;
  if (goesAtOnce(call.request) || (heldBack_.empty() && !full())) return sendNow(std::move(call));
  FLUXON_MARK("owner: a request is held back");
  heldBack_.push_back(std::move(call));
  return {};
}

OperationId MasterCalls::sendNow(Call call) {
  const OperationId id(nextId_++);
  call.request.id = id;
  host_.send((sent_[id] = std::move(call)).request);
  return id;
}

std::optional<Call> MasterCalls::take(OperationId id) {
  const auto found = sent_.find(id);
  if (found == sent_.end()) {
    FLUXON_MARK("owner: a reply comes twice");
    return std::nullopt;
  }
  Call call = std::move(found->second);
  sent_.erase(found);
  if (call.request.is<rpc::PutStart>()) --putsAsked_;
  return call;
}

MasterCalls::Unanswered MasterCalls::unanswered() const {
  Unanswered result{OperationId(nextId_), {}};
  for (const auto& [id, call] : sent_) {
    if (id.value + settings_.straggles >= nextId_ || result.stragglers.size() == settings_.stragglers) {
      result.lowest = id;
      break;
    }
    result.stragglers.push_back(id);
  }
  return result;
}

// The ids have run far ahead of the lowest unanswered one that is no straggler.
bool MasterCalls::full() const {
  const auto farFrom = [&](OperationId id) { return nextId_ - id.value >= settings_.ahead; };
  return !sent_.empty() && farFrom(sent_.begin()->first) && farFrom(unanswered().lowest);
}

void MasterCalls::sendHeldBack() {
  while (!heldBack_.empty() && !full()) {
    Call next = std::move(heldBack_.front());
    heldBack_.pop_front();
    sendNow(std::move(next));
  }
}

void MasterCalls::sendAgain() {
  for (const auto& [id, call] : sent_) host_.send(call.request);
}

void MasterCalls::lapse(Retries& retries, Time now) {
  for (auto& [id, call] : sent_) abandon(call, retries, now);
  for (Call& call : heldBack_) abandon(call, retries, now);
}

void MasterCalls::abandon(Call& call, Retries& retries, Time now) {
  const Caller caller = std::exchange(call.caller, {});
  if (!caller) return;
  FLUXON_MARK("owner: the lease runs out under an open request");
  const rpc::Request& request = call.request;
  const auto* put = request.as<rpc::PutStart>();
  if (const auto* spread = request.as<rpc::Spread>()) {
    Answer done;  // the put is, with as many replicas as could be had
    done.putId = spread->value.putId;
    done.valueBytes = 1;
    host_.answer(caller, std::move(done));
  } else if (request.is<rpc::PutDone>() || request.is<rpc::PutReserved>() || request.is<rpc::RemoveKey>() ||
             request.is<rpc::LeaseGrant>() || request.is<rpc::LeaseKeepAlive>() || request.is<rpc::LeaseRevoke>()) {
    host_.answerCode(caller, Code::outcomeUnknown, "the master does not answer");
  } else if (put && put->mode.onInFlight == PutMode::OnInFlight::proceed) {
    // The owner has granted nothing, so it asks again later. Not for a put that refuses to run beside another: the second request would
    // find the first one in flight.
    FLUXON_MARK("owner: a put waits for its master");
    retries.putOff(caller, std::move(std::get<Command>(call.about)), "the master does not answer", now);
  } else {
    host_.answerCode(caller, Code::unavailable, "the master does not answer");
  }
}

void MasterCalls::begin() {
  FLUXON_CHECK(sent_.empty(), "requests of another incarnation");
  nextId_ = 1;
}

void MasterCalls::endTerm() {
  sent_.clear();
  heldBack_.clear();
  putsAsked_ = 0;
}

}  // namespace fluxon::owner
