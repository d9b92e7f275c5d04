#include "key_controls.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::owner {

void KeyControls::close(const std::string& key, Time now) {
  const auto it = controls_.find(key);
  FLUXON_CHECK(it != controls_.end() && it->second.open > 0, "control of a key closed twice");
  --it->second.open;
  wake(key, now);
}

void KeyControls::wake(const std::string& key, Time now) {
  const auto it = controls_.find(key);
  if (it == controls_.end()) return;
  std::deque<Waiting> waiting = std::exchange(it->second.waiting, {});
  if (it->second.open == 0) controls_.erase(it);
  for (Waiting& each : waiting) again_(each.interest.caller, std::move(each.interest.command), now);
}

void KeyControls::raise(const std::string& key, PutId to) {
  PutId& bound = controls_.at(key).bound;
  bound = std::max(bound, to);
}

void KeyControls::invalidated(const std::string& key, PutId below) {
  const auto control = controls_.find(key);
  if (control == controls_.end() || control->second.bound >= below) return;
  FLUXON_MARK("owner: an invalidation of a key that is open");
  control->second.bound = below;
}

void KeyControls::wait(const std::string& key, Caller caller, Command command) {
  controls_[key].waiting.push_back({{caller, std::move(command)}, 0});
}

void KeyControls::waitInstead(const std::string& key, Caller caller, Command command) {
  wait(key, caller, std::move(command));
  --controls_.at(key).open;
}

std::optional<Command> KeyControls::joinOrAsk(Caller caller, Command command) {
  Control& control = controls_[command.key];
  if (control.flight != 0 && control.flightPutId < control.bound) FLUXON_MARK("owner: a flight is too old to be joined");
  if (control.flight != 0 && control.flightPutId >= control.bound) {
    FLUXON_MARK("owner: a get joins a flight");
    ++joinedFlights_;
    control.waiting.push_back({{caller, std::move(command)}, control.flight});
    return std::nullopt;
  }
  if (control.asking && !command.alone) {
    control.waiting.push_back({{caller, std::move(command)}, 0});
    return std::nullopt;
  }
  control.asking = true;
  ++control.open;
  return command;
}

void KeyControls::askAlone(const std::string& key) {
  for (Waiting& each : controls_.at(key).waiting) each.interest.command.alone = true;
}

Interests KeyControls::beginFlight(const std::string& key, uint64_t flight, PutId putId, Caller caller, Command command) {
  Control& control = controls_.at(key);
  Interests others = takeWaiting(control, 0);
  control.flight = flight;
  control.flightPutId = putId;
  control.waiting.push_back({{caller, std::move(command)}, flight});
  return others;
}

Interests KeyControls::endFlight(const std::string& key, uint64_t flight) {
  Control& control = controls_.at(key);
  if (control.flight == flight) control.flight = 0;
  return takeWaiting(control, flight);
}

Interests KeyControls::takeWaiting(Control& control, uint64_t flight) {
  Interests taken;
  std::deque<Waiting> left;
  for (Waiting& each : control.waiting) {
    if (each.flight == flight)
      taken.push_back(std::move(each.interest));
    else
      left.push_back(std::move(each));
  }
  control.waiting = std::move(left);
  return taken;
}

void KeyControls::clientGone(ClientId client) {
  for (auto& [key, control] : controls_)
    std::erase_if(control.waiting, [&](const Waiting& each) { return each.interest.caller.client == client; });
}

Interests KeyControls::lapse() {
  Interests all;
  for (auto& [key, control] : controls_) {
    control.asking = false;
    if (!control.waiting.empty()) FLUXON_MARK("owner: the lease runs out under a get that waits");
    for (Waiting& each : std::exchange(control.waiting, {})) all.push_back(std::move(each.interest));
  }
  return all;
}

}  // namespace fluxon::owner
