// The page of metrics of the owner. Counters live in the parts that count; fluxon-owner.8 says what they mean.
#include "base/log.h"
#include "rpc/metrics.h"
#include "service.h"

namespace fluxon::owner {
namespace {

// What clients have counted in their files.
void showClients(const ClientTotals& totals, rpc::MetricsPage& page) {
#define FLUXON_SHOW(name, text)                                                                           \
  page.counter("fluxon_owner_client_events_total", "Counted by clients in their files, living and dead.", \
               static_cast<double>(totals.name), {{"event", #name}});
  FLUXON_CLIENT_COUNTERS(FLUXON_SHOW)
#undef FLUXON_SHOW
  const std::pair<const char*, uint64_t> hits[] = {{"local", totals.hits + totals.askedHits},
                                                   {"neighbour", totals.neighbourHits},
                                                   {"remote", totals.remoteHits},
                                                   {"ssd", totals.ssdHits},
                                                   {"remote_ssd", totals.remoteSsdHits}};
  for (const auto& [source, count] : hits) {
    page.counter("fluxon_owner_client_hits_total", "Gets of this node's clients that found a value, by where it came from.",
                 static_cast<double>(count), {{"source", source}});
  }
  std::vector<double> bounds;
  for (uint32_t i = 0; i + 1 < shm::kLatencyBuckets; ++i) bounds.push_back(static_cast<double>(uint64_t{32} << i) * 1e-9);
  page.histogram("fluxon_owner_local_get_seconds", "Latency of gets without a message, one in 64.", bounds,
                 std::vector<uint64_t>(std::begin(totals.latency), std::end(totals.latency)),
                 static_cast<double>(totals.latencySumNs) * 1e-9);
}

}  // namespace

std::string Service::metrics() const {
  rpc::MetricsPage page;
  const auto gauge = [&](const char* name, const char* help, uint64_t value) { page.gauge(name, help, static_cast<double>(value)); };
  const auto counter = [&](const char* name, const char* help, uint64_t value) { page.counter(name, help, static_cast<double>(value)); };
  const auto seconds = [&](const char* name, const char* help, Duration value) {
    page.gauge(name, help, static_cast<double>(value.ns) * 1e-9);
  };
  seconds("fluxon_owner_loop_longest_seconds", "Longest time between two looks at sockets and timers, since this page was asked for last.",
          daemon_.port().takeLongest());
  seconds("fluxon_owner_loop_longest_ever_seconds", "The same since the start.", daemon_.port().longestEver());
  seconds("fluxon_owner_loop_longest_busy_seconds", "The most that was computed between two looks since the start.",
          daemon_.port().longestBusy());
  gauge("fluxon_owner_serving", "1 while the serving lease holds.", core_.serving(bootTime()));
  gauge("fluxon_owner_segment_capacity_bytes", "Capacity of the segment.", files_.segmentBytes());
  gauge("fluxon_owner_clients", "Clients attached.", clients_.count());
  counter("fluxon_owner_master_connections_total", "Connections to a master that were made.", link_.connections());
  counter("fluxon_owner_clients_refused_total", "Attach requests and commands that did not hold together.", clients_.refused());
  static constexpr const char* kStates[] = {"free", "granted", "pending", "committed", "reclaiming", "retired"};
  for (uint32_t i = 0; i < shm::kSlotStates; ++i) {
    page.gauge("fluxon_owner_directory_slots", "Slots of the directory by state.",
               static_cast<double>(files_.directory().count(static_cast<shm::SlotState>(i))), {{"state", kStates[i]}});
  }
  gauge("fluxon_owner_directory_overflow_slots", "Overflow slots in use: values found through the ring only.",
        files_.directory().overflowUsed());
  gauge("fluxon_owner_grants", "Puts whose extent is being filled or decided.", core_.grants());
  gauge("fluxon_owner_ring_holds", "Holders that the owner gave with an answer (held words).", clients_.held());
  gauge("fluxon_owner_segment_read_bytes", "Bytes of values that readers hold, as of the last second.", readBytes_);
  gauge("fluxon_owner_requests_pending", "Requests to the master without an answer.", core_.requestsPending());
  gauge("fluxon_owner_reserve_bytes", "Extents at hand ahead of puts.", core_.reserveBytes());
  gauge("fluxon_owner_flights", "Copies from other owners under way.", core_.flights());
  gauge("fluxon_owner_exports", "Values that another owner is to come for.", core_.exports());
  const OwnerCore::Ages oldest = core_.oldest(bootTime());
  seconds("fluxon_owner_oldest_put_seconds", "Age of the oldest put that is being filled or decided, 0 without one.", oldest.put);
  seconds("fluxon_owner_oldest_grant_seconds", "Age of the oldest grant whose writer has neither committed nor given it up, 0 without one.",
          oldest.grant);
  seconds("fluxon_owner_oldest_flight_seconds", "Age of the oldest copy or load under way, 0 without one.", oldest.flight);
  seconds("fluxon_owner_oldest_export_seconds", "Age of the oldest value that another owner is to come for, 0 without one.",
          oldest.exported);
  peers_.show(page);
  core_.counters().each(counter);
  gauge("fluxon_owner_ssd_attached", "1 while an ssdd is attached.", ssd_.attached());
  gauge("fluxon_owner_ssd_persists", "Values being persisted, or waiting for it.", core_.persists());
  gauge("fluxon_owner_ssd_loads_adrift", "Loads of an ssdd that has ended whose I/O may not be over.", ssd_.adrift());
  counter("fluxon_owner_log_lines_dropped_total", "Lines of the log that standard error did not take.", log::dropped());
  showClients(clients_.totals(), page);
  return page.text();
}

}  // namespace fluxon::owner
