// OwnerCore: the logic of an owner. Commands of clients, messages of the master, results of hazard scans and times come in by
// calls; answers, requests and scans go out through Host. It sees no socket, promise or file; of memory only the directory, the
// keys and the segment.
//
// Life of a put (the slot's states: directory_format.h):
//   asked ──► granted ──commit──► pending ──► committed | overwritten | refused         the writer fills the extent
//     │          └──abort, writer ended──► given up                                    while granted
//     └── from the reserve there is no `asked`: the extent is here already and the master hears of the put at its commit
//
// Invariants
//   1. An extent is in the directory, as granted, before its address leaves this process.
//   2. An overwrite retires this owner's older slot before the master is asked to publish; the new slot is committed, and the
//      caller answered, after the master's reply. Two committed slots of one key never exist.
//   3. While anything of a key is open, its control keeps the highest put_id that the master has invalidated below; nothing
//      below that is committed.
//   4. The serving lease runs from before the heartbeat was sent. Nothing is committed at or after its end.
//   5. A slot becomes free only when no hazard word (by a scan begun after it left `committed`) and no ring hold names it; then
//      the master hears `release`, or `ok` as the result of a reclaim, exactly once.
//   6. A request is kept until it is answered and sent again, with its id, after a lost connection of the same term.
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
#include "reserve.h"
#include "rpc/messages.h"
#include "shm/client_format.h"
#include "shm/directory_writer.h"

namespace fluxon::owner {

// A command, copied out of shared memory and checked for lengths.
struct Command {
  shm::CommandKind kind{};
  uint32_t flags = 0;
  std::string key;
  std::string extra;
  uint64_t valueBytes = 0;
  uint64_t slotRef = 0;
  KeyLeaseId lease;
  Time deadline;
};

struct Answer {
  Code code = Code::ok;
  uint64_t slotRef = 0;
  PutId putId;
  uint64_t offset = 0;
  uint64_t valueBytes = 0;
  KeyLeaseId lease;
  std::string node;
  std::string payload;  // detail of an error, listing, names
};

// Where a command came from: the client and its command slot. client 0: the owner itself.
struct Caller {
  ClientId client;
  uint32_t slot = 0;
};

class Host {
 public:
  virtual ~Host() = default;
  virtual void send(const rpc::Request&) = 0;
  // False: the caller has given up; what the answer grants must be undone.
  virtual bool answer(Caller, Answer) = 0;
  // Looks for hazards on `refs`, in a thread; the result comes by scanned().
  virtual void scan(uint64_t scan, std::vector<uint64_t> refs) = 0;
};

struct OwnerCounters {
  uint64_t ringGets = 0, ringMisses = 0, puts = 0, putsInline = 0, putsFromReserve = 0, putsFailed = 0, putBytes = 0, removes = 0;
  uint64_t refused = 0, invalidated = 0, reclaimed = 0, reclaimBusy = 0, rejoins = 0, scans = 0, directoryFull = 0;
};

class OwnerCore {
 public:
  struct Settings {
    std::string node;
  };
  OwnerCore(Settings, shm::DirectoryWriter&, char* segment, uint64_t segmentBytes, Host&);

  // Joining. drop(): the content is of another term or was fenced: everything that can be is retired or freed, puts being
  // written stay. After the scans it starts have come back (`scansRunning` is 0), occupied() is what is still in use.
  void drop(Time now);
  size_t scansRunning() const { return scans_.size(); }
  std::vector<Extent> occupied();
  void joined(Incarnation, Duration lease, Time sent, Time now);
  // Same incarnation, new connection: everything unanswered is sent again.
  void reconnected(Duration lease, Time sent);
  bool serving(Time now) const { return now.ns < directory_.leaseUntilNs(); }

  void command(Caller, Command, Time now);
  void clientGone(ClientId, Time now);
  void message(const rpc::MasterMessage&, Time now);
  void scanned(uint64_t scan, const std::vector<bool>& held, Time now);
  // `touched`: slots that clients have read since the last heartbeat, oldest first.
  void heartbeat(const std::vector<uint32_t>& touched, Time now);
  void tick(Time now);
  Time nextWake() const;

  // Set when the master refused an incarnation or term: the service must join again.
  bool fenced() const { return fenced_; }
  OperationId lowestUnanswered() const { return pending_.empty() ? OperationId(nextId_) : pending_.begin()->first; }
  bool listening() const { return listening_; }

  Duration lease() const { return lease_; }

