// put_small --cluster NAME: the time of a copying put of 4 KiB under a new key, beside the round trip of one Cap'n Proto RPC
// (Master.hello over the master's unix socket) of the same process. Rounds of both take turns. scripts/bench put-small runs it.
#include <capnp/rpc-twoparty.h>
#include <fluxon/fluxon.hpp>
#include <kj/async-io.h>

#include "measure.h"
#include "schema/master.capnp.h"
#include "shm/paths.h"

namespace fluxon::bench {
namespace {

constexpr int kRounds = 15;
constexpr int kCalls = 400;  // of each kind in a round
constexpr size_t kValueBytes = 4096;
constexpr int kOverwritten = 50;  // keys of the second variant

struct Rpc {
  explicit Rpc(const std::string& socket)
      : io(kj::setupAsyncIo()),
        stream(io.provider->getNetwork().parseAddress(("unix:" + socket).c_str()).wait(io.waitScope)->connect().wait(io.waitScope)),
        client(*stream),
        master(client.bootstrap().castAs<schema::Master>()) {
    call();
  }
  void call() { master.helloRequest().send().wait(io.waitScope); }

  kj::AsyncIoContext io;
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyClient client;
  schema::Master::Client master;
};

template <class Each>
std::vector<double> timed(Each each) {
  std::vector<double> us;
  us.reserve(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    const int64_t begun = nowNs();
    each();
    us.push_back(static_cast<double>(nowNs() - begun) * 1e-3);
  }
  return us;
}

int run(const std::string& cluster) {
  Result<shm::Paths> paths = shm::Paths::of("", cluster);
  if (!paths) return std::fprintf(stderr, "put_small: %s\n", paths.error().message().c_str()), 69;
  Rpc rpc(paths->masterSocket());
  Client client(ConnectOptions{.cluster = cluster, .prefault = true});
  const std::string value(kValueBytes, 'v');
  int key = 0;
  const auto putNew = [&] { client.put("new-" + std::to_string(key++), value); };
  const auto putOver = [&] { client.put("over-" + std::to_string(key++ % kOverwritten), value); };
  timed(putNew);  // the reserve of the owner finds its size
  timed(putOver);

  std::vector<double> rpcs, puts, overs, ratios, rpcAll, putAll;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rpcUs = timed([&] { rpc.call(); });
    std::vector<double> putUs = timed(putNew);
    std::vector<double> overUs = timed(putOver);
    rpcAll.insert(rpcAll.end(), rpcUs.begin(), rpcUs.end());
    putAll.insert(putAll.end(), putUs.begin(), putUs.end());
    rpcs.push_back(percentile(rpcUs, 0.5));
    puts.push_back(percentile(putUs, 0.5));
    overs.push_back(percentile(overUs, 0.5));
    ratios.push_back(puts.back() / (2 * rpcs.back()));
    std::printf("round %2d  rpc p50 %7.1f us   put of a new key p50 %7.1f us   overwriting put p50 %7.1f us   put / 2 rpc %.2f\n", round,
                rpcs.back(), puts.back(), overs.back(), ratios.back());
  }
  std::printf("all rounds  rpc p50 %.1f p99 %.1f us   put of a new key p50 %.1f p99 %.1f us   overwriting put p50 %.1f us\n",
              percentile(rpcAll, 0.5), percentile(rpcAll, 0.99), percentile(putAll, 0.5), percentile(putAll, 0.99), median(overs));
  const double ratio = median(ratios);
  print(
      {"put-small", median(puts), "us", ratio, "2 round trips of a Cap'n Proto RPC", "p50 <= 2 RPC round trips (ratio <= 1)", ratio <= 1});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  using fluxon::bench::argument;
  return fluxon::bench::oneSentence("put_small", [&] { return fluxon::bench::run(argument(argc, argv, "--cluster", "default")); });
}
