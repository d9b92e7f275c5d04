#include "up_verbs.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/host_defaults.h"
#include "master_client.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"
#include "shm_files.h"
#include "supervisor.h"

namespace fluxon::ctl {
namespace {

constexpr uint32_t kDownMs = 8'000;
constexpr uint32_t kAskMs = 500;  // why a start takes long

std::string upDir(const shm::Paths& paths) { return paths.clusterDir() + "/.up"; }
std::string lockPath(const shm::Paths& paths) { return upDir(paths) + "/lock"; }

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
    processes.push_back({.name = owner, .arguments = {programPath("fluxon-owner"), "--node", node}, .after = master});
    if (options.config.owner.largeLimitBytes.empty()) continue;
    processes.push_back({.name = ssdd, .arguments = {programPath("fluxon-ssdd"), "--node", node}, .after = owner});
  }
  for (ProcessSpec& process : processes) {
    if (!options.configPath.empty()) process.arguments.insert(process.arguments.begin() + 1, {"--config", options.configPath});
  }
  return processes;
}

// Where the supervisor's words go: to the terminal, or while it detaches through a pipe to the process that was called.
struct Voice {
  std::function<void(const std::string&)> say;  // stdout
  std::function<void(const std::string&)> problem;
  std::function<void()> ready;
  std::string hint;  // where to read more about a problem
};

int run(const Options& options, const shm::Paths& paths, std::vector<ProcessSpec> processes, const Voice& voice) {
  const auto refuse = [&](const Error& error) {
    voice.problem(error.message());
    return sysexit(error.code);
  };
  int group = -1;
  if (!options.config.common.shmGroup.empty()) {
    const ::group* found = ::getgrnam(options.config.common.shmGroup.c_str());
    if (!found) return refuse({Code::badConfig, "common.shm_group: no group '" + options.config.common.shmGroup + "'"});
    group = static_cast<int>(found->gr_gid);
  }
  if (const Error error = shm::makeDirectories(paths, upDir(paths), group); !error.ok()) return refuse(error);
  const Result<shm::LockFile> lock = shm::LockFile::acquire(lockPath(paths), "cluster " + options.cluster);
  if (!lock) return refuse(lock.error());
  const bool json = options.format == Format::json;
  SupervisorEvents events;
  events.ready = [&](const ProcessSpec& process, int pid) {
    voice.say(json ? jsonObject({text("process", process.name), number("pid", static_cast<uint64_t>(pid))})
                   : process.name + " is ready, pid " + std::to_string(pid));
  };
  events.allReady = [&] {
    voice.say(json ? jsonObject({text("cluster", options.cluster), number("pid", static_cast<uint64_t>(::getpid()))})
                   : "cluster " + options.cluster + " is up (stop it: fluxonctl" +
                         (options.configPath.empty() ? "" : " --config " + quoted(options.configPath)) + " --cluster " +
                         options.cluster + " down)");
    voice.ready();
  };
  events.problem = [&](const std::string& line) { voice.problem(line + voice.hint); };
  events.waiting = [&](const std::string& names) {
    // Owners are ready when they have joined: what keeps this process from the master keeps them.
    Result<std::unique_ptr<MasterClient>> master(nullptr);
    if (options.config.common.master.enabled) master = MasterClient::connect(options.config.common, paths, kAskMs);
    events.problem("waiting for " + names + (master ? "" : ": " + master.error().message()));
  };
  const int status = supervise(std::move(processes), options.timeoutMs, events);
  // What up has started it takes away, the values too.
  for (const std::string& node : options.node.empty() ? options.config.up.nodes : std::vector{options.node}) {
    if (::access(paths.nodeDir(node).c_str(), F_OK) != 0) continue;
    if (const Error error = shm::removeNode(paths, node); !error.ok()) events.problem(error.message());
  }
  return status;
}

void sayLine(const std::string& line) {
  emit(line + "\n");
  std::fflush(stdout);
}

volatile pid_t detached = 0;
volatile sig_atomic_t interrupted = 0;

// Messages of the detaching child: a kind and a line; a pipe that ends without `r` or `s` means that the child is gone.
void tell(int fd, char kind, const std::string& line) {
  const std::string message = kind + line + "\n";
  if (fd >= 0 && ::write(fd, message.data(), message.size()) < 0) return;  // nobody listens any more
}

int relay(int fd, pid_t child, const std::string& logDir) {
  FILE* from = ::fdopen(fd, "r");
  char* line = nullptr;
  size_t capacity = 0;
  int status = -1;
  while (status < 0 && from && ::getline(&line, &capacity, from) > 0) {
    std::string message = line;
    if (!message.empty() && message.back() == '\n') message.pop_back();
    const std::string rest = message.substr(std::min<size_t>(1, message.size()));
    switch (message[0]) {
      case 'o': sayLine(rest); break;
      case 'e': complain(rest); break;
      case 'r': status = 0; break;
      case 's': status = std::atoi(rest.c_str()); break;
      default: break;
    }
  }
  std::free(line);
  if (from) std::fclose(from);
  if (interrupted != 0) return 128 + interrupted;
  if (status >= 0) return status;
  return fail(Code::unavailable,
              "the supervisor (process " + std::to_string(child) + ") ended before all was ready (logs: " + logDir + ")");
}

