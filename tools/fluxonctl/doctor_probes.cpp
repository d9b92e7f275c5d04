#include "doctor_probes.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/size.h"
#include "net/socket_address.h"
#include "output.h"
#include "processes.h"
#include "shm/mapped_file.h"
#include "shm/node_size.h"
#include "shm_files.h"
#include "ssd/roots.h"

namespace fluxon::ctl {
namespace {

constexpr uint64_t kTmpfs = 0x01021994;  // f_type, as in linux/magic.h
constexpr Duration kDiskAnswers = seconds(3);
constexpr size_t kMostHolders = 8;  // that are named
constexpr uint64_t kCapIpcLock = uint64_t{1} << 14;

std::string readText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
std::string readLine(const std::string& path) {
  const std::string text = readText(path);
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> entriesOf(const std::string& path) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return names;
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

std::string parentOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(0, std::max<size_t>(1, path.rfind('/')));
}

// By errno, why a folder in `parent` cannot be made.
std::string noPlace(const std::string& parent) { return "cannot be made: " + parent + ": " + std::strerror(errno); }

// Memory, or space on a disk, of the files of a folder.
uint64_t bytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  for (const std::string& name : entriesOf(folder)) {
    struct stat info;
    if (::lstat((folder + "/" + name).c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

uint64_t limitOf(__rlimit_resource resource, rlim_t rlimit::*which = &rlimit::rlim_cur) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return 0;
  return limit.*which == RLIM_INFINITY ? kUnlimited : limit.*which;
}

std::string mountOptionsOf(const ShmFacts& shm) { return mountOptions(readText("/proc/self/mountinfo"), shm.place); }

// Who holds a port that could not be bound.
void nameHolder(PortFacts& port, uint16_t number) {
  std::optional<Listener> listener;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    if (!listener) listener = listenerOf(readText(table), number);
  }
  if (!listener) {
    port.holder = "a process that cannot be seen";
    return;
  }
  port.holderPid = socketHolder(listener->inode);
  port.holder = port.holderPid == 0 ? "a process of user " + std::to_string(listener->user)
                                    : "process " + std::to_string(port.holderPid) + " (" + quoted(commandOf(port.holderPid)) + ")";
}

// Whether this process could listen at the address now.
void tryPort(PortFacts& port, const Endpoint& address) {
  const auto refuse = [&](const std::string& why) {
    port.state = PortFacts::State::refused;
    port.refusal = why;
  };
  const Result<std::vector<sockaddr_storage>> found = net::lookUp(address, net::Lookup::bind);
  if (!found) return refuse(found.error().detail);
  const sockaddr_storage& at = found.value().front();
  const shm::Descriptor socket(::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // as the daemons: connections that end do not count
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), net::bytesOf(at)) == 0 ? 0 : errno;
  if (bound == 0) return;
  if (bound != EADDRINUSE) return refuse(std::strerror(bound));
  port.state = PortFacts::State::taken;
  nameHolder(port, address.port);
}

// A daemon that is to listen at a port.
struct Claimant {
  uint64_t pid = 0;     // 0: not known, it does not run
  bool mayRun = false;  // it runs, or whether it does cannot be seen
};
Claimant lockedBy(const std::string& lock) {
  const shm::LockFile::Taken taken = shm::LockFile::taken(lock);
  if (taken != shm::LockFile::Taken::yes) return {0, taken == shm::LockFile::Taken::unseen};
  return {static_cast<uint64_t>(std::max(0L, shm::LockFile::holder(lock))), true};
}

// The same of the ssdd of a node, which has no lock but those of its shard files.
Claimant ssddOf(const shm::Paths& paths, const std::string& node) {
  const Result<std::optional<SsddCopy>> ssdd = readSsdd(paths, node);
  if (!ssdd || !ssdd.value()) return {0, !ssdd};
  const ProcessId& pid = ssdd.value()->pid;
  return {pid.proof == ProcessId::Proof::proven ? pid.number : 0, ssdd.value()->alive.value_or(true)};
}

// Does the owner of a node run, and does its socket let this user in?
bool takesUs(const shm::Paths& paths, const std::string& node) {
  return shm::LockFile::held(paths.file(node, "lock")) && ::access(paths.file(node, "socket").c_str(), R_OK | W_OK) == 0;
}

// Folders of nodes below the clusters of a root.
void scan(const std::string& root, const std::string& ourCluster, const std::vector<std::string>& nodes, Leftovers& to) {
  if (::access(root.c_str(), R_OK | X_OK) != 0) {
    if (errno == EACCES) to.unseen.push_back(root);
    return;
  }
  for (const std::string& cluster : entriesOf(root)) {
    if (!validName(cluster)) continue;
    const shm::Paths paths{root, cluster};
    if (::access(paths.clusterDir().c_str(), R_OK | X_OK) != 0) {
      if (errno == EACCES) to.unseen.push_back(paths.clusterDir());
      continue;
    }
    for (const std::string& node : paths.nodes()) {
      struct stat info;
      const std::string folder = paths.nodeDir(node);
      if (::lstat(folder.c_str(), &info) != 0) continue;
      LeftoverFacts left{folder, node, bytesIn(folder), info.st_uid, info.st_uid != ::geteuid() && info.st_uid != 0, false};
      left.inOurWay = cluster == ourCluster && std::find(nodes.begin(), nodes.end(), node) != nodes.end();
      const bool seen = ::access(folder.c_str(), R_OK | X_OK) == 0;
      if (!seen && !left.inOurWay) {
        to.unseen.push_back(folder);
        continue;
      }
      const shm::LockFile::Taken taken = shm::LockFile::taken(paths.file(node, "lock"));
      left.mayRun = taken != shm::LockFile::Taken::no;
      const bool refused = left.foreign && left.inOurWay && !takesUs(paths, node);  // also while it runs
      if (refused || (left.bytes > 0 && !left.mayRun)) {
        to.found.push_back(left);
      } else if (taken == shm::LockFile::Taken::unseen) {
        to.unseen.push_back(folder);
      }
    }
  }
}

// Whether space of files there can be reserved. Tried with a file without a name; where there can be none that is not known.
bool reserves(const std::string& folder) {
  const shm::Descriptor file(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  return !file || ::fallocate(file.get(), 0, 0, 4096) == 0 || errno != EOPNOTSUPP;
}

int64_t clockNs(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

ShmFacts probeShm(const shm::Paths& paths, const Config::Owner& owner, const std::vector<std::string>& nodes) {
  ShmFacts facts;
  facts.root = facts.place = paths.root;
  facts.nodes = nodes.size();
  facts.bytesPerNode = shm::bytesPerNode(owner.segmentBytes, owner.maxKeys);
  facts.maxClients = owner.maxClients;
  facts.bytesPerClient = shm::kBytesPerClient;
  facts.filesPerNode = shm::kFilesPerNode;
  struct stat info;
  // A client makes no folder.
  if (::stat(paths.clusterDir().c_str(), &info) == 0 && info.st_uid != ::geteuid()) {
    for (const std::string& node : paths.nodes()) {
      if (takesUs(paths, node)) facts.clientOf.push_back(node);
    }
    facts.user = info.st_uid;
  }
  if (!facts.clientOf.empty()) {
    facts.nodes = 0;
    return facts;
  }
  for (const std::string& folder : {paths.root, paths.clusterDir()}) {
    if (Error error = shm::checkFolder(folder); facts.refusal.empty() && !error.ok()) facts.refusal = error.detail;
  }
  if (!facts.refusal.empty()) return facts;
  if (::lstat(paths.root.c_str(), &info) != 0) {
    facts.place = parentOf(paths.root);
    if (::access(facts.place.c_str(), W_OK | X_OK) != 0) facts.refusal = noPlace(facts.place);
  } else if (::access(paths.root.c_str(), W_OK | X_OK) != 0) {
    facts.refusal = std::string("cannot be written: ") + std::strerror(errno);
  }
  struct statfs system;
  if (facts.refusal.empty() && ::statfs(facts.place.c_str(), &system) != 0) facts.refusal = std::strerror(errno);
  if (!facts.refusal.empty()) return facts;
  facts.tmpfs = static_cast<uint64_t>(system.f_type) == kTmpfs;
  const auto unit = static_cast<uint64_t>(system.f_bsize);
  facts.totalBytes = system.f_blocks == 0 && facts.tmpfs ? kUnlimited : system.f_blocks * unit;  // size=0
  facts.freeBytes = facts.totalBytes == kUnlimited ? meminfoBytes(readText("/proc/meminfo"), "MemAvailable") : system.f_bavail * unit;
  if (system.f_files > 0) facts.freeFiles = system.f_ffree;
  for (const std::string& node : nodes) {
    facts.presentBytes += bytesIn(paths.nodeDir(node));
    facts.presentFiles += entriesOf(paths.nodeDir(node)).size();
  }
  return facts;
}

MemoryFacts probeMemory(const ShmFacts& shm) {
  MemoryFacts facts;
  const std::string meminfo = readText("/proc/meminfo");
  facts.seen = !meminfo.empty();
  facts.availableBytes = meminfoBytes(meminfo, "MemAvailable");
  facts.wantedBytes = shm.wantedBytes() - std::min(shm.wantedBytes(), shm.presentBytes);
  facts.clientBytes = shm.wantedClients() * shm.bytesPerClient;
  if (const std::optional<MemoryLimit> limit = memoryLimit()) {
    facts.groupRoomBytes = limit->roomBytes();
    facts.group = limit->text();
  }
  return facts;
}

LimitFacts probeLimits(const Config::Owner& owner) {
  LimitFacts facts;
  facts.fileBytes = limitOf(RLIMIT_FSIZE);
  facts.cpuSeconds = limitOf(RLIMIT_CPU);
  facts.largestFile = shm::kSegmentDataOffset + owner.segmentBytes;
  for (const uint64_t bytes : owner.largeLimitBytes) facts.largestLimit = std::max(facts.largestLimit, bytes);
  return facts;
}

SwapFacts probeSwap(const ShmFacts& shm) {
  const std::string meminfo = readText("/proc/meminfo");
  SwapFacts facts;
  facts.totalBytes = meminfoBytes(meminfo, "SwapTotal");
  facts.usedBytes = facts.totalBytes - std::min(facts.totalBytes, meminfoBytes(meminfo, "SwapFree"));
  facts.swappiness = std::strtoull(readLine("/proc/sys/vm/swappiness").c_str(), nullptr, 10);
  facts.noswap = mountOption(mountOptionsOf(shm), "noswap").has_value();
  return facts;
}

MemlockFacts probeMemlock(const Config::Owner& owner) {
  const std::string status = readText("/proc/self/status");
  const size_t line = status.find("\nCapEff:");
  const uint64_t capabilities = line == std::string::npos ? 0 : std::strtoull(status.c_str() + line + 8, nullptr, 16);
  return {limitOf(RLIMIT_MEMLOCK), owner.segmentBytes, (capabilities & kCapIpcLock) != 0, !owner.largeLimitBytes.empty()};
}

NofileFacts probeNofile(const Config::Owner& owner) { return {limitOf(RLIMIT_NOFILE, &rlimit::rlim_max), owner.maxClients}; }

HugePagesFacts probeHugePages(const ShmFacts& shm) {
  return {chosen(readText("/sys/kernel/mm/transparent_hugepage/shmem_enabled")), mountOption(mountOptionsOf(shm), "huge").value_or("")};
}

IoUringFacts probeIoUring() {
  IoUringFacts facts;
  io_uring_params parameters{};
  const shm::Descriptor ring(static_cast<int>(::syscall(__NR_io_uring_setup, 1, &parameters)));
  if (!ring) facts.error = errno;
  const std::string disabled = readLine("/proc/sys/kernel/io_uring_disabled");
  if (!disabled.empty()) facts.disabled = std::strtoull(disabled.c_str(), nullptr, 10);
  return facts;
}

// Of a folder whose file system answers.
static SsdFolderFacts probeFolder(const shm::Paths& paths, const std::string& path, const std::vector<std::string>& nodes) {
  SsdFolderFacts facts;
  facts.place = path;
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) facts.refusal = std::strerror(errno);
    if (facts.refusal.empty() && ::lstat(path.c_str(), &info) == 0) facts.refusal = "is a symbolic link to what is not there";
    facts.place = parentOf(path);
    if (facts.refusal.empty() && ::stat(facts.place.c_str(), &info) != 0) facts.refusal = noPlace(facts.place);
  }
  if (facts.refusal.empty() && !S_ISDIR(info.st_mode)) facts.refusal = facts.place + " is not a folder";
  if (facts.refusal.empty() && ::access(facts.place.c_str(), W_OK | X_OK) != 0) {
    facts.refusal = facts.place == path ? std::string("cannot be written: ") + std::strerror(errno) : noPlace(facts.place);
  }
  for (const std::string& node : nodes) {
    const std::string folder = ssd::rootPath(path, paths.cluster, node);
    for (const std::string& each : {parentOf(folder), folder}) {
      if (Error error = shm::checkFolder(each); facts.refusal.empty() && !error.ok()) facts.refusal = error.detail;
    }
  }
  struct statfs system;
  if (facts.refusal.empty() && ::statfs(facts.place.c_str(), &system) != 0) facts.refusal = std::strerror(errno);
  if (!facts.refusal.empty()) return facts;
  facts.fallocate = reserves(facts.place);
  facts.device = info.st_dev;
  facts.tmpfs = static_cast<uint64_t>(system.f_type) == kTmpfs;
  facts.freeBytes = system.f_bavail * static_cast<uint64_t>(system.f_bsize);
  for (const std::string& node : nodes) facts.presentBytes += bytesIn(ssd::rootPath(path, paths.cluster, node));
  return facts;
}

// A disk that hangs keeps who asks it, and does not let it be killed: a child asks, with no descriptor of ours but the pipe, and is left
// behind when it does not answer.
static SsdFolderFacts askFolder(const shm::Paths& paths, const std::string& path, const std::vector<std::string>& nodes) {
  SsdFolderFacts facts;
  facts.place = path;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return facts.refusal = std::strerror(errno), facts;
  const shm::Descriptor reading(ends[0]);
  shm::Descriptor writing(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return facts.refusal = std::strerror(errno), facts;
  if (child == 0) {
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(nothing, fd);
    const SsdFolderFacts seen = probeFolder(paths, path, nodes);
    std::ostringstream said;
    said << seen.device << ' ' << seen.freeBytes << ' ' << seen.presentBytes << ' ' << seen.tmpfs << ' ' << seen.fallocate << ' '
         << seen.place << '\0' << seen.refusal;
    const std::string text = said.str();
    [[maybe_unused]] const ssize_t n = ::write(writing.get(), text.data(), text.size());
    ::_exit(0);
  }
  writing = {};
  std::string answer;
  const Time until = bootTime() + kDiskAnswers;
  for (bool open = true; open;) {
    pollfd wait{reading.get(), POLLIN, 0};
    char buffer[4096];
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, (until - bootTime()).ms())));
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = ready > 0 ? ::read(reading.get(), buffer, sizeof buffer) : -1;
    if (n > 0) answer.append(buffer, static_cast<size_t>(n));
    open = n > 0;
  }
  ::kill(child, SIGKILL);  // not reaped: the pid is its own
  ::waitpid(child, nullptr, WNOHANG);
  std::istringstream words(answer);
  if (!(words >> facts.device >> facts.freeBytes >> facts.presentBytes >> facts.tmpfs >> facts.fallocate)) {
    facts.refusal = "does not answer within " + std::to_string(kDiskAnswers.ms() / 1000) + " s: its disk or file system hangs";
    return facts;
  }
  words.get();
  std::getline(words, facts.place, '\0');
  std::getline(words, facts.refusal, '\0');
  return facts;
}

