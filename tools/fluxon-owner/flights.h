// Flights: copies that this owner brings into its memory, from another owner (a fetch) or from its own SSD (a load).
//
// Life of a flight
//   asked ──► granted, bytes under way ──fetched──► pending ──► committed     the master knows it as a replica
//                     └──failed──► over                └──► retired: only those who waited for it hold it (a temporary copy)
//   The fetch writes the extent while it is granted; a load of an ssdd that has ended may still write it.
//   Gets of the key that come while the bytes are under way join the flight (single-flight), unless an invalidation has overtaken it
//   (key_controls.h). The owner answers them when the bytes are there, without waiting for the master's decision about the copy; from
//   then on no get joins. So a flight answers with a value that was the latest one at some time after each of its readers had begun:
//   then the master named it, or had not heard yet that this owner had carried out an invalidation of it. Readers may hold the pending
//   copy, so it becomes free only by way of retired.
//   When the term ends the flight belongs to nobody; its slot becomes free when the host reports the end of the fetch.
//
// Invariants
//   1. The directory has the extent, as granted, before anything writes there, and keeps it granted or pending until the host has
//      reported the end of the fetch. An extent that ssdd writes carries its mark, so that the next life waits for it too.
//   2. A homecoming is a put whose home is this owner: as with its own puts, the owner retires older values before it tells the master
//      that the bytes are here.
//   3. The owner reports each flight to the master once, by GetDone or ReplicateDone, unless its term is over.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "base/counters.h"
#include "publications.h"
#include "retries.h"

namespace fluxon::owner {

#define FLUXON_OWNER_FLIGHT_COUNTERS(X)                                                             \
  X(fetches, "fluxon_owner_fetches_total", "Copies from other owners begun.")                       \
  X(fetchesFailed, "fluxon_owner_fetches_failed_total", "Copies from other owners that failed.")    \
  X(fetchedBytes, "fluxon_owner_fetched_bytes_total", "Payload bytes of copies from other owners.") \
  X(temporary, "fluxon_owner_temporary_total", "Copies that did not become replicas.")              \
  X(copiesOrdered, "fluxon_owner_copies_ordered_total", "Copies made by order of the master.")
struct FlightCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_FLIGHT_COUNTERS)
  uint64_t flightsWithoutSlot = 0;
};

class Flights {
 public:
  // What a flight is for.
  struct ForGet {
    OperationId get;
  };
  struct Copy {
    OrderId order;
  };
  struct Homecoming {  // by order, too: the value of a put that is exported at the owner of its client
    OrderId order;
  };
  struct Nobody {};  // its term is over
  using Purpose = std::variant<ForGet, Copy, Homecoming, Nobody>;

  Flights(shm::DirectoryWriter& directory, uint64_t segmentBytes, Host& host, MasterCalls& calls, const Standing& standing,
          Retries& retries, KeyControls& controls, Retirement& retirement, SsdTier& ssd, Publications& publications)
      : directory_(directory),
        segmentBytes_(segmentBytes),
        host_(host),
        calls_(calls),
        standing_(standing),
        retries_(retries),
        controls_(controls),
        retirement_(retirement),
        ssd_(ssd),
        publications_(publications) {}

  // Begins a flight for a get; `node`: where the value comes from. None: refused, and the master has been told.
  std::optional<uint64_t> begin(ForGet, Fetch, std::string node, shm::AnswerSource, Time now);
  // Gives back the place of a get that nobody waits for any more.
  void decline(ForGet, uint64_t offset);
  // An order that has not been begun before.
  void begin(const rpc::Replicate&, Time now);

  bool has(uint64_t flight) const { return flights_.count(flight) != 0; }
  // The fetch has ended: the bytes are there and checked, or there is an error. Nothing writes into the extent any more.
  void fetched(uint64_t flight, const Error&, Time now);
  // The master has decided about the copy.
  void landed(uint32_t slot, const rpc::Reply&, Time now);

  // Gets stop waiting for a load whose device (stalled), or whose ssdd (leaveLoads), does nothing any more.
  void stalled(uint64_t flight, Time now);
  void leaveLoads(const char* why, Time now);

  // Returns the slots of all flights. From here on no get waits for them.
  std::set<uint32_t> endTerm();

  size_t count() const { return flights_.size(); }
  // Flights that are no loads: the next term waits for these, but not for a disk.
  size_t fetches() const;
  Time oldest(Time now) const;
  const FlightCounters& counters() const { return counters_; }

 private:
  struct Flight {
    Purpose purpose;
    uint32_t slot = 0;
    PutId putId;
    std::string node;
    shm::AnswerSource source = shm::AnswerSource::peer;
    std::optional<Incarnation> load;  // from our SSD, of that life; 0: that does nothing any more
    Time since{0};
  };
  std::optional<uint64_t> start(Flight, Fetch, Time now);
  void report(const Purpose&, Code, Call::About = {});
  void arrived(const Flight&, const Interests&);
  void failed(const Flight&, const std::string& key, const Error&, Interests, Time now);
  void leaveLoad(uint64_t id, const Flight&, const char* why, Time now);

  shm::DirectoryWriter& directory_;
  uint64_t segmentBytes_;
  Host& host_;
  MasterCalls& calls_;
  const Standing& standing_;
  Retries& retries_;
  KeyControls& controls_;
  Retirement& retirement_;
  SsdTier& ssd_;
  Publications& publications_;
  std::map<uint64_t, Flight> flights_;
  FlightCounters counters_;
};

}  // namespace fluxon::owner
