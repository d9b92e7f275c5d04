// One cluster in one process: a master, owners on two hosts and their clients, under a seeded scheduler that delays, reorders, repeats
// and drops messages, partitions the network, stops, kills and restarts processes, keeps them busy, and lets disks fail. In some runs
// there is another cluster on these hosts, with keys of the same names, and owners go over to it and come back.
//
// A run is a minute of virtual time: bursts, in which operations come every half a millisecond, and calm stretches, in which leases
// run out and timers fire. Each seed draws which kinds of faults it has. After the minute faults stop, and everything must come to
// rest.
//
// Checked all the time
//   - a read never sees a value that had been replaced or deleted before it began, nor one that was never put, nor a torn one;
//   - nobody sees a value of another cluster than that of the own owner;
//   - a stat or list never names a version that had been replaced or deleted before it began;
//   - the bytes of a put are seen under one put_id, and no other bytes under it;
//   - the bytes under a holder never change;
//   - no two slots of an owner share a byte;
//   - no lease is called over that a word which had come before its end would have prolonged;
//   - the term on disk only grows, and the state file is never damaged.
// Checked at rest
//   - every owner has joined, and puts, gets and deletes succeed everywhere before their deadlines, though disks of SSDs may still hang;
//   - no put, flight, export, transfer, order, waiting request, retired slot or call is left;
//   - master and owners name the same values at the same places, and every byte of each segment is accounted for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "history.h"
#include "sim_master.h"
#include "sim_owner.h"

namespace fluxon::sim {

constexpr Duration kDeadline = milliseconds(200);  // of a client's call

// What happened in a run, summed over runs.
// clang-format off
#define FLUXON_TALLY(X) \
  X(operations) X(reads) X(givenUp) X(messages) X(cuts) X(partitions) X(stops) X(busy) X(moves) X(ownerKills) X(filesLost) \
  X(masterKills) X(crashes) X(diskFaults) X(tornSectors) X(orderlyStops) X(left) X(clientsDead) X(endedMidway) X(ssddKills)
// clang-format on
struct Tally {
#define FLUXON_DECLARE(name) uint64_t name = 0;
  FLUXON_TALLY(FLUXON_DECLARE)
#undef FLUXON_DECLARE
  master::MasterCounters masters;
  owner::OwnerCounters owners;
  ssdd::SsdCounters ssdds;

  void count(const master::MasterCounters& counters) { masters.add(counters); }
  void count(const owner::OwnerCounters& counters) { owners.add(counters); }
  void count(const ssdd::SsdCounters& counters) { ssdds.add(counters); }
  void add(const Tally&);
};

class World {
 public:
  struct Options {
    uint64_t seed = 1;
    bool log = false;
    // No faults but one: the connection breaks at this message, which is lost. 0: faults by the seed.
    uint64_t loseMessage = 0;
    bool faultless = false;
    bool brief = false;  // a few seconds instead of a minute
  };
  explicit World(Options);

  // Throws Finding.
  void run();

  Tally tally;
  uint64_t losable = 0;  // messages until faults stopped
  const std::vector<std::string>& log() const { return scheduler_.lines(); }
  // Of when everything happened: equal for equal runs.
  uint64_t digest() const { return scheduler_.digest(); }
  Duration simulated() const { return scheduler_.now() - began_; }

  // --- for processes
  SimMaster& masterOf(const SimOwner& owner) { return owner.cluster() == 0 ? master_ : other_; }
  SimOwner* owner(const std::string& node);
  Duration lease() const { return settings_.lease; }
  size_t persistsAtOnce() const { return persistsAtOnce_; }  // others wait
  uint64_t newClient() { return ++clients_; }
  void die(const std::shared_ptr<Client>&);
  Incarnation newLife() { return Incarnation(++lives_); }
  Duration delay();
  Duration diskTime();
  bool registrationStalls() { return faults_.stalls != 0 && scheduler_.oneIn(10); }
  // That the answer to a page of an inventory takes.
  Duration pageTime() { return faults_.slowPages && !scheduler_.oneIn(4) ? scheduler_.upTo(settings_.lease / 2) : Duration{0}; }
  uint64_t linkFailsOneIn() const { return faults_.linkFails; }
  bool reachesMaster(const SimOwner&);
  bool reaches(const SimOwner&, const SimOwner&) const;
  bool deliverable(const std::shared_ptr<Connection>& c) const { return c->open && c->masterLife == c->master->life() && c->master->up(); }
  void toMaster(const std::shared_ptr<Connection>&, std::function<void(SimMaster&)>);
  Time unheard(const SimMaster&, const std::string& node);
  void reply(SimOwner&, const std::shared_ptr<Connection>&, std::function<void()>);
  void toOwner(master::Member&, uint64_t connection, const rpc::MasterMessage&);
  void cut(SimOwner&, const std::shared_ptr<Connection>&);
  void whenDurable(SimMaster&, uint64_t version, std::function<void()>);
  void masterEnded(const SimMaster&);
  void masterWrites(SimMaster&);
  void ownerReports(SimOwner&);
  // One in so many, of what an owner does; then it ends on the way.
  bool endsMidway(uint64_t oneIn) { return faults_.ownerKills != 0 && scheduler_.oneIn(oneIn); }
  void endMidway(SimOwner&);
  void restartLater(SimOwner&);
  std::vector<bool> heldOf(const Memory&, const std::vector<uint64_t>& refs) const;
  void show(const std::string& who, const rpc::Request&);
  void show(const std::string& who, const rpc::MasterMessage&);