std::vector<SsdFolderFacts> probeSsd(const shm::Paths& paths, const Config::Owner& owner, const std::vector<std::string>& nodes) {
  std::vector<SsdFolderFacts> folders;
  for (size_t i = 0; i < owner.largeLimitBytes.size(); ++i) {
    SsdFolderFacts& facts = folders.emplace_back(askFolder(paths, owner.largeFilePaths[i], nodes));
    facts.path = owner.largeFilePaths[i];
    facts.limitBytes = owner.largeLimitBytes[i];
  }
  return folders;
}

namespace {

// Addresses with port 0, the defaults among them, at which no process of this host can listen.
std::vector<PortFacts> foreignAddresses(const Config& config) {
  std::vector<std::pair<Endpoint, PortFacts>> addresses;
  const auto claim = [&](const Endpoint& address, const char* key) {
    if (!address.enabled || address.port != 0) return;
    const std::string text = fluxon::toString(address);
    auto at = std::find_if(addresses.begin(), addresses.end(), [&](const auto& each) { return each.second.address == text; });
    if (at == addresses.end()) at = addresses.insert(at, {address, PortFacts{.address = text}});
    at->second.claimants.push_back(key);
  };
  if (!config.common.master.enabled) {
    claim(config.master.http, "master.http");
    claim(config.master.listen, "master.listen");
  }
  claim(config.owner.http, "owner.http");
  claim(config.owner.link, "owner.link");
  if (!config.owner.largeLimitBytes.empty()) claim(config.ssdd.http, "ssdd.http");
  std::vector<PortFacts> facts;
  for (auto& [address, found] : addresses) {
    tryPort(found, address);
    if (found.state == PortFacts::State::refused) facts.push_back(std::move(found));
  }
  return facts;
}

}  // namespace

