// Routes: which value each key has, where its replicas lie, and under which lease it lives. Everything that changes a route, or the set of
// its replicas, goes through here, so these agree at all times:
//   - an entry's replicas, and what their members know of them: the extent in memory is routed (member_space.h), the key stands in `onSsd`;
//   - an entry's lease, and the keys of that lease (key_leases.h);
//   - whether a value is at several members, and what the choice of victims knows of that.
//
//   A replica:  none ──add──► replica ──drop──► none    the bytes are the readers' of its member; after `drop` of whoever still reads
//                                                       them, until the member releases the extent
//   A route ends with its last replica, unless a change of the key is under way: that decides then.
//
// What a member has that ended for good, or on an SSD that is another one now, leaves the routes in slices (`sweep`). It is not readable
// any more when that begins. One thread.
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
  // Forgets the entry if nothing is left of it.
  void forgetIfIdle(KeyEntry& entry) { table_.forgetIfIdle(entry); }

  // The key has that value now, and of it the one replica.
  void replace(KeyEntry&, PutId, uint64_t bytes, KeyLeaseId, Replica);
  // The key has that value now, which is to be added, and no lease: it is of an earlier term.
  void replace(KeyEntry&, PutId, uint64_t bytes);
  // The key has no value any more. Nothing below that put_id may bring it back.
  void end(KeyEntry&, PutId below);

  void add(KeyEntry&, Replica);
  void drop(KeyEntry&, const Member&, Medium);
  // A replica has gone, and the route with it if it was the last one. The entry may be gone after it.
  void lose(KeyEntry&, const Member&, Medium);
  // As `lose`, of an extent that the member has freed already, or is about to.
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