  const OwnerCounters& counters() const { return counters_; }
  size_t requestsPending() const { return pending_.size(); }
  size_t grants() const { return puts_.size(); }
  size_t ringHolds() const { return holds_.size(); }
  uint64_t reserveBytes() const { return reserve_.bytes(); }
  size_t retired() const { return retired_.size(); }

 private:
  struct Put {
    ClientId client;        // 0: the owner itself (an inline put)
    OperationId operation;  // putStart at the master; 0: from the reserve
    PutId putId;
    uint32_t flags = 0;
    KeyLeaseId lease;
    bool orphan = false;  // of a term that is over: its commit is refused
    // Older slots of the key that its submit retired. The master names their extents until it has decided, so they are not
    // released before its reply.
    std::vector<uint32_t> replaced;
  };
  struct Pending {
    rpc::Request request;
    Caller caller;
    shm::CommandKind command{};
    uint32_t slot = UINT32_MAX;  // of the put
    std::string value;           // of an inline put
    bool given = false;          // the caller has been answered (its lease ran out): only the effects count
    Command asked;               // a get: to run again
  };
  struct Waiting {
    Caller caller;
    Command command;
  };
  struct Control {
    uint32_t open = 0;  // requests and puts of the key
    PutId bound;        // nothing below it is committed
    std::deque<Waiting> waiting;
  };
  struct Scan {
    std::vector<uint64_t> refs;
    OperationId order;                        // a reclaim; 0: retired slots
    std::vector<rpc::ReclaimResult> results;  // of the order's items
    std::vector<size_t> items;                // index of each ref among them
    std::vector<std::string> keys;            // whose gets wait for the result
  };

  // commands.cpp
  void get(Caller, Command, Time now);
  void putStart(Caller, Command, Time now);
  void putInline(Caller, Command, Time now);
  void commit(Caller, const Command&, Time now);
  void abort(Caller, const Command&, Time now);
  void forward(Caller, const Command&, rpc::Request, Time now);
  bool answerLocal(Caller, const Command&);
  bool mustWait(const Command&) const;
  bool refusePut(Caller, const Command&, Time now);
  bool answerCode(Caller, Code, std::string detail = {});
  void release(Caller, const Command&, Time now);
  Put* granted(Caller, const Command&, uint32_t& slot);

  // replies.cpp
  void reply(const rpc::Reply&, Time now);
  void replied(Pending&, const rpc::Reply&, Time now);
  void putStarted(Pending&, const rpc::Reply&, Time now);
  void putEnded(Pending&, const rpc::Reply&, Time now);
  void gotRoute(Pending&, const rpc::Reply&, Time now);
  void failPending();

  // orders.cpp
  void invalidate(const rpc::MasterMessage&);
  void reclaim(const rpc::MasterMessage&);
  void startScan(Scan);
  void scanRetired(Time now);

  // owner_core.cpp
  Pending& request(rpc::Request, Caller, shm::CommandKind);
  void submit(uint32_t slot, Caller, shm::CommandKind);
  std::vector<uint32_t> retireOlder(uint32_t than, PutId putId);
  void awaitReaders(const std::vector<uint32_t>& retired);
  void giveUpPut(uint32_t slot, bool tellMaster);
  void freeSlot(uint32_t slot);
  void open(const std::string& key);
  void close(const std::string& key, Time now);
  void wake(const std::string& key, Time now);
  void flush(Time now);

  Settings settings_;
  shm::DirectoryWriter& directory_;
  char* segment_;
  uint64_t segmentBytes_;
  Host& host_;
  Reserve reserve_;
  std::map<OperationId, Pending> pending_;
  std::unordered_map<uint32_t, Put> puts_;  // by slot: granted and pending
  std::unordered_map<std::string, Control> controls_;
  std::map<std::pair<uint64_t, ClientId>, uint64_t> holds_;  // (slotRef, client) → ring holders
  std::vector<uint32_t> retired_;
  std::unordered_map<uint64_t, Scan> scans_;
  std::vector<uint64_t> releases_;       // extents to be reported free
  std::vector<rpc::Version> dropped_;    // replicas given up on our own account
  std::set<OperationId> reclaims_;       // orders of this term that have been begun
  std::map<OperationId, Time> beats_;    // heartbeats under way: when they were sent
  Duration lease_{0};
  uint64_t nextId_ = 1;
  uint64_t nextScan_ = 1;
  bool retiredScanning_ = false;
  Time nextRetiredScan_{0};
  bool listening_ = false;  // joined; requests may be sent
  bool fenced_ = false;
  bool lapsed_ = true;
  OwnerCounters counters_;
};

}  // namespace fluxon::owner
