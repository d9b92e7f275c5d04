// Runs the processes of a cluster on one host and keeps them running. The only home of libuv: children,
// signals and timers in one loop on one thread, without RPC.
//
// The life of the whole:
//   starting ──► up ──► stoppingNodes ──► stoppingMaster ──► (no process left: run() returns)
//      └── ended before it was ready, signal, or time-out ──► stoppingNodes
// and of one process: waiting for the one that it comes after ──► starting ──► ready ──► down, then after a pause starting again, unless
// the whole stops, or the process has left: that is an owner that was drained, and with it its ssdd.
//
// Invariants
//   1. Children run in sessions of their own: a Ctrl-C of the terminal reaches the supervisor alone. However the supervisor ends, they
//      get SIGTERM then: a cluster without one is neither kept running nor stopped by anybody, and is in the way of the next.
//   2. Only a child that has not been reaped is signalled, so no foreign process ever is.
//   3. Owners and ssdds end before the master, so that owners can leave it; all within 5 s, by SIGKILL at last.
//   4. A process that ends before it was ready while the whole starts ends the whole; later ends are followed by a restart after
//      100 ms, doubled up to 10 s by each further end, and 100 ms again once it has lived for 10 s.
//   5. Once all processes have left, the whole ends. Never while a master runs: owners of other hosts may count on it.
//   6. Of a cluster that was up nothing is to be left: its owners get SIGUSR1 (fluxon-owner(8)), drop their values and tell the master, so
//      that the next term waits for none of them. A start that is given up and the kernel (1.) send SIGTERM, which keeps values.
//   7. A signal that was ignored when the supervisor was started stays ignored; one that was blocked then does not stay blocked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fluxon::ctl {

struct ProcessSpec {
  std::string name;                    // "fluxon-owner[n0]"
  std::vector<std::string> arguments;  // the program first; --ready-fd is added
  int logFd = 2;                       // stdout and stderr of the process
  bool isMaster = false;
  std::string after;  // name of the process that must have been ready before it is started; empty: at once
  std::string node;   // of an owner; empty for others
};

struct SupervisorEvents {
  std::function<void(const ProcessSpec&)> starting;        // before each start
  std::function<void(const ProcessSpec&, int pid)> ready;  // first time
  std::function<void()> allReady;                          // once
  std::function<void(const std::string&)> problem;         // one line
  // Every second of a start from 1.5 s on: who has been started and was never ready.
  std::function<void(const std::vector<const ProcessSpec*>&)> waiting;
  std::function<bool(const ProcessSpec&)> hasLeft;           // of an owner that has ended with 0: for good?
  std::function<std::string(const ProcessSpec&)> lastWords;  // of the life that has just ended, for the line that says so; or empty
  std::function<std::string(const ProcessSpec&)> warning;    // the latest one of the life that is not ready yet, or empty
  std::function<int()> everySecond;                          // the descriptor on which kStopMessage comes from now on
};

// `processes`: the master first, if it is of this host. Blocks until SIGTERM, SIGINT, SIGHUP or a datagram kStopMessage on `stopFd`, or
// until the start has failed or has taken longer than `startTimeoutMs`, or all have left. Exit status: 0 unless the start has failed.
constexpr std::string_view kStopMessage = "stop";
int supervise(std::vector<ProcessSpec> processes, std::optional<uint32_t> startTimeoutMs, int stopFd, SupervisorEvents events);

}  // namespace fluxon::ctl
