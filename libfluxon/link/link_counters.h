// What a link to other hosts counts. The numbers only grow, but for connectionsOpen.
#pragma once

#include <atomic>
#include <cstdint>

namespace fluxon::link {

#define FLUXON_LINK_COUNTERS(X)                                                       \
  X(submissions, "frames of requests sent to peers")                                  \
  X(descriptors, "pieces asked for in them")                                          \
  X(pieces, "pieces received whole and checked")                                      \
  X(bytesIn, "payload bytes of those")                                                \
  X(bytesOut, "payload bytes sent to peers")                                          \
  X(refusedHellos, "connections refused or given up before they were open")           \
  X(refusedFrames, "connections closed and requests refused for bytes without sense") \
  X(crcErrors, "pieces whose checksum was wrong")                                     \
  X(connectionsOpen, "connections of both directions now")                            \
  X(connectsFailed, "connections to peers that did not come to be")

template <class Word>
struct CounterSet {
#define FLUXON_DECLARE(name, text) Word name{};
  FLUXON_LINK_COUNTERS(FLUXON_DECLARE)
#undef FLUXON_DECLARE
};
using LinkCounters = CounterSet<uint64_t>;

}  // namespace fluxon::link
