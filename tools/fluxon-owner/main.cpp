// fluxon-owner: wiring. See fluxon-owner(8).
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "node_files.h"
#include "rpc/access.h"
#include "rpc/daemon_main.h"
#include "rpc/http_endpoint.h"
#include "service.h"
#include "shm/fault_guard.h"

namespace fluxon::owner {
namespace {

void takeSignals() {
  // SIGUSR1 dismisses this owner, so KJ gets another signal for itself.
  kj::UnixEventPort::setReservedSignal(SIGUSR2);
  kj::UnixEventPort::captureSignal(SIGUSR1);
}

int serve(rpc::Process& process) {
  const Config& config = process.config;
  rpc::Daemon& daemon = process.daemon();
  shm::FaultGuard::install("fluxon-owner");
  if (process.node == config.owner.node && !config.owner.nodeWhy.empty()) {
    log::info("node " + process.node + ": " + config.owner.nodeWhy + " (owner.node names another)");
  }
  kj::Own<rpc::Access> access = kj::heap<rpc::Access>();
  if (config.common.master.enabled) {
    Result<kj::Own<rpc::Access>> loaded = rpc::Access::load(config.common, rpc::Access::Side::connects);
    if (!loaded) return process.fail(loaded.error());
    access = kj::mv(loaded.value());
  }
  const Result<int> group = shm::groupOf(config.common.shmGroup);
  if (!group) return process.fail(group.error());
  Result<shm::Paths> paths = shm::Paths::of(config.common.shmRoot, config.common.cluster);
  if (!paths) return process.fail(paths.error());
  Result<std::unique_ptr<NodeFiles>> files = NodeFiles::create(*paths, process.node, config.owner, group.value(), newIncarnation());
  if (!files) return process.fail(files.error());
  log::info("segment " + formatSize(config.owner.segmentBytes) + ", directory for " + std::to_string(config.owner.maxKeys) +
            " keys: " + formatSize((*files)->fileBytes() - config.owner.segmentBytes) + ", " + (*files)->paths().nodeDir(process.node));

  Service service(daemon, **files, config, *access);
  rpc::HttpEndpoint http(daemon, {[&] { return service.metrics(); }, [&](bool& healthy) { return service.health(healthy); }});
  Result<std::string> address = http.listen(config.owner.http);
  if (!address) return process.fail(address.error());
  service.setHttp(*address);
  if (Error error = service.start(); !error.ok()) return process.fail(error);

  const auto announce = [&] { process.ready("node " + process.node + ", http " + (address->empty() ? "off" : *address)); };
  kj::Promise<void> announced = service.ready().then(announce).eagerlyEvaluate(nullptr);
  kj::Promise<void> dismissed = daemon.port().onSignal(SIGUSR1).then([&](siginfo_t) { service.leave("stopping: SIGUSR1"); });
  daemon.stopped().exclusiveJoin(service.left()).exclusiveJoin(kj::mv(dismissed)).wait(daemon.waitScope());
  process.stopping();
  const NodeFiles::Loss& loss = service.loss();
  if (loss.what != NodeFiles::Loss::What::lock) service.stop().wait(daemon.waitScope());
  daemon.finishWork();
  return loss.error.ok() ? daemon.status()
                         : process.fail({loss.error.code, loss.error.detail + ": this owner ends, and is to be started anew"});
}

}  // namespace
}  // namespace fluxon::owner

int main(int argc, char** argv) {
  return fluxon::rpc::daemonMain(argc, argv,
                                 {.name = "fluxon-owner",
                                  .what = "holds values in shared memory and serves them to the clients of its host.",
                                  .ofNode = true,
                                  .prepare = fluxon::owner::takeSignals,
                                  .serve = fluxon::owner::serve});
}
