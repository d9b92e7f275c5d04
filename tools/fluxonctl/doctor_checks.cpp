#include "doctor_checks.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/size.h"

namespace fluxon::ctl {
namespace {

constexpr uint64_t kFilesPerClient = 2;  // of an owner: the client's file and its socket
constexpr uint64_t kOtherFiles = 64;     // of an owner: its own files, the master, HTTP

std::string limitText(uint64_t bytes) { return bytes == kUnlimited ? "unlimited" : formatSize(bytes); }

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string nodesText(uint64_t nodes) { return nodes == 1 ? "1 node needs " : std::to_string(nodes) + " nodes need "; }

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

const char* nameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok: return "ok";
    case Verdict::warn: return "warn";
    case Verdict::fail: return "fail";
  }
  return "fail";
}

uint64_t ShmFacts::roomForClients() const {
  const uint64_t bytes = std::min(totalBytes, freeBytes > kUnlimited - presentBytes ? kUnlimited : freeBytes + presentBytes);
  uint64_t room = bytesPerClient == 0 ? kUnlimited : (bytes - std::min(bytes, wantedBytes())) / bytesPerClient;
  if (freeFiles != kUnlimited) {
    const uint64_t files = freeFiles + presentFiles;
    room = std::min(room, files - std::min(files, nodes * filesPerNode));
  }
  return room;
}

namespace {

// Rounded sizes may look alike.
std::string missing(uint64_t bytes) { return ": " + (bytes < kMiB ? std::to_string(bytes) + " bytes" : formatSize(bytes)) + " too few"; }

}  // namespace

Finding checkShm(const ShmFacts& facts) {
  if (!facts.clientOf.empty()) {
    return {
        Verdict::ok, "shm",
        facts.root + " is of user " + std::to_string(facts.user) + ", whose owners take this user as a client: " + joined(facts.clientOf),
        ""};
  }
  const std::string elsewhere = "or another shm_root in [common]";
  if (!facts.refusal.empty()) {
    const std::string what = facts.refusal.starts_with('/') ? facts.refusal : facts.root + ": " + facts.refusal;
    return {Verdict::fail, "shm", what, "make it usable, " + elsewhere};
  }
  const uint64_t clientBytes = facts.wantedClients() * facts.bytesPerClient;
  const std::string clients = std::to_string(facts.wantedClients()) + " clients";
  const std::string need = nodesText(facts.nodes) + formatSize(facts.wantedBytes()) +
                           (clientBytes > 0 ? ", and " + formatSize(clientBytes) + " for " + clients : "");
  const std::string sizes = formatSize(facts.totalBytes) + ", " + formatSize(facts.freeBytes) + " free" +
                            (facts.presentBytes > 0 ? ", " + formatSize(facts.presentBytes) + " already theirs" : "");
  const std::string found = facts.place + " has " + sizes + "; " + need;
  if (facts.wantedBytes() > facts.totalBytes) {
    const std::string size = std::to_string((facts.wantedBytes() + clientBytes) / kMiB + 1) + "M";
    return {Verdict::fail, "shm", found + missing(facts.wantedBytes() - facts.totalBytes),
            "a smaller segment_size in [owner], or " +
                (facts.tmpfs ? "mount -o remount,size=" + size + " of its mount point" : "a larger file system")};
  }
  if (facts.wantedBytes() > facts.freeBytes + facts.presentBytes) {
    return {Verdict::fail, "shm", found + missing(facts.wantedBytes() - facts.freeBytes - facts.presentBytes),
            "a smaller segment_size in [owner], or remove what lies in " + facts.place};
  }
  const uint64_t room = facts.roomForClients();
  const uint64_t files = facts.nodes * facts.filesPerNode + facts.wantedClients();
  const bool inodes = facts.freeFiles != kUnlimited && facts.freeFiles + facts.presentFiles < files;
  if (room < facts.wantedClients()) {
    const std::string left = inodes ? " by its free inodes, " + std::to_string(facts.freeFiles) : "";
    const std::string todo = inodes ? "mount -o remount,nr_inodes=N of its mount point, or a smaller max_clients in [owner]"
                                    : "a smaller max_clients or segment_size in [owner], or more room there";
    if (room < facts.nodes) return {Verdict::fail, "shm", found + "; there is no room for one client of each node" + left, todo};
    return {Verdict::warn, "shm", found + "; there is room for " + std::to_string(room) + " of " + clients + left, todo};
  }
  if (!facts.tmpfs) {
    return {Verdict::warn, "shm", found + "; it is no tmpfs: values would be written to a disk", "mount a tmpfs there, " + elsewhere};
  }
  return {Verdict::ok, "shm", found, ""};
}