std::vector<PortFacts> probePorts(const shm::Paths& paths, const Config& config, const std::vector<std::string>& nodes) {
  std::vector<std::pair<Endpoint, PortFacts>> ports;
  const auto claim = [&](const Endpoint& address, const std::string& process, const Claimant& by) {
    if (!address.enabled || address.port == 0) return;
    const std::string text = fluxon::toString(address);
    auto at = std::find_if(ports.begin(), ports.end(), [&](const auto& each) { return each.second.address == text; });
    if (at == ports.end()) {
      ports.emplace_back(address, PortFacts{text, {}, PortFacts::State::free, "", 0, by.pid, by.mayRun, ""});
      at = ports.end() - 1;
    }
    at->second.claimants.push_back(process);
  };
  if (!config.common.master.enabled) {
    const Claimant by = lockedBy(paths.masterDir() + "/lock");
    for (const Endpoint& address : {config.master.http, config.master.listen}) claim(address, "master", by);
  }
  for (const std::string& node : nodes) {
    for (const Endpoint& address : {config.owner.http, config.owner.link}) claim(address, node, lockedBy(paths.file(node, "lock")));
    if (!config.owner.largeLimitBytes.empty()) claim(config.ssdd.http, "ssdd of " + node, ssddOf(paths, node));
  }
  std::vector<PortFacts> facts;
  for (auto& [address, port] : ports) {
    tryPort(port, address);
    facts.push_back(std::move(port));
  }
  for (PortFacts& address : foreignAddresses(config)) facts.push_back(std::move(address));
  return facts;
}

