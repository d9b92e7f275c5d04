// Starts a process of a cluster. It takes nothing from its caller but the environment, the folder and the ids: its mask of blocked
// signals is empty, no descriptor but those below reaches it, it has a session of its own, and it gets SIGTERM when the thread that
// has started it ends, however that ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace fluxon::ctl {

constexpr int kReadyFd = 3;  // what `readyFd` is in the new process

// `arguments`: the program first, looked up in PATH if it has no slash. stdin is /dev/null, stdout and stderr are `logFd`.
// Blocks until the program runs, or gives the reason why it does not. Only for a process with one thread.
Result<pid_t> spawn(const std::vector<std::string>& arguments, int logFd, int readyFd);

// Closes every descriptor from `first` on.
void closeFrom(int first);

}  // namespace fluxon::ctl
