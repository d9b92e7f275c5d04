#include "up_verbs.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/host_defaults.h"
#include "detach.h"
#include "master_client.h"
#include "shm/paths.h"
#include "shm_files.h"
#include "supervisor.h"
#include "up_place.h"

namespace fluxon::ctl {
namespace {

constexpr uint32_t kDownMs = 8'000;
constexpr uint32_t kAskMs = 500;  // why a start takes long

// The program beside this one, else the one in PATH.
std::string programPath(const std::string& name) {
  char self[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
  const std::string path = n > 0 ? std::string(self, static_cast<size_t>(n)) : "";
  const std::string beside = path.substr(0, path.rfind('/') + 1) + name;
  return ::access(beside.c_str(), X_OK) == 0 ? beside : name;
}

std::vector<ProcessSpec> processesOf(const Options& options) {
  std::vector<ProcessSpec> processes;
  const std::string master = options.config.common.master.enabled ? "" : "fluxon-master";
  if (!master.empty()) processes.push_back({.name = master, .arguments = {programPath(master)}, .isMaster = true});
  const std::vector<std::string> nodes = options.node.empty() ? options.config.up.nodes : std::vector{options.node};
  for (const std::string& node : nodes) {
    const std::string owner = "fluxon-owner[" + node + "]", ssdd = "fluxon-ssdd[" + node + "]";
    processes.push_back({.name = owner, .arguments = {programPath("fluxon-owner"), "--node", node}, .after = master, .node = node});
    if (options.config.owner.largeLimitBytes.empty()) continue;
    processes.push_back({.name = ssdd, .arguments = {programPath("fluxon-ssdd"), "--node", node}, .after = owner});
  }
  for (ProcessSpec& process : processes) {
    if (!options.configPath.empty()) process.arguments.insert(process.arguments.begin() + 1, {"--config", options.configPath});
  }
  return processes;
}

// The nodes whose owner this run has started, and whether they had values of an earlier life then.
class Started {
 public:
  explicit Started(const shm::Paths& paths) : paths_(paths) {}
  void starting(const ProcessSpec& process) {
    if (!process.node.empty()) hadValues_.emplace(process.node, hasSegment(process.node));
  }
  // A drained owner leaves nothing; one that was stopped leaves its values, and is started again.
  bool hasLeft(const std::string& node) { return !hasSegment(node) && hadValues_.erase(node) > 0; }
  // What this run has made: of a start that failed not the values that were there before.
  template <class Problem>
  void remove(bool wasUp, Problem problem) const {
    for (const auto& [node, hadValues] : hadValues_) {
      std::error_code error;
      if ((hadValues && !wasUp) || !std::filesystem::is_directory(paths_.nodeDir(node), error)) continue;
      if (const Error failed = shm::removeNode(paths_, node); !failed.ok()) problem(failed.message());
    }
  }

 private:
  bool hasSegment(const std::string& node) const { return ::access(paths_.file(node, "segment").c_str(), F_OK) == 0; }

  const shm::Paths& paths_;
  std::map<std::string, bool> hadValues_;
};

int run(const Options& options, const shm::Paths& paths, std::vector<ProcessSpec> processes, const Voice& voice) {
  const auto refuse = [&](const Error& error) {
    voice.problem(error.message());
    return sysexit(error.code);
  };
  const Result<int> group = shm::groupOf(options.config.common.shmGroup);
  if (!group) return refuse(group.error());
  Result<UpPlace> place = UpPlace::take(paths, group.value());
  if (!place) return refuse(place.error());
  const bool json = options.format == Format::json;
  Started started(paths);
  bool wasUp = false;
  SupervisorEvents events;
  events.starting = [&](const ProcessSpec& process) { started.starting(process), voice.logs.starting(process); };
  events.ready = [&](const ProcessSpec& process, int pid) {
    voice.say(json ? jsonObject({text("process", process.name), number("pid", static_cast<uint64_t>(pid))})
                   : process.name + " is ready, pid " + std::to_string(pid));
  };
  events.allReady = [&] {
    wasUp = true;
    const std::string config = options.configPath.empty() ? "" : " --config " + quoted(options.configPath);
    std::vector<Cell> cells{text("cluster", options.cluster), number("pid", static_cast<uint64_t>(::getpid()))};
    if (!voice.logs.folder().empty()) cells.push_back(text("logs", voice.logs.folder()));
    voice.say(json ? jsonObject(cells)
                   : "cluster " + options.cluster + " is up" + (voice.logs.folder().empty() ? "" : ", logs in " + voice.logs.folder()) +
                         " (stop it: fluxonctl" + config + " --cluster " + options.cluster + " down)");
    voice.ready();
  };
  events.problem = [&](const std::string& line) { voice.problem(line + (wasUp ? "" : voice.logs.hint())); };
  std::string waited;
  events.waiting = [&](const std::vector<const ProcessSpec*>& starting) {
    std::string names, why;
    for (const ProcessSpec* process : starting) {
      const std::string warning = voice.logs.warning(*process);
      names += (names.empty() ? "" : ", ") + process->name;
      if (!warning.empty()) why += (why.empty() ? "" : "; ") + (starting.size() > 1 ? process->name + ": " : "") + warning;
    }
    // Owners are ready when they have joined: what keeps this process from the master keeps them.
    if (why.empty() && waited.empty() && options.config.common.master.enabled) {
      const Result<std::unique_ptr<MasterClient>> master = MasterClient::connect(options.config.common, paths, kAskMs);
      if (!master) why = master.error().message();
    }
    const std::string line = "waiting for " + names + (why.empty() ? "" : ": " + why);
    if (!waited.empty() && (why.empty() || line == waited)) return;
    waited = line;
    events.problem(line);
  };
  events.warning = [&](const ProcessSpec& process) { return voice.logs.warning(process); };
  events.hasLeft = [&](const ProcessSpec& owner) { return started.hasLeft(owner.node); };
  events.lastWords = [&](const ProcessSpec& process) { return voice.logs.lastWords(process); };
  events.everySecond = [&] {
    voice.logs.trim();
    if (const std::string line = place->renew(); !line.empty()) voice.problem(line);
    return place->stopFd();
  };
  const int status = supervise(std::move(processes), options.timeoutMs, place->stopFd(), events);
  started.remove(wasUp, events.problem);
  return status;
}

// Folders of shard files of the cluster that are there. `down` and clean leave them.
std::vector<std::string> shardFolders(const Options& options) {
  std::vector<std::string> folders;
  for (const std::string& path : options.config.owner.largeFilePaths) {
    const std::string folder = path + "/" + options.cluster + "_cluster_kv_ssd_storage";
    const bool known = std::find(folders.begin(), folders.end(), folder) != folders.end();
    if (!known && ::access(folder.c_str(), F_OK) == 0) folders.push_back(folder);
  }
  return folders;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

// Nothing that `up` runs is left.
int nothingToStop(const Options& options, const shm::Paths& paths, const std::vector<std::string>& nodes,
                  const std::function<int(const std::string&)>& say) {
  if (const std::string lost = lostUp(paths); !lost.empty()) return fail({Code::unavailable, lost});
  const std::string what = "fluxonctl up does not run cluster " + options.cluster, master = paths.masterDir() + "/lock";
  if (const shm::LockFile::Taken taken = shm::LockFile::taken(master); taken != shm::LockFile::Taken::no) {
    return fail(taken == shm::LockFile::Taken::unseen
                    ? Error{Code::denied, what + ", and whether its master runs is not known: " + master + " cannot be seen from here"}
                    : Error{Code::unavailable, what + ", but " + shm::LockFile::whoHolds(master) +
                                                   " runs its master: stop the processes that fluxonctl status names with SIGTERM"});
  }
  std::vector<std::string> left;
  for (const std::string& node : nodes) {
    const bool ended = shm::LockFile::taken(paths.file(node, "lock")) == shm::LockFile::Taken::no;
    if (ended && ::access(paths.file(node, "segment").c_str(), F_OK) == 0) left.push_back(node);
  }
  const std::string kept = " of an earlier run are kept (fluxonctl up goes on with them, clean removes them)";
  return say(what + ": nothing to stop" + (left.empty() ? "" : "; values of " + joined(left) + kept));
}

}  // namespace

int up(const Options& given) {
  Options options = given;
  std::error_code error;
  // `up` in the background, and whoever reads how to stop it, may be in another folder.
  if (!given.configPath.empty()) options.configPath = std::filesystem::absolute(given.configPath, error);
  if (error) return fail(systemError(given.configPath, error.value()));
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return fail(paths.error());
  const bool needsState = !options.config.common.master.enabled || (options.detach && options.logDir.empty());
  if (needsState && options.config.master.stateDir.empty()) return fail(noStateDir());
  std::vector<ProcessSpec> processes = processesOf(options);
  if (options.detach) {
    return detach(options, paths.value(), std::move(processes), [&](std::vector<ProcessSpec> logged, const Voice& voice) {
      return run(options, paths.value(), std::move(logged), voice);
    });
  }
  if (!options.logDir.empty()) return fail({Code::invalidArgument, "--log-dir without --detach (the processes log to this terminal)"});
  Logs none;
  const Result<Terminal> terminal = Terminal::open(options.format);
  if (!terminal) return fail(terminal.error());
  const Voice voice{[&](const std::string& line) { terminal.value().say(line); },
                    [&](const std::string& line) { terminal.value().complain(line); }, [] {}, none};
  const int status = run(options, paths.value(), std::move(processes), voice);
  terminal.value().finish();
  return status;
}

int down(const Options& options) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return fail(paths.error());
  const std::vector<std::string> shards = shardFolders(options);
  const auto say = [&](bool stopped, const std::string& line) {
    const std::string stay = shards.empty() ? "" : "; shard files stay in " + joined(shards) + " (the next start empties them)";
    const bool json = options.format == Format::json;
    sayLine(json ? jsonObject({text("cluster", options.cluster), flag("stopped", stopped), list("shard_folders", shards)}) : line + stay);
    return 0;
  };
  const auto nodes = nodesOf(paths.value());
  if (!nodes) return fail(nodes.error());  // a lock that cannot be seen is not a free one
  const Result<bool> stopped = stopUp(paths.value(), milliseconds(options.timeoutMs.value_or(kDownMs)));
  if (!stopped) return fail(stopped.error());
  if (!stopped.value())
    return nothingToStop(options, paths.value(), nodes.value(), [&](const std::string& line) { return say(false, line); });
  return say(true, "cluster " + options.cluster + " is down");
}

}  // namespace fluxon::ctl
