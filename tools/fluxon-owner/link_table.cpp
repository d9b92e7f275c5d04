#include "link_table.h"

#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace fluxon::owner {

LinkTable::LinkTable(char* segment, std::vector<Row> rows, Events events) : segment_(segment), events_(std::move(events)) {
  for (Row& row : rows) rows_.push_back({std::move(row), nullptr});
}

// Calls `act` for each link that runs, and returns how many those are.
template <class Act>
size_t LinkTable::each(Act act) const {
  size_t count = 0;
  for (const Running& running : rows_) {
    if (!running.link) continue;
    act(*running.link);
    ++count;
  }
  return count;
}

Error LinkTable::start() {
  for (Running& running : rows_) {
    if (!running.row.listens) continue;
    if (Error error = open(running); !error.ok()) return error;
  }
  return {};
}

Error LinkTable::open(Running& running) {
  if (running.link) return {};
  Result<std::unique_ptr<link::Link>> started = running.row.start();
  if (!started) return started.error();
  running.link = std::move(started).value();
  if (incarnation_) running.link->setIncarnation(incarnation_);
  events_.started(*running.link);
  return {};
}

std::function<bool(const Fetch&)> LinkTable::registers(const char* entry) {
  return [entry](const Fetch& fetch) { return !link::addressOf(fetch.peer.link, entry).empty(); };
}

std::string LinkTable::address() const {
  std::string all;
  for (const Running& running : rows_) {
    const std::string own = running.link && running.row.entry ? running.link->address() : "";
    if (own.empty()) continue;
    if (!all.empty()) all += ' ';
    all += link::entryOf(running.row.entry, own);
  }
  return all;
}

void LinkTable::setIncarnation(Incarnation incarnation) {
  if (incarnation == incarnation_) return;  // links end what was let in under another one
  incarnation_ = incarnation;
  each([&](link::Link& link) { link.setIncarnation(incarnation); });
}

// --- fetches

Result<LinkTable::Running*> LinkTable::choose(const Fetch& fetch) {
  Error why{Code::unavailable, "node " + fetch.peer.node + " has no link"};
  for (Running& running : rows_) {
    if (!running.row.reaches(fetch)) continue;
    Error error = open(running);
    if (error.ok()) return &running;
    events_.refused(std::string("link ") + running.row.name + " cannot start: " + error.detail);
    why = std::move(error);
  }
  return why;
}

link::Fetch LinkTable::toLink(Fetch fetch) const {
  const uint64_t hash = keyHash(fetch.key);
  return {.id = fetch.id,
          .key = std::move(fetch.key),
          .keyHash = hash,
          .putId = fetch.putId,
          .exportId = fetch.exportId.value,
          .to = segment_ + fetch.offset,
          .bytes = fetch.bytes,
          .deadline = fetch.deadline,
          .staged = rpc::isStaged(fetch.exportId),
          .exportOffset = fetch.sourceOffset};
}

void LinkTable::fetch(std::vector<Fetch> fetches) {
  struct Batch {
    link::PeerAddress peer;
    std::vector<link::Fetch> fetches;
  };
  std::map<std::pair<Running*, std::string>, Batch> batches;
  std::vector<link::Fetched> refused;
  for (Fetch& fetch : fetches) {
    const Result<Running*> chosen = choose(fetch);
    if (!chosen) {
      refused.push_back({fetch.id, chosen.error()});
      continue;
    }
    const char* const entry = chosen.value()->row.entry;
    Batch& batch = batches[{chosen.value(), fetch.peer.node + " " + toString(fetch.peer.incarnation)}];
    batch.peer = {fetch.peer.node, fetch.peer.incarnation, entry ? link::addressOf(fetch.peer.link, entry) : ""};
    batch.fetches.push_back(toLink(std::move(fetch)));
  }
  for (auto& [to, batch] : batches) to.first->link->fetch(batch.peer, std::move(batch.fetches));
  for (const link::Fetched& each : refused) events_.fetched(each.id, each.error);
}

void LinkTable::cancelAll() {
  each([](link::Link& link) { link.cancelAll(); });
}

void LinkTable::reap(link::Link& link) {
  const link::LinkEvents events = link.reap();
  for (const link::Fetched& each : events.fetched) events_.fetched(each.id, each.error);
  for (const uint64_t id : events.unpublished) unpublished(ExportId(id));
}

// --- exports

void LinkTable::publish(ExportId id, const char* data, uint64_t bytes, uint64_t ready) {
  each([&](link::Link& link) { link.publish(id.value, data, bytes, ready); });
}

void LinkTable::advance(ExportId id, uint64_t ready) {
  each([&](link::Link& link) { link.advance(id.value, ready); });
}

void LinkTable::fail(ExportId id) {
  each([&](link::Link& link) { link.fail(id.value); });
}

void LinkTable::unpublish(ExportId id) {
  const size_t links = each([&](link::Link& link) { link.unpublish(id.value); });
  if (links == 0) return events_.unexported(id);  // nobody could ask for it
  withdrawn_[id] = links;
}

void LinkTable::unpublished(ExportId id) {
  const auto at = withdrawn_.find(id);
  FLUXON_CHECK(at != withdrawn_.end(), "a link ends an export that was not withdrawn");
  if (--at->second > 0) return;
  withdrawn_.erase(at);
  events_.unexported(id);
}

// --- numbers

link::LinkCounters LinkTable::counters() const {
  link::LinkCounters all;
  each([&](const link::Link& link) {
    const link::LinkCounters counters = link.counters();
#define FLUXON_ADD(name, text) all.name += counters.name;
    FLUXON_LINK_COUNTERS(FLUXON_ADD)
#undef FLUXON_ADD
  });
  return all;
}

std::vector<std::string> LinkTable::engines() const {
  std::vector<std::string> all;
  each([&](const link::Link& link) {
    if (std::string engine = link.engine(); !engine.empty()) all.push_back(std::move(engine));
  });
  return all;
}

}  // namespace fluxon::owner
