// OwnerCore: the logic of an owner. Commands of clients, messages of the master, results of hazard scans and times come in by
// calls; answers, requests and scans go out through Host. It sees no socket, promise or file; of memory only the directory, the
// keys and the segment.
//
// Life of a put (the slot's states: directory_format.h):
//   asked ──► granted ──commit──► pending ──► committed | overwritten | refused         the writer fills the extent
//     │          └──abort, writer ended──► given up                                    while granted
//     └── from the reserve there is no `asked`: the extent is here already and the master hears of the put at its commit
//   A put whose value shall lie at an owner of another host is filled here like any other. At its commit the extent is exported: the
//   other one comes for the bytes, and the master answers when they are readable there. Then the export ends and the extent goes.
//
// Life of a flight, a copy that this owner brings from another one (for a get of its clients, or by order of the master):
//   asked ──► granted ──fetched──► pending ──► committed     the master knows it as a replica
//                └──failed──► over                └──► retired: only those who waited for it hold it (a temporary copy)
//   Gets of the key that come while the bytes are under way wait for the same flight, unless an invalidation has passed it meanwhile
//   (the bound of the key is above its put_id). They are answered when the bytes are there, before the master has decided about the
//   copy, and nobody joins it any more. So what a flight answers was the latest value at some time after each of its readers had
//   begun: the master named it then, or had not heard yet that an invalidation of it was carried out here. From then on a pending
//   copy may be held: it never becomes free but by way of retired.
//   A copy of an exported value is a put of which this owner is the home: as with its own puts, older values are retired before the
//   master hears that the bytes are here.
//
// Beside the segment the owner may have an SSD, which is its ssdd's (ssd.cpp): what is put here is persisted, what is not in memory any
// more is loaded by a flight. Nobody else reads from it.
//
// Joining with values (after a new term, a fence, or in the next life of the process): everything that may write into the segment has
// ended before the master is told what is in use, but for clients with a grant and for loads from the SSD, which may last as long as
// a disk does: their extents are in use until they end. Committed values are listed page by page, and those that the answer names go.
// Some pages are under way at once; serving begins when all are answered.
//
// Invariants
//   1. An extent is in the directory, as granted, before its address leaves this process.
//   2. An overwrite retires this owner's older slot before the master is asked to publish; the new slot is committed, and the
//      caller answered, after the master's reply. Two committed slots of one key never exist. While a put of a key is submitted
//      and not decided, no other value of the key becomes readable here.
//   3. While anything of a key is open, its control keeps the highest put_id that the master has invalidated below; nothing
//      below that is committed.
//   4. The serving lease runs from before the heartbeat was sent. Nothing is committed at or after its end.
//   5. A slot becomes free only when no hazard word and no held word names it, by a scan begun after it left `committed`; then
//      the master hears `release`, or `ok` as the result of a reclaim, exactly once.
//   6. A request is kept until it is answered and sent again, with its id, after a lost connection of the same term. The master keeps
//      answers from the lowest unanswered id on, within a window. A request that waits there while others pass is told to it by name (a
//      straggler) and holds the window back no more. Where these are too many the next requests are held back here, well before the
//      window ends; heartbeats and answers to orders never are.
//   7. An extent that a fetch may still write, or that an export may still read, is in no state but granted or pending until the host
//      has said that the fetch or the export is over. Those that ssdd writes carry its mark, so that the next life waits for it too.
//   8. The header's content incarnation is that of the last life that the master has accepted the values of. It changes before this
//      owner says anything else to the master, and never while a value is committed that the master has refused.
// One thread.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "host.h"
#include "key_controls.h"
#include "master_calls.h"
#include "standing.h"
#include "reserve.h"
#include "retirement.h"
#include "retries.h"
#include "shm/directory_writer.h"