Finding checkMemory(const MemoryFacts& facts) {
  const std::string found = formatSize(facts.availableBytes) + " available" + (facts.group.empty() ? "" : ", " + facts.group) +
                            "; nodes will take " + formatSize(facts.wantedBytes) + " more" +
                            (facts.clientBytes > 0 ? ", their clients up to " + formatSize(facts.clientBytes) : "");
  if (!facts.seen) {
    return {Verdict::warn, "memory",
            "what is available cannot be seen: /proc/meminfo cannot be read; nodes will take " + formatSize(facts.wantedBytes) + " more",
            "mount /proc"};
  }
  const std::string todo = "a smaller segment_size in [owner], or fewer nodes: processes would be killed for memory";
  if (facts.wantedBytes > facts.groupRoomBytes) return {Verdict::fail, "memory", found, "a larger limit, " + todo};
  const bool all = facts.wantedBytes <= facts.availableBytes && facts.wantedBytes + facts.clientBytes <= facts.groupRoomBytes;
  return all ? Finding{Verdict::ok, "memory", found, ""} : Finding{Verdict::warn, "memory", found, todo};
}

Finding checkSwap(const SwapFacts& facts) {
  if (facts.totalBytes == 0) return {Verdict::ok, "swap", "none", ""};
  const std::string found =
      formatSize(facts.totalBytes) + ", " + formatSize(facts.usedBytes) + " in use, vm.swappiness " + std::to_string(facts.swappiness);
  if (facts.noswap) return {Verdict::ok, "swap", found + "; shm_root is mounted with noswap", ""};
  if (facts.swappiness == 0) return {Verdict::ok, "swap", found, ""};
  return {Verdict::warn, "swap", found + ": segments can be swapped out, gets would wait for the disk",
          "swapoff -a, vm.swappiness=0, or a tmpfs mounted with noswap"};
}

Finding checkMemlock(const MemlockFacts& facts) {
  const std::string found = "limit " + limitText(facts.limitBytes) + "; a segment has " + formatSize(facts.segmentBytes);
  if (facts.privileged) return {Verdict::ok, "memlock", found + "; CAP_IPC_LOCK lifts the limit", ""};
  if (facts.limitBytes == kUnlimited || facts.limitBytes >= facts.segmentBytes) return {Verdict::ok, "memlock", found, ""};
  return {Verdict::warn, "memlock",
          found + ": it cannot be registered with a network card" + (facts.ssd ? ", nor with the io_uring of the SSD tier" : ""),
          "LimitMEMLOCK=infinity in the systemd unit, or 'USER - memlock unlimited' in /etc/security/limits.conf"};
}

Finding checkNofile(const NofileFacts& facts) {
  const uint64_t needed = facts.maxClients * kFilesPerClient + kOtherFiles;
  const std::string limit = facts.limit == kUnlimited ? "unlimited" : std::to_string(facts.limit);
  const std::string found = "limit " + limit + "; max_clients " + std::to_string(facts.maxClients) + " needs " + std::to_string(needed);
  if (facts.limit >= needed) return {Verdict::ok, "nofile", found, ""};
  const uint64_t clients = facts.limit > kOtherFiles ? (facts.limit - kOtherFiles) / kFilesPerClient : 0;
  const std::string todo = "LimitNOFILE=" + std::to_string(needed) + " in the systemd unit, ulimit -n, or a smaller max_clients in [owner]";
  if (clients == 0) return {Verdict::fail, "nofile", found + ": there is no room for a client", todo};
  return {Verdict::warn, "nofile", found + ": there is room for " + std::to_string(clients) + " clients", todo};
}

Finding checkHugePages(const HugePagesFacts& facts) {
  const auto shown = [](const std::string& text) { return text.empty() ? "not shown" : text; };
  return {Verdict::ok, "hugepages", "shmem_enabled " + shown(facts.shmemEnabled) + ", mount option huge " + shown(facts.mountOption), ""};
}

Finding checkIoUring(const IoUringFacts& facts) {
  if (facts.error == 0) return {Verdict::ok, "io_uring", "works", ""};
  const std::string found =
      std::string("refused: ") + std::strerror(facts.error) + "; input and output go more slowly through poll and pread";
  std::string todo = "see why io_uring_setup(2) is refused";
  if (facts.error == ENOSYS) todo = "a kernel with CONFIG_IO_URING, or a seccomp profile that allows io_uring_setup";
  if (facts.error == EPERM) todo = "a seccomp profile that allows io_uring_setup";
  if (facts.error == EPERM && facts.disabled.value_or(0) > 0) {
    return {Verdict::warn, "io_uring", found + " (kernel.io_uring_disabled = " + std::to_string(*facts.disabled) + ")",
            "sysctl kernel.io_uring_disabled=0, or with 1 the group of kernel.io_uring_group"};
  }
  return {Verdict::warn, "io_uring", found, todo};
}

