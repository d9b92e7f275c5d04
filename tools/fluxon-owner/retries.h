// Retries: commands that cannot be carried out now and are tried again, after pauses that grow (retry with backoff), until their
// deadline. A command is here, or with who carries it out, never in both places. One thread.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "host.h"

namespace fluxon::owner {

class Retries {
 public:
  struct Entry {
    Caller caller;
    Command command;
    std::string why;  // what its caller is told at its deadline
  };

  // After 1 ms, then 2, up to 128 ms.
  void putOff(Caller, Command, std::string why, Time now);
  // One whose time has come.
  std::optional<Entry> takeDue(Time now);
  std::multimap<Time, Entry> takeAll() { return std::exchange(entries_, {}); }
  void clientGone(ClientId);
  Time nextWake() const { return entries_.empty() ? Time::never() : entries_.begin()->first; }

 private:
  std::multimap<Time, Entry> entries_;  // by the time at which they run
};

}  // namespace fluxon::owner
