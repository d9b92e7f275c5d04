// fluxon-ssdd: wiring. See fluxon-ssdd(8).
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "base/process.h"
#include "options.h"
#include "rpc/daemon.h"
#include "rpc/http_endpoint.h"
#include "service.h"
#include "shm/fault_guard.h"

namespace fluxon::ssdd {
namespace {

constexpr auto kFarewell = 4 * kj::SECONDS;

int fail(const Error& error) {
  log::last("fluxon-ssdd: " + error.message());
  return sysexit(error.code);
}

int run(const Options& options) {
  const Config& config = options.config;
  if (config.owner.largeLimitBytes.empty()) {
    log::last("fluxon-ssdd: not enabled (owner.large_limit_size is empty)");
    return sysexit(Code::badConfig);
  }
  rpc::Daemon daemon;
  shm::FaultGuard::install("fluxon-ssdd");
  if (Error error = log::start("fluxon-ssdd[" + options.node + "]", config.common.logLevel); !error.ok()) return fail(error);
  Result<shm::Paths> paths = shm::Paths::of(config.common.shmRoot, config.common.cluster);
  if (!paths) return fail(paths.error());

  Service service(daemon, config, *paths, options.node);
  rpc::HttpEndpoint http(daemon, {[&] { return service.metrics(); }, [&](bool& healthy) { return service.health(healthy); }});
  Result<std::string> address = http.listen(config.ssdd.http);
  if (!address) return fail(address.error());
  const std::string status = "node " + options.node + ", http " + (address->empty() ? "off" : *address);
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
  kj::Promise<void> announced = service.ready()
                                    .then([&] {
                                      log::info("ready: " + status);
                                      rpc::announceReady(options.readyFd, status);
                                    })
                                    .eagerlyEvaluate(nullptr);
  daemon.stopped().exclusiveJoin(kj::mv(failed.promise)).wait(daemon.waitScope());
  if (!error.ok()) return fail(error);
  rpc::announceStopping();
  const bool ended = service.stop()
                         .then([] { return true; })
                         .exclusiveJoin(daemon.timer().afterDelay(kFarewell).then([] { return false; }))
                         .wait(daemon.waitScope());
  if (!ended) {
    log::warn("a disk does not answer: what is in flight is left to the kernel, which keeps the locks until it ends");
    log::finish();
    std::_Exit(daemon.status());
  }
  daemon.settle();
  return daemon.status();
}

}  // namespace
}  // namespace fluxon::ssdd

int main(int argc, char** argv) {
  fluxon::beginProgram();
  int status = 0;
  const auto options = fluxon::ssdd::parseOptions(argc, argv, status);
  if (!options) return status;
  return fluxon::rpc::guarded("fluxon-ssdd", [&] { return fluxon::ssdd::run(*options); });
}
