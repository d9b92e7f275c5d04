// What fluxonctl doctor makes of a host: every check gives each of its verdicts.
#include <doctest/doctest.h>

#include <cerrno>

#include "doctor_checks.h"
#include "processes.h"

namespace fluxon::ctl {
namespace {

constexpr uint64_t kMega = 1 << 20, kGiga = 1 << 30;

bool says(const Finding& finding, const char* part) { return finding.found.find(part) != std::string::npos; }
bool advises(const Finding& finding, const char* part) { return finding.todo.find(part) != std::string::npos; }

ShmFacts roomy() {
  ShmFacts facts;
  facts.root = "/dev/shm/fluxon-0";
  facts.place = "/dev/shm";
  facts.totalBytes = 10 * kGiga;
  facts.freeBytes = 10 * kGiga;
  facts.nodes = 2;
  facts.bytesPerNode = kGiga;
  return facts;
}

TEST_CASE("shm: room for all nodes is ok, up to the last byte, and what the nodes have already counts as theirs") {
  ShmFacts facts = roomy();
  const Finding finding = checkShm(facts);
  CHECK(finding.verdict == Verdict::ok);
  CHECK(finding.found == "/dev/shm has 10 GiB, 10 GiB free; 2 nodes need 2 GiB");
  CHECK(finding.todo.empty());
  facts.freeBytes = 2 * kGiga;
  CHECK(checkShm(facts).verdict == Verdict::ok);
  facts.freeBytes = 0;
  facts.presentBytes = 2 * kGiga;
  CHECK(checkShm(facts).verdict == Verdict::ok);
  facts.totalBytes = kUnlimited;
  CHECK(checkShm(facts).verdict == Verdict::ok);
}

TEST_CASE("shm: nodes that need more than the file system has, or than is free, fail and are told which of the two") {
  ShmFacts facts = roomy();
  facts.freeBytes = 2 * kGiga - 1;
  CHECK(checkShm(facts).verdict == Verdict::fail);
  CHECK(advises(checkShm(facts), "remove what lies in /dev/shm"));
  CHECK(says(checkShm(facts), "2.0 GiB free; 2 nodes need 2 GiB: 1 bytes too few"));
  facts.totalBytes = kGiga;
  CHECK(checkShm(facts).verdict == Verdict::fail);
  CHECK(advises(checkShm(facts), "remount,size=2049M"));
  CHECK(says(checkShm(facts), ": 1 GiB too few"));
  facts.tmpfs = false;
  CHECK(advises(checkShm(facts), "a larger file system"));
}

TEST_CASE("shm: a disk is a warning, a folder that cannot be made fails with the reason") {
  ShmFacts facts = roomy();
  facts.tmpfs = false;
  CHECK(checkShm(facts).verdict == Verdict::warn);
  CHECK(advises(checkShm(facts), "mount a tmpfs"));
  facts.refusal = "belongs to user 5, not to 0";
  CHECK(checkShm(facts).verdict == Verdict::fail);
  CHECK(checkShm(facts).found == "/dev/shm/fluxon-0: belongs to user 5, not to 0");
}

TEST_CASE("shm: room for some clients is a warning that says for how many, for none a failure; bytes and inodes count") {
  ShmFacts facts = roomy();
  facts.maxClients = 4;
  facts.bytesPerClient = kMega;
  facts.filesPerNode = 7;
  facts.freeBytes = 2 * kGiga + 8 * kMega;
  CHECK(checkShm(facts).verdict == Verdict::ok);
  CHECK(says(checkShm(facts), "2 nodes need 2 GiB, and 8 MiB for 8 clients"));
  facts.freeBytes -= 1;
  CHECK(checkShm(facts).verdict == Verdict::warn);
  CHECK(says(checkShm(facts), "there is room for 7 of 8 clients"));
  facts.freeBytes = 2 * kGiga + kMega;
  CHECK(checkShm(facts).verdict == Verdict::fail);
  CHECK(says(checkShm(facts), "no room for one client of each node"));
  facts.freeBytes = 10 * kGiga;
  facts.freeFiles = 22;
  CHECK(checkShm(facts).verdict == Verdict::ok);
  facts.freeFiles = 21;
  CHECK(checkShm(facts).verdict == Verdict::warn);
  CHECK(says(checkShm(facts), "room for 7 of 8 clients by its free inodes, 21"));
  CHECK(advises(checkShm(facts), "nr_inodes"));
  facts.freeFiles = 9;
  CHECK(checkShm(facts).verdict == Verdict::fail);
  facts.presentFiles = 13;
  CHECK(checkShm(facts).verdict == Verdict::ok);
}

TEST_CASE("memory: segments that memory cannot hold are a warning; that the control group cannot hold, a failure") {
  MemoryFacts facts{.availableBytes = kGiga, .wantedBytes = kGiga};
  CHECK(checkMemory(facts).verdict == Verdict::ok);
  facts.wantedBytes = kGiga + 1;
  CHECK(checkMemory(facts).verdict == Verdict::warn);
  facts = {.availableBytes = kGiga, .wantedBytes = 2 * kMega, .clientBytes = kMega, .groupRoomBytes = 3 * kMega, .group = "x allows 4 MiB"};
  CHECK(checkMemory(facts).verdict == Verdict::ok);
  CHECK(says(checkMemory(facts), "1 GiB available, x allows 4 MiB; nodes will take 2 MiB more, their clients up to 1 MiB"));
  facts.groupRoomBytes = 2 * kMega;
  CHECK(checkMemory(facts).verdict == Verdict::warn);
  facts.groupRoomBytes = 2 * kMega - 1;
  CHECK(checkMemory(facts).verdict == Verdict::fail);
}

TEST_CASE("memory: without /proc/meminfo it is said that nothing can be seen, not that nothing is available") {
  const Finding finding = checkMemory({.seen = false, .wantedBytes = 0});
  CHECK(finding.verdict == Verdict::warn);
  CHECK(says(finding, "cannot be seen: /proc/meminfo cannot be read"));
  CHECK(advises(finding, "mount /proc"));
}

TEST_CASE("limits: a file size below the segment fails, below a shard's limit warns, and so does any time of the processor") {
  LimitFacts facts{.largestFile = kMega, .largestLimit = kGiga};
  CHECK(checkLimits(facts).at(0).verdict == Verdict::ok);
  facts.fileBytes = kGiga - 1;
  CHECK(checkLimits(facts).at(0).verdict == Verdict::warn);
  CHECK(says(checkLimits(facts).at(0), "large_limit_size has 1 GiB"));
  facts.fileBytes = kMega - 1;
  CHECK(checkLimits(facts).at(0).verdict == Verdict::fail);
  facts = {.cpuSeconds = 60};
  CHECK(checkLimits(facts).at(0).verdict == Verdict::warn);
  CHECK(says(checkLimits(facts).at(0), "RLIMIT_CPU is 60 s"));
}

TEST_CASE("sockets of a cluster in /proc/net/unix: those that listen, by their path") {
  const std::string table =
      "Num       RefCount Protocol Flags    Type St Inode Path\n"
      "0000000000000000: 00000002 00000000 00010000 0005 01 11 /dev/shm/f/t/n0/socket\n"
      "0000000000000000: 00000003 00000000 00000000 0005 03 12 /dev/shm/f/t/n0/socket\n"
      "0000000000000000: 00000002 00000000 00010000 0005 01 13 /dev/shm/f/t/n0/socket\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 14 /dev/shm/f/t/.master/socket\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 15 /dev/shm/f/tt/.master/socket\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 16 /dev/shm/f/t/a/b/socket\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 17\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 18 /dev/shm/f/t/n 0/socket\n";
  const auto found = listenersBelow(table, "/dev/shm/f/t");
  CHECK(found.size() == 3);
  CHECK(found.at("/dev/shm/f/t/n0/socket") == std::vector<uint64_t>{11, 13});
  CHECK(found.at("/dev/shm/f/t/.master/socket") == std::vector<uint64_t>{14});
  CHECK(found.count("/dev/shm/f/t/n 0/socket") == 1);
}

TEST_CASE("removed files in /proc/PID/maps: their length, by device and inode") {
  const std::string maps =
      "7f0000000000-7f0000002000 r--s 00000000 00:1b 77                         /dev/shm/f/t/n0/segment (deleted)\n"
      "7f0000002000-7f0000003000 rw-s 00002000 00:1b 77                         /dev/shm/f/t/n0/segment (deleted)\n"
      "7f0000003000-7f0000004000 r--s 00000000 00:1b 78                         /dev/shm/f/t/n0/keys\n"
      "7f0000004000-7f0000005000 r--s 00000000 00:1b 79                         /dev/shm/ff/t/n0/keys (deleted)\n"
      "7f0000005000-7f0000006000 rw-p 00000000 00:00 0 \n";
  const auto found = removedMappings(maps, "/dev/shm/f");
  CHECK(found == std::map<std::string, uint64_t>{{"00:1b 77", 0x3000}});
}

TEST_CASE("swap: a warning only where segments can be swapped") {
  CHECK(checkSwap({0, 0, 60, false}).verdict == Verdict::ok);
  CHECK(checkSwap({kGiga, 0, 0, false}).verdict == Verdict::ok);
  CHECK(checkSwap({kGiga, 0, 60, true}).verdict == Verdict::ok);
  const Finding finding = checkSwap({kGiga, 5 * kMega, 60, false});
  CHECK(finding.verdict == Verdict::warn);
  CHECK(says(finding, "1 GiB, 5 MiB in use, vm.swappiness 60"));
}

TEST_CASE("memlock: a limit below the segment is a warning with what to set, unless it does not count") {
  CHECK(checkMemlock({64 << 10, 256 * kMega, false, false}).verdict == Verdict::warn);
  CHECK(says(checkMemlock({64 << 10, 256 * kMega, false, false}), "limit 64 KiB"));
  CHECK(advises(checkMemlock({64 << 10, 256 * kMega, false, false}), "LimitMEMLOCK=infinity"));
  CHECK(advises(checkMemlock({64 << 10, 256 * kMega, false, false}), "/etc/security/limits.conf"));
  CHECK(says(checkMemlock({64 << 10, 256 * kMega, false, true}), "nor with the io_uring of the SSD tier"));
  CHECK_FALSE(says(checkMemlock({64 << 10, 256 * kMega, false, false}), "SSD"));
  CHECK(checkMemlock({256 * kMega - 1, 256 * kMega, false, false}).verdict == Verdict::warn);
  CHECK(checkMemlock({256 * kMega, 256 * kMega, false, false}).verdict == Verdict::ok);
  CHECK(checkMemlock({64 << 10, 256 * kMega, true, false}).verdict == Verdict::ok);
  CHECK(checkMemlock({kUnlimited, 256 * kMega, false, false}).verdict == Verdict::ok);
  CHECK(says(checkMemlock({kUnlimited, 256 * kMega, false, false}), "limit unlimited"));
}

TEST_CASE("nofile: room for max_clients is ok, for fewer a warning that says for how many, for none a failure") {
  CHECK(checkNofile({576, 256}).verdict == Verdict::ok);
  CHECK(checkNofile({kUnlimited, 65536}).verdict == Verdict::ok);
  const Finding few = checkNofile({575, 256});
  CHECK(few.verdict == Verdict::warn);
  CHECK(says(few, "room for 255 clients"));
  CHECK(advises(few, "LimitNOFILE=576"));
  CHECK(checkNofile({65, 256}).verdict == Verdict::fail);
  CHECK(checkNofile({0, 1}).verdict == Verdict::fail);
}

TEST_CASE("huge pages are shown, and what the kernel does not show is said") {
  CHECK(checkHugePages({"advise", "within_size"}).found == "shmem_enabled advise, mount option huge within_size");
  CHECK(checkHugePages({"", ""}).found == "shmem_enabled not shown, mount option huge not shown");
  CHECK(checkHugePages({"", ""}).verdict == Verdict::ok);
}

TEST_CASE("io_uring: refused is a warning that names the reason and the way out") {
  CHECK(checkIoUring({0, 0}).verdict == Verdict::ok);
  CHECK(checkIoUring({ENOSYS, std::nullopt}).verdict == Verdict::warn);
  CHECK(advises(checkIoUring({ENOSYS, std::nullopt}), "CONFIG_IO_URING"));
  CHECK(advises(checkIoUring({EPERM, 0}), "seccomp"));
  const Finding disabled = checkIoUring({EPERM, 2});
  CHECK(disabled.verdict == Verdict::warn);
  CHECK(says(disabled, "kernel.io_uring_disabled = 2"));
  CHECK(advises(disabled, "kernel.io_uring_disabled=0"));
  CHECK(checkIoUring({ENOMEM, 0}).verdict == Verdict::warn);
}

TEST_CASE("ports: free and held by the process itself are ok; another's, two claimants and a refusal fail") {
  CHECK(checkPorts({}).at(0).verdict == Verdict::ok);
  PortFacts port;
  port.address = "127.0.0.1:9100";
  port.claimants = {"master"};
  CHECK(checkPorts({port}).at(0).found == "127.0.0.1:9100 for master: free");
  port.state = PortFacts::State::taken;
  port.holder = "process 12 (nginx)";
  port.holderPid = 12;
  const Finding other = checkPorts({port}).at(0);
  CHECK(other.verdict == Verdict::fail);
  CHECK(says(other, "held by process 12 (nginx)"));
  port.claimantPid = 13;
  CHECK(checkPorts({port}).at(0).verdict == Verdict::fail);
  port.claimantPid = 12;
  CHECK(checkPorts({port}).at(0).verdict == Verdict::ok);
  port.holderPid = port.claimantPid = 0;  // nobody runs, and the holder is not to be seen
  CHECK(checkPorts({port}).at(0).verdict == Verdict::fail);
  port.state = PortFacts::State::refused;
  port.refusal = "Cannot assign requested address";
  CHECK(says(checkPorts({port}).at(0), "Cannot assign requested address"));
  CHECK(checkPorts({port}).at(0).verdict == Verdict::fail);
  port.claimants = {"master.http", "owner.http"};  // of port 0
  CHECK(says(checkPorts({port}).at(0), "for master.http, owner.http: Cannot assign requested address"));
  port.state = PortFacts::State::free;
  port.claimants = {"n0", "n1"};
  CHECK(says(checkPorts({port}).at(0), "for n0, n1: only one process"));
  CHECK(checkPorts({port, port}).size() == 2);
  CHECK(checkPorts({port}).at(0).verdict == Verdict::fail);
}

TEST_CASE("leftovers: none is ok, memory of the dead is a warning, another user's folder in the way fails") {
  CHECK(checkLeftovers({}, {}).at(0).found == "none");
  const auto hidden = checkLeftovers({}, {"/dev/shm/fluxon-5"});
  CHECK(hidden.at(0).verdict == Verdict::ok);
  CHECK(says(hidden.at(0), "/dev/shm/fluxon-5"));
  LeftoverFacts left{"/dev/shm/r/t/n0", "n0", 64 * kMega, 1000, false, true};
  const Finding ours = checkLeftovers({left}, {}).at(0);
  CHECK(ours.verdict == Verdict::ok);
  CHECK(says(ours, "64 MiB of node n0, kept for its next start"));
  CHECK(ours.todo.empty());
  left.inOurWay = false;
  CHECK(checkLeftovers({left}, {}).at(0).verdict == Verdict::warn);
  CHECK(checkLeftovers({left}, {}).at(0).todo == "start it, which serves its values again, or rm -r /dev/shm/r/t/n0");
  left.foreign = true;
  CHECK(checkLeftovers({left}, {}).at(0).verdict == Verdict::warn);
  CHECK(says(checkLeftovers({left}, {}).at(0), "user 1000"));
  left.inOurWay = true;
  CHECK(checkLeftovers({left}, {}).at(0).verdict == Verdict::fail);
  CHECK(checkLeftovers({left, left}, {"x"}).size() == 3);
  const Finding mapped = checkLeftovers({}, {}, {"/dev/shm/r", kMega, {"process 12 (python3)", "process 13 (python3)"}}).at(0);
  CHECK(mapped.verdict == Verdict::warn);
  CHECK(mapped.found == "1 MiB of removed files below /dev/shm/r are mapped by process 12 (python3), process 13 (python3)");
}

TEST_CASE("clocks: a boot clock that runs is ok, one that stands or drags fails, a slow source is a warning") {
  const int64_t ms = 1'000'000;
  CHECK(checkClocks({10 * ms, 10 * ms, 0, "tsc"}).verdict == Verdict::ok);
  CHECK(checkClocks({10 * ms, 10 * ms, 0, "kvm-clock"}).verdict == Verdict::ok);
  CHECK(checkClocks({10 * ms, 10 * ms, 0, ""}).verdict == Verdict::ok);
  CHECK(says(checkClocks({10 * ms, 10 * ms, 0, "tsc"}), "never suspended"));
  CHECK(says(checkClocks({10 * ms, 10 * ms, 3700 * 1000 * ms, "tsc"}), "suspended for 3700 s"));
  CHECK(checkClocks({10 * ms, 10 * ms, 0, "hpet"}).verdict == Verdict::warn);
  CHECK(checkClocks({0, 10 * ms, 0, "tsc"}).verdict == Verdict::fail);
  CHECK(checkClocks({4 * ms, 10 * ms, 0, "tsc"}).verdict == Verdict::fail);
}

TEST_CASE("rails: none and all active are ok, a port that is down is a warning") {
  CHECK(checkRails({}).found == "no RDMA device, tcp serves");
  const RailFacts up{"mlx5_0", "1", "4: ACTIVE", "200 Gb/sec (4X HDR)"}, down{"mlx5_1", "1", "1: DOWN", ""}, odd{"mlx5_2", "1", "", ""};
  CHECK(checkRails({up}).verdict == Verdict::ok);
  CHECK(checkRails({up}).found == "mlx5_0 port 1 ACTIVE 200 Gb/sec (4X HDR)");
  CHECK(checkRails({up, down}).verdict == Verdict::warn);
  CHECK(advises(checkRails({up, down}), "of mlx5_1 port 1"));
  CHECK(says(checkRails({odd}), "mlx5_2 port 1 unknown"));
}

SsdFolderFacts folderAt(const char* path, uint64_t device) {
  SsdFolderFacts facts;
  facts.path = facts.place = path;
  facts.device = device;
  facts.limitBytes = kGiga;
  facts.freeBytes = 10 * kGiga;
  return facts;
}

TEST_CASE("ssd: without folders not enabled; room for all nodes is ok, up to the last byte, and shard files that are there are theirs") {
  CHECK(checkSsd({}, 1).at(0).found == "not enabled");
  CHECK(checkSsd({}, 1).at(0).verdict == Verdict::ok);
  SsdFolderFacts folder = folderAt("/d", 1);
  const auto findings = checkSsd({folder, folderAt("/e", 2)}, 2);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].verdict == Verdict::ok);
  CHECK(findings[0].found == "/d has 10 GiB free; 2 nodes need 2 GiB");
  CHECK(findings[1].verdict == Verdict::ok);
  folder.freeBytes = 2 * kGiga;
  CHECK(checkSsd({folder}, 2).at(0).verdict == Verdict::ok);
  folder.freeBytes = 2 * kGiga - 1;
  CHECK(checkSsd({folder}, 2).at(0).verdict == Verdict::fail);
  CHECK(advises(checkSsd({folder}, 2).at(0), "large_limit_size"));
  folder.presentBytes = 1;
  CHECK(checkSsd({folder}, 2).at(0).verdict == Verdict::ok);
  CHECK(says(checkSsd({folder}, 2).at(0), "1 B already theirs"));
}

