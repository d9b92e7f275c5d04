#include "rpc/daemon_main.h"

#include <kj/debug.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"

namespace fluxon::rpc {
namespace {

constexpr auto kHeard = std::chrono::milliseconds(100);

struct Options {
  std::string configPath, node;
  int readyFd = -1;
  Config config;
};

// nullopt: `status` is what to exit with.
std::optional<Options> parse(int argc, char** argv, const Program& program, int& status) {
  const std::string name = program.name;
  const auto refuse = [&](int exit, const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", program.name, why.c_str());
    status = exit;
    return std::nullopt;
  };
  Options options;
  CLI::App app(name + ": " + program.what + " See " + name + "(8).");
  app.set_version_flag("--version", name + " " FLUXON_VERSION);
  app.add_option("--config", options.configPath, "configuration file (fluxon.toml(5)); without it: defaults")->envname("FLUXON_CONFIG");
  if (program.ofNode) app.add_option("--node", options.node, "name of this node (default: owner.node of the configuration)");
  app.add_option("--ready-fd", options.readyFd, "write a newline to this descriptor when ready, then close it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return refuse(64, std::string(error.what()) + " (see " + name + " --help)");
    status = app.exit(error);
    return std::nullopt;
  }
  Result<Config> config = Config::load(options.configPath);
  if (!config) return refuse(sysexit(config.error().code), config.error().message());
  options.config = std::move(config).value();
  if (!program.ofNode) return options;
  if (options.node.empty()) options.node = options.config.owner.node;
  if (!validName(options.node)) {
    return refuse(64, "--node '" + options.node + "' (accepted: 1 to 32 of A-Z a-z 0-9 _ - ., no leading .)");
  }
  return options;
}

// KJ would write to stderr itself, and wait for it.
class KjLog final : public kj::ExceptionCallback {
 public:
  void logMessage(kj::LogSeverity severity, const char* file, int line, int, kj::String&& text) override {
    const std::string said = std::string(text.cStr()) + " (" + file + ":" + std::to_string(line) + ")";
    if (severity <= kj::LogSeverity::INFO) return log::info(said);
    severity == kj::LogSeverity::WARNING ? log::warn(said) : log::error(said);
  }
};

// On a thread, which is waited for a moment, so that what comes next is heard after it.
void tell(const std::function<void()>& say) {
  auto heard = std::make_shared<std::promise<void>>();
  std::future<void> future = heard->get_future();
  Result<std::thread> thread = startThread([heard, say] {
    say();
    heard->set_value();
  });
  if (!thread) return say();  // late is better than never
  thread->detach();
  future.wait_for(kHeard);
}

int serve(const Program& program, Options& options) {
  if (program.prepare) program.prepare();
  Process process(program.name, std::move(options.node), std::move(options.config), options.readyFd);
  const std::string speaker = program.ofNode ? std::string(program.name) + "[" + process.node + "]" : program.name;
  if (Error error = log::start(speaker, process.config.common.logLevel); !error.ok()) return process.fail(error);
  return program.serve(process);
}

}  // namespace

Process::Process(const char* name, std::string of, Config with, int readyFd)
    : config(std::move(with)), node(std::move(of)), name_(name), readyFd_(readyFd) {}

int Process::fail(const Error& error) const {
  log::last(std::string(name_) + ": " + error.message());
  return sysexit(error.code);
}

void Process::ready(const std::string& status) {
  log::info("ready: " + status);
  tell([fd = std::exchange(readyFd_, -1), status] {
    log::finish();  // what the log says of the start is there when somebody is told that it is over
    ::sd_notify(0, ("READY=1\nSTATUS=" + status).c_str());
    if (fd < 0) return;
    if (::write(fd, "\n", 1) != 1) log::warn("could not report readiness on descriptor " + std::to_string(fd));
    ::close(fd);
  });
}

void Process::stopping() {
  tell([] { ::sd_notify(0, "STOPPING=1"); });
}

int daemonMain(int argc, char** argv, const Program& program) {
  beginProgram();
  int status = 70;
  std::optional<Options> options = parse(argc, argv, program, status);
  if (!options) return status;
  const KjLog kjLog;
  KJ_IF_MAYBE (error, kj::runCatchingExceptions([&] { status = serve(program, *options); })) {
    const Code code = error->getType() == kj::Exception::Type::DISCONNECTED ? Code::unavailable : Code::system;
    std::string detail = error->getDescription().cStr();
    if (detail.ends_with(std::strerror(EMFILE))) detail += limitBehind(EMFILE);  // of a system call that KJ made
    log::last(std::string(program.name) + ": " + Error{code, detail}.message());
    return sysexit(code);
  }
  log::finish();
  return status;
}

}  // namespace fluxon::rpc
