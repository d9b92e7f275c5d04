#include "doctor.h"

#include <algorithm>
#include <memory>

#include "doctor_checks.h"
#include "doctor_probes.h"
#include "master_client.h"
#include "processes.h"
#include "shm_files.h"

namespace fluxon::ctl {
namespace {

constexpr size_t kVerdictColumns = 4, kNameColumns = 9;

std::string padded(std::string text, size_t columns) {
  text.resize(std::max(text.size(), columns), ' ');
  return text + "  ";
}

void print(const Finding& finding, Format format) {
  if (format == Format::json) {
    Cell todo = text("todo", finding.todo);
    if (finding.todo.empty()) todo.json = "null";
    Rows(Format::json).add({text("verdict", nameOf(finding.verdict)), text("check", finding.check), text("found", finding.found), todo});
    return;
  }
  std::string line = padded(nameOf(finding.verdict), kVerdictColumns) + padded(finding.check, kNameColumns) + finding.found;
  if (!finding.todo.empty()) line += "  [" + finding.todo + "]";
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';  // shm_root may hold anything
  }
  emit(line + "\n");
}

ClusterFacts askCluster(const Config& config, const shm::Paths& paths, uint32_t timeoutMs) {
  const Config::Common& common = config.common;
  ClusterFacts facts;
  facts.ssd = !config.owner.largeLimitBytes.empty();
  facts.cluster = paths.cluster;
  if (common.master.enabled) facts.elsewhere = toString(common.master);
  const shm::LockFile::Taken master = shm::LockFile::taken(paths.masterDir() + "/lock");
  facts.masterRuns = master == shm::LockFile::Taken::yes;
  facts.masterUnseen = master == shm::LockFile::Taken::unseen;
  for (const std::string& node : paths.nodes()) {
    if (!shm::LockFile::held(paths.file(node, "lock"))) continue;
    facts.runningHere.push_back(node);
    const Result<std::optional<SsddCopy>> ssdd = readSsdd(paths, node);
    if (!ssdd || !ssdd.value() || !ssdd.value()->attached.value_or(false)) continue;
    if (ssdd.value()->report.paused) facts.paused.push_back(node);
    for (const SsddReport::Device& device : ssdd.value()->report.devices) {
      if (device.state != "serving") facts.devicesOut.push_back(device.path + " (" + device.state + ")");
    }
  }
  for (const LostDaemon& lost : lostDaemons(paths)) facts.lost.push_back(lost.text());
  if (facts.elsewhere.empty() && facts.masterUnseen) return facts;
  if (!facts.lost.empty() || (facts.elsewhere.empty() && !facts.masterRuns && facts.runningHere.empty())) return facts;
  const Result<std::unique_ptr<MasterClient>> asked = MasterClient::connect(common, paths, timeoutMs);
  if (!asked) return facts.error = asked.error(), facts;
  const Result<std::vector<MemberInfo>> members = asked.value()->members();
  if (!members) return facts.error = members.error(), facts;
  for (const MemberInfo& member : members.value()) {
    const Result<DirectoryFile> directory = DirectoryFile::open(paths, member.node);
    const bool unseen = !directory && directory.error().code == Code::denied;
    const bool served = directory && directory.value().isServedBy(member.incarnation);
    facts.members.push_back({member.node, member.state, bool(member.ssdLife), !unseen && !served});
  }
  return facts;
}

}  // namespace

int doctor(const Options& options) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return fail(paths.error());
  const Config& config = options.config;
  const std::vector<std::string> nodes = options.node.empty() ? config.up.nodes : std::vector{options.node};
  uint64_t failed = 0;
  const auto report = [&](const Finding& finding) {
    failed += finding.verdict == Verdict::fail;
    print(finding, options.format);
  };
  report(checkKernel(kernelRelease()));
  const ShmFacts shm = probeShm(paths.value(), config.owner, nodes);
  report(checkShm(shm));
  report(checkMemory(probeMemory(shm)));
  report(checkSwap(probeSwap(shm)));
  report(checkHugePages(probeHugePages(shm)));
  report(checkMemlock(probeMemlock(config.owner)));
  report(checkNofile(probeNofile(config.owner)));
  for (const Finding& finding : checkLimits(probeLimits(config.owner))) report(finding);
  report(checkIoUring(probeIoUring()));
  for (const Finding& finding : checkSsd(probeSsd(paths.value(), config.owner, nodes), nodes.size())) report(finding);
  report(checkClocks(probeClocks()));
  report(checkRails(probeRails()));
  for (const Finding& finding : checkPorts(probePorts(paths.value(), config, nodes))) report(finding);
  const Leftovers leftovers = probeLeftovers(paths.value(), nodes);
  for (const Finding& finding : checkLeftovers(leftovers.found, leftovers.unseen, leftovers.mapped)) report(finding);
  report(checkCluster(askCluster(config, paths.value(), options.callTimeoutMs())));
  if (failed == 0) return 0;
  return fail(Code::unavailable, std::to_string(failed) + (failed == 1 ? " check has failed" : " checks have failed"));
}

}  // namespace fluxon::ctl
