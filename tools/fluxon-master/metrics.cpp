// The page of metrics of the master. Counters live in the parts that count; fluxon-master.8 says what they mean.
#include "base/log.h"
#include "rpc/metrics.h"
#include "service.h"

namespace fluxon::master {

std::string Service::metrics() const {
  rpc::MetricsPage page;
  const auto loop = [&](const char* name, const char* help, Duration value) {
    page.gauge(name, help, static_cast<double>(value.ns) * 1e-9);
  };
  loop("fluxon_master_loop_longest_seconds", "Longest time between two looks at sockets and timers, since this page was asked for last.",
       daemon_.port().takeLongest());
  loop("fluxon_master_loop_longest_ever_seconds", "The same since the start.", daemon_.port().longestEver());
  loop("fluxon_master_loop_longest_busy_seconds", "The most that was computed between two looks since the start.",
       daemon_.port().longestBusy());
  page.gauge("fluxon_master_term", "Term of this master.", static_cast<double>(core_.identity().term.value));
  page.gauge("fluxon_master_recovering", "1 while the recovery window of the term is open.", core_.recovering());
  page.gauge("fluxon_master_keys", "Keys with a route.", static_cast<double>(core_.keys()));
  page.gauge("fluxon_master_transfers_inflight", "Copies of values on their way from owner to owner.",
             static_cast<double>(core_.transfers()));
  page.gauge("fluxon_master_puts_inflight", "Puts that have begun and not ended.", static_cast<double>(core_.inFlightPuts()));
  page.gauge("fluxon_master_oldest_put_seconds", "Age of the oldest put that has begun and not ended, 0 without one.",
             static_cast<double>(core_.oldestPut(bootTime()).ns) * 1e-9);
  page.gauge("fluxon_master_oldest_transfer_seconds", "Age of the oldest copy on its way from owner to owner, 0 without one.",
             static_cast<double>(core_.oldestTransfer(bootTime()).ns) * 1e-9);
  const auto counter = [&](const char* name, const char* help, uint64_t value) { page.counter(name, help, static_cast<double>(value)); };
  core_.counters().each(counter);
  counter("fluxon_master_joins_refused_total", "Registrations of owners that were refused.", refusedJoins_.total());
  counter("fluxon_master_log_lines_dropped_total", "Lines of the log that standard error did not take.", log::dropped());
  counter("fluxon_master_connections_refused_total", "Connections refused before they could ask anything.", refusals_.count());
  for (const auto& [node, member] : core_.members()) {
    if (!member->lives()) continue;
    const rpc::MetricsPage::Labels label{{"node", node}};
    const MemberSpace& space = member->space;
    const auto bytes = [&](const char* name, const char* help, uint64_t value) {
      page.gauge(name, help, static_cast<double>(value), label);
    };
    bytes("fluxon_master_segment_capacity_bytes", "Capacity of the owner's segment.", space.capacity());
    bytes("fluxon_master_segment_free_bytes", "Bytes of the segment that are free.", space.freeBytes());
    bytes("fluxon_master_segment_largest_free_bytes", "Largest value that would fit now.", space.largestFree());
    bytes("fluxon_master_segment_routed_bytes", "Bytes of readable replicas.", space.bytes(Use::routed) + space.bytes(Use::reclaiming));
    bytes("fluxon_master_segment_leased_bytes", "Bytes of readable replicas under a key lease.", space.leasedBytes());
    bytes("fluxon_master_segment_reserved_bytes", "Bytes handed to the owner ahead of puts.", space.bytes(Use::reserved));
    bytes("fluxon_master_segment_inflight_bytes", "Bytes being put.", space.bytes(Use::inFlight));
    bytes("fluxon_master_segment_retired_bytes", "Bytes without a route that are still read or not yet released.",
          space.bytes(Use::unrouted));
    bytes("fluxon_master_segment_busy_bytes", "Bytes of replicas that were being read when they were asked to go last.", space.busyBytes());
    bytes("fluxon_master_ssd_replicas", "Values on the owner's SSD.", member->ssdReplicas());
    bytes("fluxon_master_puts_waiting", "Puts that wait for space.", member->shortage.waiting().size());
  }
  return page.text();
}

}  // namespace fluxon::master
