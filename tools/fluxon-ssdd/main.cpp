// fluxon-ssdd: wiring. See fluxon-ssdd(8).
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "rpc/daemon_main.h"
#include "rpc/http_endpoint.h"
#include "service.h"
#include "shm/fault_guard.h"

namespace fluxon::ssdd {
namespace {

constexpr auto kFarewell = 4 * kj::SECONDS;

int serve(rpc::Process& process) {
  const Config& config = process.config;
  rpc::Daemon& daemon = process.daemon();
  if (config.owner.largeLimitBytes.empty()) {
    log::last("fluxon-ssdd: not enabled (owner.large_limit_size is empty)");
    return sysexit(Code::badConfig);
  }
  shm::FaultGuard::install("fluxon-ssdd");
  Result<shm::Paths> paths = shm::Paths::of(config.common.shmRoot, config.common.cluster);
  if (!paths) return process.fail(paths.error());

  Service service(daemon, config, *paths, process.node);
  rpc::HttpEndpoint http(daemon, {[&] { return service.metrics(); }, [&](bool& healthy) { return service.health(healthy); }});
  Result<std::string> address = http.listen(config.ssdd.http);
  if (!address) return process.fail(address.error());
  const std::string status = "node " + process.node + ", http " + (address->empty() ? "off" : *address);
  service.shows(*address);
  log::info("opens its shards: " + status);

  Error error;
  auto failed = kj::newPromiseAndFulfiller<void>();
  kj::Promise<void> opened = service.open()
                                 .then([&](Error why) {
                                   error = std::move(why);
                                   if (!error.ok()) failed.fulfiller->fulfill();
                                 })
                                 .eagerlyEvaluate([&](kj::Exception&& thrown) { failed.fulfiller->reject(kj::mv(thrown)); });
  kj::Promise<void> announced = service.ready().then([&] { process.ready(status); }).eagerlyEvaluate(nullptr);
  daemon.stopped().exclusiveJoin(kj::mv(failed.promise)).wait(daemon.waitScope());
  if (!error.ok()) return process.fail(error);
  process.stopping();
  const bool ended = service.stop()
                         .then([] { return true; })
                         .exclusiveJoin(daemon.timer().afterDelay(kFarewell).then([] { return false; }))
                         .wait(daemon.waitScope());
  if (!ended) {
    log::warn("a disk does not answer: what is in flight is left to the kernel, which keeps the locks until it ends");
    log::finish();
    std::_Exit(daemon.status());
  }
  daemon.finishWork();
  return daemon.status();
}

}  // namespace
}  // namespace fluxon::ssdd

int main(int argc, char** argv) {
  return fluxon::rpc::daemonMain(
      argc, argv, {.name = "fluxon-ssdd", .what = "keeps values of a node on its SSDs.", .ofNode = true, .serve = fluxon::ssdd::serve});
}
