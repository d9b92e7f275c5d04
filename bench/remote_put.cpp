// remote_put --cluster NAME --near-root DIRECTORY --far-root DIRECTORY --drain COMMAND: puts that end when the value is readable on
// the other host, beside a put that stays here and a plain stream of the same bytes.
//
// Two ways: `replicas = 2`, where the value is readable here and the put waits for the copy on the other host; and a put at a
// node that is being drained, whose value is filled here, goes to the other host and is readable there alone. Both are judged.
// What they are compared with is the sum of a put of the same size with one replica and of the time of plain blocking sockets
// for the same bytes (pieces of the same length, crc32c on both sides, the kernel's congestion control), measured value by
// value in the same round, but for the put that stays beside puts elsewhere, which is that of the first way: that sum has the
// copy into shared memory, the round trips of a put, and the bytes' way; what it has not is a second writer or the master's
// order to bring the copy. Values overwrite a working set of kFootprint bytes. COMMAND drains the near node after the first way
// is through; a value that is larger than the far segment keeps the node from leaving. A way whose value is not on the other host
// afterwards is not judged, and the verdict is no. scripts/bench remote-put runs it.
#include "plain_tcp.h"
#include "two_hosts.h"

namespace fluxon::bench {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kFootprint = 256 * kMiB;
constexpr uint64_t kRoundBytes = 64 * kMiB;
constexpr uint64_t kSizes[] = {kMiB, 4 * kMiB, 16 * kMiB};
constexpr int kRounds = 9;
constexpr double kTarget = 0.9;

struct Way {
  const char* name;
  std::vector<double> round{};  // us of the values of this round
  std::vector<double> all{};
  std::vector<double> p50{};  // of each round
  void end() {
    all.insert(all.end(), round.begin(), round.end());
    p50.push_back(percentile(round, 0.5));
    round.clear();
  }
};

// Is the value where such a put shall have brought it?
bool lies(Client& far, Client& near, const std::string& key, bool elsewhere) {
  const std::optional<Holder> there = far.get(key), here = near.get(key);
  return there && here && there->source() == Source::local && here->source() == (elsewhere ? Source::remote : Source::local);
}

int run(int argc, char** argv) {
  const PlainSource source(kFootprint);
  char* const memory = populated(kFootprint);
  char* const values = populated(kFootprint);
  const int socket = connectPlain(source.port(), "");
  uint64_t farBytes = 0;
  Client near = hostClient(argc, argv, "near"), far = hostClient(argc, argv, "far", &farBytes);
  std::printf("congestion control %s on both sides, pieces of %llu KiB, crc32c on both sides, one value at a time\n",
              congestionOf(socket).c_str(), static_cast<unsigned long long>(kPiece >> 10));
  double least = 1e9, leastUs = 0;
  bool broken = false;
  double local[std::size(kSizes)] = {};  // us of a put that stays, median
  for (const bool elsewhere : {false, true}) {
    if (elsewhere) {
      std::optional<Grant> stays = near.putStart("stays", farBytes + kMiB);
      std::move(*stays).commit();
      if (std::system(argument(argc, argv, "--drain", "false").c_str()) != 0) return std::fprintf(stderr, "remote_put: cannot drain\n"), 70;
    }
    for (size_t s = 0; s < std::size(kSizes); ++s) {
      const uint64_t size = kSizes[s], around = kFootprint / size;
      Way stays{"put"}, goes{elsewhere ? "put elsewhere" : "put, 2 replicas"}, plain{"plain stream"};
      const auto timed = [&](Way& way, const auto& what) {
        const int64_t begun = nowNs();
        what();
        way.round.push_back(static_cast<double>(nowNs() - begun) * 1e-3);
      };
      const std::string prefix = std::to_string(size) + (elsewhere ? "/e/" : "/r/");
      const auto put = [&](const char* kind, uint64_t i, uint32_t replicas) {
        PutOptions options;
        options.replicas = replicas;
        near.put(prefix + kind + std::to_string(i % around), std::string_view(values + i % around * size, size), options);
      };
      std::vector<double> ratios;
      uint64_t at = 0;
      for (int r = -2; r < kRounds; ++r) {  // the first rounds warm connections and pages
        const uint64_t count = std::max<uint64_t>(kRoundBytes / size, 8);
        for (uint64_t i = at; i < at + count; ++i) {
          if (!elsewhere) timed(stays, [&] { put("one/", i, 1); });
          timed(goes, [&] { put("two/", i, elsewhere ? 1 : 2); });
          timed(plain, [&] {
            askPlain(socket, i % around * size, size);
            receivePlain(socket, memory + i % around * size, size);
          });
        }
        at += count;
        if (r < 0) {
          stays.round.clear();
          goes.round.clear();
          plain.round.clear();
          continue;
        }
        if (!elsewhere) stays.end();
        goes.end();
        plain.end();
        const double here = elsewhere ? local[s] : stays.p50.back();
        ratios.push_back((here + plain.p50.back()) / goes.p50.back());
      }
      if (!elsewhere) local[s] = median(stays.p50);
      const bool there = lies(far, near, prefix + "two/0", elsewhere);
      broken = broken || !there;
      const double ratio = median(ratios), us = median(goes.p50);
      std::printf(
          "%2llu MiB   %-16s p50 %6.0f us p99 %6.0f us   local put p50 %6.0f us   plain stream p50 %6.0f us   (local + plain) / ours "
          "%.3f%s\n",
          static_cast<unsigned long long>(size / kMiB), goes.name, us, percentile(goes.all, 0.99), local[s], median(plain.p50), ratio,
          there ? "" : "   NOT THERE: the put was answered without the value on the other host");
      std::fflush(stdout);
      if (there && ratio < least) {
        least = ratio;
        leastUs = us;
      }
      for (uint64_t i = 0; i < around; ++i) {
        near.remove(prefix + "one/" + std::to_string(i));
        near.remove(prefix + "two/" + std::to_string(i));
      }
    }
  }
  print({"remote-put", leastUs, "us", least,
         "a put that stays plus a plain stream of the same bytes; the worst of 1, 4, 16 MiB with 2 replicas and elsewhere", "ratio >= 0.9",
         !broken && least >= kTarget});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  return fluxon::bench::oneSentence("remote_put", [&] { return fluxon::bench::run(argc, argv); });
}
