// The skeleton of a daemon: command line, configuration, log, loop, readiness, exit status. A daemon's main() declares what it is and the
// function that serves.
#pragma once

#include <string>

#include "base/config.h"
#include "base/result.h"
#include "rpc/daemon.h"

namespace fluxon::rpc {

// What the serving function is given. Lives until it has returned.
class Process {
 public:
  Process(const char* name, std::string node, Config config, int readyFd);
  KJ_DISALLOW_COPY(Process);

  const Config config;
  const std::string node;  // of a daemon of a node: --node, else owner.node of the configuration
  Daemon& daemon() { return daemon_; }

  // The process's last line. The exit status of the error.
  int fail(const Error&) const;
  // Tells the log and whoever started us: NOTIFY_SOCKET (systemd), and a newline on --ready-fd, which is closed. Who does not read its
  // socket or its pipe hears of it when it does: this and stopping() wait for it 0.1 seconds at most.
  void ready(const std::string& status);
  void stopping();

 private:
  const char* name_;
  int readyFd_;
  Daemon daemon_;
};

struct Program {
  const char* name;             // "fluxon-owner"; its page is of that name, in section 8
  const char* what;             // one sentence for --help
  bool ofNode = false;          // takes --node; its log lines name the node
  void (*prepare)() = nullptr;  // before the loop is made
  int (*serve)(Process&);       // the exit status
};

// Exit statuses: 0 (also for --help and --version), 64 for the command line, 78 for the configuration, else what serve() returns. The one
// place where a kj::Exception that nobody expected becomes a line on stderr and an exit status; what KJ itself logs goes to our log.
int daemonMain(int argc, char** argv, const Program&);

}  // namespace fluxon::rpc
