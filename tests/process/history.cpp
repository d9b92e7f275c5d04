#include "history.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "base/hash.h"

namespace fluxon::test {
namespace {

constexpr uint64_t kMagic = 0x314c41564e584c46;  // "FLXNVAL1"
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kGraceNs = 1'000'000'000;

struct Head {
  uint64_t magic, key, operation, length, checksum;
};
static_assert(sizeof(Head) == kSmallestValue);

uint64_t checksumOf(const Head& head, std::string_view body) {
  const uint64_t parts[4] = {head.key, head.operation, head.length, keyHash(body)};
  return keyHash({reinterpret_cast<const char*>(parts), sizeof parts});
}

const char* nameOf(Action action) {
  switch (action) {
    case Action::put: return "put";
    case Action::remove: return "delete";
    case Action::get: return "get";
    case Action::reread: return "reread";
  }
  return "?";
}

const char* nameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::open: return "open";
    case Outcome::done: return "done";
    case Outcome::refused: return "refused";
    case Outcome::unknown: return "unknown";
  }
  return "?";
}

std::string number(uint64_t operation) { return std::to_string(clientOf(operation)) + "." + std::to_string(operation & UINT32_MAX); }

std::string describe(const Record& record) {
  std::ostringstream text;
  text << nameOf(record.action) << " " << number(record.operation) << " of key " << record.key << " [" << record.beginNs / 1000 << ", ";
  if (record.outcome == Outcome::open) {
    text << "-";
  } else {
    text << record.endNs / 1000;
  }
  text << "] us " << nameOf(record.outcome);
  if (record.action == Action::get || record.action == Action::reread) {
    switch (record.seen.kind) {
      case Seen::Kind::miss: break;
      case Seen::Kind::foreign: text << ", saw foreign bytes"; break;
      case Seen::Kind::torn: text << ", saw torn bytes of " << number(record.seen.operation); break;
      case Seen::Kind::whole:
        text << ", saw " << number(record.seen.operation);
        if (record.seen.key != record.key) text << " of key " << record.seen.key;
        text << ", source " << int{record.source};
        break;
    }
  }
  return text.str();
}

bool isHit(const Record& record) {
  return record.action == Action::get && record.outcome == Outcome::done && record.seen.kind != Seen::Kind::miss;
}

}  // namespace

std::string selfDescribing(uint64_t key, uint64_t operation, size_t bytes) {
  std::string value(bytes, '\0');
  uint64_t state = operation * 0x9E3779B97F4A7C15ull + key + 1;
  for (size_t at = sizeof(Head); at < bytes; at += sizeof state) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(&value[at], &state, std::min(sizeof state, bytes - at));
  }
  Head head{kMagic, key, operation, bytes, 0};
  head.checksum = checksumOf(head, std::string_view(value).substr(sizeof head));
  std::memcpy(value.data(), &head, sizeof head);
  return value;
}

Seen inspect(std::string_view bytes) {
  Head head;
  if (bytes.size() < sizeof head) return {Seen::Kind::foreign};
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kMagic) return {Seen::Kind::foreign};
  const bool whole = head.length == bytes.size() && head.checksum == checksumOf(head, bytes.substr(sizeof head));
  return {whole ? Seen::Kind::whole : Seen::Kind::torn, head.key, head.operation};
}

int64_t bootNs() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

Recorder::Recorder(const std::string& path, uint32_t client)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)), client_(client) {
  if (file_ < 0) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

Recorder::~Recorder() { ::close(file_); }

void Recorder::write() {
  if (::pwrite(file_, &last_, sizeof last_, static_cast<off_t>((count_ - 1) * sizeof last_)) != sizeof last_) {
    throw std::runtime_error(std::string("cannot write the history: ") + std::strerror(errno));
  }
}

uint64_t Recorder::begin(Action action, uint64_t key, uint32_t deadlineMs, uint64_t of) {
  last_ = {};
  last_.operation = uint64_t{client_} << 32 | ++count_;
  last_.key = key;
  last_.of = of;
  last_.deadlineMs = deadlineMs;
  last_.action = action;
  last_.beginNs = bootNs();
  write();
  return last_.operation;
}

void Recorder::end(Outcome outcome, Seen seen, uint8_t source) {
  last_.endNs = bootNs();
  last_.outcome = outcome;
  last_.seen = seen;
  last_.source = source;
  write();
}

void History::addFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no history " + path);
  for (Record record; file.read(reinterpret_cast<char*>(&record), sizeof record);) records_.push_back(record);
}

int64_t History::stoppedNs(uint32_t client, int64_t fromNs, int64_t toNs) const {
  const auto stops = stops_.find(client);
  int64_t sum = 0;
  if (stops == stops_.end()) return 0;
  for (const Interval& stop : stops->second) sum += std::max<int64_t>(0, std::min(stop.toNs, toNs) - std::max(stop.fromNs, fromNs));
  return sum;
}

