#include "base/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "base/size.h"

namespace fluxon {
namespace {

constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // version 1 writes about 2^63

std::string textOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// "max" and what cannot be read: nullopt.
std::optional<uint64_t> numberIn(const std::string& path) {
  const std::string text = textOf(path);
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  return std::strtoull(text.c_str(), nullptr, 10);
}

// Of "name 12" lines, or with a colon and kB after it.
uint64_t lineOf(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + " ") || line.starts_with(name + ":")) return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return 0;
}

bool listed(const std::string& list, const std::string& word) { return ("," + list + ",").find("," + word + ",") != std::string::npos; }

struct Group {
  std::string folder;  // of the process's own group
  std::string top;     // where the hierarchy is mounted
  bool second = false;
};

// Where a hierarchy with this controller is mounted, and the group of this process in it. One of version 2 has no controllers in its
// line: its files tell.
std::optional<Group> groupOf(const std::string& root, const std::string& controller, bool second) {
  std::string own;
  std::istringstream groups(textOf(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path", "0::/path"
    const size_t first = line.find(':'), last = line.find(':', first + 1);
    if (last == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, last - first - 1);
    if (second ? line.starts_with("0::") : listed(controllers, controller)) own = line.substr(last + 1);
  }
  if (own.empty()) return std::nullopt;
  std::istringstream mounts(textOf(root + "/proc/self/mountinfo"));
  for (std::string line; std::getline(mounts, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string skip, from, point, type, options;
    left >> skip >> skip >> skip >> from >> point;
    right >> type >> skip >> options;
    if (second ? type != "cgroup2" : type != "cgroup" || !listed(options, controller)) continue;
    // A container sees its group as the root of the mount; where names do not fit, what is mounted is all that can be seen.
    const bool below = from == "/" || own == from || own.starts_with(from + "/");
    std::string rest = below ? own.substr(from == "/" ? 0 : from.size()) : "";
    if (rest == "/" || rest.find("/..") != std::string::npos) rest.clear();
    return Group{root + point + rest, root + point, second};
  }
  return std::nullopt;
}

// From the group of the process up to where the hierarchy is mounted.
using See = std::function<void(const std::string& folder, bool second)>;
void upwards(const std::string& root, const std::string& controller, const See& see) {
  for (const bool second : {true, false}) {
    const std::optional<Group> group = groupOf(root, controller, second);
    if (!group) continue;
    for (std::string folder = group->folder;; folder.resize(folder.rfind('/'))) {
      see(folder, second);
      if (folder.size() <= group->top.size()) break;
    }
  }
}

std::optional<MemoryLimit> limitIn(const std::string& folder, bool second, uint64_t swapFree) {
  MemoryLimit limit;
  limit.file = folder + (second ? "/memory.max" : "/memory.limit_in_bytes");
  const std::optional<uint64_t> most = numberIn(limit.file);
  if (!most || *most >= kNoLimit) return std::nullopt;
  limit.limitBytes = *most;
  const std::string stat = textOf(folder + "/memory.stat"), prefix = second ? "" : "total_";
  const uint64_t cache = lineOf(stat, prefix + "inactive_file") + lineOf(stat, prefix + "active_file");
  const uint64_t used = numberIn(folder + (second ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  limit.usedBytes = used - std::min(used, cache);
  limit.swapBytes = swapFree;
  if (second) {
    const uint64_t swapped = numberIn(folder + "/memory.swap.current").value_or(0);
    if (const auto swap = numberIn(folder + "/memory.swap.max")) limit.swapBytes = std::min(swapFree, *swap - std::min(*swap, swapped));
  } else if (const auto both = numberIn(folder + "/memory.memsw.limit_in_bytes")) {
    limit.swapBytes = std::min(swapFree, *both - std::min(*both, *most));
  }
  return limit;
}

}  // namespace

std::string MemoryLimit::text() const {
  return file + " allows " + formatSize(limitBytes) + ", " + formatSize(usedBytes) + " in use, " + formatSize(swapBytes) + " of swap";
}

std::optional<MemoryLimit> memoryLimit(const std::string& root) {
  const uint64_t swapFree = lineOf(textOf(root + "/proc/meminfo"), "SwapFree") * kKiB;
  std::optional<MemoryLimit> least;
  upwards(root, "memory", [&](const std::string& folder, bool second) {
    std::optional<MemoryLimit> limit = limitIn(folder, second, swapFree);
    if (limit && (!least || limit->roomBytes() < least->roomBytes())) least = std::move(limit);
  });
  return least;
}

std::optional<TaskLimit> taskLimit(const std::string& root) {
  std::optional<TaskLimit> least;
  upwards(root, "pids", [&](const std::string& folder, bool) {
    const std::optional<uint64_t> most = numberIn(folder + "/pids.max");
    if (most && (!least || *most < least->most)) least = TaskLimit{folder + "/pids.max", *most};
  });
  return least;
}

unsigned usableProcessors(const std::string& root) {
  cpu_set_t set;
  double most = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : std::thread::hardware_concurrency();
  upwards(root, "cpu", [&](const std::string& folder, bool second) {
    double quota = 0, period = 0;
    if (second) {
      std::istringstream(textOf(folder + "/cpu.max")) >> quota >> period;  // "max 100000": none
    } else {
      std::istringstream(textOf(folder + "/cpu.cfs_quota_us")) >> quota;  // -1: none
      period = static_cast<double>(numberIn(folder + "/cpu.cfs_period_us").value_or(0));
    }
    if (quota > 0 && period > 0) most = std::min(most, quota / period);
  });
  return static_cast<unsigned>(std::max(1.0, std::floor(most)));
}

}  // namespace fluxon
