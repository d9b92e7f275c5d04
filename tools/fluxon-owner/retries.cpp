#include "retries.h"

#include <algorithm>

namespace fluxon::owner {

void Retries::putOff(Caller caller, Command command, std::string why, Time now) {
  const Duration pause = milliseconds(int64_t{1} << std::min(command.attempts++, 7u));
  const Time when = std::min(now + pause, command.deadline);
  entries_.emplace(when, Entry{caller, std::move(command), std::move(why)});
}

std::optional<Retries::Entry> Retries::takeDue(Time now) {
  if (entries_.empty() || entries_.begin()->first > now) return std::nullopt;
  Entry due = std::move(entries_.begin()->second);
  entries_.erase(entries_.begin());
  return due;
}

void Retries::clientGone(ClientId client) {
  std::erase_if(entries_, [&](const auto& each) { return each.second.caller.client == client; });
}

}  // namespace fluxon::owner
