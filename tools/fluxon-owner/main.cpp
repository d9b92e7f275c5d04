// fluxon-owner: wiring. See fluxon-owner(8).
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "base/size.h"
#include "node_files.h"
#include "options.h"
#include "rpc/access.h"
#include "rpc/daemon.h"
#include "rpc/http_endpoint.h"
#include "service.h"
#include "shm/fault_guard.h"

namespace fluxon::owner {
namespace {

int fail(const Error& error) {
  log::last("fluxon-owner: " + error.message());
  return sysexit(error.code);
}

int run(const Options& options) {
  const Config& config = options.config;
  // KJ has another one for itself then.
  kj::UnixEventPort::setReservedSignal(SIGUSR2);
  kj::UnixEventPort::captureSignal(SIGUSR1);
  rpc::Daemon daemon;
  shm::FaultGuard::install("fluxon-owner");
  if (Error error = log::start("fluxon-owner[" + options.node + "]", config.common.logLevel); !error.ok()) return fail(error);

  if (options.node == config.owner.node && !config.owner.nodeWhy.empty()) {
    log::info("node " + options.node + ": " + config.owner.nodeWhy + " (owner.node names another)");
  }
  kj::Own<rpc::Access> access = kj::heap<rpc::Access>();
  if (config.common.master.enabled) {
    Result<kj::Own<rpc::Access>> loaded = rpc::Access::load(config.common, rpc::Access::Side::connects);
    if (!loaded) return fail(loaded.error());
    access = kj::mv(loaded.value());
  }
  const Result<int> group = shm::groupOf(config.common.shmGroup);
  if (!group) return fail(group.error());
  Result<shm::Paths> paths = shm::Paths::of(config.common.shmRoot, config.common.cluster);
  if (!paths) return fail(paths.error());
  Result<std::unique_ptr<NodeFiles>> files = NodeFiles::create(*paths, options.node, config.owner, group.value(), newIncarnation());
  if (!files) return fail(files.error());
  log::info("segment " + formatSize(config.owner.segmentBytes) + ", directory for " + std::to_string(config.owner.maxKeys) +
            " keys: " + formatSize((*files)->fileBytes() - config.owner.segmentBytes) + ", " + (*files)->paths().nodeDir(options.node));

  Service service(daemon, **files, config, *access);
  rpc::HttpEndpoint http(daemon, {[&] { return service.metrics(); }, [&](bool& healthy) { return service.health(healthy); }});
  Result<std::string> address = http.listen(config.owner.http);
  if (!address) return fail(address.error());
  service.setHttp(*address);
  if (Error error = service.start(); !error.ok()) return fail(error);

  const auto announce = [&] {
    log::info("ready: node " + options.node + ", http " + (address->empty() ? "off" : *address));
    rpc::announceReady(options.readyFd, "node " + options.node + ", http " + (address->empty() ? "off" : *address));
  };
  kj::Promise<void> announced = service.ready().then(announce).eagerlyEvaluate(nullptr);
  kj::Promise<void> dismissed = daemon.port().onSignal(SIGUSR1).then([&](siginfo_t) { service.leave("stopping: SIGUSR1"); });
  daemon.stopped().exclusiveJoin(service.left()).exclusiveJoin(kj::mv(dismissed)).wait(daemon.waitScope());
  rpc::announceStopping();
  const NodeFiles::Loss& loss = service.loss();
  if (loss.what != NodeFiles::Loss::What::lock) service.stop().wait(daemon.waitScope());
  daemon.settle();
  return loss.error.ok() ? daemon.status() : fail({loss.error.code, loss.error.detail + ": this owner ends, and is to be started anew"});
}

}  // namespace
}  // namespace fluxon::owner

int main(int argc, char** argv) {
  fluxon::beginProgram();
  int status = 0;
  const auto options = fluxon::owner::parseOptions(argc, argv, status);
  if (!options) return status;
  return fluxon::rpc::guarded("fluxon-owner", [&] { return fluxon::owner::run(*options); });
}
