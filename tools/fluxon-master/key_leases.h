// KeyLeases: leases that keys may be put under. While a lease lives, the master never evicts replicas of its keys; when it ends (its time
// to live passes without a keep-alive, or an owner revokes it), the master deletes its keys. One thread; the caller passes the time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace fluxon::master {

class KeyLeases {
 public:
  struct Lease {
    Duration ttl;
    Time end;
    std::set<std::string> keys;
  };

  // Ids carry the term, as put_ids do, so an id of an earlier term never names a lease of this one.
  KeyLeaseId grant(Term term, Duration ttl, Time now) {
    const KeyLeaseId id(PutId(term, ++sequence_).value);
    leases_[id] = Lease{ttl, now + ttl, {}};
    byEnd_.insert({now + ttl, id});
    return id;
  }
  Lease* find(KeyLeaseId id) {
    const auto it = leases_.find(id);
    return it == leases_.end() ? nullptr : &it->second;
  }
  bool keepAlive(KeyLeaseId id, Time now) {
    Lease* lease = find(id);
    if (!lease) return false;
    byEnd_.erase({lease->end, id});
    lease->end = now + lease->ttl;
    byEnd_.insert({lease->end, id});
    return true;
  }
  // Ends a lease. Returns the keys that were put under it.
  std::set<std::string> end(KeyLeaseId id) {
    const auto it = leases_.find(id);
    if (it == leases_.end()) return {};
    std::set<std::string> keys = std::move(it->second.keys);
    byEnd_.erase({it->second.end, id});
    leases_.erase(it);
    return keys;
  }
  void attach(KeyLeaseId id, std::string key) {
    if (Lease* lease = find(id)) lease->keys.insert(std::move(key));
  }
  void detach(KeyLeaseId id, const std::string& key) {
    if (Lease* lease = find(id)) lease->keys.erase(key);
  }
  // Some lease whose time has passed; 0 if there is none.
  KeyLeaseId expired(Time now) const { return byEnd_.empty() || byEnd_.begin()->first > now ? KeyLeaseId() : byEnd_.begin()->second; }
  Time nextEnd() const { return byEnd_.empty() ? Time::never() : byEnd_.begin()->first; }
  size_t size() const { return leases_.size(); }
  // By id.
  const std::map<KeyLeaseId, Lease>& all() const { return leases_; }

 private:
  std::map<KeyLeaseId, Lease> leases_;
  std::set<std::pair<Time, KeyLeaseId>> byEnd_;
  uint64_t sequence_ = 0;
};

}  // namespace fluxon::master
