// What all connections of one link share. The link's thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/handshake.h"
#include "link/tcp/io_engine.h"
#include "link/link_counters.h"

namespace fluxon::link::tcp {

struct LinkContext {
  IoEngine& engine;
  const net::Secret& secret;
  net::Party self;
  uint64_t pieceBytes;
  std::string congestionControl;
  Duration idle;
  Duration stall;  // for a peer that takes nothing of what is being sent, and for handshakes
  CounterSet<std::atomic<uint64_t>>& counters;
  std::function<void(const std::string&)> log;
  Time now{};
  Time nextDue = Time::never();  // no connection wants onDue() before

  void count(std::atomic<uint64_t>& counter, uint64_t n = 1) const { counter.fetch_add(n, std::memory_order_relaxed); }
};

}  // namespace fluxon::link::tcp
