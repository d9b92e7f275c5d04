#include "publications.h"

#include "base/hash.h"
#include "base/mark.h"

namespace fluxon::owner {

bool Publications::decided(uint32_t slot, Outcome outcome) {
  const auto found = undecided_.find(slot);
  if (found == undecided_.end()) return false;
  const std::vector<uint32_t> retired = std::move(found->second);
  undecided_.erase(found);
  const bool givesUp = outcome != Outcome::published && !retired.empty();
  if (givesUp) retirement_.dropped(retired);
  retirement_.add(retired);
  return givesUp;
}

bool Publications::undecided(uint32_t except) const {
  bool found = false;
  directory_.forEach(directory_.key(except), directory_.hash(except), [&](uint32_t slot) { found |= slot != except && isSubmitted(slot); });
  return found;
}

Publications::Becomes Publications::publish(uint32_t slot, PutId putId, KeyLeaseId lease, Origin origin, Time now) {
  const Waiting value{putId, lease, origin};
  if (undecided(slot)) {
    waiting_.emplace(slot, value);
    controls_.open(std::string(directory_.key(slot)));
    return Becomes::waits;
  }
  retirement_.add(retirement_.retireOlder(slot, putId));
  makeReadable(slot, value, now);
  return Becomes::readable;
}

void Publications::makeReadable(uint32_t slot, const Waiting& value, Time now) {
  directory_.commit(slot, value.putId, value.lease);
  if (value.origin != Origin::copy) ssd_.persist(slot, now);
}

// Makes the newest of the waiting values readable, unless a newer one has come; retires the others.
void Publications::publishWaiting(const std::string& key, Time now) {
  std::vector<uint32_t> slots;
  bool newer = false;
  const PutId bound = controls_.bound(key);
  directory_.forEach(key, keyHash(key), [&](uint32_t slot) {
    if (waiting_.count(slot)) slots.push_back(slot);
    newer |= directory_.state(slot) == shm::SlotState::committed;
  });
  if (slots.empty() || undecided(slots.front())) return;
  for (const uint32_t slot : slots) {
    const Waiting value = waiting_.at(slot);
    waiting_.erase(slot);
    if (value.putId == bound && !newer && standing_.serving(now)) {
      FLUXON_MARK("owner: a value that waited becomes readable");
      makeReadable(slot, value, now);
    } else {
      FLUXON_MARK("owner: a value that waited is none any more");
      retirement_.dropped({key, value.putId, directory_.offset(slot)});
      retirement_.retire(slot);  // those for whom it was fetched may hold it
    }
    controls_.close(key, now);
  }
}

void Publications::endTerm() {
  undecided_.clear();
  waiting_.clear();
}

}  // namespace fluxon::owner
