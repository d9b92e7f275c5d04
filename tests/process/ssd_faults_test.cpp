// An ssdd on what a system really has: few descriptors, little memory to lock, no io_uring, full and strange places for its files, and
// what others have left there. It works, or ends with one line that says what is in its way and the status of that.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cluster.h"
#include "loop_device.h"
#include "refuse_uring.h"
#include "ssd_steps.h"
#include "texts.h"

using namespace fluxon::test;
namespace fs = std::filesystem;
namespace ssd = fluxon::ssd;

namespace {

std::string rootOf(const std::string& path, const std::string& node = "n0") { return path + "/t_cluster_kv_ssd_storage/" + node; }

// Its configuration, for processes without a cluster.
std::string configured(const Place& place, const std::string& path, const std::string& limit = "16MiB", const std::string& ssdd = "") {
  return place.configure(ssdLines(path, limit) + "[ssdd]\n" + ssdd);
}

// What it has said but for what is usual.
std::string complaints(const std::string& said) {
  std::istringstream lines(said);
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    if (!has(line, " info ")) all += line + "\n";
  }
  return all;
}

std::string ssddOf(const std::string& config) { return "timeout 20 " FLUXON_BIN "/fluxon-ssdd --config " + config; }
// An ssdd that cannot begin ends with `status`, and a line that has all of `parts`.
void ends(const std::string& command, int status, const std::vector<std::string>& parts) {
  CAPTURE(command);
  const Ended ended = execute(command);
  const std::string said = complaints(ended.err);
  CHECK(ended.status == status);
  CHECK_MESSAGE(std::count(said.begin(), said.end(), '\n') == 1, said);
  CHECK_MESSAGE(said.starts_with("fluxon-ssdd: "), said);
  for (const std::string& part : parts) CHECK_MESSAGE(has(said, part), said);
}

void limit(int resource, rlim_t most) {
  const rlimit to{most, most};
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &to);
}

// A file system of that kind at `at`, for this process and its children.
bool mounted(const std::string& kind, const std::string& at, unsigned long flags) {
  static const std::string why = ssd::whyNoLoopDevices();
  if (!why.empty()) {
    MESSAGE("SKIPPED: " << why);
    return false;
  }
  fs::create_directories(at);
  REQUIRE(::mount("none", at.c_str(), kind.c_str(), flags, nullptr) == 0);
  return true;
}
struct Unmount {
  ~Unmount() { ::umount2(at.c_str(), MNT_DETACH); }
  const std::string at;
};

}  // namespace

TEST_CASE("ssdd: with too few descriptors it ends with a line, never with a broken check of its own") {
  const Place place;
  const std::string config = configured(place, place.folder() + "/disk");
  int up = 0;  // below 13 it is libuv that aborts
  for (int most = 13; most < 40 && up < 2; ++most) {
    CAPTURE(most);
    const Ended ended = execute("ulimit -n " + std::to_string(most) + "; timeout 1 " + ssddOf(config));
    const std::string said = complaints(ended.err);
    if (ended.status == 124) {
      ++up;
      continue;
    }
    CHECK((ended.status == 71 || ended.status == 69));
    const std::string last = said.substr(said.rfind('\n', said.size() - 2) + 1);
    CHECK_MESSAGE(last.starts_with("fluxon-ssdd: "), said);
    const bool why = has(last, "oo many open files") || has(last, "[-24 == 0]");
    CHECK_MESSAGE(why, said);
  }
  CHECK(up == 2);
}

TEST_CASE("ssdd: one that has no descriptors left for what its owner hands over says so, asks again, and attaches when it has") {
  const ssd::TemporaryFolder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "16MiB")});
  cluster.kill("n0");
  const std::string log = cluster.folder() + "/limited.log";
  const pid_t pid = inChild([&] {
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    return ::execl(FLUXON_BIN "/fluxon-ssdd", "fluxon-ssdd", "--config", cluster.config().c_str(), "--node", "n0", nullptr);
  });
  const auto says = [&](const std::string& part) { return eventually([&] { return has(execute("cat " + log).out, part); }); };
  REQUIRE(says("waits for its owner: "));
  // The socket and one more, of the four that come by it.
  rlimit few{20, 1024};
  const fs::directory_iterator open("/proc/" + std::to_string(pid) + "/fd");
  few.rlim_cur = static_cast<rlim_t>(std::distance(begin(open), end(open))) + 2;
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &few, nullptr) == 0);
  cluster.start("n0");
  CHECK(says("waits for its owner: operating system error: descriptors of the owner of node n0: Too many open files (RLIMIT_NOFILE is "));
  few.rlim_cur = few.rlim_max;
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &few, nullptr) == 0);
  CHECK(says(" info ready"));
  checkSsd(cluster);
  ::kill(pid, SIGTERM);
  CHECK(waitFor(pid) == 0);
}