std::vector<Finding> checkPorts(const std::vector<PortFacts>& ports) {
  if (ports.empty()) return {{Verdict::ok, "ports", "no fixed port is configured", ""}};
  std::vector<Finding> findings;
  for (const PortFacts& port : ports) {
    const std::string found = port.address + " for " + joined(port.claimants);
    if (port.claimants.size() > 1 && port.state != PortFacts::State::refused) {
      findings.push_back(
          {Verdict::fail, "ports", found + ": only one process can listen there", "port 0, or \"off\", in the configuration"});
      continue;
    }
    switch (port.state) {
      case PortFacts::State::free: findings.push_back({Verdict::ok, "ports", found + ": free", ""}); break;
      case PortFacts::State::refused:
        findings.push_back({Verdict::fail, "ports", found + ": " + port.refusal,
                            "an address of this host, such as [::1]:0 where there is IPv6 alone, or \"off\", in the configuration"});
        break;
      case PortFacts::State::taken:
        if (port.holderPid != 0 && port.holderPid == port.claimantPid) {
          findings.push_back({Verdict::ok, "ports", found + ": it listens there, process " + std::to_string(port.holderPid), ""});
        } else if (port.holderPid == 0 && port.claimantMayRun) {
          findings.push_back({Verdict::ok, "ports", found + ": held by " + port.holder + ", which may be its own process", ""});
        } else {
          findings.push_back(
              {Verdict::fail, "ports", found + ": held by " + port.holder, "stop that, or another port in the configuration"});
        }
        break;
    }
  }
  return findings;
}

std::vector<Finding> checkLeftovers(const std::vector<LeftoverFacts>& leftovers, const std::vector<std::string>& unseen,
                                    const MappedFacts& mapped) {
  std::vector<Finding> findings;
  for (const LeftoverFacts& left : leftovers) {
    const std::string remove = "rm -r " + left.folder, holds = left.folder + " holds " + formatSize(left.bytes);
    if (left.foreign && left.inOurWay) {
      findings.push_back({Verdict::fail, "leftovers",
                          left.folder + " belongs to user " + std::to_string(left.user) + ": node " + left.node + " cannot use it",
                          (left.mayRun ? "" : remove + " as that user, or ") + std::string("another shm_root in [common]")});
    } else if (left.foreign) {
      findings.push_back({Verdict::warn, "leftovers", holds + ", its process of user " + std::to_string(left.user) + " is gone",
                          remove + " as that user"});
    } else if (left.inOurWay) {
      findings.push_back({Verdict::ok, "leftovers", holds + " of node " + left.node + ", kept for its next start", ""});
    } else {
      findings.push_back({Verdict::warn, "leftovers", holds + " of node " + left.node + ", which does not run",
                          "start it, which serves its values again, or " + remove});
    }
  }
  if (mapped.bytes > 0) {
    findings.push_back({Verdict::warn, "leftovers",
                        formatSize(mapped.bytes) + " of removed files below " + mapped.root + " are mapped by " + joined(mapped.holders),
                        "their memory is free when these have ended, or have attached anew"});
  }
  const std::string hidden = unseen.empty() ? "" : "not to be seen, of other users: " + joined(unseen);
  if (findings.empty()) return {{Verdict::ok, "leftovers", hidden.empty() ? "none" : "none; " + hidden, ""}};
  if (!hidden.empty()) findings.push_back({Verdict::ok, "leftovers", hidden, ""});
  return findings;
}

Finding checkClocks(const ClockFacts& facts) {
  static const std::vector<std::string> kFast = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"};
  const std::string source = "clock source " + (facts.source.empty() ? "not shown" : facts.source);
  if (facts.boottimeNs <= 0) {
    return {Verdict::fail, "clocks", "CLOCK_BOOTTIME stands still; " + source, "another clock source: leases would never end"};
  }
  if (facts.boottimeNs < facts.monotonicNs / 2) {
    return {Verdict::fail, "clocks", "CLOCK_BOOTTIME is slower than CLOCK_MONOTONIC; " + source, "another clock source: leases need it"};
  }
  const int64_t suspendedS = facts.suspendedNs / 1'000'000'000;
  const std::string suspended = suspendedS == 0 ? "never suspended" : "suspended for " + std::to_string(suspendedS) + " s";
  if (!facts.source.empty() && !contains(kFast, facts.source)) {
    return {Verdict::warn, "clocks", source + ": each reading is a system call; " + suspended,
            "clocksource=tsc on the kernel's command line, if the processor's is stable"};
  }
  return {Verdict::ok, "clocks", source + "; " + suspended, ""};
}

