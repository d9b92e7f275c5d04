// ssd_tier --cluster NAME --root DIRECTORY --do fill|load|put|walk --bytes SIZE ...: the clients of the benchmarks of the SSD tier.
// scripts/bench starts the daemons, evicts, reads their metrics and runs fio between one call and the next.
//
//   fill --first FIRST --values COUNT           puts COUNT values from FIRST on once
//   load --values COUNT --threads N --seed S    gets each of them once, in shuffled order, N at a time
//   put --threads N --seconds S                 puts new values, unfilled, as fast as they are taken, and says when it begins;
//                                               SIGTERM ends it
//   walk --values COUNT --threads N --warm W --seconds S --form holder|bytes
//                                               gets by Zipf, each thread by a sequence of its own; what ends within S seconds
//                                               after W counts. bytes: a get includes a copy of the value into new memory
//
// A value begins and ends with its number, which each get compares. load and walk print one line: GB/s of payload, the microseconds
// of a get p50, p95 and p99, then how many gets came from memory, from the SSD, from elsewhere, and missed. The rate of a load is that
// from the moment when N have ended to the moment when none is left to begin: all the while N are under way.
#include <fluxon/fluxon.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "measure.h"
#include "owner_memory.h"

namespace fluxon::bench {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "ssd_tier: %s\n", what.c_str());
  std::exit(70);
}

std::atomic<bool> ended = false;

struct Work {
  Client& client;
  uint64_t bytes, first, values;
  unsigned threads;
  int64_t warmNs, measuredNs;
  uint64_t seed;
  bool copies;

  std::string key(uint64_t value) const { return std::to_string(bytes) + "/" + std::to_string(value); }
};

// One get, as its thread saw it.
enum class From { memory, ssd, unknown, nowhere };
struct Got {
  int64_t begunNs, endedNs;
  From from;
};

Got get(const Work& work, uint64_t value, std::unique_ptr<char[]>& copy) {
  const std::string key = work.key(value);
  Got got{nowNs(), 0, From::nowhere};
  const std::optional<Holder> holder = work.client.get(key);
  const char* data = nullptr;
  if (holder) {
    data = reinterpret_cast<const char*>(holder->data());
    if (holder->size() != work.bytes) fail(key + " has another length");
    if (work.copies) {
      copy.reset(new char[work.bytes]);
      std::memcpy(copy.get(), data, work.bytes);
      data = copy.get();
    }
    got.from = holder->source() == Source::local ? From::memory : holder->source() == Source::ssd ? From::ssd : From::unknown;
  }
  got.endedNs = nowNs();
  if (holder && (std::memcmp(data, &value, sizeof value) != 0 || std::memcmp(data + work.bytes - sizeof value, &value, sizeof value) != 0))
    fail(key + " is another value");
  return got;
}