TEST_CASE("ssd: a folder that cannot be used fails; a tmpfs and a second folder on a device are warnings, the latter names the first") {
  SsdFolderFacts refused = folderAt("/no", 0), memory = folderAt("/m", 1);
  refused.refusal = "cannot be written: Permission denied";
  CHECK(checkSsd({refused}, 1).at(0).verdict == Verdict::fail);
  CHECK(checkSsd({refused}, 1).at(0).found == "/no: cannot be written: Permission denied");
  memory.tmpfs = true;
  CHECK(checkSsd({memory}, 1).at(0).verdict == Verdict::warn);
  memory.freeBytes = 0;
  CHECK(checkSsd({memory}, 1).at(0).verdict == Verdict::fail);
  SsdFolderFacts full = folderAt("/c", 2);
  full.freeBytes = 0;  // not looked at: it is not used
  const auto findings = checkSsd({refused, folderAt("/a", 2), folderAt("/b", 3), full, folderAt("/e", 0)}, 1);
  REQUIRE(findings.size() == 5);
  CHECK(findings[2].verdict == Verdict::ok);
  CHECK(findings[3].verdict == Verdict::warn);
  CHECK(findings[3].found == "/c is on the device of /a: it is not used");
  CHECK(findings[4].verdict == Verdict::ok);
}

