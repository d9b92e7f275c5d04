// OwnerCore: the logic of an owner. Commands of clients, messages of the master, results of hazard scans and times come in by
// calls; answers, requests and scans go out through Host. It sees no socket, promise or file; of memory only the directory, the
// keys and the segment. Whatever has a life of its own is a part, in a file of its own. OwnerCore keeps the order among the parts, hands
// each its messages, and sends together what has piled up during a call (flush).
//
//   standing       how the owner stands with its master, the serving lease      gets, puts, questions   commands of clients
//   master_calls   requests until they are answered                              publications            what becomes readable, in order
//   key_controls   what is open of a key, gets that wait                         flights                 copies that come here
//   retries        commands that are put off                                     exports, stages         bytes that others come for
//   retirement     how values leave memory                                       ssd_tier, ssd_persists  the SSD
//   inventory      the list of values for a new term                             orders, replies         what the master says
//
// Joining with values (in a new term or epoch, after a fence, or in the next life of the process): the owner waits until everything has
// ended that may write into the segment, and then tells the master which extents are in use. It does not wait for clients with a grant,
// nor for loads from the SSD, which may last as long as a disk does: it reports their extents as in use. Then it lists its committed
// values page by page, drops those that the master refuses, and serves when all pages are answered (inventory.h).
//
// Invariant: an extent that a fetch may still write, or that an export may still read, stays granted or pending until the host has
// reported the end of the fetch or the export. One that ssdd writes carries its mark, so that the next life waits for it too.
// One thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/counters.h"
#include "exports.h"
#include "flights.h"
#include "gets.h"
#include "host.h"
#include "inventory.h"
#include "key_controls.h"
#include "master_calls.h"
#include "orders.h"
#include "publications.h"
#include "puts.h"
#include "questions.h"
#include "replies.h"
#include "retirement.h"
#include "retries.h"
#include "ssd_tier.h"
#include "stages.h"
#include "standing.h"

namespace fluxon::owner {

#define FLUXON_OWNER_CORE_COUNTERS(X)                                                                                                 \
  X(removes, "fluxon_owner_removes_total", "Deletes.")                                                                                \
  X(refused, "fluxon_owner_requests_refused_total", "Reports that the master did not accept.")                                        \
  X(rejoins, "fluxon_owner_rejoins_total", "Times this owner joined anew after it had joined.")                                       \
  X(directoryFull, "fluxon_owner_directory_full_total", "Puts refused because the directory had no room for the bytes of their key.") \
  X(joinedFlights, "fluxon_owner_flights_joined_total", "Gets that waited for a copy that was under way.")                            \
  X(exports, "fluxon_owner_puts_exported_total", "Puts whose value another owner came for.")
struct CoreCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_CORE_COUNTERS)
};
struct OwnerCounters : CounterSet<PutCounters, GetCounters, FlightCounters, StageCounters, SsdCounters, RetirementCounters,
                                  InventoryCounters, CoreCounters> {};

class OwnerCore {
 public:
  struct Settings {
    std::string node;
    size_t inventoryPage = 1024;           // values of one message; heartbeats pass between the pages
    size_t inventoryPageKeys = 64 * 1024;  // bytes of keys, until which more are added
    size_t pagesAtOnce = 4;                // not answered
    size_t persistsAtOnce = 128;           // told to ssdd; others wait here
    // Ids after which an unanswered request is a straggler, how many are told, and how far ids go beyond the lowest other one.
    uint64_t straggles = 1 << 14, stragglers = 1024, ahead = 1 << 16;
    bool awaitsSsd = false;  // ssdd of the last life lives, and may bring what it has: ssdNotComing() ends the wait
  };
  OwnerCore(Settings, shm::DirectoryWriter&, char* segment, uint64_t segmentBytes, Host&);

  // First of all, over a directory that an earlier process has left. `living`: its clients that still map it.
  void adopt(const std::set<uint64_t>& living, Time now);

