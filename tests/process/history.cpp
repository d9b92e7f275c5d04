#include "history.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>

#include "base/clock.h"

namespace fluxon::test {
namespace {

constexpr Duration kLate = seconds(1);

struct Head {
  uint64_t operation, key, bytes, check;
};

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15ull;
  return x ^ x >> 29;
}
uint64_t headCheck(const Head& head) { return mix(head.operation * 31 + head.key * 7 + head.bytes); }

std::string describe(const History& history, uint64_t operation) {
  const Operation& op = history.at(operation);
  static constexpr const char* kNames[] = {"put", "delete", "get"};
  const std::string times = std::to_string(op.begin / 1000) + " to " + std::to_string(op.end / 1000) + " us";
  return std::string(kNames[static_cast<uint32_t>(op.did)]) + " " + std::to_string(operation) + " of key " + std::to_string(op.key) +
         " by client " + std::to_string(op.client) + " (" + times + ")";
}

}  // namespace

struct History::Shared {
  std::atomic<uint64_t> next{0};
};

History::History(size_t capacity) : capacity_(capacity) {
  const size_t bytes = 4096 + capacity * sizeof(Operation);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  shared_ = new (memory) Shared;
  log_ = reinterpret_cast<Operation*>(static_cast<char*>(memory) + 4096);
}
History::~History() { ::munmap(shared_, 4096 + capacity_ * sizeof(Operation)); }

uint64_t History::begin(Did did, uint32_t key, uint32_t client, uint32_t timeoutMs) {
  const uint64_t operation = shared_->next.fetch_add(1);
  if (operation >= capacity_) throw std::runtime_error("the history is full");
  const int64_t now = bootTime().ns;
  log_[operation] = {did, Outcome::open, key, client, now, INT64_MAX, now + milliseconds(timeoutMs).ns, 0};
  return operation;
}
void History::end(uint64_t operation, Outcome ended, uint64_t saw) {
  log_[operation].saw = saw;
  log_[operation].end = bootTime().ns;
  log_[operation].ended = ended;
}
size_t History::size() const { return std::min<size_t>(shared_->next.load(), capacity_); }

size_t History::count(Did did, Outcome ended) const {
  size_t n = 0;
  for (size_t i = 0; i < size(); ++i) n += log_[i].did == did && log_[i].ended == ended;
  return n;
}

std::vector<std::string> History::check() const {
  std::vector<std::string> wrong;
  // Per key, the puts and deletes that are known to be done, by their end, each with the latest beginning so far.
  struct Done {
    int64_t end, latestBegin;
    uint64_t latest;
  };
  std::map<uint32_t, std::vector<uint64_t>> changes;
  for (uint64_t i = 0; i < size(); ++i) {
    const Operation& op = log_[i];
    if (op.ended != Outcome::open && op.end > op.deadline + kLate.ns)
      wrong.push_back(describe(*this, i) + " ended " + std::to_string((op.end - op.deadline) / 1'000'000) + " ms after its deadline");
    // A delete that found nothing says that there was nothing: nothing older may be seen after it.
    const bool put = op.did == Did::put && op.ended == Outcome::done;
    const bool removed = op.did == Did::remove && (op.ended == Outcome::done || op.ended == Outcome::miss);
    if (put || removed) changes[op.key].push_back(i);
  }
  std::map<uint32_t, std::vector<Done>> done;
  for (auto& [key, list] : changes) {
    std::sort(list.begin(), list.end(), [&](uint64_t a, uint64_t b) { return log_[a].end < log_[b].end; });
    std::vector<Done>& ends = done[key];
    for (const uint64_t i : list) {
      const bool later = ends.empty() || log_[i].begin > ends.back().latestBegin;
      ends.push_back({log_[i].end, later ? log_[i].begin : ends.back().latestBegin, later ? i : ends.back().latest});
    }
  }
  for (uint64_t i = 0; i < size(); ++i) {
    const Operation& get = log_[i];
    if (get.did != Did::get || get.ended != Outcome::done) continue;
    if (get.saw >= size() || log_[get.saw].did != Did::put || log_[get.saw].key != get.key) {
      wrong.push_back(describe(*this, i) + " returned bytes that no put of the key has written whole");
      continue;
    }
    const Operation& put = log_[get.saw];
    if (put.ended == Outcome::refused) wrong.push_back(describe(*this, i) + " saw a refused " + describe(*this, get.saw));
    if (put.begin > get.end) wrong.push_back(describe(*this, i) + " saw the later " + describe(*this, get.saw));
    // Without a known end the put may have happened late: nothing can be said about what came between.
    if (put.ended != Outcome::done) continue;
    const std::vector<Done>& ends = done[get.key];
    const auto after = std::lower_bound(ends.begin(), ends.end(), get.begin, [](const Done& d, int64_t t) { return d.end < t; });
    if (after != ends.begin() && std::prev(after)->latestBegin > put.end)
      wrong.push_back(describe(*this, i) + " saw the value of " + describe(*this, get.saw) + ", which " +
                      describe(*this, std::prev(after)->latest) + " had replaced");
  }
  return wrong;
}

std::string valueFor(uint64_t operation, uint32_t key, size_t bytes) {
  std::string value(std::max(bytes, sizeof(Head)), '\0');
  Head head{operation, key, value.size(), 0};
  head.check = headCheck(head);
  std::memcpy(value.data(), &head, sizeof head);
  uint64_t word = head.check;
  for (size_t at = sizeof head; at < value.size(); at += 8) {
    word = word * 6364136223846793005ull + 1442695040888963407ull;
    std::memcpy(value.data() + at, &word, std::min<size_t>(8, value.size() - at));
  }
  return value;
}

uint64_t writerOf(const void* data, size_t bytes, uint32_t key) {
  Head head;
  if (bytes < sizeof head) return UINT64_MAX;
  std::memcpy(&head, data, sizeof head);
  if (head.check != headCheck(head) || head.key != key || head.bytes != bytes) return UINT64_MAX;
  uint64_t word = head.check;
  const char* const from = static_cast<const char*>(data);
  for (size_t at = sizeof head; at < bytes; at += 8) {
    word = word * 6364136223846793005ull + 1442695040888963407ull;
    if (std::memcmp(from + at, &word, std::min<size_t>(8, bytes - at)) != 0) return UINT64_MAX;
  }
  return head.operation;
}

}  // namespace fluxon::test
