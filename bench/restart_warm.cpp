// restart_warm --cluster NAME --node NAME --mib N: what a cache of 1 MiB values is worth after its owner, and then its master, was
// killed and started again. It says "kill owner" or "kill master" on a line of its own; who runs it does so (SIGKILL), starts the
// process again, and writes a line when it has started it.
//
// Two readers. One attached before the kill reads on, and its longest time without a hit is printed. Another attaches anew and says
// when the first value is a hit again: that is counted from just before the kill. Of the owner it includes the start of the process,
// which it must attach to; it needs no master, so after that one's death the time until a put is acknowledged says more. Then it gets
// every key and compares every byte. scripts/bench restart-warm runs it.
#include <fluxon/fluxon.hpp>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <thread>

#include "base/hash.h"
#include "measure.h"
#include "owner_memory.h"

namespace fluxon::bench {
namespace {

constexpr uint64_t kValue = 1 << 20;
constexpr double kPatience = 60;  // seconds
constexpr double kTarget = 0.99;

std::string keyOf(uint64_t i) { return "page/" + std::to_string(i); }

void fill(char* to, uint64_t index) {
  uint64_t word = keyHash(keyOf(index)) | 1;
  for (uint64_t at = 0; at < kValue; at += sizeof word) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(to + at, &word, sizeof word);
  }
}

double since(int64_t begun) { return static_cast<double>(nowNs() - begun) * 1e-9; }

struct Pass {
  uint64_t hits = 0, wrong = 0;
};
Pass readAll(Client& client, uint64_t count) {
  Pass pass;
  std::string wanted(kValue, 0);
  for (uint64_t i = 0; i < count; ++i) {
    const std::optional<Holder> holder = client.get(keyOf(i));
    if (!holder) continue;
    fill(wanted.data(), i);
    ++pass.hits;
    pass.wrong += holder->text() != wanted;
  }
  return pass;
}

// Reads on through whatever happens, by itself.
class Reader {
 public:
  Reader(Client& client, uint64_t count) : thread_([this, &client, count] { run(client, count); }) {}
  // Seconds of the longest time without a hit.
  double end() {
    ending_ = true;
    thread_.join();
    return longest_;
  }

 private:
  void run(Client& client, uint64_t count) {
    int64_t last = nowNs();
    for (uint64_t i = 0; !ending_; i = (i + 1) % count) {
      bool hit = false;
      try {
        hit = client.get(keyOf(i), 100).has_value();
      } catch (const Exception&) {
      }
      if (hit) {
        longest_ = std::max(longest_, since(last));
        last = nowNs();
      }
      ::usleep(1000);
    }
    longest_ = std::max(longest_, since(last));
  }
  double longest_ = 0;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

// Seconds until `what` succeeds.
template <class F>
double until(int64_t begun, const F& what) {
  while (since(begun) < kPatience) {
    try {
      if (what()) return since(begun);
    } catch (const Exception&) {
    }
    ::usleep(1000);
  }
  std::fprintf(stderr, "restart_warm: nothing after %.0f s\n", kPatience);
  std::exit(70);
}

// When it was asked for.
int64_t kill(const char* what) {
  const int64_t begun = nowNs();
  std::printf("kill %s\n", what);
  std::fflush(stdout);
  std::string line;
  if (!std::getline(std::cin, line)) std::exit(70);
  return begun;
}

int run(const std::string& cluster, const std::string& node, uint64_t count) {
  const ConnectOptions options{.cluster = cluster, .node = node};
  awaitPopulated("", cluster, node);
  Client old(options);
  std::string value(kValue, 0);
  for (uint64_t i = 0; i < count; ++i) {
    fill(value.data(), i);
    old.put(keyOf(i), value);
  }
  const Pass before = readAll(old, count);
  std::printf("%llu values of 1 MiB: %llu hits, %llu wrong\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(before.hits), static_cast<unsigned long long>(before.wrong));
  double worst = before.hits ? 1 : 0, ownerSeconds = 0;
  uint64_t wrong = before.wrong;
  for (const char* const what : {"owner", "master"}) {
    const bool owner = std::strcmp(what, "owner") == 0;
    Reader reader(old, count);
    const int64_t begun = kill(what);
    std::optional<Client> fresh;
    const double first = until(begun, [&] {
      if (!fresh) fresh.emplace(options);
      return fresh->get(keyOf(0), 100).has_value();
    });
    const double put = until(begun, [&] {
      PutOptions patience;
      patience.timeoutMs = 1000;
      return fresh->put("new", "value", patience).outcome == PutOutcome::done;
    });
    const double gap = reader.end();
    const int64_t reading = nowNs();
    const Pass after = readAll(*fresh, count);
    const double ratio = before.hits ? static_cast<double>(after.hits) / static_cast<double>(before.hits) : 0;
    std::printf(
        "%s killed: a reader that attaches anew hits after %.3f s, a put is acknowledged after %.3f s; longest time without a hit of a "
        "reader "
        "that was attached %.3f s; all keys: %llu hits, %llu wrong, ratio to before %.4f (read and compared in %.2f s)\n",
        what, first, put, gap, static_cast<unsigned long long>(after.hits), static_cast<unsigned long long>(after.wrong), ratio,
        since(reading));
    worst = std::min(worst, ratio);
    wrong += after.wrong;
    if (owner) ownerSeconds = first;
  }
  print({"restart-warm", ownerSeconds, "s", worst,
         "hits before the kill; the worse of owner and master killed; value: owner killed until a new reader hits",
         "hit ratio >= 0.99, no byte wrong", worst >= kTarget && wrong == 0});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  using fluxon::bench::argument;
  return fluxon::bench::oneSentence("restart_warm", [&] {
    return fluxon::bench::run(argument(argc, argv, "--cluster", "default"), argument(argc, argv, "--node", ""),
                              std::strtoull(argument(argc, argv, "--mib", "1024").c_str(), nullptr, 10));
  });
}
