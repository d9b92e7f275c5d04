#include "key_table.h"

#include "base/check.h"
#include "base/hash.h"
#include "member.h"

namespace fluxon::master {

KeyEntry* KeyTable::find(const std::string& key) {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

const KeyEntry* KeyTable::find(const std::string& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

KeyEntry& KeyTable::at(const std::string& key) {
  const auto [it, fresh] = entries_.try_emplace(key);
  if (fresh) {
    it->second.key = it->first;
    it->second.hash = keyHash(it->first);
  }
  return it->second;
}

void KeyTable::forgetIfIdle(KeyEntry& entry) {
  if (!entry.idle()) return;
  FLUXON_CHECK(entry.replicas.empty(), "replicas without a route");
  entries_.erase(entries_.find(std::string(entry.key)));
}

void KeyTable::setRoute(KeyEntry& entry, PutId putId, uint64_t bytes, KeyLeaseId lease) {
  FLUXON_CHECK(putId > entry.putId, "a route never goes back");
  if (!entry.routed()) ordered_.insert(entry.key);
  entry.putId = putId;
  entry.bytes = bytes;
  entry.lease = lease;
}

void KeyTable::clearRoute(KeyEntry& entry) {
  if (entry.routed()) ordered_.erase(entry.key);
  entry.putId = PutId();
  entry.bytes = 0;
  entry.lease = KeyLeaseId();
}

void KeyTable::list(std::string_view prefix, std::string_view after, uint64_t limit,
                    const std::function<bool(const KeyEntry&)>& each) const {
  auto it = after.empty() || after < prefix ? ordered_.lower_bound(prefix) : ordered_.upper_bound(after);
  for (; it != ordered_.end() && it->starts_with(prefix) && limit > 0; ++it) {
    if (each(entries_.find(std::string(*it))->second)) --limit;
  }
}

}  // namespace fluxon::master
