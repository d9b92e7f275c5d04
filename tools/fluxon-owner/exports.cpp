#include "exports.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::owner {

void Exports::begin(ExportId id, uint32_t slot, Time now) {
  FLUXON_MARK("owner: a put is exported");
  ++begun_;
  exports_.emplace(id, Export{Export::State::readable, slot, now});
  const uint64_t bytes = directory_.payloadBytes(slot);
  host_.exportValue(id, directory_.offset(slot), bytes, bytes);
}

void Exports::end(ExportId id) {
  const auto found = exports_.find(id);
  if (found == exports_.end() || std::exchange(found->second.state, Export::State::ending) == Export::State::ending) return;
  host_.unexport(id);
}

void Exports::unexported(ExportId id, Time now) {
  const auto found = exports_.find(id);
  FLUXON_CHECK(found != exports_.end(), "an export that is none has ended");
  const uint32_t slot = found->second.slot;
  const std::string key(directory_.key(slot));
  exports_.erase(found);
  if (standing_.joined()) {
    retirement_.free(slot);
  } else {
    FLUXON_MARK("owner: an export ends between terms");
    directory_.release(slot);
  }
  controls_.wake(key, now);
}

std::set<uint32_t> Exports::slots() const {
  std::set<uint32_t> slots;
  for (const auto& [id, exported] : exports_) slots.insert(exported.slot);
  return slots;
}

void Exports::endTerm() {
  std::vector<ExportId> ids;
  for (const auto& [id, exported] : exports_) ids.push_back(id);
  for (const ExportId id : ids) end(id);
}

Time Exports::oldest(Time now) const {
  Time since = now;
  for (const auto& [id, exported] : exports_) since = std::min(since, exported.since);
  return since;
}

}  // namespace fluxon::owner
