// StateWriter: decides when to write the durable state to disk. Pure: its owner does the writing.
//
//   quiet ──changed──► wanted ──begin──► writing ──ended(ok)────► quiet, or wanted when it has changed meanwhile
//                         ▲                 └──ended(error)──► wanted, not before a second has passed
// Invariants
//   1. One write at a time; it carries all that has changed until it begins.
//   2. A version counts as written only when the write that carried it has succeeded; the master says nothing that relies on it before.
// One thread.
#pragma once

#include <optional>

#include "master_core.h"
#include "state_file.h"

namespace fluxon::master {

class StateWriter {
 public:
  // `first`: the state that is on disk.
  explicit StateWriter(DurableState first) : state_(std::move(first)) {}

  const DurableState& state() const { return state_; }
  void changed() { wanted_ = true; }
  // The state to write now, if any.
  std::optional<DurableState> begin(const MasterCore& core, Time now) {
    if (!wanted_ || writing_ || now < notBefore_) return std::nullopt;
    wanted_ = false;
    writing_ = core.durable().version;
    state_.members = core.durable().members;
    // Leases of earlier terms are over once the window has closed.
    if (!core.recovering()) state_.leaseMs = static_cast<uint64_t>(core.settings().lease.ms());
    return state_;
  }
  // The write has ended. Returns the version that it carried.
  uint64_t ended(const Error& error, Time now) {
    error_ = error;
    if (!error.ok()) wanted_ = true, notBefore_ = now + kPause;
    return std::exchange(writing_, std::nullopt).value();
  }
  const Error& error() const { return error_; }
  Time nextWake() const { return wanted_ && !writing_ ? notBefore_ : Time::never(); }

 private:
  static constexpr Duration kPause = seconds(1);
  DurableState state_;
  std::optional<uint64_t> writing_;  // the version that is being written
  bool wanted_ = false;
  Time notBefore_{0};
  Error error_;
};

}  // namespace fluxon::master