TEST_CASE("ssdd: 64 KiB of memory that may be locked are enough, and so is a kernel that refuses io_uring") {
  const ssd::TemporaryFolder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0", [] {
    ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
    limit(RLIMIT_MEMLOCK, 64 << 10);
  });
  checkSsd(cluster);
  CHECK(cluster.metric("ssdd-n0", "fluxon_ssdd_engine", "io_uring") == 1);
  cluster.signal("ssdd-n0", SIGTERM);
  CHECK(cluster.wait("ssdd-n0") == 0);
  const std::pair<int, const char*> calls[] = {
      {SYS_io_uring_setup, "setup"}, {SYS_io_uring_enter, "enter"}, {SYS_io_uring_register, "register"}};
  for (const auto& [call, name] : calls) {
    CAPTURE(std::string(name));
    cluster.start("ssdd-n0", [call = call] {
      if (!fluxon::ssdd::refuseUring(static_cast<unsigned>(call))) ::_exit(99);
    });
    checkSsd(cluster);
    CHECK(cluster.metric("ssdd-n0", "fluxon_ssdd_engine", "threads") == 1);
    CHECK(has(cluster.log("ssdd-n0"), "warning io_uring is refused (io_uring_" + std::string(name) +
                                          ": Operation not permitted): files are read and written by threads"));
    cluster.signal("ssdd-n0", SIGTERM);
    CHECK(cluster.wait("ssdd-n0") == 0);
  }
}

TEST_CASE("ssdd: one that is to have io_uring ends where it is refused") {
  const Place place;
  const std::string config = configured(place, place.folder() + "/disk", "16MiB", "backend = \"io_uring\"\n");
  const std::string log = place.folder() + "/log";
  const pid_t pid = inChild([&] {
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT, 0600), 2);
    if (!fluxon::ssdd::refuseUring()) return 99;
    return ::execl(FLUXON_BIN "/fluxon-ssdd", "fluxon-ssdd", "--config", config.c_str(), nullptr);
  });
  CHECK(waitFor(pid) == 71);
  CHECK(complaints(execute("cat " + log).out) ==
        "fluxon-ssdd: operating system error: io_uring, which ssdd.backend wants, is refused: io_uring_setup: Operation not permitted\n");
}

TEST_CASE("ssdd: a file system that is full at start: what is needed and what is free, and nothing is left there") {
  const Place place;
  const std::string at = place.folder() + "/small";
  if (!mounted("tmpfs", at, 0)) return;
  const Unmount unmount{at};
  REQUIRE(::mount("none", at.c_str(), "tmpfs", MS_REMOUNT, "size=24m") == 0);
  ends(ssddOf(configured(place, at + "/disk", "32MiB")), 75, {"no space: 32 MiB in 1 shards do not fit", "needs 32 MiB, 24 MiB free"});
  std::ofstream(at + "/others") << std::string(20 << 20, 'x');
  ends(ssddOf(configured(place, at + "/disk", "16MiB")), 75, {"no space: 16 MiB in 1 shards do not fit", "needs 16 MiB, 4 MiB free"});
  CHECK(fs::file_size(rootOf(at + "/disk") + "/shard-000") == 0);
}

namespace {

// A file system of that kind on a loop device at `folder`/mounted.
bool made(const ssd::TemporaryFolder& folder, const std::string& kind, uint64_t bytes) {
  static const std::string why = ssd::whyNoLoopDevices();
  if (!why.empty() || execute("which mkfs." + kind).status != 0) {
    MESSAGE("SKIPPED: " << (why.empty() ? "no mkfs." + kind : why));
    return false;
  }
  const std::string failed = ssd::mountFileSystem(folder.path, bytes, kind);
  REQUIRE_MESSAGE(failed.empty(), failed);
  return true;
}

}  // namespace

TEST_CASE("ssdd: a file system without fallocate gets its shards by writing, which is said, and serves") {
  const ssd::TemporaryFolder folder;
  if (!made(folder, "ext3", 128 << 20)) return;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path + "/mounted", "64MiB")});
  cluster.start("ssdd-n0");
  CHECK(has(cluster.log("ssdd-n0"), "its file system has no fallocate: space is reserved by writing zeros, which is slower"));
  CHECK(fs::file_size(rootOf(folder.path + "/mounted") + "/shard-000") == 64 << 20);
  checkSsd(cluster);
}

