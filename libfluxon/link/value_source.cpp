#include "link/value_source.h"

#include "base/check.h"

namespace fluxon::link {

std::optional<Reading> ValueSource::begin(const ValuePart& asked) {
  if (asked.exportId != 0) return beginExport(asked);
  shm::Hit hit;
  switch (shm::probe(view_, hazards_, 0, asked.key, asked.keyHash, hit)) {
    case shm::Probe::miss: return Reading{Code::miss};
    case shm::Probe::noHazard: return Reading{Code::tooMany};
    case shm::Probe::lapsed: return Reading{Code::unavailable};
    case shm::Probe::hit: break;
  }
  if (hit.putId != asked.putId || hit.length != asked.valueBytes) {
    hazards_.drop(hit.hazard);
    return Reading{Code::miss};
  }
  return Reading{Code::ok, hit.data + asked.offset, asked.length, hit.hazard};
}

ValueSource::Export* ValueSource::find(uint64_t exportId) {
  const auto at = exports_.find(exportId);
  return at == exports_.end() || at->second.withdrawn ? nullptr : &at->second;
}

std::optional<Reading> ValueSource::beginExport(const ValuePart& asked) {
  Export* const found = find(asked.exportId);
  if (!found || found->bytes != asked.valueBytes) return Reading{Code::miss};
  if (found->failed) return Reading{Code::system};
  if (asked.offset + asked.length > found->ready) return std::nullopt;
  ++found->readers;
  return Reading{Code::ok, found->data + asked.offset, asked.length, {}, asked.exportId};
}

void ValueSource::end(const Reading& reading) {
  if (reading.code != Code::ok) return;
  if (reading.exportId == 0) return hazards_.drop(reading.hazard);
  const auto at = exports_.find(reading.exportId);
  FLUXON_CHECK(at != exports_.end() && at->second.readers > 0, "an export ended before its readers");
  if (--at->second.readers > 0 || !at->second.withdrawn) return;
  exports_.erase(at);
  events_.withdrawn(reading.exportId);
}

void ValueSource::publish(uint64_t exportId, const char* data, uint64_t bytes, uint64_t ready) {
  FLUXON_CHECK(ready <= bytes, "more of an export is there than it has");
  FLUXON_CHECK(exportId != 0 && exports_.emplace(exportId, Export{data, bytes, ready}).second, "an export id was used twice");
}

void ValueSource::advance(uint64_t exportId, uint64_t ready) {
  Export* const found = find(exportId);
  if (!found) return;
  FLUXON_CHECK(ready >= found->ready && ready <= found->bytes, "an export goes backwards, or beyond its end");
  found->ready = ready;
  events_.changed(exportId);
}

void ValueSource::fail(uint64_t exportId) {
  Export* const found = find(exportId);
  if (!found) return;
  found->failed = true;
  events_.changed(exportId);
}

void ValueSource::unpublish(uint64_t exportId) {
  const auto at = exports_.find(exportId);
  const bool read = at != exports_.end() && at->second.readers > 0;
  if (read) {
    at->second.withdrawn = true;
  } else {
    if (at != exports_.end()) exports_.erase(at);
    events_.withdrawn(exportId);
  }
  events_.changed(exportId);
}

}  // namespace fluxon::link