Finding checkRails(const std::vector<RailFacts>& rails) {
  if (rails.empty()) return {Verdict::ok, "rails", "no RDMA device, tcp serves", ""};
  std::vector<std::string> all, down;
  for (const RailFacts& rail : rails) {
    const std::string name = rail.device + " port " + rail.port;
    const size_t colon = rail.state.find(": ");
    const std::string state = colon == std::string::npos ? rail.state : rail.state.substr(colon + 2);
    all.push_back(name + " " + (state.empty() ? "unknown" : state) + (rail.rate.empty() ? "" : " " + rail.rate));
    if (state != "ACTIVE") down.push_back(name);
  }
  if (down.empty()) return {Verdict::ok, "rails", joined(all), ""};
  return {Verdict::warn, "rails", joined(all), "cable, switch and driver of " + joined(down)};
}

std::vector<Finding> checkSsd(const std::vector<SsdFolderFacts>& folders, uint64_t nodes) {
  if (folders.empty()) return {{Verdict::ok, "ssd", "not enabled", ""}};
  std::vector<Finding> findings;
  for (auto folder = folders.begin(); folder != folders.end(); ++folder) {
    if (!folder->refusal.empty()) {
      const std::string what = folder->refusal.starts_with(folder->path + "/") ? folder->refusal : folder->path + ": " + folder->refusal;
      findings.push_back({Verdict::fail, "ssd", what, "another path in large_file_paths of [owner]"});
      continue;
    }
    const auto first =
        std::find_if(folders.begin(), folder, [&](const auto& each) { return each.refusal.empty() && each.device == folder->device; });
    if (first != folder) {
      findings.push_back({Verdict::warn, "ssd", folder->path + " is on the device of " + first->path + ": it is not used",
                          "one path for each device in large_file_paths of [owner]"});
      continue;
    }
    const uint64_t wanted = nodes * folder->limitBytes;
    const std::string found = folder->place + " has " + formatSize(folder->freeBytes) + " free" +
                              (folder->presentBytes > 0 ? ", " + formatSize(folder->presentBytes) + " already theirs" : "") + "; " +
                              nodesText(nodes) + formatSize(wanted);
    if (wanted > folder->freeBytes + folder->presentBytes) {
      findings.push_back({Verdict::fail, "ssd", found + missing(wanted - folder->freeBytes - folder->presentBytes),
                          "a smaller large_limit_size in [owner], or remove what lies on the file system of " + folder->place});
    } else if (folder->tmpfs) {
      findings.push_back({Verdict::warn, "ssd", found + "; it is a tmpfs, which takes memory and hides what a disk would refuse",
                          "a folder of a disk in large_file_paths of [owner]"});
    } else if (!folder->fallocate) {
      findings.push_back({Verdict::warn, "ssd",
                          found + "; its file system knows no fallocate(2): space is reserved by writing, which takes longer",
                          "a file system with it, such as ext4 or xfs"});
    } else {
      findings.push_back({Verdict::ok, "ssd", found, ""});
    }
  }
  return findings;
}

Finding checkKernel(const std::string& release) {
  unsigned major = 0, minor = 0;
  if (std::sscanf(release.c_str(), "%u.%u", &major, &minor) != 2) {
    return {Verdict::warn, "kernel", "release '" + release + "' is not understood", "Linux 5.14 or later"};
  }
  if (major > 5 || (major == 5 && minor >= 14)) return {Verdict::ok, "kernel", release, ""};
  return {Verdict::warn, "kernel", release + ": it cannot populate segments ahead, first writes are slower", "Linux 5.14 or later"};
}

