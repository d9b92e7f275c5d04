// eviction_traces <folder>: hit ratios of the master's eviction policy on recorded LLM request traces, beside LRU, S3-FIFO and the
// offline optimum.
//
// A request looks up all its blocks, then reads or inserts them tail first. A hit is a block present at the look-up; all blocks have one
// size and every insert is admitted.
// Prints one row per trace and cache size; the last line is one JSON object. Without traces it says so and exits 0.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eviction_policy.h"

namespace {

using Block = std::uint64_t;
using Request = std::vector<Block>;  // tail first
using Trace = std::vector<Request>;

constexpr std::uint64_t kBlockBytes = 1u << 20;

class Cache {
 public:
  virtual ~Cache() = default;
  virtual bool contains(Block block) const = 0;
  virtual void access(Block block) = 0;
};

class Lru final : public Cache {
 public:
  explicit Lru(std::size_t capacity) : capacity_(capacity) {}
  bool contains(Block block) const override { return where_.contains(block); }
  void access(Block block) override {
    if (const auto found = where_.find(block); found != where_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return;
    }
    if (order_.size() >= capacity_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(block);
    where_[block] = order_.begin();
  }

 private:
  std::size_t capacity_;
  std::list<Block> order_;
  std::unordered_map<Block, std::list<Block>::iterator> where_;
};

// S3-FIFO as published (SOSP'23): small queue 10 %, ghosts as many as the cache holds, one touch promotes, two-bit frequency.
class S3Fifo final : public Cache {
 public:
  explicit S3Fifo(std::size_t capacity) : capacity_(capacity), smallCapacity_(std::max<std::size_t>(1, capacity / 10)) {}

  bool contains(Block block) const override {
    const auto found = entries_.find(block);
    return found != entries_.end() && found->second.queue != kGhost;
  }

  void access(Block block) override {
    auto found = entries_.find(block);
    if (found != entries_.end() && found->second.queue != kGhost) {
      found->second.frequency = std::min(3, found->second.frequency + 1);
      return;
    }
    if (queues_[kSmall].size() + queues_[kMain].size() >= capacity_) evict();
    found = entries_.find(block);
    const int queue = found == entries_.end() ? kSmall : kMain;
    if (found != entries_.end()) queues_[kGhost].erase(found->second.at);
    queues_[queue].push_front(block);
    entries_[block] = Entry{queue, 0, queues_[queue].begin()};
  }

 private:
  enum { kSmall, kMain, kGhost };
  struct Entry {
    int queue;
    int frequency;
    std::list<Block>::iterator at;
  };

  void move(Entry& entry, int queue) {
    queues_[queue].splice(queues_[queue].begin(), queues_[entry.queue], entry.at);
    entry.queue = queue;
  }

  void drop(int queue) {
    entries_.erase(queues_[queue].back());
    queues_[queue].pop_back();
  }

  void evict() {
    const bool small = queues_[kSmall].size() >= smallCapacity_ || queues_[kMain].empty();
    while (small && !queues_[kSmall].empty()) {
      Entry& entry = entries_[queues_[kSmall].back()];
      if (entry.frequency == 0) {
        move(entry, kGhost);
        if (queues_[kGhost].size() > capacity_) drop(kGhost);
        return;
      }
      entry.frequency = 0;
      move(entry, kMain);
    }
    for (;;) {
      Entry& entry = entries_[queues_[kMain].back()];
      if (entry.frequency == 0) break;
      --entry.frequency;
      move(entry, kMain);
    }
    drop(kMain);
  }

  std::size_t capacity_;
  std::size_t smallCapacity_;
  std::list<Block> queues_[3];
  std::unordered_map<Block, Entry> entries_;
};

class Ours final : public Cache {
 public:
  explicit Ours(std::size_t capacity) : capacityBytes_(capacity * kBlockBytes), policy_(capacityBytes_) {}
  bool contains(Block block) const override { return present_.contains(block); }
  void access(Block block) override {
    if (contains(block)) {
      policy_.touch(block);
      return;
    }
    while (policy_.bytes() + kBlockBytes > capacityBytes_) {
      const auto victim = policy_.nextVictim();
      if (!victim) std::abort();
      policy_.evicted(*victim);
      present_.erase(*victim);
    }
    policy_.insert(block, block, kBlockBytes);
    present_.insert(block);
  }

