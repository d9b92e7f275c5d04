// fluxon-master: wiring. See fluxon-master(8).
#include <kj/debug.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/host_defaults.h"
#include "file_watch.h"
#include "rpc/access.h"
#include "rpc/daemon_main.h"
#include "rpc/http_endpoint.h"
#include "rpc/net_stream.h"
#include "rpc/socket_stream.h"
#include "service.h"
#include "shm/paths.h"
#include "state_file.h"

namespace fluxon::master {
namespace {

constexpr Duration kStopped = milliseconds(100);

// What lies in state_dir.
struct Opened {
  shm::LockFile lock;
  DurableState state;
};

// Blocks for the disk. The term is durable before any of its messages, with the longest lease that it or an earlier one may have given.
Error openState(const Config& config, const std::string& what, Opened& opened) {
  const std::string& folder = config.master.stateDir;
  if (Error error = shm::checkWay(folder); !error.ok()) return error;
  std::error_code created;
  std::filesystem::create_directories(folder, created);
  if (created) return {Code::system, "create " + folder + ": " + created.message()};
  Result<shm::LockFile> lock = shm::LockFile::acquire(folder + "/lock", what);
  if (!lock) return lock.error();
  opened.lock = std::move(lock).value();
  const std::string path = folder + "/state";
  const std::unique_ptr<StateDisk> disk = kernelDisk();
  Result<DurableState> state = loadState(*disk, path, config.common.cluster, toString(newIncarnation()));
  if (!state) return state.error();
  opened.state = std::move(state).value();
  if (opened.state.term.value >= PutId::kMaxTerm) return {Code::corrupt, path + ": no term is left"};
  ++opened.state.term.value;
  opened.state.leaseMs = std::max(opened.state.leaseMs, static_cast<uint64_t>(config.master.lease.ms()));
  return storeState(*disk, path, opened.state);
}

// On a worker thread: a file system that does not answer keeps no signal waiting. The exit status, if it is over.
std::optional<int> open(rpc::Process& process, const std::string& what, Opened& opened) {
  rpc::Daemon& daemon = process.daemon();
  auto result = std::make_shared<std::pair<Opened, Error>>();
  const auto blocking = [config = process.config, what, result] { result->second = openState(config, what, result->first); };
  kj::Promise<bool> done = daemon.workers().run(blocking).then([] { return true; });
  if (!done.exclusiveJoin(daemon.stopped().then([] { return false; })).wait(daemon.waitScope())) {
    daemon.finishWork();
    return daemon.status();
  }
  if (!result->second.ok()) return process.fail(result->second);
  opened = std::move(result->first);
  return std::nullopt;
}

// The master's folder in shared memory, locked: a second master of the cluster on this host ends here.
Result<shm::LockFile> lockFolder(const Config& config, const shm::Paths& paths, const std::string& what) {
  // Clients of the group pass the folders on the way to their nodes; the master's own is its user's alone.
  const Result<int> group = shm::groupOf(config.common.shmGroup);
  if (!group) return group.error();
  if (Error error = shm::makeDirectories(paths, paths.clusterDir(), group.value()); !error.ok()) return error;
  if (Error error = shm::makeDirectory(paths.masterDir(), -1); !error.ok()) return error;
  return shm::LockFile::acquire(paths.masterDir() + "/lock", what);
}

// Where processes of other hosts connect; null: nowhere.
Result<kj::Own<rpc::NetListener>> listenToHosts(rpc::Daemon& daemon, const Config& config, rpc::Access& access, Incarnation incarnation,
                                                rpc::Refusals& refusals) {
  if (!config.master.listen.enabled) return kj::Own<rpc::NetListener>();
  return rpc::NetListener::bind(daemon.port(), config.master.listen, access, net::Purpose::rpc, {"", incarnation}, refusals);
}

int serve(rpc::Process& process) {
  const Config& config = process.config;
  rpc::Daemon& daemon = process.daemon();
  if (config.common.master.enabled) {
    return process.fail({Code::badConfig, "common.master = \"" + toString(config.common.master) +
                                              "\" is the master of this host: fluxon-master is "
                                              "for the host whose configuration names none"});
  }
  kj::Own<rpc::Access> access = kj::heap<rpc::Access>();
  if (config.master.listen.enabled) {
    Result<kj::Own<rpc::Access>> loaded = rpc::Access::load(config.common, rpc::Access::Side::listens);
    if (!loaded) return process.fail(loaded.error());
    access = kj::mv(loaded.value());
  }
  Result<shm::Paths> paths = shm::Paths::of(config.common.shmRoot, config.common.cluster);
  if (!paths) return process.fail(paths.error());
  const std::string what = "the master of cluster " + config.common.cluster;
  Result<shm::LockFile> socketLock = lockFolder(config, *paths, what);
  if (!socketLock) return process.fail(socketLock.error());

  if (config.master.stateDir.empty()) return process.fail(noStateDir());
  Opened opened;
  if (const std::optional<int> end = open(process, what, opened)) return *end;
  const std::string statePath = config.master.stateDir + "/state";

  const MasterCore::Identity identity{config.common.cluster, opened.state.clusterId, opened.state.term, newIncarnation()};
  const Settings settings{config.master.lease, config.master.putWait, config.master.minimumKeyLease, kStopped};
  rpc::Refusals refusals;
  Service service(daemon, identity, settings, opened.state, statePath, refusals);

  rpc::HttpEndpoint http(daemon, {[&] { return service.metrics(); }, [&](bool& healthy) { return service.health(healthy); }});
  Result<std::string> address = http.listen(config.master.http);
  if (!address) return process.fail(address.error());
  service.setHttp(*address);

  // The port is bound after the lock, so that a second master of the cluster reports the first one and not a port in use; and before the
  // socket, so that a master that cannot start serves nobody.
  Result<kj::Own<rpc::NetListener>> bound = listenToHosts(daemon, config, *access, identity.incarnation, refusals);
  if (!bound) return process.fail(bound.error());
  kj::Own<rpc::NetListener> remote = kj::mv(bound.value());
  if (remote.get()) service.setListen(toString(remote->address()));
  const std::string socket = paths->masterSocket();
  ::unlink(socket.c_str());
  Result<kj::Own<rpc::SocketListener>> listener = rpc::SocketListener::bindUnix(daemon.port(), socket, refusals);
  if (!listener) return process.fail(listener.error());
  const auto failed = [](kj::Exception&& error) { KJ_LOG(FATAL, "rpc server", error); };
  kj::Promise<void> serving =
      (*listener)
          ->serve([&](rpc::SocketListener::Accepted peer) { service.accept(kj::mv(peer.stream), "the master's host"); })
          .eagerlyEvaluate(failed);

  kj::Promise<void> servingRemote = kj::NEVER_DONE;
  if (remote.get()) {
    const auto accepted = [&](kj::Own<kj::AsyncIoStream> stream, const std::string& peer) {
      service.accept(kj::mv(stream), peer.substr(0, peer.rfind(':')));
    };
    servingRemote = remote->serve(accepted).eagerlyEvaluate(failed);
  }

  const std::string listens = remote.get() ? toString(remote->address()) : "off";
  process.ready("cluster " + identity.cluster + ", term " + std::to_string(identity.term.value) + ", listen " + listens + ", http " +
                (address->empty() ? "off" : *address));
  FileWatch::Files files{{}, config.master.stateDir, statePath, opened.lock, what};
  for (const std::string& path : {paths->masterDir() + "/lock", socket}) {
    if (Error error = files.sharedMemory.add(path); !error.ok()) return process.fail(error);
  }
  FileWatch watch(daemon, std::move(files), [&] { service.storeAgain(); });
  const Error lost = daemon.stopped().then([] { return Error{}; }).exclusiveJoin(watch.lost()).wait(daemon.waitScope());
  process.stopping();
  // Without its lock the socket may be another's.
  if (socketLock->named(paths->masterDir() + "/lock")) ::unlink(socket.c_str());
  daemon.finishWork();
  return lost.ok() ? daemon.status() : process.fail({lost.code, lost.detail + ": this master ends, and is to be started anew"});
}

}  // namespace
}  // namespace fluxon::master

int main(int argc, char** argv) {
  return fluxon::rpc::daemonMain(argc, argv,
                                 {.name = "fluxon-master",
                                  .what = "keeps the routes, the allocation, the leases and the membership of a Fluxon cluster.",
                                  .serve = fluxon::master::serve});
}
