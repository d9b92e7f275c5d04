#include "gets.h"

#include <utility>

#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {

void Gets::get(Caller caller, Command command, Time now) {
  if (!std::exchange(command.counted, true)) counters_.ringGets += !command.get.sentHere();
  if (!standing_.serving(now)) {
    host_.answerCode(caller, Code::unavailable, standing_.noLease());
  } else if (answerLocal(caller, command)) {
    return;
  } else if (mustWait(command)) {
    const std::string key = command.key;
    controls_.wait(key, caller, std::move(command));
  } else if (command.get.localOnly) {
    host_.answerCode(caller, Code::miss);
  } else if (!standing_.joined()) {
    const std::string& because = standing_.apartBecause();
    host_.answerCode(caller, Code::unavailable, "this owner joins again" + (because.empty() ? "" : ": " + because));
  } else {
    ask(caller, std::move(command), now);
  }
}

bool Gets::answerLocal(Caller caller, const Command& command) {
  const std::optional<uint32_t> slot = directory_.committed(command.key, keyHash(command.key));
  if (!slot) return false;
  Answer answer;
  answer.slotRef = directory_.ref(*slot);
  answer.putId = directory_.putId(*slot);
  answer.offset = directory_.offset(*slot);
  answer.valueBytes = directory_.payloadBytes(*slot);
  answer.hold = command.get.hold;
  host_.answer(caller, std::move(answer));
  return true;
}

// True while the master decides about a put of the key, or a scan about its slot: the answer will be known soon.
bool Gets::mustWait(const Command& command) const {
  bool wait = false;
  directory_.forEach(command.key, keyHash(command.key), [&](uint32_t slot) {
    const shm::SlotState state = directory_.state(slot);
    wait |= state == shm::SlotState::pending || state == shm::SlotState::reclaiming;
  });
  return wait;
}

void Gets::ask(Caller caller, Command command, Time now) {
  std::optional<Command> asks = controls_.joinOrAsk(caller, std::move(command));
  if (!asks) return;
  rpc::GetStart start{.key = asks->key, .avoid = asks->avoid, .timeLeftMs = timeLeftMs(asks->deadline, now)};
  if (asks->get.bringHere)
    start.neighbours = rpc::NeighbourUse::copy;
  else if (asks->far)
    start.neighbours = rpc::NeighbourUse::none;
  calls_.send(std::move(start), caller, std::move(*asks));
}

void Gets::routed(Call& call, const rpc::Reply& reply, Time now) {
  const std::string key = call.request.as<rpc::GetStart>()->key;
  controls_.asked(key);
  if (reply.as<rpc::FetchFrom>() || reply.as<rpc::LoadHere>()) return bring(call, reply, now);
  const auto* there = reply.as<rpc::ReadAt>();
  Command& asked = std::get<Command>(call.about);
  const bool answered = !call.caller || answerLocal(call.caller, asked);
  if (!answered && mustWait(asked)) {
    FLUXON_MARK("owner: a put or a reclaim begins while a get asks for its route");
    return controls_.waitInstead(key, call.caller, std::move(asked));
  }
  if (!answered && (!there || there->owner.node == node_)) {
    // This owner has given up a route to itself that it cannot serve; the master is about to hear of it.
    if (there) FLUXON_MARK("owner: a route to itself that it has given up");
    if (there || reply.code == Code::miss) counters_.ringMisses += !asked.get.sentHere();
    host_.answerCode(call.caller, there ? Code::miss : reply.code, reply.detail);
  } else if (!answered && !asked.far && !host_.neighbour(there->owner)) {
    FLUXON_MARK("owner: a neighbour of its route cannot be reached");
    asked.far = true;
    ask(call.caller, std::move(asked), now);
  } else if (!answered) {
    Answer answer;
    answer.node = there->owner.node;
    answer.putId = there->putId;
    answer.valueBytes = there->bytes;
    if (there->ssd) answer.source = shm::AnswerSource::ssd;
    host_.answer(call.caller, std::move(answer));
  }
  controls_.askAlone(key);
  controls_.close(key, now);
}

// The master has given a place for the value.
void Gets::bring(Call& call, const rpc::Reply& reply, Time now) {
  const std::string key = call.request.as<rpc::GetStart>()->key;
  const Flights::ForGet purpose{call.request.id};
  Command& asked = std::get<Command>(call.about);
  Fetch fetch{.key = key, .deadline = asked.deadline};
  std::string node = node_;
  shm::AnswerSource source = shm::AnswerSource::ssd;
  if (const auto* load = reply.as<rpc::LoadHere>()) {
    fetch.putId = load->putId;
    fetch.bytes = load->bytes;
    fetch.offset = load->offset;
    fetch.ssd = true;
  } else {
    const rpc::FetchFrom& from = *reply.as<rpc::FetchFrom>();
    fetch.putId = from.putId;
    fetch.bytes = from.bytes;
    fetch.offset = from.offset;
    fetch.peer = from.source;
    if (from.exported) {
      fetch.exportId = from.exported->id;
      fetch.sourceOffset = from.exported->offset;
    }
    node = from.source.node;
    source = from.exported ? shm::AnswerSource::peerSsd : shm::AnswerSource::peer;
  }
  if (!call.caller) {
    flights_.decline(purpose, fetch.offset);
    return controls_.close(key, now);
  }
  const PutId putId = fetch.putId;
  const std::optional<uint64_t> flight = flights_.begin(purpose, std::move(fetch), std::move(node), source, now);
  if (!flight) {
    host_.answerCode(call.caller, Code::noSpace, directory_.fullOf());
    return controls_.close(key, now);
  }
  for (Interest& other : controls_.beginFlight(key, *flight, putId, call.caller, std::move(asked)))
    get(other.caller, std::move(other.command), now);
}

}  // namespace fluxon::owner
