// Counters, each declared once: its name in the program, its name on the page of metrics, and its text. A part lists its own,
//
//   #define FLUXON_OWNER_GET_COUNTERS(X) X(ringGets, "fluxon_owner_ring_gets_total", "Gets that came through the ring.")
//   struct GetCounters {
//     FLUXON_COUNTERS(FLUXON_OWNER_GET_COUNTERS)
//   };
//
// and the page, sums and the totals of the simulator walk the list. Counters only grow.
#pragma once

#include <cstdint>

#define FLUXON_COUNTER_FIELD(field, metric, text) uint64_t field = 0;
#define FLUXON_COUNTER_VISIT(field, metric, text) visit(metric, text, field);
#define FLUXON_COUNTER_ADD(field, metric, text) field += other.field;
// The fields; each(visit), which calls visit(metric, text, value) for each of them; add(other), of the same type.
#define FLUXON_COUNTERS(LIST)      \
  LIST(FLUXON_COUNTER_FIELD)       \
  template <class Visit>           \
  void each(Visit&& visit) const { \
    LIST(FLUXON_COUNTER_VISIT)     \
  }                                \
  template <class Same>            \
  void add(const Same& other) {    \
    LIST(FLUXON_COUNTER_ADD)       \
  }

namespace fluxon {

// The counters of several parts as one.
template <class... Parts>
struct CounterSet : Parts... {
  template <class Visit>
  void each(Visit&& visit) const {
    (Parts::each(visit), ...);
  }
  void add(const CounterSet& other) { (Parts::add(static_cast<const Parts&>(other)), ...); }
};

}  // namespace fluxon
