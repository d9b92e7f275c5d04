// What surrounds a process when it starts: descriptors that are closed, limits, somebody who does not read what it says. None of it may
// stop it, or make it write where it should not.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cluster.h"
#include "loop_device.h"
#include "texts.h"

using namespace fluxon::test;
namespace fs = std::filesystem;

namespace {

const std::string kBin = FLUXON_BIN "/";

// A pipe that takes nothing more until it is read.
struct FullPipe {
  int ends[2];
  FullPipe() {
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (::write(ends[1], "x", 1) == 1) {
    }
    ::fcntl(ends[1], F_SETFL, 0);
  }
  ~FullPipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  std::string read() const {
    std::string text(65536, '\0');
    const ssize_t n = ::read(ends[0], text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
};

// A socket of datagrams that nobody reads, with no room for one more.
struct FullSocket {
  int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  std::string path;
  explicit FullSocket(std::string at) : path(std::move(at)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    REQUIRE(::bind(fd, to, sizeof address) == 0);
    const int other = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    while (::sendto(other, "x", 1, 0, to, sizeof address) == 1) {
    }
    ::close(other);
  }
  ~FullSocket() { ::close(fd); }
};

std::string target(pid_t pid, int fd) {
  std::error_code none;
  return fs::read_symlink("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd), none);
}

}  // namespace

TEST_CASE("master and owner whose stderr nobody reads serve, and end at SIGTERM") {
  Cluster cluster;
  const FullPipe full;
  for (const std::string process : {"master", "n0"}) {
    cluster.kill(process);
    cluster.start(process, [&] { ::dup2(full.ends[1], 2); });
  }
  fluxon::Client client = cluster.client();
  client.put("k", "value");
  CHECK(client.get("k")->text() == "value");
  cluster.start("n1");  // an event that the master logs
  CHECK(execute(kBin + "fluxonctl --config " + cluster.config() + " status").status == 0);
  for (const std::string process : {"n0", "master"}) {
    cluster.signal(process, SIGTERM);
    CHECK(cluster.wait(process) == 0);
  }
}

TEST_CASE("an owner whose segment is cut short ends though nobody reads its stderr") {
  Cluster cluster;
  const FullPipe full;
  cluster.kill("n0");
  cluster.start("n0", [&] { ::dup2(full.ends[1], 2); });
  cluster.client().put("k", "a value that is written into the segment");
  REQUIRE(::truncate((cluster.root() + "/t/n0/directory").c_str(), 0) == 0);
  const std::string state = "grep -q '^State:.Z' /proc/" + std::to_string(cluster.pid("n0")) + "/status";
  if (!eventually([&] { return execute(state).status == 0; })) cluster.signal("n0", SIGKILL);
  CHECK(cluster.wait("n0") == -SIGALRM);  // its last line was waited for, but not for ever
}

TEST_CASE("what could not be written to a stderr that was full is there when it is read") {
  Cluster cluster;
  const FullPipe full;
  cluster.kill("n0");
  cluster.start("n0", [&] { ::dup2(full.ends[1], 2); });
  std::string text = full.read();
  CHECK(eventually([&] { return has(text += full.read(), " info ready: node n0, http "); }));
}

TEST_CASE("nobody reads the pipe of --ready-fd or the socket of readiness: the master serves, and tells them once they do") {
  Place place;
  const std::string config = place.configure();
  const FullPipe full;
  const FullSocket notify(place.folder() + "/notify");
  const pid_t master = ::fork();
  if (master == 0) {
    ::dup2(full.ends[1], 9);
    ::setenv("NOTIFY_SOCKET", notify.path.c_str(), 1);
    ::execl((kBin + "fluxon-master").c_str(), "fluxon-master", "--config", config.c_str(), "--ready-fd", "9", nullptr);
    ::_exit(127);
  }
  CHECK(eventually([&] { return execute(kBin + "fluxonctl --config " + config + " status").status == 0; }));
  char datagram[256];
  CHECK(eventually([&] {
    const ssize_t n = ::recv(notify.fd, datagram, sizeof datagram, MSG_DONTWAIT);
    return n > 0 && has(std::string(datagram, static_cast<size_t>(n)), "READY=1");
  }));
  std::string ready;
  CHECK(eventually([&] { return has(ready += full.read(), "\n"); }));
  ::kill(master, SIGTERM);
  CHECK(waitFor(master) == 0);
}

TEST_CASE("a daemon that is started with 0, 1 and 2 closed has /dev/null there") {
  Cluster cluster;
  for (const std::string process : {"master", "n0"}) {
    CAPTURE(process);
    cluster.kill(process);
    cluster.start(process, [] {
      for (const int fd : {0, 1, 2}) ::close(fd);
    });
    for (const int fd : {0, 1, 2}) CHECK(target(cluster.pid(process), fd) == "/dev/null");
  }
}

TEST_CASE("fluxonctl with a closed stdout says that it cannot write, and writes nowhere else") {
  Cluster cluster;
  cluster.client().put("k", valueOf(1, 100'000));
  const std::string ctl = kBin + "fluxonctl --config " + cluster.config() + " ";
  for (const std::string verb : {"get k", "list", "status", "pins"}) {
    CAPTURE(verb);
    const Ended ended = execute(ctl + verb + " >&-");
    CHECK(ended.status == (verb == "pins" ? 0 : 71));  // no line: nothing to write
    if (ended.status != 0) CHECK(has(ended.err, "Bad file descriptor"));
  }
  CHECK(execute(ctl + "put none - <&-").status == 71);
  CHECK(execute(ctl + "list").out.find("none") == std::string::npos);
  CHECK(cluster.metric("n0", "fluxon_owner_clients_refused_total") == 0);
}

TEST_CASE("a client in a process that has closed 0, 1 and 2 leaves them free") {
  Cluster cluster(Cluster::Shape{.nodes = {"n0", "n1"}});
  cluster.client("n1").put("there", "value");
  const int status = waitFor(inChild([&] {
    for (const int fd : {0, 1, 2}) ::close(fd);
    fluxon::Client client = cluster.client();
    client.put("k", valueOf(2, 100'000));
    const bool right = client.get("k").has_value() && client.get("there").has_value();
    for (const int fd : {0, 1, 2}) {
      if (::fcntl(fd, F_GETFD) >= 0) return 10 + fd;
    }
    return right ? 0 : 20;
  }));
  CHECK(status == 0);
}

TEST_CASE("RLIMIT_FSIZE below what is needed: 71 and one line that names it, from every program") {
  Place place;
  const std::string config = place.configure();
  const Ended owner = execute("ulimit -f 2048; timeout 20 " + kBin + "fluxon-owner --config " + config);
  CHECK(owner.status == 71);
  CHECK_MESSAGE(has(owner.err, "/t/n0/segment: File too large (RLIMIT_FSIZE is 1048576 bytes: ulimit -f, or LimitFSIZE= of the unit)"),
                owner.err);
  const Ended master = execute("ulimit -f 0; timeout 20 " + kBin + "fluxon-master --config " + config + " 2>&1 | cat");
  CHECK_MESSAGE(has(master.out, "/t/.master/lock: File too large (RLIMIT_FSIZE is 0 bytes"), master.out);
  const Ended up = execute("ulimit -f 2048; timeout 20 " + kBin + "fluxonctl --config " + config + " up");
  CHECK(up.status == 71);
  CHECK_MESSAGE(has(up.err, "fluxon-owner[n0] ended with status 71"), up.err);
}

TEST_CASE("fluxonctl get -o past RLIMIT_FSIZE: 71, one line, and no half file") {
  Cluster cluster;
  cluster.client().put("k", valueOf(3, 100'000));
  const std::string to = cluster.folder() + "/value";
  const Ended ended = execute("ulimit -f 8; " + kBin + "fluxonctl --config " + cluster.config() + " get k -o " + to);
  CHECK(ended.status == 71);
  CHECK_MESSAGE(has(ended.err, "File too large"), ended.err);
  CHECK_FALSE(fs::exists(to));
}

TEST_CASE("a daemon that has used up RLIMIT_CPU says so, ends in good order and with 71") {
  Cluster cluster;
  cluster.client().put("k", "kept");
  cluster.signal("n0", SIGXCPU);
  CHECK(cluster.wait("n0") == 71);
  CHECK_MESSAGE(has(cluster.log("n0"), "stopping: the time of the processor that RLIMIT_CPU allows is used up"), cluster.log("n0"));
  cluster.start("n0");
  CHECK(cluster.client().get("k")->text() == "kept");
}

TEST_CASE("a user without HOME: the master asks for its state_dir instead of keeping it where everybody may write") {
  Place place;
  const std::string config = place.folder() + "/none.toml";
  std::ofstream(config) << "[common]\nshm_root = \"" << place.root() << "\"\n";
  ::chmod(place.folder().c_str(), 0755);
  const std::string nobody = ::geteuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups " : "";
  const std::string as = nobody + "env -u HOME -u XDG_STATE_HOME timeout 20 " + kBin;
  if (execute(as + "fluxonctl --version").status != 0) {
    MESSAGE("SKIPPED: (machine) another user may not run " << kBin);
    return;
  }
  CHECK(has(execute(as + "fluxonctl --config " + config + " config show").out, "\nstate_dir = \"\"\n"));
  const Ended master = execute(as + "fluxon-master --config " + config);
  CHECK(master.status == 78);
  CHECK_MESSAGE(has(master.err, "master.state_dir is not set"), master.err);
  const Ended up = execute(as + "fluxonctl --config " + config + " up --detach");
  CHECK(up.status == 78);
  CHECK_MESSAGE(has(up.err, "master.state_dir is not set"), up.err);
}

TEST_CASE("a folder on the way to state_dir that others can write to, or that is another user's, is refused") {
  Place place;
  const std::string config = place.configure();
  ::chmod(place.folder().c_str(), 0777);
  const Ended open = execute("timeout 20 " + kBin + "fluxon-master --config " + config);
  CHECK(open.status == 77);
  CHECK_MESSAGE(has(open.err, place.folder() + " can be written by everybody"), open.err);
  ::chmod(place.folder().c_str(), 01777);
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a folder away");
    return;
  }
  fs::create_directory(place.folder() + "/state");
  REQUIRE(::chown((place.folder() + "/state").c_str(), 12345, 12345) == 0);
  const Ended foreign = execute("timeout 20 " + kBin + "fluxon-master --config " + config);
  CHECK(foreign.status == 77);
  CHECK_MESSAGE(has(foreign.err, place.folder() + "/state belongs to user 12345, not to 0 or root"), foreign.err);
}

TEST_CASE("a fifo where a file should be: one line, and nobody waits for it") {
  for (const std::string name : {"state", "lock"}) {
    CAPTURE(name);
    Place place;
    const std::string config = place.configure(), path = place.folder() + "/state/" + name;
    fs::create_directory(place.folder() + "/state");
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const Ended master = execute("timeout 20 " + kBin + "fluxon-master --config " + config);
    CHECK(master.status == (name == "state" ? 65 : 77));
    const std::string why = name == "state" ? path + " is not a regular file" : path + " is in the way: a fifo of user ";
    CHECK_MESSAGE(has(master.err, why), master.err);
  }
  Place place;
  const std::string lock = place.root() + "/t/n0/lock";
  fs::create_directories(place.root() + "/t/n0");
  REQUIRE(::mkfifo(lock.c_str(), 0600) == 0);
  const Ended owner = execute("timeout 20 " + kBin + "fluxon-owner --config " + place.configure());
  CHECK(owner.status == 77);
  CHECK_MESSAGE(has(owner.err, lock + " is in the way: a fifo of user "), owner.err);
}

TEST_CASE("fluxon-master where the configuration names a master elsewhere: 78, and no second master of the cluster") {
  Place place;
  const Ended ended =
      execute("timeout 20 " + kBin + "fluxon-master --config " + place.configure("", "", "", "master = \"192.0.2.1:7800\"\n"));
  CHECK(ended.status == 78);
  CHECK_MESSAGE(has(ended.err, "common.master = \"192.0.2.1:7800\" is the master of this host"), ended.err);
  CHECK_FALSE(fs::exists(place.root()));
}

TEST_CASE("a configuration from a pipe is read; one that nobody writes, and one without an end, are refused") {
  Place place;
  const std::string config = place.configure();
  CHECK(execute("bash -c '" + kBin + "fluxonctl config check <(cat " + config + ")'").status == 0);
  const Ended zero = execute("timeout 20 " + kBin + "fluxonctl config check /dev/zero");
  CHECK(zero.status == 78);
  CHECK(has(zero.err, "read /dev/zero: it is longer than 1 MiB"));
  const std::string fifo = place.folder() + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const Ended silent = execute("timeout 20 " + kBin + "fluxonctl config check " + fifo);
  CHECK(silent.status == 78);
  CHECK(has(silent.err, "nothing came for 2000 ms"));
}

namespace {

// A memory control group of version 1 or 2 for what is started in it.
struct MemoryGroup {
  std::string folder, tasks;
  explicit MemoryGroup(uint64_t bytes) {
    for (const std::string top : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      const bool first = fs::exists(top + "/memory.limit_in_bytes");
      if (!first && !fs::exists(top + "/cgroup.controllers")) continue;
      folder = top + "/fluxon-test-" + std::to_string(::getpid());
      std::error_code error;
      fs::create_directory(folder, error);
      const std::string limit = folder + (first ? "/memory.limit_in_bytes" : "/memory.max");
      if (!error) std::ofstream(limit) << bytes;
      std::string written;
      std::ifstream(limit) >> written;
      if (written == std::to_string(bytes)) {
        tasks = folder + (first ? "/tasks" : "/cgroup.procs");
        return;
      }
      ::rmdir(folder.c_str());
    }
  }
  ~MemoryGroup() {
    if (!tasks.empty()) CHECK(eventually([this] { return ::rmdir(folder.c_str()) == 0; }));
  }
};

}  // namespace

TEST_CASE("a memory limit of the container below the segment: the owner names it and ends, doctor says so before") {
  const MemoryGroup group(40 << 20);
  if (group.tasks.empty()) {
    MESSAGE("SKIPPED: (machine) no control group can be made here");
    return;
  }
  Place place;
  const std::string inside = "echo $$ >" + group.tasks + "; ", config = place.configure("segment_size = \"128MiB\"\n");
  const Ended owner = execute(inside + "exec timeout 20 " + kBin + "fluxon-owner --config " + config);
  CHECK(owner.status == 75);
  CHECK_MESSAGE(has(owner.err, "allows 40 MiB, "), owner.err);
  CHECK_MESSAGE(has(owner.err, "segment, directory and keys need "), owner.err);
  const Ended doctor = execute(inside + "exec timeout 20 " + kBin + "fluxonctl --config " + config + " doctor");
  CHECK(doctor.status == 69);
  CHECK_MESSAGE(has(doctor.out, "fail  memory "), doctor.out);
  CHECK_FALSE(fs::exists(place.root() + "/t/n0"));
}

TEST_CASE("a memory limit that came to be below another segment_size: the owner ends, and the values are there for the old one") {
  const MemoryGroup group(40 << 20);
  if (group.tasks.empty()) {
    MESSAGE("SKIPPED: (machine) no control group can be made here");
    return;
  }
  Cluster cluster({.owner = "segment_size = \"32MiB\"\n"});
  cluster.client().put("k", valueOf(1, 100'000));
  cluster.kill("n0");
  cluster.configure({.owner = "segment_size = \"128MiB\"\n"});
  const Ended owner =
      execute("echo $$ >" + group.tasks + "; exec timeout 20 " + kBin + "fluxon-owner --config " + cluster.config() + " --node n0");
  CHECK(owner.status == 75);
  CHECK_MESSAGE(has(owner.err, "allows 40 MiB, "), owner.err);
  CHECK_MESSAGE(has(owner.err, "(the files of the last life are kept)"), owner.err);
  cluster.configure({.owner = "segment_size = \"32MiB\"\n"});
  cluster.start("n0");
  CHECK(cluster.client().get("k")->text() == valueOf(1, 100'000));
}

TEST_CASE("an owner that cannot open the files of the last life's clients ends with 71, and what they hold stays theirs") {
#ifdef FLUXON_SANITIZED
  MESSAGE("SKIPPED: (machine) the sanitizers look at memory through a pipe, and take want of descriptors for bad memory");
  return;
#endif
  constexpr int kHolders = 40;
  Cluster cluster({.owner = "segment_size = \"16MiB\"\nmax_keys = 1024\n"});
  std::vector<fluxon::Client> clients;
  std::vector<fluxon::Holder> held;
  REQUIRE(cluster.client().put("k", valueOf(1, 100'000)));
  for (int i = 0; i < kHolders; ++i) {
    clients.push_back(cluster.client());
    held.push_back(*clients.back().get("k"));
  }
  cluster.kill("n0");
  const Ended owner = execute("ulimit -n 40; exec timeout 20 " + kBin + "fluxon-owner --config " + cluster.config() + " --node n0");
  CHECK(owner.status == 71);
  CHECK_MESSAGE(has(owner.err, ": Too many open files (RLIMIT_NOFILE is 40: ulimit -n, or LimitNOFILE= of the unit)"), owner.err);
  cluster.start("n0");
  CHECK_MESSAGE(has(cluster.log("n0"), std::to_string(kHolders) + " clients of the last life still hold values"), cluster.log("n0"));
  auto writer = cluster.client();
  for (uint64_t i = 0; i < 300; ++i) CHECK(writer.put("other" + std::to_string(i % 2), valueOf(i, 100'000)));
  for (const fluxon::Holder& holder : held) CHECK(bool(holder.text() == valueOf(1, 100'000)));
}

TEST_CASE("fluxon-master: a state_dir that does not answer keeps no SIGTERM waiting, at the start or later") {
  static const std::string why = fluxon::ssd::whyNoLoopDevices();
  if (!why.empty()) {
    MESSAGE("SKIPPED: " << why);
    return;
  }
  const fluxon::ssd::TemporaryFolder folder;
  const std::string failed = fluxon::ssd::mountFileSystem(folder.path, 32 << 20);
  REQUIRE_MESSAGE(failed.empty(), failed);
  const Place place;
  const std::string disk = folder.path + "/mounted", config = place.folder() + "/frozen.toml", log = place.folder() + "/log";
  std::ofstream(config) << "[common]\ncluster = \"t\"\nshm_root = \"" << place.root() << "\"\n[master]\nstate_dir = \"" << disk
                        << "/state\"\n[owner]\nnode = \"n0\"\nsegment_size = \"16MiB\"\n";
  const auto started = [&](const std::string& program, const std::string& into) {
    return inChild([&] {
      ::dup2(::open(into.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      ::execl((kBin + program).c_str(), program.c_str(), "--config", config.c_str(), nullptr);
      return 127;
    });
  };
  const auto says = [&](const std::string& line) { return eventually([&] { return has(logIn(log), line); }); };
  for (const bool early : {true, false}) {
    CAPTURE(early);
    std::optional<fluxon::ssd::Freezer> frozen;
    if (early) frozen.emplace(disk);
    const pid_t master = started("fluxon-master", log);
    pid_t owner = 0;
    if (!early) {
      REQUIRE(says("ready: "));
      frozen.emplace(disk);
      owner = started("fluxon-owner", log + "-owner");  // its life is to be made durable
    }
    // A thread of it waits for the disk.
    const auto waits = [&] {
      for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(master) + "/task")) {
        std::string stat;
        std::getline(std::ifstream(task.path() / "stat") >> std::ws, stat);
        if (has(stat, ") D ")) return true;
      }
      return false;
    };
    CHECK(eventually(waits));
    const auto begun = std::chrono::steady_clock::now();
    ::kill(master, SIGTERM);
    CHECK(says("a disk does not answer: what is under way ends with the process"));
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(6));
    CHECK_FALSE(fs::exists(place.root() + "/t/.master/socket"));
    frozen->thaw();  // the process is gone when the kernel has its last I/O back
    CHECK(waitFor(master) == 0);
    if (owner == 0) continue;
    ::kill(owner, SIGTERM);
    CHECK(waitFor(owner) == 0);
  }
}