Result<shm::Descriptor> openLog(const std::string& path) {
  shm::Descriptor log(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log) return systemError("open " + path, errno);
  return log;
}

// In the child, which has its own session and whose stderr is its log.
[[noreturn]] void superviseDetached(const Options& options, const shm::Paths& paths, std::vector<ProcessSpec> processes,
                                    const std::string& logDir, int pipe) {
  ::signal(SIGPIPE, SIG_IGN);
  Voice voice;
  voice.hint = " (logs: " + logDir + ")";
  voice.say = [&](const std::string& line) { tell(pipe, 'o', line); };
  voice.problem = [&](const std::string& line) {
    tell(pipe, 'e', line);
    complain(line);
  };
  voice.ready = [&] {
    tell(pipe, 'r', "");
    ::close(std::exchange(pipe, -1));
    voice.hint.clear();
  };
  const int status = run(options, paths, std::move(processes), voice);
  tell(pipe, 's', std::to_string(status));
  std::_Exit(status);
}

int upDetached(const Options& options, const shm::Paths& paths) {
  const std::string logDir = options.logDir.empty() ? options.config.master.stateDir + "/log" : options.logDir;
  std::error_code error;
  std::filesystem::create_directories(logDir, error);
  if (error) return fail(systemError("create " + logDir, error.value()));
  std::vector<ProcessSpec> processes = processesOf(options);
  std::vector<shm::Descriptor> logs;
  for (ProcessSpec& process : processes) {
    Result<shm::Descriptor> log = openLog(logDir + "/" + process.name + ".log");
    if (!log) return fail(log.error());
    process.logFd = log->get();
    logs.push_back(std::move(log).value());
  }
  const Result<shm::Descriptor> own = openLog(logDir + "/fluxonctl.log");
  if (!own) return fail(own.error());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(systemError("pipe", errno));
  // Whoever interrupts this process while it waits means the one that it has started.
  sigset_t signals, before;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = ::fork();  // before any loop or thread
  if (child < 0) return fail(systemError("fork", errno));
  if (child > 0) {
    ::close(ends[1]);
    detached = child;
    struct sigaction passOn {};
    passOn.sa_handler = [](int signal) { interrupted = signal, ::kill(detached, SIGTERM); };
    passOn.sa_flags = SA_RESTART;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &passOn, nullptr);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return relay(ends[0], child, logDir);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[0]);
  ::setsid();
  const shm::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  ::dup2(own.value().get(), STDERR_FILENO);
  superviseDetached(options, paths, std::move(processes), logDir, ends[1]);
}

}  // namespace

int up(const Options& options) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return fail(paths.error());
  const bool needsState = !options.config.common.master.enabled || (options.detach && options.logDir.empty());
  if (needsState && options.config.master.stateDir.empty()) return fail(noStateDir());
  if (options.detach) return upDetached(options, paths.value());
  if (!options.logDir.empty()) return fail({Code::invalidArgument, "--log-dir without --detach (the processes log to this terminal)"});
  return run(options, paths.value(), processesOf(options), {sayLine, complain, [] {}, ""});
}

int down(const Options& options) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return fail(paths.error());
  const std::string lock = lockPath(paths.value());
  const bool json = options.format == Format::json;
  const auto say = [&](bool stopped, const std::string& line) {
    sayLine(json ? jsonObject({text("cluster", options.cluster), flag("stopped", stopped)}) : line);
    return 0;
  };
  if (const auto nodes = nodesOf(paths.value()); !nodes) return fail(nodes.error());  // a lock that cannot be seen is not a free one
  if (!shm::LockFile::held(lock)) {
    const std::string master = paths.value().masterDir() + "/lock";
    const bool others = shm::LockFile::held(master);
    if (others) {
      return fail({Code::unavailable, "fluxonctl up does not run cluster " + options.cluster + ", but process " +
                                          std::to_string(shm::LockFile::holder(master)) +
                                          " runs its master: stop the processes that fluxonctl status names with SIGTERM"});
    }
    return say(false, "fluxonctl up does not run cluster " + options.cluster + ": nothing to stop");
  }
  const long pid = shm::LockFile::holder(lock);
  if (pid <= 1) return fail({Code::corrupt, lock + " is locked and names no process"});
  if (::kill(static_cast<pid_t>(pid), SIGTERM) != 0 && errno != ESRCH)
    return fail(systemError("stop process " + std::to_string(pid), errno));
  const Time deadline = bootTime() + milliseconds(options.timeoutMs.value_or(kDownMs));
  while (shm::LockFile::held(lock)) {
    if (bootTime() >= deadline) return fail({Code::timedOut, "process " + std::to_string(pid) + " still runs cluster " + options.cluster});
    ::usleep(20'000);
  }
  return say(true, "cluster " + options.cluster + " is down");
}

}  // namespace fluxon::ctl
