// Routes: which value each key has, where its replicas lie, and which lease it has. All changes of a route or of its replicas go through
// this class, so that these agree at all times:
//   - an entry's replicas, and the records of their members: an extent in memory is routed (member_space.h), a key on an SSD is in `onSsd`;
//   - an entry's lease, and the keys of that lease (key_leases.h);
//   - whether several members have a value, and the hint about it for the choice of victims.
//
//   A replica:  none ──add──► replica ──drop──► none    the member's readers own the bytes; after `drop`, those who still read them, until
//                                                       the member releases the extent
//   A route ends with its last replica, unless a change of the key is under way, which then decides.
//
// The replicas of a member that has ended for good, and those of an earlier life of an SSD, leave the routes in slices (`sweep`). Nobody
// can read them any more when that begins. One thread.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "bounds.h"
#include "key_leases.h"
#include "key_table.h"
#include "member.h"

namespace fluxon::master {

class Routes {
 public:
  explicit Routes(Bounds& bounds) : bounds_(bounds) {}

  const KeyTable& table() const { return table_; }
  KeyLeases& leases() { return leases_; }
  const KeyLeases& leases() const { return leases_; }
  const KeyEntry* find(const std::string& key) const { return table_.find(key); }
  KeyEntry* find(const std::string& key) { return table_.find(key); }
  KeyEntry& at(const std::string& key) { return table_.at(key); }
  void expect(uint64_t keys) { table_.expect(keys); }
  // Erases the entry if it holds nothing any more.
  void forgetIfIdle(KeyEntry& entry) { table_.forgetIfIdle(entry); }

  // The key now has this value, with this one replica.
  void replace(KeyEntry&, PutId, uint64_t bytes, KeyLeaseId, Replica);
  // The key now has this value of an earlier term, without a lease; the caller adds its replicas.
  void replace(KeyEntry&, PutId, uint64_t bytes);
  // The key has no value any more. No value with a lower put_id may come back.
  void end(KeyEntry&, PutId below);

  void add(KeyEntry&, Replica);
  void drop(KeyEntry&, const Member&, Medium);
  // A replica has gone, and the route with it if it was the last one. The call may erase the entry.
  void lose(KeyEntry&, const Member&, Medium);
  // As `lose`, for a replica in memory whose extent is free already or about to be freed.
  void loseFreed(KeyEntry&, const Member&);

  enum class Sweep { everything, earlierSsds };
  void sweep(Member& member, Sweep what) { sweeps_.push_back({member, what}); }
  bool sweeping() const { return !sweeps_.empty(); }
  void sweepSlice();

 private:
  struct Swept {
    MemberRef member;
    Sweep what;
  };
  void unlink(KeyEntry&, const Replica&);
  void dropAll(KeyEntry&);
  void endIfLost(KeyEntry&);
  static void weigh(const KeyEntry&);

  Bounds& bounds_;
  KeyTable table_;
  KeyLeases leases_;
  std::deque<Swept> sweeps_;
};

}  // namespace fluxon::master