void History::checkCall(const Record& record, std::vector<Violation>& found) const {
  int64_t end = record.endNs;
  if (record.outcome == Outcome::open) {
    const auto killedAt = killed_.find(clientOf(record.operation));
    if (killedAt == killed_.end()) return found.push_back({"hung", describe(record)});
    end = killedAt->second;
  }
  const int64_t took = end - record.beginNs - stoppedNs(clientOf(record.operation), record.beginNs, end);
  if (took > int64_t{record.deadlineMs} * 1'000'000 + kGraceNs) {
    found.push_back(
        {"late", describe(record) + " took " + std::to_string(took / 1'000'000) + " ms of " + std::to_string(record.deadlineMs)});
  }
}

void History::checkReads(std::vector<Violation>& found) const {
  std::unordered_map<uint64_t, const Record*> reads;
  for (const Record& record : records_) {
    if (record.action == Action::get) reads.emplace(record.operation, &record);
  }
  for (const Record& record : records_) {
    if (record.action != Action::reread || record.outcome == Outcome::open) continue;
    const auto read = reads.find(record.of);
    if (read == reads.end() || read->second->seen != record.seen) {
      found.push_back({"changed", describe(record) + (read == reads.end() ? ", of no get" : ", was " + describe(*read->second))});
    }
  }
}

// `all`: of one key.
void History::checkKey(const std::vector<const Record*>& all, std::vector<Violation>& found) const {
  struct Change {
    const Record* record;
    int64_t endNs;
  };
  std::unordered_map<uint64_t, Change> changes;
  for (const Record* each : all) {
    if (each->action != Action::put && each->action != Action::remove) continue;
    changes.emplace(each->operation, Change{each, each->outcome == Outcome::done ? each->endNs : kNever});
  }
  std::vector<std::pair<const Record*, const Change*>> reads;
  for (const Record* each : all) {
    if (!isHit(*each)) continue;
    if (each->seen.kind == Seen::Kind::torn) {
      found.push_back({"torn", describe(*each)});
      continue;
    }
    const auto written = changes.find(each->seen.operation);
    if (each->seen.kind == Seen::Kind::foreign || each->seen.key != each->key || written == changes.end() ||
        written->second.record->action != Action::put) {
      found.push_back({"foreign", describe(*each)});
      continue;
    }
    Change& change = written->second;
    if (change.record->outcome == Outcome::refused) found.push_back({"refused", describe(*each) + ": " + describe(*change.record)});
    if (change.record->beginNs > each->endNs) found.push_back({"future", describe(*each) + ": " + describe(*change.record)});
    change.endNs = std::min(change.endNs, each->endNs);
    reads.push_back({each, &change});
  }
  // Ended changes by their ends, each with the latest beginner among it and those before it.
  std::vector<Change> ended;
  for (const auto& [operation, change] : changes) {
    if (change.endNs != kNever) ended.push_back(change);
  }
  const auto byEnd = [](const Change& a, const Change& b) { return a.endNs < b.endNs; };
  std::sort(ended.begin(), ended.end(), byEnd);
  std::vector<const Record*> latest;
  for (const Change& each : ended) {
    latest.push_back(latest.empty() || latest.back()->beginNs < each.record->beginNs ? each.record : latest.back());
  }
  for (const auto& [read, written] : reads) {
    const auto after = std::lower_bound(ended.begin(), ended.end(), Change{nullptr, read->beginNs}, byEnd);
    if (after == ended.begin()) continue;
    const Record* const newer = latest[static_cast<size_t>(after - ended.begin() - 1)];
    if (newer->beginNs > written->endNs) {
      found.push_back({"stale", describe(*read) + ": " + describe(*written->record) + ", over by " + std::to_string(written->endNs / 1000) +
                                    " us, then " + describe(*newer)});
    }
  }
}

std::vector<History::Violation> History::check() const {
  std::vector<Violation> found;
  std::map<uint64_t, std::vector<const Record*>> keys;
  for (const Record& record : records_) {
    checkCall(record, found);
    keys[record.key].push_back(&record);
  }
  checkReads(found);
  for (const auto& [key, all] : keys) checkKey(all, found);
  return found;
}

History::Counts History::counts() const {
  Counts counts;
  for (const Record& record : records_) {
    const bool done = record.outcome == Outcome::done;
    counts.refused += record.outcome == Outcome::refused;
    counts.unknown += record.outcome == Outcome::unknown || record.outcome == Outcome::open;
    switch (record.action) {
      case Action::put: counts.puts += done; break;
      case Action::remove: counts.removes += done; break;
      case Action::reread: counts.rereads += done; break;
      case Action::get:
        counts.gets += done;
        counts.hits += isHit(record);
        counts.misses += done && !isHit(record);
        if (isHit(record)) ++counts.hitsBySource[record.source];
        break;
    }
  }
  return counts;
}

std::string History::ofKey(uint64_t key) const {
  std::vector<Record> all;
  for (const Record& record : records_) {
    if (record.key == key) all.push_back(record);
  }
  std::sort(all.begin(), all.end(), [](const Record& a, const Record& b) { return a.beginNs < b.beginNs; });
  std::string text;
  for (const Record& record : all) text += describe(record) + "\n";
  return text;
}

}  // namespace fluxon::test