TEST_CASE("kernel: from 5.14 on ok, older or unheard of a warning") {
  for (const char* good : {"5.14.0-427.el9.x86_64", "6.1.0", "10.0"}) CHECK(checkKernel(good).verdict == Verdict::ok);
  for (const char* old : {"5.13.19", "5.4.0-1", "4.18.0", "", "strange"}) CHECK(checkKernel(old).verdict == Verdict::warn);
}

TEST_CASE("cluster: asked only where something runs; no answer and a node that is not joined fail, a silent one is a warning") {
  ClusterFacts facts;
  facts.cluster = "t";
  CHECK(checkCluster(facts).found == "nothing of t runs here");
  CHECK(checkCluster(facts).verdict == Verdict::ok);
  facts.runningHere = {"n0"};
  facts.error = {Code::unavailable, "no master"};
  CHECK(checkCluster(facts).verdict == Verdict::fail);
  CHECK(checkCluster(facts).todo == "start fluxon-master");
  facts.masterRuns = true;
  CHECK(checkCluster(facts).todo == "see the log of fluxon-master");
  facts.error = {};
  CHECK(checkCluster(facts).verdict == Verdict::fail);
  CHECK(says(checkCluster(facts), "running and not joined: n0"));
  facts.members = {{"n0", "fenced"}};
  CHECK(checkCluster(facts).verdict == Verdict::fail);
  facts.members = {{"n0", "silent"}};
  CHECK(checkCluster(facts).verdict == Verdict::warn);
  facts.members = {{"n0", "joined"}, {"n1", "silent"}};
  CHECK(checkCluster(facts).verdict == Verdict::warn);
  CHECK(advises(checkCluster(facts), "n1"));
  facts.members = {{"n0", "draining"}, {"n1", "left"}, {"n2", "joined"}};
  CHECK(checkCluster(facts).verdict == Verdict::ok);
  CHECK(says(checkCluster(facts), "joined: n0, n2"));
}