// `next`: the value that a thread gets as its n-th, or none.
std::vector<Got> getAll(const Work& work, const std::function<std::optional<uint64_t>(unsigned thread, uint64_t n)>& next) {
  std::latch begin(work.threads);
  std::vector<std::vector<Got>> got(work.threads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < work.threads; ++t) {
    threads.emplace_back([&, t] {
      std::unique_ptr<char[]> copy;
      begin.arrive_and_wait();
      for (uint64_t n = 0; const std::optional<uint64_t> value = next(t, n); ++n) got[t].push_back(get(work, *value, copy));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Got> all;
  for (const auto& each : got) all.insert(all.end(), each.begin(), each.end());
  return all;
}

// Of what has ended after `from` and until `until`.
void report(const Work& work, const std::vector<Got>& all, int64_t from, int64_t until) {
  std::array<uint64_t, 4> count{};
  std::vector<double> us;
  for (const Got& each : all) {
    if (each.endedNs <= from || each.endedNs > until) continue;
    ++count[static_cast<size_t>(each.from)];
    if (each.from != From::nowhere) us.push_back(static_cast<double>(each.endedNs - each.begunNs) * 1e-3);
  }
  const auto of = [&](From source) { return static_cast<unsigned long long>(count[static_cast<size_t>(source)]); };
  const double gbs = static_cast<double>(us.size() * work.bytes) / static_cast<double>(std::max<int64_t>(1, until - from));
  std::printf("%.4f %.1f %.1f %.1f %llu %llu %llu %llu\n", gbs, percentile(us, 0.5), percentile(us, 0.95), percentile(us, 0.99),
              of(From::memory), of(From::ssd), of(From::unknown), of(From::nowhere));
}

void fill(const Work& work) {
  std::string value(work.bytes, 'v');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 2654435761 >> 16);
  for (uint64_t i = work.first; i < work.first + work.values; ++i) {
    std::memcpy(value.data(), &i, sizeof i);
    std::memcpy(value.data() + work.bytes - sizeof i, &i, sizeof i);
    work.client.put(work.key(i), value);
  }
}

void load(const Work& work) {
  std::vector<uint64_t> order(work.values);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(work.seed));
  std::atomic<uint64_t> begun = 0;
  std::atomic<int64_t> noneLeft = INT64_MAX;
  std::vector<Got> all = getAll(work, [&](unsigned, uint64_t) -> std::optional<uint64_t> {
    if (const uint64_t at = begun++; at < work.values) return order[at];
    int64_t none = INT64_MAX;
    noneLeft.compare_exchange_strong(none, nowNs());
    return std::nullopt;
  });
  std::sort(all.begin(), all.end(), [](const Got& a, const Got& b) { return a.endedNs < b.endedNs; });
  if (all.size() < 2 * work.threads) fail("too few values");
  report(work, all, all[work.threads - 1].endedNs, noneLeft);
}

void put(const Work& work) {
  std::signal(SIGTERM, [](int) { ended = true; });
  std::printf("begun\n");
  std::fflush(stdout);
  const int64_t until = nowNs() + work.measuredNs;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < work.threads; ++t) {
    threads.emplace_back([&, t] {
      const std::string prefix = "put/" + std::to_string(::getpid()) + "/" + std::to_string(t) + "/";
      for (uint64_t n = 0; !ended && nowNs() < until; ++n) {
        std::optional<Grant> grant = work.client.putStart(prefix + std::to_string(n), work.bytes);
        std::move(*grant).commit();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Which value a thread gets as its n-th depends on nothing but thread, n and the number of values: weight 1 / rank, and ranks that have
// nothing to do with the order in which the values were put.
void walk(const Work& work) {
  std::vector<uint64_t> byRank(work.values);
  std::iota(byRank.begin(), byRank.end(), 0);
  std::shuffle(byRank.begin(), byRank.end(), std::mt19937_64(1));
  std::vector<double> sums(work.values);
  double sum = 0;
  for (uint64_t rank = 0; rank < work.values; ++rank) sums[rank] = sum += 1.0 / static_cast<double>(rank + 1);
  std::vector<std::mt19937_64> random;
  for (unsigned t = 0; t < work.threads; ++t) random.emplace_back(t + 2);
  const int64_t from = nowNs() + work.warmNs, until = from + work.measuredNs;
  const std::vector<Got> all = getAll(work, [&](unsigned t, uint64_t) -> std::optional<uint64_t> {
    if (nowNs() >= until) return std::nullopt;
    const double at = static_cast<double>(random[t]() >> 11) * 0x1p-53 * sum;
    const auto rank = static_cast<uint64_t>(std::upper_bound(sums.begin(), sums.end(), at) - sums.begin());
    return byRank[std::min(rank, work.values - 1)];
  });
  report(work, all, from, until);
}

int run(int argc, char** argv) {
  const auto number = [&](const char* name, const char* fallback) { return std::stod(argument(argc, argv, name, fallback)); };
  const auto count = [&](const char* name, const char* fallback) { return std::stoull(argument(argc, argv, name, fallback)); };
  const std::string cluster = argument(argc, argv, "--cluster", "default"), root = argument(argc, argv, "--root", "");
  const std::string what = argument(argc, argv, "--do", "");
  Client client(ConnectOptions{.cluster = cluster, .shmRoot = root, .prefault = true});
  awaitPopulated(root, cluster, client.node());
  const Work work{client,
                  count("--bytes", "1048576"),
                  count("--first", "0"),
                  count("--values", "0"),
                  static_cast<unsigned>(count("--threads", "1")),
                  static_cast<int64_t>(number("--warm", "0") * 1e9),
                  static_cast<int64_t>(number("--seconds", "1") * 1e9),
                  count("--seed", "1"),
                  argument(argc, argv, "--form", "holder") == "bytes"};
  if (work.bytes < sizeof(uint64_t)) fail("values of at least 8 bytes");
  if (what == "fill") return fill(work), 0;
  if (what == "load") return load(work), 0;
  if (what == "put") return put(work), 0;
  if (what == "walk") return walk(work), 0;
  fail("--do fill, load, put or walk");
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  return fluxon::bench::oneSentence("ssd_tier", [&] { return fluxon::bench::run(argc, argv); });
}