 private:
  // One in so many; 0: never.
  struct Faults {
    uint64_t linkFails = UINT64_MAX;
    uint64_t cuts = 0, stalls = 0, partitions = 0, stops = 0, ownerKills = 0, filesLost = 0, masterKills = 0, diskFails = 0, orderly = 0,
             drains = 0, evictions = 0, clientDeaths = 0, slow = 20, busy = 0, moves = 0;
    uint64_t ssddKills = 0, ssdFails = 0;
    bool slowPages = false;
  };
  void draw();
  void advance(Time);
  void burst(Duration);
  void evictAll();
  void hangDisks();
  void calm(Duration);
  void busyBeforeLeaseEnds(SimMaster&, const std::string& node);
  void fault();
  void killMaster(SimMaster&);
  void killOwner(SimOwner&, SimOwner::Files);
  void ssdFault(SimOwner&);
  void partFromMaster(SimOwner&, Duration);
  void rest();
  void live();
  void agree(SimOwner&);
  void agreeOnSsd(SimOwner&);
  bool lost();

  // workload.cpp
  SimOwner& someOwner();
  SimMaster& someMaster();
  // The `n`-th one of the cluster of the owner; the last one stands for all that only fill.
  static int keyOf(const SimOwner& owner, int n) { return static_cast<int>(owner.cluster()) * kKeysOfCluster + n; }
  int someKey(const SimOwner& owner) { return keyOf(owner, static_cast<int>(scheduler_.pick(kKeys))); }
  void act();
  void changeInWindow();
  void put(SimOwner&, const std::shared_ptr<Client>&, int key);
  void putAt(SimOwner&, const std::shared_ptr<Client>&, owner::Command, uint64_t op, int hops);
  void putInline(SimOwner&, const std::shared_ptr<Client>&, int key);
  void putInlineAt(SimOwner&, const std::shared_ptr<Client>&, owner::Command, uint64_t op, int hops);
  void write(SimOwner&, const std::shared_ptr<Client>&, const owner::Answer& grant, uint64_t bytes, uint64_t op);
  void finish(SimOwner&, const std::shared_ptr<Client>&, const owner::Answer& grant, uint64_t op, shm::CommandKind);
  void fill(SimOwner&, const std::shared_ptr<Client>&);
  void remove(SimOwner&, const std::shared_ptr<Client>&, int key);
  void get(SimOwner&, const std::shared_ptr<Client>&, int key);
  void probe(const std::shared_ptr<Client>&, SimOwner& at, int key, Time began, const char* how);
  void readAll(SimOwner&);
  void getFromSsd(SimOwner&, const std::shared_ptr<Client>&, int key, Time began);
  void look(SimOwner&, const std::shared_ptr<Client>&, int key);
  void stat(SimOwner&, const std::shared_ptr<Client>&, int key);
  void list(SimOwner&, const std::shared_ptr<Client>&);
  void seeName(PutId, int key, Time began, const std::string& how);
  void lease(SimOwner&, const std::shared_ptr<Client>&);
  void hold(const std::shared_ptr<Client>&, const std::shared_ptr<Memory>&, uint64_t ref, uint64_t offset, uint64_t bytes);
  void see(const Memory&, uint64_t offset, uint64_t bytes, PutId, int key, Time began, const std::string& how);
  void drawMode(owner::Command& put);
  Duration patience();
  uint64_t valueBytes();

  Options options_;
  Scheduler scheduler_;
  Time began_;
  master::Settings settings_;
  Faults faults_;
  size_t persistsAtOnce_ = 2;
  bool busy_ = true;
  uint64_t reading_ = 0;      // in this burst all but one operation in so many read, and memory is short: so SSDs are read
  SimMaster master_, other_;  // of two clusters; most owners, in most runs all, are of the first one
  std::vector<std::unique_ptr<SimOwner>> owners_;
  std::map<std::pair<std::string, std::string>, Time> parted_;  // of nodes, "" is the master: until when
  uint64_t lives_ = 100, clients_ = 0;
  History history_;
  KeyLeaseId keyLease_[2];  // of each cluster
  size_t actors_ = 0;
};

}  // namespace fluxon::sim