 private:
  std::uint64_t capacityBytes_;
  fluxon::master::EvictionPolicy policy_;
  std::set<Block> present_;
};

double hitRatio(Cache& cache, const Trace& trace) {
  std::size_t hits = 0;
  std::size_t total = 0;
  for (const Request& request : trace) {
    for (const Block block : request) hits += cache.contains(block) ? 1 : 0;
    for (const Block block : request) cache.access(block);
    total += request.size();
  }
  return static_cast<double>(hits) / static_cast<double>(std::max<std::size_t>(total, 1));
}

// Belady: evicts the block whose next use lies furthest ahead.
double optimum(std::size_t capacity, const Trace& trace) {
  std::vector<Block> blocks;
  for (const Request& request : trace) blocks.insert(blocks.end(), request.begin(), request.end());
  std::vector<std::size_t> nextUse(blocks.size());
  std::unordered_map<Block, std::size_t> seen;
  for (std::size_t i = blocks.size(); i-- > 0;) {
    const auto found = seen.find(blocks[i]);
    nextUse[i] = found == seen.end() ? blocks.size() + i : found->second;
    seen[blocks[i]] = i;
  }
  std::set<std::pair<std::size_t, Block>> cached;
  std::size_t hits = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto found = cached.find({i, blocks[i]});
    if (found != cached.end()) {
      ++hits;
      cached.erase(found);
    } else if (cached.size() >= capacity) {
      cached.erase(std::prev(cached.end()));
    }
    cached.insert({nextUse[i], blocks[i]});
  }
  return static_cast<double>(hits) / static_cast<double>(std::max<std::size_t>(blocks.size(), 1));
}

Request parseRequest(const std::string& line) {
  Request request;
  const std::size_t field = line.find("\"hash_ids\"");
  if (field == std::string::npos) return request;
  const std::size_t open = line.find('[', field);
  const std::size_t close = line.find(']', field);
  if (open == std::string::npos || close == std::string::npos) return request;
  for (std::size_t at = open + 1; at < close; ++at) {
    if (std::isdigit(static_cast<unsigned char>(line[at])) == 0) continue;
    Block block = 0;
    for (; at < close && std::isdigit(static_cast<unsigned char>(line[at])) != 0; ++at)
      block = block * 10 + static_cast<Block>(line[at] - '0');
    request.push_back(block);
  }
  std::reverse(request.begin(), request.end());
  return request;
}

Trace readTrace(const std::string& path) {
  Trace trace;
  if (std::FILE* readable = std::fopen(path.c_str(), "rb"); readable != nullptr) {
    std::fclose(readable);
  } else {
    return trace;
  }
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  quoted += "'";
  std::FILE* pipe = popen(("xz -dc " + quoted).c_str(), "r");
  if (pipe == nullptr) return trace;
  std::string line;
  std::vector<char> chunk(1 << 16);
  while (std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe) != nullptr) {
    line += chunk.data();
    if (line.back() != '\n') continue;
    if (Request request = parseRequest(line); !request.empty()) trace.push_back(std::move(request));
    line.clear();
  }
  if (pclose(pipe) != 0) trace.clear();
  return trace;
}

int skip(const std::string& folder) {
  std::printf("SKIPPED: no traces at %s\n", folder.c_str());
  std::printf("{\"bench\":\"eviction-traces\",\"skipped\":true}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s <folder with conversation_trace.jsonl.xz and synthetic_trace.jsonl.xz>\n", argv[0]);
    return 64;
  }
  const std::string folder = argv[1];
  std::vector<std::pair<std::string, Trace>> traces;
  for (const char* name : {"conversation", "synthetic"}) {
    traces.emplace_back(name, readTrace(folder + "/" + name + "_trace.jsonl.xz"));
    if (traces.back().second.empty()) return skip(folder);
  }

  std::printf("%-14s %8s %8s %8s %8s %8s %8s\n", "trace", "blocks", "lru", "s3fifo", "ours", "optimum", "ratio");
  double sum = 0.0;
  double worst = 1e9;
  int cells = 0;
  for (const auto& [name, trace] : traces) {
    for (const std::size_t capacity : {1000u, 5000u, 10000u, 30000u}) {
      const double lru = hitRatio(*std::make_unique<Lru>(capacity), trace);
      const double s3fifo = hitRatio(*std::make_unique<S3Fifo>(capacity), trace);
      const double ours = hitRatio(*std::make_unique<Ours>(capacity), trace);
      const double ratio = ours / std::max(lru, s3fifo);
      std::printf("%-14s %8zu %8.4f %8.4f %8.4f %8.4f %8.4f\n", name.c_str(), capacity, lru, s3fifo, ours, optimum(capacity, trace), ratio);
      std::fflush(stdout);
      sum += ours;
      worst = std::min(worst, ratio);
      ++cells;
    }
  }
  std::printf(
      "{\"bench\":\"eviction-traces\",\"value\":%.4f,\"unit\":\"hit ratio\",\"ratio\":%.4f,\"against\":\"better of LRU and "
      "S3-FIFO\",\"target\":\">= 1.0 in every cell\",\"ok\":%s}\n",
      sum / cells, worst, worst >= 1.0 ? "true" : "false");
  return 0;
}
