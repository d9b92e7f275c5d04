// Limits of a process that end it or its files.
#include <algorithm>

#include "base/size.h"
#include "doctor_checks.h"

namespace fluxon::ctl {

std::vector<Finding> checkLimits(const LimitFacts& facts) {
  std::vector<Finding> findings;
  if (facts.fileBytes < std::max(facts.largestFile, facts.largestLimit)) {
    const bool shm = facts.fileBytes < facts.largestFile;
    const std::string wanted =
        shm ? "a segment has " + formatSize(facts.largestFile) : "large_limit_size has " + formatSize(facts.largestLimit);
    findings.push_back({shm ? Verdict::fail : Verdict::warn, "limits",
                        "RLIMIT_FSIZE allows files of " + formatSize(facts.fileBytes) + ", " + wanted,
                        "ulimit -f unlimited, or LimitFSIZE=infinity in the systemd unit"});
  }
  if (facts.cpuSeconds != kUnlimited) {
    findings.push_back({Verdict::warn, "limits",
                        "RLIMIT_CPU is " + std::to_string(facts.cpuSeconds) + " s: a process ends when it has used that much",
                        "ulimit -t unlimited, or LimitCPU=infinity in the systemd unit"});
  }
  if (findings.empty()) findings.push_back({Verdict::ok, "limits", "none on the time of the processor, and enough for the files", ""});
  return findings;
}

}  // namespace fluxon::ctl
