#include "base/thread.h"

#include <sys/resource.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/cgroup.h"

namespace fluxon {

Error taskError(const std::string& what, int errnoValue) {
  std::vector<std::string> limits;
  const auto limit = [&](int resource, const char* name, const char* unit, const char* how) {
    rlimit most{};
    if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &most) != 0 || most.rlim_cur == RLIM_INFINITY) return;
    limits.push_back(std::string(name) + " is " + std::to_string(most.rlim_cur) + unit + ": " + how);
  };
  limit(RLIMIT_NPROC, "RLIMIT_NPROC", "", "ulimit -u, or LimitNPROC= of the unit");
  if (const std::optional<TaskLimit> tasks = taskLimit())
    limits.push_back(tasks->file + " is " + std::to_string(tasks->most) + ": TasksMax= of the unit, or pids of the container");
  limit(RLIMIT_AS, "RLIMIT_AS", " bytes", "ulimit -v, or LimitAS= of the unit");
  std::string all;
  for (const std::string& each : limits) all += (all.empty() ? " (" : "; ") + each;
  return {Code::system, what + ": " + std::strerror(errnoValue) + (all.empty() ? "" : all + ")")};
}

}  // namespace fluxon