TEST_CASE("cluster: a node of this host whose name another owner has joined by fails, whatever the state of that one") {
  ClusterFacts facts;
  facts.cluster = "t";
  facts.elsewhere = "192.0.2.1:7800";
  facts.runningHere = {"n0"};
  facts.members = {{"n0", "joined", false, true}, {"n1", "joined", false, true}};
  CHECK(checkCluster(facts).verdict == Verdict::fail);
  CHECK(says(checkCluster(facts), "another owner of that name: n0"));
  CHECK(advises(checkCluster(facts), "another owner.node"));
  facts.members[0].state = "silent";
  CHECK(checkCluster(facts).verdict == Verdict::fail);
  facts.members[0].stranger = false;
  CHECK(checkCluster(facts).verdict == Verdict::warn);
}

TEST_CASE("cluster: a node of this host whose ssdd is not there is a warning, where there is an SSD tier") {
  ClusterFacts facts;
  facts.masterRuns = true;
  facts.runningHere = {"n0"};
  facts.members = {{"n0", "joined"}, {"n1", "joined"}};
  CHECK(checkCluster(facts).verdict == Verdict::ok);
  facts.ssd = true;
  CHECK(checkCluster(facts).verdict == Verdict::warn);
  CHECK(says(checkCluster(facts), "without their SSD: n0"));
  CHECK(advises(checkCluster(facts), "fluxon-ssdd of n0"));
  facts.members[0].ssdd = true;
  CHECK(checkCluster(facts).verdict == Verdict::ok);
  facts.paused = {"n0"};
  CHECK(checkCluster(facts).verdict == Verdict::warn);
  CHECK(says(checkCluster(facts), "nothing is written to the SSD of n0"));
  facts.paused = {};
  facts.devicesOut = {"/disk (hung)"};
  CHECK(checkCluster(facts).verdict == Verdict::warn);
  CHECK(says(checkCluster(facts), "nothing is written to /disk (hung)"));
}

