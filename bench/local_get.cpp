// local_get --cluster NAME --redis SOCKET: a get that is served from shared memory, beside GET of a redis-server of this host.
//
// Rounds take turns: ours, then redis. An operation is get, a read of the value's first byte, and release; the time until the
// holder is in hand stands beside it. Single operations are timed by the time stamp counter between two fences, whose own cost is
// measured in the same round and taken off. Rates come from loops of kSlice operations without any timing inside, the median of a
// thread's loops, which a stolen time slice does not move. redis is asked through one raw connection with a buffer that is reused:
// a reply is complete when its last byte has been received.
// scripts/bench local-get runs it.
#include <fluxon/fluxon.hpp>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include "measure.h"

namespace fluxon::bench {
namespace {

constexpr int kRounds = 9;
constexpr int kTimed = 50'000;  // operations timed one by one, in a round
constexpr int kSlices = 200;    // of each thread, in a round
constexpr int kSlice = 5'000;   // operations of a slice: some 0.5 ms
constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
constexpr uint32_t kSpread = 8192;  // keys of the spread variant: more than the caches of a core hold

constexpr double kTargetP50 = 300, kTargetP99 = 2000, kTargetRate = 3e6;

uint64_t begin() {
  _mm_lfence();
  const uint64_t tsc = __rdtsc();
  _mm_lfence();
  return tsc;
}
uint64_t end() {
  unsigned core;
  const uint64_t tsc = __rdtscp(&core);
  _mm_lfence();
  return tsc;
}

double ticksPerNs() {
  const int64_t ns = nowNs();
  const uint64_t ticks = begin();
  ::usleep(200'000);
  return static_cast<double>(end() - ticks) / static_cast<double>(nowNs() - ns);
}

// Ticks that begin() and end() see with nothing between them.
double overhead() {
  std::vector<double> ticks;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t from = begin();
    ticks.push_back(static_cast<double>(end() - from));
  }
  return percentile(ticks, 0.5);
}

class Redis {
 public:
  explicit Redis(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)), buffer_(2 * kMiB) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connect");
  }
  Redis(const Redis&) = delete;
  ~Redis() { ::close(socket_); }

  void set(const std::string& key, const std::string& value) {
    ask("*3\r\n$3\r\nSET\r\n" + bulk(key) + bulk(value));
    if (receive(5) != 5 || std::memcmp(buffer_.data(), "+OK\r\n", 5) != 0) fail("SET");
  }
  static std::string getRequest(const std::string& key) { return "*2\r\n$3\r\nGET\r\n" + bulk(key); }
  // `replyBytes`: of the whole reply, head and end included.
  void get(const std::string& request, size_t replyBytes) {
    ask(request);
    if (receive(replyBytes) != replyBytes || buffer_[0] != '$') fail("GET");
  }
  static size_t replyBytes(size_t valueBytes) { return std::to_string(valueBytes).size() + valueBytes + 5; }

 private:
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "local_get: redis: %s\n", what);
    std::exit(69);
  }
  static std::string bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }
  void ask(std::string_view request) {
    while (!request.empty()) {
      const ssize_t n = ::write(socket_, request.data(), request.size());
      if (n <= 0) fail("write");
      request.remove_prefix(static_cast<size_t>(n));
    }
  }
  size_t receive(size_t bytes) {
    size_t have = 0;
    while (have < bytes) {
      const ssize_t n = ::read(socket_, buffer_.data() + have, buffer_.size() - have);
      if (n <= 0) fail("read");
      have += static_cast<size_t>(n);
    }
    return have;
  }

  int socket_;
  std::vector<char> buffer_;
};

uint64_t readFirst(const Holder& holder) { return static_cast<uint64_t>(*reinterpret_cast<const volatile std::byte*>(holder.data())); }

[[noreturn]] void lost() {
  std::fprintf(stderr, "local_get: a value that nobody removed is a miss\n");
  std::exit(70);
}

// What the rounds of one kind of get gave: the median of each.
struct Series {
  std::vector<double> inHand, p50, p99;  // ns
};

struct Rounds {
  Client& client;
  double perNs;
  uint64_t sum = 0;  // of the bytes read: the reads are not left out

  template <class KeyOf>
  void time(Series& series, KeyOf keyOf) {
    const double off = overhead();
    std::vector<double> gets, wholes;
    gets.reserve(kTimed);
    wholes.reserve(kTimed);
    for (int i = 0; i < 2 * kTimed; ++i) {
      const std::string_view key = keyOf();
      const uint64_t from = begin();
      std::optional<Holder> holder = client.get(key);
      if (!holder) lost();
      // Every other operation is timed to its holder, the others to their end: one pair of fences each.
      if (i % 2 == 0) gets.push_back((static_cast<double>(end() - from) - off) / perNs);
      sum += readFirst(*holder);
      holder.reset();
      if (i % 2 != 0) wholes.push_back((static_cast<double>(end() - from) - off) / perNs);
    }
    series.inHand.push_back(percentile(gets, 0.5));
    series.p50.push_back(percentile(wholes, 0.5));
    series.p99.push_back(percentile(wholes, 0.99));
  }

