#include "detach.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/thread.h"
#include "spawn.h"

namespace fluxon::ctl {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr Duration kPatience = milliseconds(500);

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

// STATE_DIR/log. Without a master here the state folder is only a default, which several hosts of one machine may have in common: then
// there is one below it for each root.
std::string logFolder(const Options& options, const shm::Paths& paths) {
  if (!options.logDir.empty()) return std::filesystem::absolute(options.logDir);
  std::string folder = options.config.master.stateDir + "/log";
  if (!options.config.common.master.enabled) return folder;
  std::string root = paths.root.substr(1);
  std::replace(root.begin(), root.end(), '/', '-');
  return folder + "/" + root;
}

// What would mean something else in the folder "/".
Error refuseRelative(const Config& config) {
  const std::pair<const char*, const std::string&> paths[] = {{"master.state_dir", config.master.stateDir},
                                                              {"common.secret_file", config.common.secretFile}};
  for (const auto& [key, path] : paths) {
    if (path.empty() || path.starts_with("/")) continue;
    return {Code::badConfig, std::string(key) + " '" + path + "' (accepted with --detach: an absolute path)"};
  }
  return {};
}

// Whoever interrupts this process while it waits means the one that it has started. What was ignored or blocked at the start: ignored
// stays so, blocked does not.
void passSignalsOn(pid_t child) {
  detached = child;
  struct sigaction passOn {};
  passOn.sa_handler = [](int signal) { interrupted = signal, ::kill(detached, SIGTERM); };
  passOn.sa_flags = SA_RESTART;
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kSignals) {
    struct sigaction before {};
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) ::sigaction(signal, &passOn, nullptr);
    ::sigaddset(&signals, signal);
  }
  ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

// In the child. stderr becomes its log.
Error leaveCaller(int log) {
  ::setsid();
  const shm::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return systemError("open /dev/null", errno);
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_IGN);
  return ::chdir("/") == 0 ? Error{} : systemError("chdir /", errno);
}

}  // namespace

Result<Terminal> Terminal::open(Format format) {
  const Result<LineWriter*> out = LineWriter::start(STDOUT_FILENO, [format](uint64_t lines) {
    return format == Format::json ? jsonObject({number("lines_left_out", lines)}) + "\n"
                                  : std::to_string(lines) + " lines were left out here: stdout did not take them\n";
  });
  if (!out) return out.error();
  const Result<LineWriter*> err = LineWriter::start(STDERR_FILENO, [](uint64_t lines) {
    return complaint(std::to_string(lines) + " lines were left out here: stderr did not take them");
  });
  if (!err) return err.error();
  return Terminal(out.value(), err.value());
}

void Terminal::finish() const {
  const Time end = bootTime() + kPatience;
  out_->drain(kPatience);
  err_->drain(std::max(Duration{}, end - bootTime()));
}

void sayLine(const std::string& line) {
  emit(line + "\n");
  std::fflush(stdout);
}

Result<Logs> Logs::open(const std::string& folder, std::vector<ProcessSpec>& processes) {
  if (Error error = makeFolders(folder); !error.ok()) return error;
  Logs logs;
  logs.folder_ = folder;
  const auto add = [&](const std::string& name, const std::string& file) -> Error {
    Result<LogFile> log = LogFile::open(folder + "/" + file + ".log");
    if (log) logs.files_.emplace(name, std::move(log).value());
    return log ? Error{} : log.error();
  };
  if (Error error = add("", "fluxonctl"); !error.ok()) return error;
  for (ProcessSpec& process : processes) {
    if (Error error = add(process.name, process.name); !error.ok()) return error;
    process.logFd = logs.files_.at(process.name).fd();
  }
  return logs;
}

void Logs::starting(const ProcessSpec& process) {
  if (const auto file = files_.find(process.name); file != files_.end()) begunAt_[process.name] = file->second.bytes();
}

std::string Logs::lastWords(const ProcessSpec& process) const {
  const auto file = files_.find(process.name);
  const auto begun = begunAt_.find(process.name);
  return file == files_.end() || begun == begunAt_.end() ? "" : file->second.lastLine(begun->second);
}

std::string Logs::warning(const ProcessSpec& process) const {
  const auto file = files_.find(process.name);
  const auto begun = begunAt_.find(process.name);
  return file == files_.end() || begun == begunAt_.end() ? "" : file->second.lastWarning(begun->second);
}

void Logs::trim() const {
  for (const auto& [name, file] : files_) {
    if (const Error error = file.trim(kLogLimit); !error.ok()) complain(error.message());
  }
}

int detach(const Options& options, const shm::Paths& paths, std::vector<ProcessSpec> processes,
           const std::function<int(std::vector<ProcessSpec>, const Voice&)>& run) {
  if (const Error error = refuseRelative(options.config); !error.ok()) return fail(error);
  closeFrom(STDERR_FILENO + 1);  // of the caller; nothing of ours is open yet
  Result<Logs> logs = Logs::open(logFolder(options, paths), processes);
  if (!logs) return fail(logs.error());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(systemError("pipe", errno));
  sigset_t signals, before;
  ::sigemptyset(&signals);
  for (const int signal : kSignals) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = ::fork();  // before any loop or thread
  if (child < 0) return fail(taskError("fork", errno));
  if (child > 0) {
    ::close(ends[1]);
    passSignalsOn(child);
    return relay(ends[0], child, logs.value().folder());
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[0]);
  int pipe = ends[1];
  const auto refuse = [&](const Error& error) {
    tell(pipe, 'e', error.message());
    tell(pipe, 's', std::to_string(sysexit(error.code)));
    std::_Exit(sysexit(error.code));
  };
  if (const Error error = leaveCaller(logs.value().own()); !error.ok()) refuse(error);
  const Result<Terminal> opened = Terminal::open(options.format);  // stderr is the log
  if (!opened) refuse(opened.error());
  const Terminal& log = opened.value();
  const Voice voice{[&](const std::string& line) { tell(pipe, 'o', line); },
                    [&](const std::string& line) {
                      tell(pipe, 'e', line);
                      log.complain(line);
                    },
                    [&] {
                      tell(pipe, 'r', "");
                      ::close(std::exchange(pipe, -1));
                    },
                    logs.value()};
  const int status = run(std::move(processes), voice);
  tell(pipe, 's', std::to_string(status));
  log.finish();
  std::_Exit(status);
}

}  // namespace fluxon::ctl
