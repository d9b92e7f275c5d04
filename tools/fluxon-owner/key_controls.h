// KeyControls: what is open of each key, and the gets that wait for it.
//
// Life of an interest, a get that waits:
//   waits until the key is quiet (a put or a reclaim is being decided, or another get asks) ──wake──► runs again
//   waits for a flight ──endFlight──► answered with its value, or put off        (a wake lets it run again, too)
//   either ──its client ends──► dropped;  ──the lease runs out, the term ends (lapse)──► answered `unavailable`
//
// Invariants
//   1. While anything of a key is open (a request, a put, a flight), its control keeps the highest put_id that the master has invalidated
//      below or decided for (the bound); nothing below that is committed.
//   2. One get of a key asks the master; the others wait for its answer, and share the flight that it leads to (single-flight). No get
//      joins a flight whose put_id is below the bound. A get marked `alone` asks in any case.
//   3. An interest is in one place: it is move-only, and whoever takes it out answers it or runs it again.
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include "host.h"

namespace fluxon::owner {

struct Interest {
  Interest(Caller who, Command what) : caller(who), command(std::move(what)) {}
  Interest(Interest&&) = default;
  Interest& operator=(Interest&&) = default;

  Caller caller;
  Command command;
};
using Interests = std::deque<Interest>;

class KeyControls {
 public:
  // Runs a get that has waited.
  using Again = std::function<void(Caller, Command, Time now)>;
  explicit KeyControls(Again again) : again_(std::move(again)) {}

  void open(const std::string& key) { ++controls_[key].open; }
  // Gets that waited for the key run again; they may wait again.
  void close(const std::string& key, Time now);
  void wake(const std::string& key, Time now);

  // Of an open key.
  PutId bound(const std::string& key) const { return controls_.at(key).bound; }
  void raise(const std::string& key, PutId to);
  // The master invalidates what is below the put_id. Nothing happens while nothing of the key is open.
  void invalidated(const std::string& key, PutId below);

  void wait(const std::string& key, Caller, Command);
  // The same for a get that has asked. Closes its key, too, without waking the gets that wait.
  void waitInstead(const std::string& key, Caller, Command);
  // The get joins the flight of its key, or waits for the get that asks. If there is neither, its command comes back: it is the one that
  // asks, and the key is open.
  std::optional<Command> joinOrAsk(Caller, Command);
  // The get that asked has its answer.
  void asked(const std::string& key) { controls_.at(key).asking = false; }
  // There is no flight to share: those who waited for the answer ask by themselves.
  void askAlone(const std::string& key);
  // The answer has led to a flight, and the get that asked waits for it. Returns the gets that waited for the answer: run again, they join
  // the flight, unless an invalidation was faster.
  [[nodiscard]] Interests beginFlight(const std::string& key, uint64_t flight, PutId, Caller, Command);
  // No get joins the flight any more. Returns those that had.
  [[nodiscard]] Interests endFlight(const std::string& key, uint64_t flight);

  void clientGone(ClientId);
  // The serving lease has run out. Returns all gets that wait.
  [[nodiscard]] Interests lapse();
  void endTerm() { controls_.clear(); }

  // Gets that waited for a copy that was under way.
  uint64_t joinedFlights() const { return joinedFlights_; }

 private:
  struct Waiting {
    Interest interest;
    uint64_t flight;  // waits for that one; 0: until the key is quiet
  };
  struct Control {
    uint32_t open = 0;
    PutId bound;
    bool asking = false;
    uint64_t flight = 0;  // that gets may join, and what it brings
    PutId flightPutId;
    std::deque<Waiting> waiting;
  };
  static Interests takeWaiting(Control&, uint64_t flight);

  Again again_;
  std::unordered_map<std::string, Control> controls_;
  uint64_t joinedFlights_ = 0;
};

}  // namespace fluxon::owner
