// remote_tcp --cluster NAME --near-root DIRECTORY --far-root DIRECTORY: gets of values that lie on the other host, beside plain
// blocking sockets that bring the same bytes.
//
// A stream is a thread that gets one value, releases it and gets the next; no key is fetched twice. A get ends when the holder is in
// hand: all bytes are in the segment of the near owner, checked, and the master knows of the copy. The plain side has a thread and
// a connection a stream on each side and asks for one value at a time as well, with pieces of the same length and crc32c on both
// sides. Both use the kernel's congestion control. Rounds take turns; before each, outside the times, the far owner gets new values
// and both lose the old ones, so nothing is evicted. All memory is populated before. scripts/bench remote-tcp runs it.
#include <atomic>
#include <functional>
#include <latch>

#include "plain_tcp.h"
#include "two_hosts.h"

namespace fluxon::bench {
namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
constexpr uint64_t kFootprint = 256 * kMiB;  // of the plain side, on each of its ends
constexpr uint64_t kSizes[] = {64 * kKiB, kMiB, 4 * kMiB, 16 * kMiB};
constexpr unsigned kStreams[] = {1, 4};
constexpr int kRounds = 9;
constexpr double kTarget = 0.9;

// Seconds for `count` values, and microseconds of each of them; stream s moves the values s, s + streams ..
struct Moved {
  double seconds = 0;
  std::vector<double> us;
};
Moved move(unsigned streams, uint64_t count, const std::function<void(unsigned stream, uint64_t value)>& one) {
  std::latch begin(streams + 1);
  std::vector<std::vector<double>> us(streams);
  std::vector<std::thread> threads;
  for (unsigned s = 0; s < streams; ++s) {
    threads.emplace_back([&, s] {
      begin.arrive_and_wait();
      for (uint64_t i = s; i < count; i += streams) {
        const int64_t begun = nowNs();
        one(s, i);
        us[s].push_back(static_cast<double>(nowNs() - begun) * 1e-3);
      }
    });
  }
  begin.arrive_and_wait();
  const int64_t begun = nowNs();
  for (std::thread& thread : threads) thread.join();
  Moved moved{static_cast<double>(nowNs() - begun) * 1e-9, {}};
  for (const auto& each : us) moved.us.insert(moved.us.end(), each.begin(), each.end());
  return moved;
}

int run(int argc, char** argv) {
  const PlainSource source(kFootprint);
  char* const memory = populated(kFootprint);
  std::vector<int> sockets;
  for (unsigned s = 0; s < 4; ++s) sockets.push_back(connectPlain(source.port(), ""));
  Client near = hostClient(argc, argv, "near"), far = hostClient(argc, argv, "far");
  std::printf("congestion control %s on both sides, pieces of %llu KiB, crc32c on both sides, one value at a time a stream\n",
              congestionOf(sockets[0]).c_str(), static_cast<unsigned long long>(kPiece / kKiB));
  double least = 1e9, leastGbs = 0;
  for (const uint64_t size : kSizes) {
    const uint64_t roundBytes = size < kMiB ? 32 * kMiB : 128 * kMiB, count = roundBytes / size;
    std::string value(size, 'v');
    for (const unsigned streams : kStreams) {
      std::vector<double> ratios, ours, plain, oursUs, plainUs;
      for (int r = -1; r < kRounds; ++r) {  // round -1 warms connections and windows
        const std::string prefix = std::to_string(size) + "/" + std::to_string(streams) + "/" + std::to_string(r) + "/";
        for (uint64_t i = 0; i < count; ++i) far.put(prefix + std::to_string(i), value);
        std::atomic<uint64_t> wrong = 0;
        const Moved got = move(streams, count, [&](unsigned, uint64_t i) {
          const std::optional<Holder> holder = near.get(prefix + std::to_string(i));
          wrong += !holder || holder->size() != size || holder->source() != Source::remote;
        });
        if (wrong)
          return std::fprintf(stderr, "remote_tcp: %llu gets missed or did not bring the value from the other host\n",
                              static_cast<unsigned long long>(wrong.load())),
                 70;
        const Moved pulled = move(streams, count, [&](unsigned s, uint64_t i) {
          const uint64_t offset = i * size % kFootprint;
          askPlain(sockets[s], offset, size);
          receivePlain(sockets[s], memory + offset, size);
        });
        for (uint64_t i = 0; i < count; ++i) far.remove(prefix + std::to_string(i));
        if (r < 0) continue;
        ours.push_back(got.seconds);
        plain.push_back(pulled.seconds);
        ratios.push_back(pulled.seconds / got.seconds);
        oursUs.insert(oursUs.end(), got.us.begin(), got.us.end());
        plainUs.insert(plainUs.end(), pulled.us.begin(), pulled.us.end());
      }
      const double gbs = static_cast<double>(roundBytes) * 1e-9 / median(ours), ratio = median(ratios);
      std::printf(
          "%5llu KiB, %u stream%s   get %5.2f GB/s, p50 %7.0f us p99 %7.0f us   plain %5.2f GB/s, p50 %7.0f us   get / plain %.3f\n",
          static_cast<unsigned long long>(size / kKiB), streams, streams == 1 ? " " : "s", gbs, percentile(oursUs, 0.5),
          percentile(oursUs, 0.99), static_cast<double>(roundBytes) * 1e-9 / median(plain), percentile(plainUs, 0.5), ratio);
      std::fflush(stdout);
      if (size >= kMiB && ratio < least) {
        least = ratio;
        leastGbs = gbs;
      }
    }
  }
  print({"remote-tcp", leastGbs, "GB/s", least,
         "plain blocking sockets, same pieces, crc32c and congestion control; the worst of 1, 4, 16 MiB with 1 and 4 streams",
         "ratio >= 0.9", least >= kTarget});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  return fluxon::bench::oneSentence("remote_tcp", [&] { return fluxon::bench::run(argc, argv); });
}