namespace fluxon::owner {

struct OwnerCounters : RetirementCounters {
  uint64_t ringGets = 0, ringMisses = 0, puts = 0, putsInline = 0, putsFromReserve = 0, putsFailed = 0, putBytes = 0, removes = 0;
  uint64_t refused = 0, rejoins = 0, directoryFull = 0;
  uint64_t fetches = 0, fetchesFailed = 0, fetchedBytes = 0, temporary = 0, joinedFlights = 0, copiesOrdered = 0, exports = 0, adopted = 0,
           adoptRefused = 0;
  uint64_t persists = 0, persistsTaken = 0, persistsIgnored = 0, persistsFailed = 0, persistsGivenUp = 0,
           persistsLeftOut = 0, persistsStalled = 0, persistedBytes = 0;
  uint64_t ssdLoads = 0, ssdLoadsFailed = 0, ssdLoadedBytes = 0, ssdEvicted = 0, staged = 0, ssdLost = 0;
};

class OwnerCore {
 public:
  struct Settings {
    std::string node;
    size_t inventoryPage = 1024;           // values of one message; heartbeats pass between the pages
    size_t inventoryPageKeys = 64 * 1024;  // bytes of keys, until which more are added
    size_t pagesAtOnce = 4;                // not answered
    size_t persistsAtOnce = 128;  // told to ssdd; others wait here
    // Ids after which an unanswered request is a straggler, how many are told, and how far ids go beyond the lowest other one.
    uint64_t straggles = 1 << 14, stragglers = 1024, ahead = 1 << 16;
    bool awaitsSsd = false;       // ssdd of the last life lives, and may bring what it has: ssdExpected(false) ends the wait
  };
  OwnerCore(Settings, shm::DirectoryWriter&, char* segment, uint64_t segmentBytes, Host&);

  // First of all, over a directory that an earlier process has left. `living`: its clients that still map it.
  void adopt(const std::set<uint64_t>& living, Time now);

  // Joining. keep(): another term, a fence, or another life: committed values stay for the inventory. drop(): they go as well. Puts
  // being written stay, as orphans; everything else ends. After what they start is over (unsettled() is 0), occupied() is what is in
  // use without being a value of the inventory.
  // `master`: which one; it is the one that serving is under from serve() on.
  void setMaster(Incarnation master) { standing_.setMaster(master); }
  void keep(Time now) { part(true, now); }
  void drop(Time now) { part(false, now); }
  // This process ends in order: nothing is served from here on. True: values stay for the next life.
  bool stop(Time now);
  size_t unsettled() const { return retirement_.scans() + fetches() + exports_.size() + awaitsSsd_; }
  std::vector<Extent> occupied();
  // The life whose values are here, 0: there are none.
  Incarnation content() const;
  uint64_t values() const { return directory_.count(shm::SlotState::committed); }
  // What a registration says of the SSD: any other life of it is worth nothing from here on.
  Incarnation describeSsd();
  // The master has registered us. `inventory`: it wants the list of our values; else it must be that there are none.
  enum class Inventory { none, wanted };
  void registered(Incarnation, Duration lease, Time sent, Inventory, Time now);
  void joined(Incarnation incarnation, Duration lease, Time sent, Time now) { registered(incarnation, lease, sent, Inventory::none, now); }
  // Same incarnation, new connection: everything unanswered is sent again.
  void reconnected(Duration lease, Time sent);
  bool serving(Time now) const { return standing_.serving(now); }
  // Why there is no master: clients that ask for one are told. "": it is there, or does not answer.
  void apart(std::string why) { standing_.apart(std::move(why)); }

  void command(Caller, Command, Time now);
  void clientGone(ClientId, Time now);
  void message(const rpc::MasterMessage&, Time now);
  void scanned(uint64_t scan, const std::vector<bool>& held, Time now);
  void fetched(uint64_t flight, const Error&, Time now);
  void unexported(ExportId, Time now);
  // Of an ssd fetch: so many bytes from its beginning on are there.
  void loading(uint64_t flight, uint64_t bytes, Time now);

  // May an ssdd of that life attach? One that is not empty only before the master is told what is here.
  bool takesSsd(Incarnation life, bool empty) const { return empty ? life != lostSsd_ : !described_ && life == directory_.ssd(); }
  void ssdAttached(Incarnation life, Time now);
  void ssdGone(Time now);
  void ssd(const ssd::Message&, Time now);
  // No ssdd will come with what it had.
  void ssdExpected(bool expected) { awaitsSsd_ = expected; }
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
  // The master has refused the values as a whole: they must be dropped before the next registration.
  bool contentRefused() const { return contentRefused_; }

  Duration lease() const { return standing_.lease(); }

  OwnerCounters counters() const;
  size_t requestsPending() const { return calls_.count(); }
  size_t grants() const { return puts_.size(); }
  uint64_t reserveBytes() const { return reserve_.bytes(); }
  size_t retired() const { return retirement_.retired(); }
  size_t flights() const { return flights_.size(); }
  size_t exports() const { return exports_.size(); }
  Incarnation ssdLife() const { return ssdLife_; }
  size_t persists() const { return persists_.size(); }
  // How long the oldest of each has been open; 0: there is none.
  struct Ages {
    Duration put{0};     // begun and not decided
    Duration grant{0};   // of those, what its writer has not committed or given up
    Duration flight{0}, exported{0};
  };
  Ages oldest(Time now) const;

