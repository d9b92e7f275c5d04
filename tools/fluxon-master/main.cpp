// fluxon-master: wiring. See fluxon-master(8).
#include <kj/debug.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/host_defaults.h"
#include "base/log.h"
#include "base/process.h"
#include "file_watch.h"
#include "options.h"
#include "rpc/access.h"
#include "rpc/daemon.h"
#include "rpc/http_endpoint.h"
#include "rpc/net_stream.h"
#include "rpc/socket_stream.h"
#include "service.h"
#include "shm/paths.h"
#include "state_file.h"

namespace fluxon::master {
namespace {

constexpr Duration kStopped = milliseconds(100);

int fail(const Error& error) {
  log::last("fluxon-master: " + error.message());
  return sysexit(error.code);
}

int run(const Options& options) {
  const Config& config = options.config;
  rpc::Daemon daemon;
  log::start("fluxon-master", config.common.logLevel);

  if (config.common.master.enabled) {
    return fail({Code::badConfig, "common.master = \"" + toString(config.common.master) + "\" is the master of this host: fluxon-master is "
                                  "for the host whose configuration names none"});
  }
  kj::Own<rpc::Access> access = kj::heap<rpc::Access>();
  if (config.master.listen.enabled) {
    Result<kj::Own<rpc::Access>> loaded = rpc::Access::load(config.common, rpc::Access::Side::listens);
    if (!loaded) return fail(loaded.error());
    access = kj::mv(loaded.value());
  }
  Result<shm::Paths> paths = shm::Paths::of(config.common.shmRoot, config.common.cluster);
  if (!paths) return fail(paths.error());
  if (Error error = shm::makeDirectories(*paths, paths->masterDir(), -1); !error.ok()) return fail(error);
  const std::string what = "the master of cluster " + config.common.cluster;
  Result<shm::LockFile> socketLock = shm::LockFile::acquire(paths->masterDir() + "/lock", what);
  if (!socketLock) return fail(socketLock.error());

  if (config.master.stateDir.empty()) return fail(noStateDir());
  if (Error error = shm::checkWay(config.master.stateDir); !error.ok()) return fail(error);
  std::error_code created;
  std::filesystem::create_directories(config.master.stateDir, created);
  if (created) return fail({Code::system, "create " + config.master.stateDir + ": " + created.message()});
  Result<shm::LockFile> stateLock = shm::LockFile::acquire(config.master.stateDir + "/lock", what);
  if (!stateLock) return fail(stateLock.error());
  const std::string statePath = config.master.stateDir + "/state";
  const std::unique_ptr<StateDisk> disk = kernelDisk();
  Result<DurableState> state = loadState(*disk, statePath, config.common.cluster, toString(newIncarnation()));
  if (!state) return fail(state.error());
  if (state->term.value >= PutId::kMaxTerm) return fail({Code::corrupt, statePath + ": no term is left"});
  // The term is durable before any of its messages, with the longest lease that it or an earlier one may have given.
  ++state->term.value;
  state->leaseMs = std::max(state->leaseMs, static_cast<uint64_t>(config.master.lease.ms()));
  if (Error error = storeState(*disk, statePath, *state); !error.ok()) return fail(error);

  const MasterCore::Identity identity{config.common.cluster, state->clusterId, state->term, newIncarnation()};
  const Settings settings{config.master.lease, config.master.putWait, config.master.minimumKeyLease, kStopped};
  rpc::Refusals refusals;
  Service service(daemon, identity, settings, *state, statePath, refusals);

  rpc::HttpEndpoint http(daemon, {[&] { return service.metrics(); }, [&](bool& healthy) { return service.health(healthy); }});
  Result<std::string> address = http.listen(config.master.http);
  if (!address) return fail(address.error());
  service.setHttp(*address);

  // After the lock, so that a second master of the cluster hears of the first one and not of a port; and before the socket, so that
  // nobody is served by a master that cannot start.
  kj::Own<rpc::NetListener> remote;
  if (config.master.listen.enabled) {
    Result<kj::Own<rpc::NetListener>> bound = rpc::NetListener::bind(daemon.port(), config.master.listen, *access, link::Purpose::rpc,
                                                                     {"", identity.incarnation}, refusals);
    if (!bound) return fail(bound.error());
    remote = kj::mv(bound.value());
    service.setListen(toString(remote->address()));
  }
  const std::string socket = paths->masterSocket();
  ::unlink(socket.c_str());
  Result<kj::Own<rpc::SocketListener>> listener =
      rpc::SocketListener::bindUnix(daemon.port(), socket, refusals);
  if (!listener) return fail(listener.error());
  const auto failed = [](kj::Exception&& error) { KJ_LOG(FATAL, "rpc server", error); };
  kj::Promise<void> serving =
      (*listener)
          ->serve([&](rpc::SocketListener::Accepted peer) { service.accept(kj::mv(peer.stream), "the master's host"); })
          .eagerlyEvaluate(failed);

  kj::Promise<void> servingRemote = kj::NEVER_DONE;
  if (remote.get()) {
    const auto opened = [&](kj::Own<kj::AsyncIoStream> stream, const std::string& peer) {
      service.accept(kj::mv(stream), peer.substr(0, peer.rfind(':')));
    };
    servingRemote = remote->serve(opened).eagerlyEvaluate(failed);
  }

  const std::string listens = remote.get() ? toString(remote->address()) : "off";
  const std::string status = "term " + std::to_string(identity.term.value) + ", listen " + listens + ", http " +
                             (address->empty() ? "off" : *address);
  log::info("ready: cluster " + identity.cluster + ", " + status);
  rpc::announceReady(options.readyFd, status);
  FileWatch::Files files{{}, config.master.stateDir, statePath, *stateLock, what};
  for (const std::string& path : {paths->masterDir() + "/lock", socket}) {
    if (Error error = files.sharedMemory.add(path); !error.ok()) return fail(error);
  }
  FileWatch watch(daemon, std::move(files), [&] { service.storeAgain(); });
  const Error lost = daemon.stopped().then([] { return Error{}; }).exclusiveJoin(watch.lost()).wait(daemon.waitScope());
  rpc::announceStopping();
  // Without its lock the socket may be another's.
  if (socketLock->named(paths->masterDir() + "/lock")) ::unlink(socket.c_str());
  daemon.settle();
  return lost.ok() ? daemon.status() : fail({lost.code, lost.detail + ": this master ends, and is to be started anew"});
}

}  // namespace
}  // namespace fluxon::master

int main(int argc, char** argv) {
  fluxon::beginProgram();
  int status = 0;
  const auto options = fluxon::master::parseOptions(argc, argv, status);
  if (!options) return status;
  return fluxon::rpc::guarded("fluxon-master", [&] { return fluxon::master::run(*options); });
}
