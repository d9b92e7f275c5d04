// MasterCore: the logic of the master. It sees no socket, promise, file or clock: requests and times come in by calls, messages
// go out through Outbox.
//
// Invariants
//   1. put_ids come from one counter and only grow; a route never goes to a smaller one.
//   2. Before a put or delete is acknowledged, every other owner with a replica of the key has answered that it retired it, or
//      its lease has run out and it is fenced. So a reader that trusts a serving lease never reads an older value after that.
//   3. Changes of one key never interleave (key_table.h).
//   4. An extent is given out once and comes back by its owner's word only (member_space.h).
//   5. Each request id of an incarnation is carried out once; a repetition gets the recorded reply.
//   6. While a term is young (recovery window) owners of the last term may still serve under its lease: puts and deletes are
//      acknowledged and unknown keys are answered only after the window, which ends early when every durable member has joined.
// One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "key_leases.h"
#include "key_table.h"
#include "member.h"

namespace fluxon::master {

struct Settings {
  Duration lease = seconds(10);
  Duration putWait = seconds(5);
  Duration minimumKeyLease = milliseconds(100);
};

class Outbox {
 public:
  virtual ~Outbox() = default;
  // Hands over a message for a member; it may be joined with others. Not called for members that are not connected.
  virtual void send(Member&, rpc::MasterMessage) = 0;
};

// Totals since start, for metrics.
struct MasterCounters {
  uint64_t putsStarted = 0, putsPublished = 0, putsOverwritten = 0, putsRefused = 0, putsAborted = 0, noSpace = 0;
  uint64_t gets = 0, getMisses = 0, removes = 0, evictions = 0, evictionsBusy = 0, invalidations = 0, fenced = 0, leasesExpired = 0;
};

class MasterCore {
 public:
  struct Identity {
    std::string cluster;
    std::string clusterId;
    Term term;
    Incarnation incarnation;
  };
  // `expected`: durable members of the last term; `windowEnd`: when the last lease of the last term has run out for sure.
  MasterCore(Identity identity, Settings settings, std::set<std::string> expected, Time windowEnd, Outbox& outbox);

  const Identity& identity() const { return identity_; }
  const Settings& settings() const { return settings_; }

  // Joins, or joins again after a lost connection (same incarnation). On ok `member` is set; orders not answered are sent again.
  rpc::Registered registerOwner(const rpc::Registration&, Time now, std::shared_ptr<Member>& member);
  // Nothing may be served by that owner any more: it has said so itself.
  void leave(Member&, Time now);
  void disconnected(Member& member) { member.connected = false; }

  void handle(Member&, std::vector<rpc::Request>, OperationId lowestUnanswered, Time now);

  // Leases, deadlines, the recovery window, back-off. `nextWake` says when it has something to do.
  void tick(Time now);
  Time nextWake() const;
  // Long work left to do in slices; `work` does one slice (well below 1 ms).
  bool hasWork() const { return !counts_.empty(); }
  void work();

  bool recovering() const { return recovering_; }
  uint64_t keys() const { return table_.routes(); }
  const KeyTable& table() const { return table_; }
  const std::map<std::string, std::shared_ptr<Member>>& members() const { return members_; }
  std::set<std::string> durableMembers() const;
  const MasterCounters& counters() const { return counters_; }
  uint64_t inFlightPuts() const;

 private:
  struct CountJob {
    Member* member;
    OperationId request;
    std::string prefix;
    std::string after;
    uint64_t count;
  };

  void dispatch(Member&, const rpc::Request&, Time now);
  void heartbeat(Member&, const rpc::Request&, Time now);
  void putStart(Member&, const rpc::Request&, Time now);
  void putDone(Member&, const rpc::Request&, Time now);
  void putReserved(Member&, const rpc::Request&, Time now);
  Code refusePut(Member&, const rpc::Request&, std::string& detail, Time now);
  void putAbort(Member&, const rpc::Request&);
  void reserve(Member&, const rpc::Request&);
  void release(Member&, const rpc::Request&, Time now);
  void dropped(Member&, const rpc::Request&, Time now);
  void getStart(Member&, const rpc::Request&);
  void stat(Member&, const rpc::Request&);
  void remove(Member&, const rpc::Request&, Time now);
  void list(Member&, const rpc::Request&);
  void leases(Member&, const rpc::Request&, Time now);
  void invalidateDone(Member&, const rpc::Request&, Time now);
  void reclaimDone(Member&, const rpc::Request&, Time now);

  // space.cpp: puts that wait, victims
  bool tryPutStart(Member&, const rpc::Request&, Time now);
  void serveWaiting(Member&, Time now);
  void askVictims(Member&, Time now);
  void backOff(Member&, Time now);

  // changes.cpp: publish, remove, invalidate
  bool deferIfChanging(KeyEntry&, Member&, const rpc::Request&);
  void publish(Member&, OperationId request, OperationId put, Time now);
  void begin(KeyEntry&, std::unique_ptr<Change>, const Member* except, Time now);
  void finish(KeyEntry&, Time now);
  void dropRoute(KeyEntry&);
  void dropReplica(KeyEntry&, const Member&);
  void endPut(Member&, OperationId put);
  void abandonPut(Member&, OperationId put);
  void invalidate(Member&, rpc::Version);
  void sendInvalidations(Member&);
  void removeKey(KeyEntry&, Member* origin, OperationId request, Time now);
  void end(Member&, MemberState to, Time now);
  void endWindow(Time now);

  void reply(Member&, rpc::Reply);
  void replyCode(Member&, OperationId, Code, std::string detail = {});
  void order(Member&, rpc::CommandKind, std::vector<rpc::Version>);
  PutId nextPutId() { return PutId(identity_.term, ++sequence_); }

  Identity identity_;
  Settings settings_;
  Outbox& outbox_;
  std::map<std::string, std::shared_ptr<Member>> members_;  // by node; fenced ones until they are replaced
  std::set<Incarnation> fenced_;
  KeyTable table_;
  std::set<KeyEntry*> changing_;  // entries with a change
  KeyLeases leases_;
  std::deque<CountJob> counts_;
  std::vector<Deferred> windowed_;  // requests that wait for the end of the recovery window
  bool recovering_;
  std::set<std::string> expected_;
  Time windowEnd_;
  uint64_t sequence_ = 0;
  uint64_t orders_ = 0;
  MasterCounters counters_;
};

}  // namespace fluxon::master