 private:
  struct Put {
    ClientId client;        // 0: the owner itself (an inline put)
    OperationId operation;  // putStart at the master; 0: from the reserve
    PutId putId;
    PutMode mode;
    uint8_t replicas = 0;
    KeyLeaseId lease;
    bool orphan = false;  // of a term that is over: its commit is refused
    bool elsewhere = false;  // the value shall lie at an owner of another host, who comes for it
    // Older slots of the key that its submit retired. The master names their extents until it has decided, so they are not
    // released before its reply.
    std::vector<uint32_t> replaced;
    Time since{0};  // granted, or adopted
  };
  struct Flight {
    uint32_t slot = 0;
    PutId putId;
    OperationId asked;    // by getStart; or
    OrderId ordered;      // by the master
    std::string node;     // whom it comes from
    bool exported = false;  // the value of a put that waits for it
    shm::AnswerSource source = shm::AnswerSource::peer;
    bool load = false;      // from our SSD
    Incarnation ssd;        // of that
    ExportId staged;        // brought from there for another host
    bool orphan = false;  // of a term that is over
    Time since{0};
  };
  struct Invalidation {
    OrderId order;      // 0: of values that an inventory refused
    Time when;          // ssdd was asked
    std::vector<uint32_t> retired;
  };

  // commands.cpp
  void get(Caller, Command, Time now);
  void askRoute(Caller, Command, Time now);
  void putStart(Caller, Command, Time now);
  void putInline(Caller, Command, Time now);
  void commit(Caller, const Command&, Time now);
  void abort(Caller, const Command&, Time now);
  void forward(Caller, rpc::Request::Body, Time now);
  bool answerLocal(Caller, const Command&);
  bool mustWait(const Command&) const;
  Put* granted(Caller, const Command&, uint32_t& slot);

  // replies.cpp
  void reply(const rpc::Reply&, Time now);
  void replied(Call&, const rpc::Reply&, Time now);
  void putStarted(Call&, const rpc::Reply&, Time now);
  void putEnded(Call&, const rpc::Reply&, Time now);
  void answerPut(const Call&, uint64_t replicas);
  void answerQuestion(const Call&, const rpc::Reply&);
  void noteRefusal(Code);
  bool undecided(uint32_t except) const;
  void settlePublished(const std::string& key, Time now);
  void failPending(Time now);

  // flights.cpp
  void gotRoute(Call&, const rpc::Reply&, Time now);
  void fly(Call&, const rpc::Reply&, Time now);
  void carryOut(const rpc::Replicate&, Time now);
  std::optional<uint64_t> startFlight(Flight, Fetch, Time now);
  void reportCopy(const Flight&, Code, Call::About = {});
  void refuseFlight(const Flight&, Code, uint64_t offset);
  void landed(Call&, const rpc::Reply&, Time now);
  void answerHeld(uint32_t slot, PutId, shm::AnswerSource, const Interests&);
  void endExport(ExportId);

  // ssd.cpp
  void persist(uint32_t slot, Time now);
  void pumpPersists(Time now);
  bool stillThere(uint64_t ref, PutId putId) const;
  void endPersist(uint64_t id);
  bool yieldsPersist(uint32_t slot, Time now);
  bool readBySsd(uint32_t slot);
  void persisted(const ssd::Message&, Time now);
  void ssdCommitted(const Call&, const rpc::Reply&);
  void giveUpSsd(const char* why, Time now);
  void ssdLost(Time now);
  void loadBegins(Flight&, Time now);
  void loadEnds(const Flight&, Time now);
  void leaveLoads(Time now);
  void leaveLoad(uint64_t id, const Flight&, const char* why, Time now);
  void stalled(uint64_t id, Time now);
  void asks(Time now);
  void tickSsd(Time now);
  Time ssdDue() const;
  Time ssdWake() const;
  bool dropsRefused() const;
  void listed(const ssd::Message&, Time now);
  void tellSsd();
  void tellSsdNews(Time now);
  void invalidateSsd(const std::vector<rpc::Version>& below, Invalidation);
  void carryOut(const rpc::Stage&, Time now);
  bool dropUnreadable(uint32_t slot, PutId, Code);
  void stageLoaded(const Flight&, Code, Time now);
  void carryOut(const rpc::Unstage&, Time now);
  void settleStage(ExportId, Time now);
  void scrub(Caller);

  // inventory.cpp
  void part(bool keep, Time now);
  size_t fetches() const;  // flights that are no loads
  void report();
  bool reportPage();
  void reported(const rpc::InventoryPage&, const rpc::Reply&, Time now);
  void endReport(Time now);

