// Shortage: what a member's segment is short of: who waits for space there, what an operator wants to be evicted, copies that found no
// room; and how far the round of victims has come. SpaceQueue alone changes it.
//
// Victims are asked in rounds, each once, so that the busy ones do not hide the others:
//
//   asking ──a victim is busy──► pausing(until) ──nobody is left to ask──► over(until) ──until──► asking
//     └──────nobody is left to ask──────────────────────────────────────────►┘
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <variant>

#include "base/clock.h"
#include "base/extent.h"
#include "member_ref.h"
#include "rpc/messages.h"

namespace fluxon::master {

// A put or get without space.
struct Waiting {
  MemberRef member;  // who asked
  OperationId id;
  std::variant<rpc::PutStart, rpc::GetStart> request;
  uint64_t bytes;  // payload
  Time deadline;
  unsigned stagings = 0;  // that have failed this get
};

class Shortage {
 public:
  const std::deque<Waiting>& waiting() const { return waiting_; }  // in order
  bool evicting() const { return evictTo_ != UINT64_MAX; }
  bool any() const { return !waiting_.empty() || evicting() || copyWanted_ > 0; }

 private:
  friend class SpaceQueue;

  std::deque<Waiting> waiting_;
  uint64_t evictTo_ = UINT64_MAX;  // victims go until no more than this is in use,
  uint64_t evictLeft_ = 0;         // but no more than what was too much when that was asked for: later puts are not meant
  uint64_t copyWanted_ = 0;        // bytes that a copy to here did not find
  enum class Round : uint8_t { asking, pausing, over } round_ = Round::asking;
  Time until_{0};       // pausing, over
  Time roundEnded_{0};  // the last one that is over
  Duration busyBackOff_{0};
};

}  // namespace fluxon::master
