// What fluxonctl doctor makes of what a host is like: functions of values, without a file, a clock or a system call. Each gives
// the lines of one check. The values come from doctor_probes.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fluxon::ctl {

enum class Verdict { ok, warn, fail };
const char* nameOf(Verdict);

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string check;  // its name, one word
  std::string found;
  std::string todo;  // empty: nothing
};

constexpr uint64_t kUnlimited = UINT64_MAX;

// The file system of shm_root, and what the nodes of this host take of it.
struct ShmFacts {
  std::string root;
  std::string refusal;                // why no folder can be made there; empty: it can
  std::vector<std::string> clientOf;  // nodes there that belong to another user and take this one as a client; then nothing below counts
  uint64_t user = 0;                  // whose they are
  std::string place;                  // folder that the sizes are of: the root, or where it would be made
  bool tmpfs = true;
  uint64_t totalBytes = 0, freeBytes = 0;
  uint64_t nodes = 1, bytesPerNode = 0;
  uint64_t maxClients = 0, bytesPerClient = 0, filesPerNode = 0;  // of each node
  uint64_t presentBytes = 0;                          // that files of these nodes have already: a node that starts frees its old ones first
  uint64_t freeFiles = kUnlimited, presentFiles = 0;  // inodes likewise; unlimited: the file system does not count them

  uint64_t wantedBytes() const { return nodes * bytesPerNode; }
  uint64_t wantedClients() const { return nodes * maxClients; }
  // How many clients find room once the nodes have theirs; only if these do.
  uint64_t roomForClients() const;
};
Finding checkShm(const ShmFacts&);

// Memory for pages of /dev/shm that have none yet: of the host, and of the control groups of this process.
struct MemoryFacts {
  bool seen = true;  // there is a /proc/meminfo, and so the limits of groups can be seen, too
  uint64_t availableBytes = 0, wantedBytes = 0;
  uint64_t clientBytes = 0;  // that the files of all clients will take
  uint64_t groupRoomBytes = kUnlimited;
  std::string group;  // its limit, for people; empty: there is none
};
Finding checkMemory(const MemoryFacts&);

// RLIMIT_FSIZE and RLIMIT_CPU of this process, which daemons started from here have, too.
struct LimitFacts {
  uint64_t fileBytes = kUnlimited, cpuSeconds = kUnlimited;
  uint64_t largestFile = 0;   // of a node in shared memory
  uint64_t largestLimit = 0;  // of large_limit_size
};
std::vector<Finding> checkLimits(const LimitFacts&);

struct SwapFacts {
  uint64_t totalBytes = 0, usedBytes = 0, swappiness = 0;
  bool noswap = false;  // mount option of the file system of shm_root
};
Finding checkSwap(const SwapFacts&);

// RLIMIT_MEMLOCK.
struct MemlockFacts {
  uint64_t limitBytes = 0, segmentBytes = 0;
  bool privileged = false;  // CAP_IPC_LOCK: the limit does not count
  bool ssd = false;         // there is an SSD tier
};
Finding checkMemlock(const MemlockFacts&);

// The hard RLIMIT_NOFILE: daemons raise the soft one to it.
struct NofileFacts {
  uint64_t limit = 0, maxClients = 0;
};
Finding checkNofile(const NofileFacts&);

// As the kernel shows them; empty: it does not.
struct HugePagesFacts {
  std::string shmemEnabled, mountOption;
};
Finding checkHugePages(const HugePagesFacts&);

struct IoUringFacts {
  int error = 0;                     // errno of io_uring_setup(2)
  std::optional<uint64_t> disabled;  // kernel.io_uring_disabled
};
Finding checkIoUring(const IoUringFacts&);

// A fixed address of the configuration.
struct PortFacts {
  enum class State { free, taken, refused };
  std::string address;
  std::vector<std::string> claimants;  // who is configured to listen there: "master", names of nodes
  State state = State::free;
  std::string refusal;                      // of `refused`
  uint64_t holderPid = 0, claimantPid = 0;  // of `taken`; 0: not known, it does not run
  bool claimantMayRun = false;              // it runs, or whether it does cannot be seen
  std::string holder;                       // "process 12 (nginx)", "a process of user 1000"
};
std::vector<Finding> checkPorts(const std::vector<PortFacts>&);