  // Joining. keep(), at another term, a fence or another life: committed values stay for the inventory. drop(): they go too. Puts
  // being written stay, as orphans; everything else ends. After what they start is over (underWay() is 0), occupied() is what is in
  // use without being a value of the inventory.
  // `master`: which one; it is the one that serving is under from serve() on.
  void setMaster(Incarnation master) { standing_.setMaster(master); }
  void keep(Time now) { endTerm(Retirement::Values::kept, now); }
  void drop(Time now) { endTerm(Retirement::Values::dropped, now); }
  // This process ends in order and serves nothing from here on. True: values stay for the next life.
  bool stop(Time now);
  size_t underWay() const { return retirement_.scans() + flights_.fetches() + exports() + ssd_.awaited(); }
  std::vector<Extent> occupied();
  // The life whose values are here, 0: there are none.
  Incarnation content() const;
  uint64_t values() const { return directory_.count(shm::SlotState::committed); }
  // The life of the SSD that a registration names. From here on any other life of it is worth nothing.
  Incarnation describeSsd() { return ssd_.describe(); }
  // The master has registered us. `inventory`: it wants the list of our values; else it must be that there are none.
  enum class Inventory { none, wanted };
  void registered(Incarnation, Duration lease, Time sent, Inventory, Time now);
  void joined(Incarnation incarnation, Duration lease, Time sent, Time now) { registered(incarnation, lease, sent, Inventory::none, now); }
  // Same incarnation, new connection: everything unanswered is sent again.
  void reconnected(Duration lease, Time sent) { standing_.reconnected(lease, sent); }
  bool serving(Time now) const { return standing_.serving(now); }
  // Why there is no master; the owner tells clients that ask for one. "": it is there, or does not answer.
  void apart(std::string why) { standing_.apart(std::move(why)); }

  void command(Caller, Command, Time now);
  void clientGone(ClientId, Time now);
  void message(const rpc::MasterMessage&, Time now);
  void scanned(uint64_t scan, const std::vector<bool>& held, Time now);
  void fetched(uint64_t flight, const Error&, Time now);
  void unexported(ExportId, Time now);
  // The first bytes of an ssd fetch are there, so many.
  void loading(uint64_t flight, uint64_t bytes, Time now);

  // May an ssdd of that life attach? One with entries may only before the master has been told what is on the SSD.
  bool takesSsd(Incarnation life, bool empty) const { return ssd_.takes(life, empty); }
  void ssdAttached(Incarnation life, Time now);
  void ssdGone(Time now);
  void ssd(const ssd::Message&, Time now);
  // No ssdd will come with what it had.
  void ssdNotComing() { ssd_.notComing(); }
  // `touched`: slots that clients have read since the last heartbeat, oldest first.
  void heartbeat(const std::vector<uint32_t>& touched, Time now);
  void tick(Time now);
  Time nextWake() const;

  // Set when the master refused an incarnation or term: the service must join again.
  bool fenced() const { return standing_.fenced(); }
  using Unanswered = MasterCalls::Unanswered;
  Unanswered unanswered() const { return calls_.unanswered(); }
  bool listening() const { return standing_.listening(); }
  bool reporting() const { return standing_.reporting(); }
  // The master has refused the values as a whole: drop() must come before the next registration.
  bool contentRefused() const { return inventory_.contentRefused(); }

  Duration lease() const { return standing_.lease(); }

  OwnerCounters counters() const;
  size_t requestsPending() const { return calls_.count(); }
  size_t grants() const { return puts_.count(); }
  uint64_t reserveBytes() const { return puts_.reserveBytes(); }
  size_t retired() const { return retirement_.retired(); }
  size_t flights() const { return flights_.count() + stages_.loads(); }
  size_t exports() const { return exports_.count() + stages_.count(); }
  Incarnation ssdLife() const { return ssd_.life(); }
  size_t persists() const { return ssd_.persists(); }
  // How long the oldest of each has been open; 0: there is none.
  struct Ages {
    Duration put{0};    // begun and not decided
    Duration grant{0};  // of those, what its writer has not committed or given up
    Duration flight{0}, exported{0};
  };
  Ages oldest(Time now) const;

 private:
  void endTerm(Retirement::Values, Time now);
  void lapse(Time now);

  void flush(Time now);

  shm::DirectoryWriter& directory_;
  Host& host_;
  MasterCalls calls_;
  Standing standing_;
  Retries retries_;
  KeyControls controls_;
  Retirement retirement_;
  SsdTier ssd_;
  Publications publications_;
  Exports exports_;
  Stages stages_;
  Flights flights_;
  Gets gets_;
  Puts puts_;
  Questions questions_;
  owner::Inventory inventory_;
  Orders orders_;
  Replies replies_;
  uint64_t rejoins_ = 0;
};

}  // namespace fluxon::owner
