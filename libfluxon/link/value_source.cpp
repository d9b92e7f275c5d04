#include "link/value_source.h"

#include "base/check.h"

namespace fluxon::link {

Reading ValueSource::begin(const ReadRequest& request) {
  const ReadRecord& asked = request.record;
  if (!request.sane) return {Code::protocol};
  if (asked.exportId != 0) return beginExport(asked);
  shm::Hit hit;
  switch (shm::probe(view_, hazards_, 0, request.key, asked.keyHash, hit)) {
    case shm::Probe::miss: return {Code::miss};
    case shm::Probe::noHazard: return {Code::tooMany};
    case shm::Probe::lapsed: return {Code::unavailable};
    case shm::Probe::hit: break;
  }
  if (hit.putId.value != asked.putId || hit.length != asked.valueBytes) {
    hazards_.drop(hit.hazard);
    return {Code::miss};
  }
  return {Code::ok, hit.data + asked.offset, asked.length, hit.hazard};
}

Reading ValueSource::beginExport(const ReadRecord& asked) {
  const auto at = exports_.find(asked.exportId);
  if (at == exports_.end() || at->second.withdrawn || at->second.bytes != asked.valueBytes) return {Code::miss};
  ++at->second.readers;
  return {Code::ok, at->second.data + asked.offset, asked.length, {}, asked.exportId};
}

void ValueSource::end(const Reading& reading) {
  if (reading.code != Code::ok) return;
  if (reading.exportId == 0) return hazards_.drop(reading.hazard);
  const auto at = exports_.find(reading.exportId);
  FLUXON_CHECK(at != exports_.end() && at->second.readers > 0, "an export ended before its readers");
  if (--at->second.readers > 0 || !at->second.withdrawn) return;
  exports_.erase(at);
  withdrawn_(reading.exportId);
}

void ValueSource::publish(uint64_t exportId, const char* data, uint64_t bytes) {
  FLUXON_CHECK(exportId != 0 && exports_.emplace(exportId, Export{data, bytes}).second, "an export id was used twice");
}

void ValueSource::unpublish(uint64_t exportId) {
  const auto at = exports_.find(exportId);
  if (at != exports_.end() && at->second.readers > 0) {
    at->second.withdrawn = true;
    return;
  }
  if (at != exports_.end()) exports_.erase(at);
  withdrawn_(exportId);
}

}  // namespace fluxon::link