  // Gets a second of each of `threads` threads, all on one key: the slower thread's.
  double rate(unsigned threads, std::string_view key) {
    std::latch go(threads + 1);
    std::vector<double> rates(threads);
    std::vector<std::thread> workers;
    for (unsigned t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        uint64_t read = 0;
        std::vector<double> slices;
        go.arrive_and_wait();
        for (int slice = 0; slice < kSlices; ++slice) {
          const int64_t begun = nowNs();
          for (int i = 0; i < kSlice; ++i) {
            const std::optional<Holder> holder = client.get(key);
            if (!holder) lost();
            read += readFirst(*holder);
          }
          slices.push_back(kSlice * 1e9 / static_cast<double>(nowNs() - begun));
        }
        rates[t] = read == 0 ? 0 : percentile(slices, 0.5);
      });
    }
    go.arrive_and_wait();
    for (std::thread& worker : workers) worker.join();
    return *std::min_element(rates.begin(), rates.end());
  }
};

struct Size {
  const char* name;
  uint64_t bytes;
  bool inRedis;
  Series ours{};
  std::vector<double> redisP50{}, redisP99{}, ratios{}, one{}, two{};
};

int run(const std::string& cluster, const std::string& redisSocket) {
  Client client(ConnectOptions{.cluster = cluster, .prefault = true});
  Redis redis(redisSocket);
  Size sizes[] = {{"4 KiB", 4 * kKiB, true}, {"1 MiB", kMiB, true}, {"64 MiB", 64 * kMiB, false}};
  for (const Size& size : sizes) {
    const std::string value(size.bytes, 'v');
    client.put(size.name, value);
    if (size.inRedis) redis.set(size.name, value);
  }
  std::vector<std::string> keys;
  for (uint32_t i = 0; i < kSpread; ++i) {
    keys.push_back("spread/" + std::to_string(i));
    client.put(keys.back(), std::string(4 * kKiB, 'v'));
  }
  Series spread;
  std::minstd_rand random(1);

  Rounds rounds{client, ticksPerNs()};
  for (int r = 0; r < kRounds; ++r) {
    for (Size& size : sizes) {
      rounds.time(size.ours, [&] { return std::string_view(size.name); });
      size.one.push_back(rounds.rate(1, size.name));
      size.two.push_back(rounds.rate(2, size.name));
      if (!size.inRedis) continue;
      const std::string request = Redis::getRequest(size.name);
      std::vector<double> ns;
      for (uint64_t i = 0; i < (size.bytes < kMiB ? 4000u : 400u); ++i) {
        const uint64_t from = begin();
        redis.get(request, Redis::replyBytes(size.bytes));
        ns.push_back(static_cast<double>(end() - from) / rounds.perNs);
      }
      size.redisP50.push_back(percentile(ns, 0.5));
      size.redisP99.push_back(percentile(ns, 0.99));
      size.ratios.push_back(size.redisP50.back() / size.ours.p50.back());
    }
    rounds.time(spread, [&] { return std::string_view(keys[random() % kSpread]); });
  }

  bool ok = rounds.sum != 0;
  double worst = 0;
  for (Size& size : sizes) {
    const double p50 = median(size.ours.p50), p99 = median(size.ours.p99), one = median(size.one), two = median(size.two);
    std::printf(
        "%-7s holder in hand p50 %4.0f ns   get + release p50 %4.0f ns p99 %5.0f ns   per thread: 1 thread %.2f M/s, 2 threads %.2f M/s",
        size.name, median(size.ours.inHand), p50, p99, one * 1e-6, two * 1e-6);
    if (size.inRedis) {
      std::printf("   redis p50 %.1f us p99 %.1f us, redis / ours %.0f", median(size.redisP50) * 1e-3, median(size.redisP99) * 1e-3,
                  median(size.ratios));
    }
    std::printf("\n");
    worst = std::max(worst, p50);
    ok = ok && p50 <= kTargetP50 && p99 <= kTargetP99 && std::min(one, two) >= kTargetRate;
  }
  std::printf("%u keys of 4 KiB at random: holder in hand p50 %.0f ns   get + release p50 %.0f ns p99 %.0f ns\n", kSpread,
              median(spread.inHand), median(spread.p50), median(spread.p99));
  print({"local-get", worst, "ns", median(sizes[0].ratios), "GET of 4 KiB from redis-server over a unix socket: redis p50 / ours",
         "p50 <= 300 ns, p99 <= 2 us, >= 3 M/s per thread", ok});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  using fluxon::bench::argument;
  return fluxon::bench::oneSentence(
      "local_get", [&] { return fluxon::bench::run(argument(argc, argv, "--cluster", "default"), argument(argc, argv, "--redis", "")); });
}