Leftovers probeLeftovers(const shm::Paths& paths, const std::vector<std::string>& nodes) {
  Leftovers to;
  scan(paths.root, paths.cluster, nodes, to);
  const MappedLeftovers mapped = mappedLeftovers(paths.root);
  to.mapped = {paths.root, mapped.bytes, {}};
  for (const uint64_t pid : mapped.pids) {
    if (to.mapped.holders.size() == kMostHolders) {
      to.mapped.holders.push_back(std::to_string(mapped.pids.size() - kMostHolders) + " more");
      break;
    }
    to.mapped.holders.push_back("process " + std::to_string(pid) + " (" + quoted(commandOf(pid)) + ")");
  }
  if (!paths.isDefaultRoot) return to;
  const std::string parent = paths.root.substr(0, paths.root.rfind('/')), start = "fluxon-";
  for (const std::string& name : entriesOf(parent)) {
    const bool isDefault =
        name.starts_with(start) && name.size() > start.size() && name.find_first_not_of("0123456789", start.size()) == std::string::npos;
    if (isDefault && parent + "/" + name != paths.root) scan(parent + "/" + name, "", {}, to);
  }
  return to;
}

ClockFacts probeClocks() {
  ClockFacts facts;
  const int64_t boot = clockNs(CLOCK_BOOTTIME), monotonic = clockNs(CLOCK_MONOTONIC);
  ::usleep(10'000);
  const int64_t laterMonotonic = clockNs(CLOCK_MONOTONIC), laterBoot = clockNs(CLOCK_BOOTTIME);
  facts.boottimeNs = laterBoot - boot;
  facts.monotonicNs = laterMonotonic - monotonic;
  facts.suspendedNs = boot - monotonic;
  facts.source = readLine("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  return facts;
}

std::vector<RailFacts> probeRails() {
  std::vector<RailFacts> rails;
  const std::string root = "/sys/class/infiniband";
  for (const std::string& device : entriesOf(root)) {
    const std::string ports = root + "/" + device + "/ports";
    for (const std::string& port : entriesOf(ports)) {
      rails.push_back({device, port, readLine(ports + "/" + port + "/state"), readLine(ports + "/" + port + "/rate")});
    }
  }
  return rails;
}

std::string kernelRelease() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

}  // namespace fluxon::ctl