  // orders.cpp
  void carryOut(const rpc::Reply& message, Time now) { reply(message, now); }
  void carryOut(const rpc::Invalidate&, Time now);
  void invalidated(const Invalidation&);
  void carryOut(const rpc::Reclaim&, Time now);
  void carryOut(const rpc::Leave&, Time) { host_.leave(); }
  void carryOut(const rpc::Shrink&, Time) { shrinkReserve(Time::never()); }
  bool begins(OrderId);

  // owner_core.cpp
  void submit(uint32_t slot, Caller, Time now);
  void giveUpPut(uint32_t slot, bool tellMaster);
  void shrinkReserve(Time unusedSince);
  void flush(Time now);
  void tellNews(Time now);

  Settings settings_;
  shm::DirectoryWriter& directory_;
  char* segment_;
  uint64_t segmentBytes_;
  Host& host_;
  MasterCalls calls_;
  Standing standing_;
  Retries retries_;
  KeyControls controls_;
  Retirement retirement_;
  Reserve reserve_;
  std::unordered_map<uint32_t, Put> puts_;  // by slot: granted and pending
  struct Published {
    PutId putId;
    KeyLeaseId lease;
    bool put;  // or a copy of another owner's
  };
  std::unordered_map<uint32_t, Published> published_;  // pending slots whose values wait for other puts of their key
  std::unordered_map<uint32_t, std::vector<uint32_t>> incoming_;  // pending slots of exported values: what they have retired
  std::map<uint64_t, Flight> flights_;      // bytes under way
  struct Export {
    uint32_t slot = 0;
    Time since{0};
    bool ending = false;
    // Of what is brought from our SSD for another host: the slot goes when nobody reads or writes it any more and the master says so.
    bool staged = false;
    bool readable = true;
    uint64_t loading = 0;  // flight
    uint64_t loaded = 0;   // bytes
    OrderId unstage;
    bool orphan = false;   // of a term that is over
  };
  std::map<ExportId, Export> exports_;         // slots that peers may read
  std::set<OrderId> begun_;              // orders of this term that have been begun: reclaims and copies
  // Slots to be listed, a heap whose oldest value is next: the master takes the order for that of their age. Sorted at once, a million
  // of them would keep everything else waiting for 0.2 s.
  std::vector<std::pair<PutId, uint32_t>> inventory_;
  std::map<OperationId, std::vector<uint32_t>> pages_;  // that are not answered yet: their slots
  uint64_t pagesSent_ = 0;
  bool allListed_ = false;               // the last page has been sent
  bool contentRefused_ = false;

  // --- the SSD (ssd.cpp)
  struct Persist {
    enum class State { queued, writing, asked } state = State::queued;
    uint64_t ref = 0;  // of the slot
    std::string key;
    PutId putId;
    uint64_t bytes = 0;
    Time since{0};
  };
  Incarnation ssdLife_;  // attached; 0: none
  Incarnation lostSsd_;  // the last one that was: what the master knows of it is over, whatever it has, so it never comes again
  Incarnation toldSsd_;  // what the master has heard
  bool described_ = false;  // a registration has said what is on the SSD
  bool awaitsSsd_ = false;
  std::map<uint64_t, Persist> persists_;
  std::unordered_map<uint32_t, uint64_t> persisting_;  // slot → persist: its bytes stay
  std::set<uint64_t> persistQueue_;
  uint64_t writing_ = 0, writingBytes_ = 0;  // told to ssdd
  std::vector<uint64_t> commits_;            // persisted, the master is to be asked
  std::deque<rpc::Version> evicted_;         // the master is to be told
  size_t evictedTold_ = 0;  // to the master, which has not answered
  Time evictedSince_{0};
  std::map<uint64_t, Invalidation> invalidating_;  // at ssdd
  std::map<uint64_t, Caller> scrubs_;
  uint64_t listing_ = 0;
  size_t loads_ = 0;  // flights from the SSD that is there now, and does something
  Time heard_{0};     // the last word of ssdd, or the first of a row of writes and loads was told
  Time ssdSaid_{0};  // the last word of the list, or when it was asked for
  std::vector<rpc::SsdValue> ssdInventory_;
  size_t ssdReported_ = 0;    // of those
  bool reportEnds_ = false;   // but for what ssdd has to drop
  uint64_t nextTask_ = 1;  // flights, and what ssdd is asked: one count, since its progress names either
  OwnerCounters counters_;
};

}  // namespace fluxon::owner
