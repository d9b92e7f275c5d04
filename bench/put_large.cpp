// put_large --cluster NAME [--node NAME]: copying puts of large values beside a plain memcpy of the same bytes.
//
// The values overwrite a working set of kFootprint bytes, so that neither side finds its target in a cache; both sides read from
// one source ring. Rounds take turns: put, memcpy into anonymous memory (judged), memcpy into a /dev/shm mapping, and putStart +
// fill + commit; then the same with two threads. The segment and all buffers are populated before. A ratio is that of the median
// times of a value in one round, which a stolen time slice does not move; GB/s over whole rounds stands beside it.
// scripts/bench put-large runs it.
#include <fluxon/fluxon.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <latch>
#include <thread>

#include "measure.h"
#include "owner_memory.h"

namespace fluxon::bench {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kFootprint = 1024 * kMiB;
constexpr uint64_t kSource = 128 * kMiB;
constexpr uint64_t kRoundBytes = 256 * kMiB;  // per thread
constexpr int kRounds = 9;

char* populated(uint64_t bytes, int flags, int fd) {
  void* const map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
  if (map == MAP_FAILED) {
    std::perror("put_large: mmap");
    std::exit(71);
  }
  std::memset(map, 1, bytes);
  return static_cast<char*>(map);
}

struct Way {
  const char* name;
  std::function<void(unsigned thread, uint64_t at, uint64_t bytes)> move;  // one value; `at`: counts values of the thread
  std::vector<double> gbs{};                                               // per round
  std::vector<double> p50{};                                               // us a value, per round
  std::vector<double> us{};                                                // every value of every round
};

// GB/s of `threads` threads that each move kRoundBytes.
void round(Way& way, unsigned threads, uint64_t valueBytes, std::vector<uint64_t>& at) {
  const uint64_t values = std::max<uint64_t>(kRoundBytes / valueBytes, 4);
  std::latch begin(threads + 1);
  std::vector<std::vector<double>> us(threads);
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      us[t].reserve(values);
      begin.arrive_and_wait();
      for (uint64_t i = 0; i < values; ++i) {
        const int64_t begun = nowNs();
        way.move(t, at[t]++, valueBytes);
        us[t].push_back(static_cast<double>(nowNs() - begun) * 1e-3);
      }
    });
  }
  begin.arrive_and_wait();
  const int64_t begun = nowNs();
  for (std::thread& worker : workers) worker.join();
  const auto ns = static_cast<double>(nowNs() - begun);
  way.gbs.push_back(static_cast<double>(threads * values * valueBytes) / ns);
  std::vector<double> all;
  for (const auto& each : us) all.insert(all.end(), each.begin(), each.end());
  way.us.insert(way.us.end(), all.begin(), all.end());
  way.p50.push_back(percentile(all, 0.5));
}

int run(const std::string& cluster, const std::string& node) {
  Client client(ConnectOptions{.cluster = cluster, .node = node, .prefault = true});
  awaitPopulated("", cluster, client.node());
  const int memfd = ::memfd_create("bench", 0);
  if (memfd < 0 || ::ftruncate(memfd, static_cast<off_t>(kFootprint)) != 0) return std::perror("put_large: memfd"), 71;
  char* const anonymous = populated(kFootprint, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  char* const shared = populated(kFootprint, MAP_SHARED, memfd);
  char* const source = populated(kSource, MAP_PRIVATE | MAP_ANONYMOUS, -1);

  // The footprint and the source are split between the threads.
  const auto from = [&](unsigned t, uint64_t at, uint64_t bytes) {
    return source + (t * (kSource / 2) + at * bytes % (kSource / 2)) % kSource;
  };
  const auto target = [&](unsigned t, uint64_t at, uint64_t bytes) { return t * (kFootprint / 2) + at * bytes % (kFootprint / 2); };
  const auto key = [&](unsigned t, uint64_t at, uint64_t bytes) { return "large-" + std::to_string(target(t, at, bytes) / bytes); };
  const auto plain = [&](char* to) {
    return [&, to](unsigned t, uint64_t at, uint64_t bytes) { std::memcpy(to + target(t, at, bytes), from(t, at, bytes), bytes); };
  };
  double least = 1e9, leastGbs = 0;
  for (const uint64_t mib : {1, 4, 16, 64}) {
    const uint64_t bytes = mib * kMiB;
    for (unsigned threads : {1u, 2u}) {
      Way ways[] = {{"put", [&](unsigned t, uint64_t at, uint64_t n) { client.put(key(t, at, n), std::string_view(from(t, at, n), n)); }},
                    {"memcpy", plain(anonymous)},
                    {"memcpy to shm", plain(shared)},
                    {"putStart, fill, commit", [&](unsigned t, uint64_t at, uint64_t n) {
                       std::optional<Grant> grant = client.putStart(key(t, at, n), n);
                       std::memcpy(grant->bytes().data(), from(t, at, n), n);
                       std::move(*grant).commit();
                     }}};
      std::vector<std::vector<uint64_t>> at(std::size(ways), std::vector<uint64_t>(threads, 0));
      // Until this client's second mapping of the segment has all its pages: two times around the footprint.
      Way warm = ways[0];
      for (uint64_t moved = 0; moved < 2 * kFootprint; moved += threads * std::max(kRoundBytes, 4 * bytes))
        round(warm, threads, bytes, at[0]);
      std::vector<double> ratios, sharedRatios, fillRatios;
      for (int r = 0; r < kRounds; ++r) {
        for (size_t w = 0; w < std::size(ways); ++w) round(ways[w], threads, bytes, at[w]);
        ratios.push_back(ways[1].p50.back() / ways[0].p50.back());
        sharedRatios.push_back(ways[2].p50.back() / ways[0].p50.back());
        fillRatios.push_back(ways[1].p50.back() / ways[3].p50.back());
      }
      std::printf("%2zu MiB, %u thread%s\n", static_cast<size_t>(mib), threads, threads == 1 ? "" : "s");
      for (Way& way : ways)
        std::printf("  %-24s %6.2f GB/s   a value p50 %8.1f us p99 %8.1f us\n", way.name, median(way.gbs), percentile(way.us, 0.5),
                    percentile(way.us, 0.99));
      std::printf("  put / memcpy %.3f   put / memcpy to shm %.3f   putStart, fill, commit / memcpy %.3f\n", median(ratios),
                  median(sharedRatios), median(fillRatios));
      std::fflush(stdout);
      if (threads == 1 && median(ratios) < least) {
        least = median(ratios);
        leastGbs = static_cast<double>(bytes) / median(ways[0].p50) * 1e-3;
      }
    }
    for (uint64_t i = 0; i < kFootprint / bytes; ++i) client.remove("large-" + std::to_string(i));
  }
  print({"put-large", leastGbs, "GB/s", least, "memcpy of the same bytes, the worst of 1, 4, 16, 64 MiB, 1 thread", "ratio >= 0.9",
         least >= 0.9});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  using fluxon::bench::argument;
  return fluxon::bench::oneSentence(
      "put_large", [&] { return fluxon::bench::run(argument(argc, argv, "--cluster", "default"), argument(argc, argv, "--node", "")); });
}