TEST_CASE("cluster: a master elsewhere is asked though nothing runs here; what to do depends on why it did not answer") {
  ClusterFacts facts;
  facts.cluster = "t";
  facts.elsewhere = "192.0.2.1:7800";
  CHECK(checkCluster(facts).verdict == Verdict::ok);
  facts.error = {Code::unavailable, "connection refused"};
  CHECK(checkCluster(facts).verdict == Verdict::fail);
  CHECK(advises(checkCluster(facts), "start fluxon-master there"));
  facts.error = {Code::denied, "wrong cluster secret"};
  CHECK(advises(checkCluster(facts), "the secret_file"));
}

TEST_CASE("meminfo: the line of that very name, in bytes") {
  const std::string text = "MemTotal:  2 kB\nSwapTotalX:  3 kB\nSwapTotal:     12 kB\n";
  CHECK(meminfoBytes(text, "SwapTotal") == 12 << 10);
  CHECK(meminfoBytes(text, "SwapFree") == 0);
  CHECK(meminfoBytes("SwapTotal:", "SwapTotal") == 0);
}

TEST_CASE("mount options: of the deepest mount above the path, of two at one place the later") {
  const std::string text =
      "1 0 8:1 / / rw - ext4 /dev/sda1 rw,one\n"
      "2 1 0:5 / /dev rw,nosuid shared:2 - devtmpfs dev rw,two\n"
      "3 2 0:6 / /dev/shm rw - tmpfs tmpfs rw,size=4k,huge=never\n"
      "4 2 0:7 / /dev/shm rw,nodev shared:9 master:1 - tmpfs tmpfs rw,huge=within_size,noswap\n"
      "broken line\n";
  CHECK(mountOptions(text, "/dev/shm/fluxon-0") == "rw,nodev,rw,huge=within_size,noswap");
  CHECK(mountOptions(text, "/dev/shm") == "rw,nodev,rw,huge=within_size,noswap");
  CHECK(mountOptions(text, "/dev/shmore") == "rw,nosuid,rw,two");
  CHECK(mountOptions(text, "/x") == "rw,rw,one");
  CHECK(mountOptions("", "/x").empty());
  CHECK(mountOption("rw,huge=within_size,noswap", "huge").value_or("?") == "within_size");
  CHECK(mountOption("rw,huge=within_size,noswap", "noswap").value_or("?") == "");
  CHECK_FALSE(mountOption("rw,huge=within_size,noswap", "swap").has_value());
}

TEST_CASE("choices of the kernel: the one in brackets") {
  CHECK(chosen("always [never] deny\n") == "never");
  CHECK(chosen("plain\n") == "plain");
  CHECK(chosen("] odd [").starts_with("]"));
  CHECK(chosen("").empty());
}

TEST_CASE("listeners: the one on the port, connections do not count") {
  const std::string head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
  const std::string four =
      head +
      "   0: 0100007F:238C 0100007F:1234 01 00000000:00000000 00:00000000 00000000     7        0 11 1 0 20 4 30 10 -1\n"
      "   1: 0100007F:238C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 22 1 0 100 0 0 10 0\n";
  const std::string six =
      head +
      "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 "
      "    0        0 33 1 0 100 0 0 10 0\n";
  REQUIRE(listenerOf(four, 9100));
  CHECK(listenerOf(four, 9100)->inode == 22);
  CHECK(listenerOf(four, 9100)->user == 1000);
  REQUIRE(listenerOf(six, 80));
  CHECK(listenerOf(six, 80)->inode == 33);
  CHECK_FALSE(listenerOf(four, 80));
  CHECK_FALSE(listenerOf("nonsense\n", 80));
}

}  // namespace
}  // namespace fluxon::ctl