// The folder of a node whose lock nobody has, or that is another user's and does not take this one as a client.
struct LeftoverFacts {
  std::string folder, node;
  uint64_t bytes = 0, user = 0;
  bool foreign = false;   // the user is neither we nor root
  bool inOurWay = false;  // of a node that is to run here
  bool mayRun = false;    // its lock is held, or cannot be seen
};
// Files below this root that have been removed and are mapped still.
struct MappedFacts {
  std::string root;
  uint64_t bytes = 0;
  std::vector<std::string> holders;  // "process 12 (python3)"
};
// `unseen`: folders of other users that cannot be looked into.
std::vector<Finding> checkLeftovers(const std::vector<LeftoverFacts>&, const std::vector<std::string>& unseen, const MappedFacts& = {});

struct ClockFacts {
  int64_t boottimeNs = 0, monotonicNs = 0;  // how far each went between two looks
  int64_t suspendedNs = 0;                  // CLOCK_BOOTTIME less CLOCK_MONOTONIC
  std::string source;                       // of the kernel; empty: not shown
};
Finding checkClocks(const ClockFacts&);

struct RailFacts {
  std::string device, port, state, rate;  // "mlx5_0", "1", "4: ACTIVE", "200 Gb/sec (4X HDR)"
};
Finding checkRails(const std::vector<RailFacts>&);

// The folders of the SSD tier; none: there is no SSD tier.
struct SsdFolderFacts {
  std::string path;
  std::string refusal;  // why it cannot be made or written; empty: it can
  std::string place;    // folder that the rest is of: the path, or where it would be made
  bool tmpfs = false;
  uint64_t device = 0;  // st_dev
  uint64_t limitBytes = 0, freeBytes = 0;
  uint64_t presentBytes = 0;  // of the shard files that these nodes have there already
  bool fallocate = true;      // space can be reserved there
};
// `nodes`: how many of this host take the limit of each.
std::vector<Finding> checkSsd(const std::vector<SsdFolderFacts>&, uint64_t nodes);
Finding checkKernel(const std::string& release);

struct ClusterFacts {
  std::string cluster;
  std::string elsewhere;                 // address of a master on another host; empty: it is one of this host
  bool masterRuns = false;               // its lock is held
  bool masterUnseen = false;             // this user may not look at the lock, nor ask the master
  std::vector<std::string> runningHere;  // nodes of this host whose lock is held
  std::vector<std::string> lost;         // daemons that live and whose files have been removed, for people
  Error error;                           // of asking the master
  bool ssd = false;                      // nodes of this host have an SSD tier
  std::vector<std::string> paused;       // nodes of this host whose ssdd can write nothing
  std::vector<std::string> devicesOut;   // of those nodes: "path (state)"
  struct Member {
    std::string node, state;
    bool ssdd = false;      // an ssdd is attached to its owner
    bool stranger = false;  // it is not the owner that has the directory of this name here
  };
  std::vector<Member> members;
};
Finding checkCluster(const ClusterFacts&);

// --- texts of /proc ---

// "SwapTotal:  12 kB" of /proc/meminfo in bytes; 0 if it has no such line.
uint64_t meminfoBytes(const std::string& meminfo, const std::string& name);

// Options of the file system that `path` lies on, comma-separated, from /proc/self/mountinfo.
std::string mountOptions(const std::string& mountinfo, const std::string& path);
// "within_size" of "rw,huge=within_size", "" of an option without a value; nullopt: not there.
std::optional<std::string> mountOption(const std::string& options, const std::string& name);

// The word in brackets of "always [never] deny"; all of it without brackets.
std::string chosen(const std::string& choices);

// Who listens on a port, from /proc/net/tcp or tcp6.
struct Listener {
  uint64_t user = 0, inode = 0;
};
std::optional<Listener> listenerOf(const std::string& table, uint16_t port);

}  // namespace fluxon::ctl