Finding checkCluster(const ClusterFacts& facts) {
  const bool nothingHere = !facts.masterRuns && facts.runningHere.empty();
  if (!facts.lost.empty()) {
    return {Verdict::fail, "cluster", joined(facts.lost),
            "stop it with SIGTERM and start it anew: nobody can reach it; and see who removes files there"};
  }
  if (facts.elsewhere.empty() && facts.masterUnseen) {
    const std::string here = facts.runningHere.empty() ? "" : "; running here: " + joined(facts.runningHere);
    return {Verdict::ok, "cluster", "the master of " + facts.cluster + " answers its own user and root alone" + here, ""};
  }
  if (facts.elsewhere.empty() && nothingHere) return {Verdict::ok, "cluster", "nothing of " + facts.cluster + " runs here", ""};
  if (!facts.error.ok() && !facts.elsewhere.empty()) {
    const bool denied = facts.error.code == Code::denied;
    return {Verdict::fail, "cluster", facts.error.message(),
            denied ? "the secret_file and TLS files in [common] that the master at " + facts.elsewhere + " has"
                   : "start fluxon-master there, with this address as listen in [master], or mend the name or the network"};
  }
  if (!facts.error.ok()) {
    return {Verdict::fail, "cluster", facts.error.message(), facts.masterRuns ? "see the log of fluxon-master" : "start fluxon-master"};
  }
  std::vector<std::string> good, silent, lost, refused, memoryOnly;
  for (const ClusterFacts::Member& member : facts.members) {
    if (member.state == "joined" || member.state == "draining") good.push_back(member.node);
    const bool here = contains(facts.runningHere, member.node);
    if (here && member.stranger && (contains(good, member.node) || member.state == "silent")) refused.push_back(member.node);
    const bool lacksSsdd = facts.ssd && !member.ssdd && here;
    if (member.state == "joined" && lacksSsdd) memoryOnly.push_back(member.node);
    if (member.state == "silent") silent.push_back(member.node);
  }
  for (const std::string& node : facts.runningHere) {
    if (!contains(good, node) && !contains(silent, node)) lost.push_back(node);
  }
  std::string found = "the master of " + facts.cluster + " answers; joined: " + (good.empty() ? "none" : joined(good));
  if (!silent.empty()) found += "; silent: " + joined(silent);
  if (!refused.empty()) {
    return {Verdict::fail, "cluster", found + "; the one that runs here is another owner of that name: " + joined(refused),
            "see the log of fluxon-owner there; one of the two needs another owner.node"};
  }
  if (!lost.empty()) {
    return {Verdict::fail, "cluster", found + "; running and not joined: " + joined(lost), "see the log of fluxon-owner there"};
  }
  if (!silent.empty()) return {Verdict::warn, "cluster", found, "see whether " + joined(silent) + " runs, and its log"};
  if (!memoryOnly.empty()) {
    return {Verdict::warn, "cluster", found + "; without their SSD: " + joined(memoryOnly),
            "see whether fluxon-ssdd of " + joined(memoryOnly) + " runs, and its log"};
  }
  if (!facts.paused.empty()) {
    return {Verdict::warn, "cluster", found + "; nothing is written to the SSD of " + joined(facts.paused),
            "see fluxonctl ssd, and the log of fluxon-ssdd there: its disks are full, have failed, or their files were removed"};
  }
  if (!facts.devicesOut.empty()) {
    return {Verdict::warn, "cluster", found + "; nothing is written to " + joined(facts.devicesOut), "see the log of fluxon-ssdd there"};
  }
  return {Verdict::ok, "cluster", found, ""};
}

uint64_t meminfoBytes(const std::string& meminfo, const std::string& name) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream value(line.substr(name.size() + 1));
    uint64_t kib = 0;
    value >> kib;
    return kib * kKiB;
  }
  return 0;
}

std::string mountOptions(const std::string& mountinfo, const std::string& path) {
  std::istringstream lines(mountinfo);
  std::string best, options;
  for (std::string line; std::getline(lines, line);) {
    // id parent device root POINT mount-options optional... - type source SUPER-OPTIONS
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string word, point, own, super;
    left >> word >> word >> word >> word >> point >> own;
    right >> word >> word >> super;
    const bool above = point == "/" || path == point || path.starts_with(point + "/");
    if (!above || point.size() < best.size()) continue;  // of two at one place the later one hides the other
    best = point;
    options = own + "," + super;
  }
  return options;
}

std::optional<std::string> mountOption(const std::string& options, const std::string& name) {
  std::istringstream words(options);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == name) return "";
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  }
  return std::nullopt;
}

std::string chosen(const std::string& choices) {
  const size_t open = choices.find('['), close = choices.find(']');
  if (open != std::string::npos && close != std::string::npos && open < close) return choices.substr(open + 1, close - open - 1);
  return choices.substr(0, choices.find('\n'));
}

std::optional<Listener> listenerOf(const std::string& table, uint16_t port) {
  constexpr const char* kListening = "0A";
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    // sl local remote state queues timer retransmits user timeout INODE
    std::istringstream words(line);
    std::string local, state, skip;
    Listener listener;
    words >> skip >> local >> skip >> state >> skip >> skip >> skip >> listener.user >> skip >> listener.inode;
    const size_t colon = local.rfind(':');
    if (!words || colon == std::string::npos || state != kListening) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port) return listener;
  }
  return std::nullopt;
}

}  // namespace fluxon::ctl