TEST_CASE("ssdd: what its shards have taken before counts as free, also where a file system says so late") {
  const ssd::TemporaryFolder folder;
  if (!made(folder, "btrfs", 256 << 20)) return;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path + "/mounted", "140MiB")});
  for (int life = 0; life < 3; ++life) {
    cluster.start("ssdd-n0");
    checkSsd(cluster);
    cluster.signal("ssdd-n0", SIGTERM);
    CHECK(cluster.wait("ssdd-n0") == 0);
  }
}

TEST_CASE("ssdd: of two disks one hangs: the other one serves what it has and takes what comes, and the first comes back") {
  const ssd::TemporaryFolder first, second;
  if (!made(first, "ext4", 96 << 20) || !made(second, "ext4", 96 << 20)) return;
  const std::string a = first.path + "/mounted", b = second.path + "/mounted";
  Cluster cluster({.owner = "segment_size = \"64MiB\"\nlarge_file_paths = [\"" + a + "\", \"" + b +
                            "\"]\nlarge_limit_size = [\"48MiB\", \"48MiB\"]\n"});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  const auto put = [&](const std::string& prefix, int count) {
    for (int n = 0; n < count; ++n) REQUIRE(client.put(prefix + std::to_string(n), valueOf(n, 100'000)));
  };
  const auto fromSsd = [&](const std::string& prefix, int count) {
    int found = 0;
    for (int n = 0; n < count; ++n) {
      const auto holder = client.get(prefix + std::to_string(n));
      if (!holder) continue;
      CHECK(bool(holder->text() == valueOf(n, 100'000)));
      found += holder->source() == fluxon::Source::ssd;
    }
    return found;
  };
  const auto ctl = [&](const std::string& line) { return execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " " + line).out; };
  const auto metric = [&](const char* name, const std::string& label = "") { return cluster.metric("ssdd-n0", name, label); };
  put("before", 20);
  persisted(cluster, "n0");
  const int onA = static_cast<int>(metric("fluxon_ssdd_writes_total", a));
  CHECK(onA > 0);
  CHECK(onA < 20);
  evictAll(cluster);
  {
    ssd::Freezer frozen(a);
    put("during", 20);
    CHECK(eventually([&] { return metric("fluxon_ssdd_device_serving", a) == 0; }));
    CHECK(eventually([&] { return has(ctl("ssd"), "hung"); }));
    const std::string doctor = ctl("doctor");
    CHECK(has(doctor, "nothing is written to " + rootOf(a) + " (hung)"));
    CHECK(has(doctor, a + ": does not answer within 3 s"));
    CHECK(has(cluster.log("ssdd-n0"), "device of " + rootOf(a) + " has ended no request for 4 s"));
    put("after", 20);
    persisted(cluster, "n0");
    CHECK(metric("fluxon_ssdd_stalled") > 0);
    CHECK(cluster.metric("n0", "fluxon_owner_ssd_persists_stalled_total") == metric("fluxon_ssdd_stalled"));
    CHECK(fromSsd("before", 20) == 20 - onA);
    CHECK(metric("fluxon_ssdd_writes_total", b) > 20 + 20 - onA);
  }
  CHECK(eventually([&] { return metric("fluxon_ssdd_stalled") == 0; }));
  put("back", 20);
  CHECK(eventually([&] { return metric("fluxon_ssdd_device_serving", a) == 1; }));
  persisted(cluster, "n0");
  put("again", 20);
  persisted(cluster, "n0");
  evictAll(cluster);
  CHECK(fromSsd("again", 20) == 20);
  CHECK(fromSsd("after", 20) == 20);
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_lost_total") == 0);
}

namespace {

// A group of processes whose writes to a device go at so many bytes a second.
class Slow {
 public:
  Slow(const std::string& folder, uint64_t bytesASecond) {
    if (!fs::exists("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")) return;
    group_ = "/sys/fs/cgroup/blkio/fluxon-" + std::to_string(::getpid());
    fs::create_directory(group_);
    struct stat info;
    REQUIRE(::stat(folder.c_str(), &info) == 0);
    std::ofstream(group_ + "/blkio.throttle.write_bps_device")
        << major(info.st_dev) << ":" << minor(info.st_dev) << " " << bytesASecond << std::endl;
  }
  ~Slow() {
    for (int tries = 0; works() && ::rmdir(group_.c_str()) != 0 && tries < 1000; ++tries) ::usleep(10'000);
  }
  bool works() const { return !group_.empty(); }
  void take(pid_t pid) const { std::ofstream(group_ + "/cgroup.procs") << pid << std::endl; }

 private:
  std::string group_;
};

}  // namespace

TEST_CASE("ssdd: a value whose write takes many seconds comes to the SSD, small ones do not wait for it, and nothing is lost") {
  const ssd::TemporaryFolder folder;
  if (!made(folder, "ext4", 160 << 20)) return;
  const Slow slow(folder.path + "/mounted", 8 << 20);
  if (!slow.works()) {
    MESSAGE("SKIPPED: (machine) no blkio group that slows a disk down");
    return;
  }
  Cluster cluster({.owner = "segment_size = \"256MiB\"\n" + ssdLines(folder.path + "/mounted", "128MiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  for (int n = 0; n < 20; ++n) REQUIRE(client.put(std::to_string(n), valueOf(n, 100'000)));
  persisted(cluster, "n0");
  slow.take(cluster.pid("ssdd-n0"));
  const std::string large = valueOf(7, 56 << 20);  // seven seconds
  REQUIRE(client.put("large", large));
  REQUIRE(client.put("small", valueOf(8, 100'000)));
  const auto taken = [&] { return cluster.metric("n0", "fluxon_owner_ssd_persists_taken_total"); };
  CHECK(eventually([&] { return taken() == 21; }));
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_persists") == 1);  // the large one
  CHECK(eventually([&] { return taken() == 22; }, 60));
  CHECK(cluster.metric("n0", "fluxon_owner_ssd_lost_total") == 0);
  CHECK(cluster.metric("ssdd-n0", "fluxon_ssdd_device_serving") == 1);
  evictAll(cluster);
  const auto holder = client.get("large");
  REQUIRE(holder);
  CHECK(holder->source() == fluxon::Source::ssd);
  CHECK(bool(holder->text() == large));
  for (int n = 0; n < 20; ++n) CHECK(client.get(std::to_string(n)));
  cluster.kill("ssdd-n0");
}

TEST_CASE("ssdd: shard files that are removed under it: said within seconds, the disk is out, its space is given back, memory serves") {
  const ssd::TemporaryFolder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  auto client = cluster.client();
  REQUIRE(client.put("k", valueOf(1, 100'000)));
  persisted(cluster, "n0");
  const std::string shard = rootOf(folder.path) + "/shard-000";
  const int open = ::open(shard.c_str(), O_RDONLY | O_CLOEXEC);
  fs::remove_all(folder.path + "/t_cluster_kv_ssd_storage");
  CHECK(eventually([&] { return has(cluster.log("ssdd-n0"), shard + " has been removed: the device is not used any more"); }));
  CHECK(eventually([&] { return cluster.metric("ssdd-n0", "fluxon_ssdd_device_serving") == 0; }));
  const auto ctl = [&](const std::string& line) { return execute(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " " + line).out; };
  CHECK(eventually([&] { return has(ctl("ssd"), "gone"); }));
  CHECK(has(ctl("doctor"), "nothing is written to the SSD of n0"));
  struct stat info;
  CHECK(eventually([&] { return ::fstat(open, &info) == 0 && info.st_blocks == 0; }));
  ::close(open);
  CHECK(bool(client.get("k")->text() == valueOf(1, 100'000)));
  REQUIRE(client.put("l", valueOf(2, 100'000)));
  cluster.signal("ssdd-n0", SIGTERM);
  CHECK(cluster.wait("ssdd-n0") == 0);
  cluster.start("ssdd-n0");
  checkSsd(cluster);
}

TEST_CASE("ssdd: a large file path that is a file, leads nowhere, or cannot be written: one line") {
  const Place place;
  const std::string at = place.folder() + "/there";
  std::ofstream(at) << "a file";
  ends(ssddOf(configured(place, at)), 71, {at, "Not a directory"});
  fs::remove(at);
  fs::create_symlink(place.folder() + "/nowhere", at);
  ends(ssddOf(configured(place, at)), 71, {at, "No such file or directory"});
  fs::remove(at);
  ends(ssddOf(configured(place, place.folder() + "/two/levels")), 71, {"/two/levels", "No such file or directory"});
  const std::string readOnly = place.folder() + "/read-only";
  if (!mounted("tmpfs", readOnly, MS_RDONLY)) return;
  const Unmount unmount{readOnly};
  ends(ssddOf(configured(place, readOnly)), 71, {readOnly, "Read-only file system"});
}

TEST_CASE("ssdd: a large file path that is a link to a folder, and one on tmpfs, work; whether I/O is direct is said") {
  const ssd::TemporaryFolder folder;
  const std::string link = folder.path + "/link", shm = "/dev/shm/" + fs::path(folder.path).filename().string();
  fs::create_directory(folder.path + "/real");
  fs::create_symlink(folder.path + "/real", link);
  for (const std::string& path : {link, shm}) {
    CAPTURE(path);
    Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(path, "64MiB")});
    cluster.start("ssdd-n0");
    checkSsd(cluster);
    const int probe = ::open((rootOf(path) + "/probe").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    const bool direct = probe >= 0;
    if (direct) ::close(probe);
    CHECK(has(cluster.log("ssdd-n0"), direct ? "direct I/O in blocks of " : "no direct I/O there"));
    CHECK(cluster.metric("ssdd-n0", "fluxon_ssdd_direct_io") == direct);
  }
  fs::remove_all(shm);
}

TEST_CASE("ssdd: of two paths on one device the second is not used, which is said, and the first works") {
  const ssd::TemporaryFolder folder;
  const std::string a = folder.path + "/a", b = folder.path + "/b";
  Cluster cluster({.owner = "segment_size = \"16MiB\"\nlarge_file_paths = [\"" + a + "\", \"" + b +
                            "\"]\nlarge_limit_size = [\"64MiB\", \"32MiB\"]\n"});
  cluster.start("ssdd-n0");
  CHECK(has(cluster.log("ssdd-n0"), "warning " + b + " is on the same device as " + a + ", and is not used\n"));
  checkSsd(cluster);
  CHECK(cluster.metric("ssdd-n0", "fluxon_ssdd_capacity_bytes") == 64 << 20);
  CHECK_FALSE(fs::exists(rootOf(b) + "/shard-000"));
}

TEST_CASE("ssdd: two nodes with the same path have a folder each") {
  const ssd::TemporaryFolder folder;
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  cluster.start("ssdd-n0");
  cluster.start("ssdd-n1");
  checkSsd(cluster);
  cluster.kill("ssdd-n1");
  CHECK(cluster.client().get("4096"));
  cluster.start("ssdd-n1");
  CHECK(cluster.client().get("4096"));
}

TEST_CASE("ssdd: half shards, shards too many and files of others in its folder do not disturb it; what is nobody's shard stays") {
  const ssd::TemporaryFolder folder;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\n" + ssdLines(folder.path, "64MiB")});
  const std::string root = rootOf(folder.path);
  cluster.start("ssdd-n0");
  checkSsd(cluster);
  cluster.kill("ssdd-n0");
  fs::resize_file(root + "/shard-000", (32 << 20) + 100);
  std::ofstream(root + "/shard-007") << "more of an earlier limit";
  std::ofstream(root + "/shard-abc") << "foreign";
  std::ofstream(root + "/notes.txt") << "foreign";
  fs::create_directory(root + "/folder");
  cluster.start("ssdd-n0");
  checkSsd(cluster);
  CHECK(fs::file_size(root + "/shard-000") == 64 << 20);
  CHECK_FALSE(fs::exists(root + "/shard-007"));
  for (const char* name : {"/shard-abc", "/notes.txt", "/folder"}) CHECK(fs::exists(root + name));
}

TEST_CASE("ssdd: what lies where a shard shall be and is no file of its own: one line, and it is left alone") {
  const Place place;
  const std::string path = place.folder() + "/disk", shard = rootOf(path) + "/shard-000", config = configured(place, path);
  fs::create_directories(rootOf(path));
  fs::create_directory(shard);
  ends(ssddOf(config), 77, {shard, "is in the way: a folder of user"});
  fs::remove(shard);
  REQUIRE(::mkfifo(shard.c_str(), 0600) == 0);
  ends(ssddOf(config), 77, {shard, "is in the way: a fifo of user"});
  fs::remove(shard);
  std::ofstream(place.folder() + "/precious") << "precious";
  fs::create_symlink(place.folder() + "/precious", shard);
  ends(ssddOf(config), 77, {shard, "is in the way: a symbolic link of user"});
  CHECK(fs::file_size(place.folder() + "/precious") == 8);
}
