// fluxonctl up and down against real daemons: what they start, what they stop, what they leave, and whom they never touch.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "cluster.h"
#include "texts.h"

using namespace fluxon::test;
namespace fs = std::filesystem;
using namespace std::string_literals;

namespace {

bool lives(pid_t pid) { return ::kill(pid, 0) == 0; }

// A place with a tool, and at the end no cluster in it, whatever the test has made of it.
struct Host : Place {
  explicit Host(const std::string& owner = "", const std::string& nodes = "", const std::string& common = "") {
    config = configure(owner, "", "", common);
    if (!nodes.empty()) write(config, read(config) + "[up]\nnodes = [" + nodes + "]\n");
    tool = kCtl + " --config " + config + " ";
  }
  ~Host() {
    if (fs::exists(root() + "/t/.up/lock")) execute(tool + "down");
  }
  Ended up(const std::string& prefix = "", const std::string& options = "") const {
    return execute(prefix + tool + "up --detach " + options);
  }
  bool isUp() const { return execute(tool + "--timeout 1 exists none").status == 1; }
  bool isDown() const {
    return eventually([&] { return execute(tool + "down").status == 0; });
  }
  // From "NAME is ready, pid N".
  static pid_t pidOf(const std::string& said, const std::string& name) {
    const size_t at = said.find(name + " is ready, pid ");
    REQUIRE_MESSAGE(at != std::string::npos, said);
    return std::stoi(said.substr(said.find("pid ", at) + 4));
  }
  // Starts `up` in the foreground, in a process of ours, and waits until it is up.
  pid_t inForeground(const std::string& prefix = "exec ") const {
    const std::string command = prefix + tool + "up >" + folder() + "/up.out 2>&1";
    const pid_t pid = inChild([&] { return ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr); });
    const bool ready = eventually([&] { return has(read(folder() + "/up.out"), "cluster t is up"); });
    CHECK_MESSAGE(ready, read(folder() + "/up.out"));
    return pid;
  }

  std::string config, tool;
};

}  // namespace

TEST_CASE("up --detach says what it waits for; an interrupt ends what it has started") {
  Place place;
  const std::string config = place.configure("", "", "", "master = \"127.0.0.1:1\"\n"), out = place.folder() + "/out";
  const std::string command = kCtl + " --config " + config + " up --detach --log-dir " + place.folder() + " 2>" + out;
  const pid_t waiting = inChild([&] { return ::execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr); });
  CHECK(eventually([&] { return has(read(out), "waiting for fluxon-owner[n0]: master: service unavailable: "); }));
  CHECK(has(read(out), "127.0.0.1:1: Connection refused (logs: "));
  CHECK(oneLine(read(out)));
  CHECK(fs::exists(place.root() + "/t/n0/segment"));
  REQUIRE(::kill(waiting, SIGINT) == 0);
  int status = 0;
  REQUIRE(::waitpid(waiting, &status, 0) == waiting);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT));
  CHECK_FALSE(fs::exists(place.root() + "/t/n0"));
  CHECK(eventually([&] { return has(execute(kCtl + " --config " + config + " down").out, "nothing to stop"); }));
}

TEST_CASE("up says what the master has against an owner, while it waits and when it waits no more; doctor does not take another for it") {
  Cluster cluster({.master = "listen = \"127.0.0.1:0\"\n"});
  Place there;  // another root stands for another host
  const std::string config = there.configure("", "", "", "master = \"" + cluster.listens() + "\"\n");
  const std::string tool = kCtl + " --config " + config + " ", out = there.folder() + "/out";
  const std::string refusal =
      "master: service unavailable: node n0 is alive on the master's host (pid " + std::to_string(cluster.pid("n0"));
  const pid_t waiting = inChild(
      [&] { return WEXITSTATUS(std::system((tool + "--timeout 4 up --detach --log-dir " + there.folder() + " 2>" + out).c_str())); });
  CHECK_MESSAGE(eventually([&] { return has(read(out), "waiting for fluxon-owner[n0]: " + refusal); }), read(out));
  const Ended doctor = execute(tool + "doctor");
  CHECK(doctor.status == 69);
  CHECK_MESSAGE(has(doctor.out,
                    "fail  cluster    the master of t answers; joined: n0; the one that runs here is another owner of that "
                    "name: n0  ["),
                doctor.out);
  CHECK(waitFor(waiting) == 75);
  CHECK_MESSAGE(has(read(out), "not everything was ready in time: fluxon-owner[n0] (" + refusal), read(out));
  const std::string said = read(out);
  CHECK(std::count(said.begin(), said.end(), '\n') == 2);
  CHECK(has(execute(kCtl + " --config " + cluster.config() + " doctor").out, "ok    cluster    the master of t answers; joined: n0\n"));
}

TEST_CASE("up whose terminal takes nothing starts, restarts what dies, and stops all the same") {
  Host host;
  // A pipe that nobody empties is like a terminal that is stopped: whoever writes to it waits.
  struct Pipe {
    Pipe() { REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); }
    ~Pipe() {
      for (const int end : ends) ::close(end);
    }
    void fill() const {
      const int full = ::open(("/proc/self/fd/" + std::to_string(ends[1])).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      REQUIRE(full >= 0);
      while (::write(full, ".", 1) > 0) {
      }
      ::close(full);
    }
    int ends[2];
  };
  const auto upOn = [&](const Pipe& terminal) {
    return inChild([&] {
      ::dup2(terminal.ends[1], STDOUT_FILENO);
      ::dup2(terminal.ends[1], STDERR_FILENO);
      return ::execl("/bin/sh", "sh", "-c", ("exec " + host.tool + "up").c_str(), nullptr);
    });
  };
  const auto ended = [](pid_t pid) {  // its status; one that does not end is killed
    int status = -1;
    if (!eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; })) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
    }
    return status;
  };
  {
    const Pipe full;
    full.fill();
    const pid_t supervisor = upOn(full);
    CHECK(eventually([&] { return host.isUp(); }));
    CHECK(execute(host.tool + "down").status == 0);
    CHECK(ended(supervisor) == 0);
  }
  const Pipe terminal;
  const pid_t supervisor = upOn(terminal);
  std::string said;
  for (char bytes[512]; !has(said, "cluster t is up");) {
    const ssize_t n = ::read(terminal.ends[0], bytes, sizeof bytes);
    REQUIRE(n > 0);
    said.append(bytes, static_cast<size_t>(n));
  }
  terminal.fill();
  ::kill(Host::pidOf(said, "fluxon-owner[n0]"), SIGKILL);
  CHECK(eventually([&] { return host.isUp(); }));
  ::kill(supervisor, SIGTERM);
  CHECK(ended(supervisor) == 0);
}

TEST_CASE("up --detach runs a cluster, refuses a second one with its process, restarts what dies; down ends all of it") {
  Place place;
  std::string config = place.configure();
  write(config, read(config) + "[up]\nnodes = [\"n0\", \"n1\"]\n");
  const std::string tool = kCtl + " --config " + config + " ";
  const Ended none = execute(tool + "down");
  CHECK(none.status == 0);
  CHECK(has(none.out, "nothing to stop"));
  const Ended up = execute(tool + "up --detach");
  REQUIRE_MESSAGE(up.status == 0, up.err);
  CHECK(std::count(up.out.begin(), up.out.end(), '\n') == 4);
  CHECK(has(up.out, "(stop it: fluxonctl --config " + config + " --cluster t down)"));
  struct Down {
    const std::string& tool;
    ~Down() { execute(tool + "down"); }
  } down{tool};
  CHECK(execute("printf 1 | " + tool + "put key").status == 0);
  const std::string supervisor = read(place.root() + "/t/.up/lock");
  const Ended second = execute(tool + "up");
  CHECK(second.status == 69);
  CHECK(oneLine(second.err));
  CHECK_MESSAGE(has(second.err, "already run by process " + supervisor.substr(0, supervisor.size() - 1) + " "), second.err);
  CHECK(execute(tool + "get key").out == "1");

  const auto pidOf = [&](const std::string& node) -> pid_t {
    std::smatch match;
    const Ended members = execute(tool + "--json members");
    const bool found = std::regex_search(members.out, match, std::regex("\"" + node + "\",\"state\":\"joined\",.*?\"pid\":([0-9]+)"));
    return found ? std::stoi(match[1]) : 0;
  };
  const pid_t before = pidOf("n0");
  REQUIRE(before > 1);
  ::kill(before, SIGKILL);
  CHECK(eventually([&] {
    const pid_t now = pidOf("n0");
    return now > 1 && now != before;
  }));
  CHECK(eventually([&] { return execute("printf 2 | " + tool + "--node n0 --timeout 2 put key").status == 0; }));
  CHECK(has(read(place.folder() + "/state/log/fluxonctl.log"), "fluxon-owner[n0] was killed by signal 9"));
  const std::string master = read(place.root() + "/t/.master/lock");
  ::kill(std::stoi(master), SIGKILL);
  CHECK(eventually([&] { return execute("printf 3 | " + tool + "--timeout 2 put key").status == 0; }));
  CHECK(execute(tool + "get key").out == "3");

  const Ended ended = execute(tool + "down");
  CHECK(ended.status == 0);
  CHECK_FALSE(fs::exists(place.root() + "/t/n0"));
  CHECK_FALSE(fs::exists(place.root() + "/t/n1"));
  CHECK(eventually([&] { return !fs::exists("/proc/" + supervisor.substr(0, supervisor.size() - 1) + "/exe"); }));
  CHECK(has(execute(tool + "down").out, "nothing to stop"));
}

TEST_CASE("up starts an ssdd for each owner once that is ready, restarts it, and ends it, if there is an SSD tier") {
  Place place;
  // An installation whose ssdd only notes what it sees.
  const std::string bin = place.folder() + "/bin", notes = place.folder() + "/notes";
  fs::create_directories(bin);
  fs::copy_file(kCtl, bin + "/fluxonctl");
  for (const std::string name : {"fluxon-master", "fluxon-owner"}) fs::create_symlink(FLUXON_BIN "/" + name, bin + "/" + name);
  write(bin + "/fluxon-ssdd", "#!/bin/bash\n[[ -S " + place.root() + "/t/$4/socket ]] && owner=there || owner=missing\n" +
                                  "echo \"$$ $owner $*\" >> " + notes + "\necho >&\"${!#}\"\nexec sleep 100\n");
  fs::permissions(bin + "/fluxon-ssdd", fs::perms::owner_all);
  const std::string config = place.configure("large_file_paths = [\"" + place.folder() + "\"]\nlarge_limit_size = [\"1MB\"]\n");
  write(config, read(config) + "[up]\nnodes = [\"n0\", \"n1\"]\n");
  const std::string tool = bin + "/fluxonctl --config " + config + " ";
  const Ended up = execute(tool + "up --detach");
  REQUIRE_MESSAGE(up.status == 0, up.err);
  struct Down {
    const std::string& tool;
    ~Down() { execute(tool + "down"); }
  } down{tool};
  std::map<std::string, pid_t> pids;
  for (const std::string node : {"n0", "n1"}) {
    const size_t owner = up.out.find("fluxon-owner[" + node + "] is ready"), ssdd = up.out.find("fluxon-ssdd[" + node + "] is ready, pid ");
    REQUIRE_MESSAGE(ssdd != std::string::npos, up.out);
    CHECK(owner < ssdd);
    pids[node] = std::stoi(up.out.substr(up.out.find("pid ", ssdd) + 4));
    const std::string note = std::to_string(pids[node]) + " there --config " + config + " --node " + node + " --ready-fd 3\n";
    CHECK_MESSAGE(has(read(notes), note), read(notes));
  }
  ::kill(pids["n0"], SIGKILL);
  const std::string log = place.folder() + "/state/log/fluxonctl.log";
  CHECK(eventually([&] { return has(read(log), "fluxon-ssdd[n0] runs again"); }));
  CHECK(has(read(log), "fluxon-ssdd[n0] was killed by signal 9"));
  CHECK(execute(tool + "down").status == 0);
  CHECK(::kill(pids["n1"], 0) != 0);
  CHECK_FALSE(fs::exists(place.root() + "/t/n0"));
}

TEST_CASE("up that cannot start a process stops all and gives the process's exit status") {
  Place place;
  std::string config = place.configure();
  write(config, read(config) + "[up]\nnodes = [\"n0\", \"n1\"]\n");
  fs::create_directories(place.root() + "/t");
  write(place.root() + "/t/n1", "in the way");
  for (const char* how : {"up", "up --detach"}) {
    const Ended ended = execute(kCtl + " --config " + config + " " + how);
    CHECK(ended.status == 77);
    CHECK_MESSAGE(has(ended.err, "fluxon-owner[n1] ended with status 77"), ended.err);
    CHECK_MESSAGE(has(ended.err, "; all is stopped"), ended.err);
    CHECK_FALSE(fs::exists(place.root() + "/t/n0"));
    CHECK(execute(kCtl + " --config " + config + " status").status == 69);
  }
}

TEST_CASE("a start that fails leaves the values that were there before it, whatever makes it fail") {
  Host host;
  REQUIRE(host.up().status == 0);
  REQUIRE(execute("printf kept | " + host.tool + "put precious").status == 0);
  // The owner alone goes on without its supervisor's care: its values are those of an earlier life then.
  const std::string bad = host.folder() + "/bad.toml", good = read(host.config);
  const auto killAll = [&] {
    const pid_t supervisor = std::stoi(read(host.root() + "/t/.up/lock"));
    REQUIRE(::kill(supervisor, SIGKILL) == 0);
    CHECK(eventually([&] { return execute(host.tool + "down").status == 0; }));
  };
  const auto kept = [&] {
    const Ended up = host.up();
    REQUIRE_MESSAGE(up.status == 0, up.err);
    CHECK(execute(host.tool + "get precious").out == "kept");
  };
  killAll();
  CHECK(eventually([&] { return has(execute(host.tool + "down").out, "values of n0 of an earlier run are kept"); }));

  INFO("an ssdd that does not start");
  write(bad, good + "large_file_paths = [\"/proc/nowhere\"]\nlarge_limit_size = [\"64MiB\"]\n");
  const Ended ssdd = execute(kCtl + " --config " + bad + " up --detach");
  CHECK(ssdd.status != 0);
  CHECK_MESSAGE(has(ssdd.err, "all is stopped"), ssdd.err);
  kept();

  killAll();
  INFO("a master that does not answer, and a time-out");
  const std::string elsewhere = std::regex_replace(good, std::regex("\\[master\\]"), "master = \"127.0.0.1:1\"\n[master]");
  write(bad, elsewhere);
  CHECK(execute(kCtl + " --config " + bad + " --timeout 2 up").status == 75);
  kept();

  killAll();
  INFO("a segment that has no room here");
  write(bad, std::regex_replace(good, std::regex("16MiB"), "60TiB"));
  const Ended large = execute(kCtl + " --config " + bad + " up --detach");
  CHECK_MESSAGE(large.status == 75, large.err);
  CHECK_MESSAGE(has(large.err, "(the files of the last life are kept)); all is stopped"), large.err);
  kept();

  killAll();
  INFO("an interrupt while it waits");
  write(bad, elsewhere);
  const pid_t waiting = inChild([&] {
    return ::execl(kCtl.c_str(), "fluxonctl", "--config", bad.c_str(), "up", "--detach", "--log-dir", host.folder().c_str(), nullptr);
  });
  CHECK(eventually([&] { return has(read(host.folder() + "/fluxon-owner[n0].log"), "goes on with the values"); }));
  REQUIRE(::kill(waiting, SIGINT) == 0);
  CHECK(waitFor(waiting) == 128 + SIGINT);
  kept();

  killAll();
  INFO("a master that runs already: no owner is started");
  const pid_t master =
      inChild([&] { return ::execl(FLUXON_BIN "/fluxon-master", "fluxon-master", "--config", host.config.c_str(), nullptr); });
  CHECK(eventually([&] { return execute(host.tool + "status").status == 0; }));
  const Ended second = execute(host.tool + "up");
  CHECK(second.status == 69);
  CHECK_MESSAGE(has(second.err, "already run by process " + std::to_string(master)), second.err);
  ::kill(master, SIGTERM);
  CHECK(waitFor(master) == 0);
  kept();
  // And what a run has served goes with its stop.
  CHECK(host.isDown());
  CHECK_FALSE(fs::exists(host.root() + "/t/n0"));
}

TEST_CASE("the first put after down and up waits for nobody: what the last run had served is known to be gone") {
  for (const bool ssd : {false, true}) {
    CAPTURE(ssd);
    Host host;
    // The default lease, which a term waits for that knows of a life which may come back.
    std::string config = std::regex_replace(read(host.config), std::regex("lease_ms = [0-9]+"), "lease_ms = 10000");
    if (ssd) config += "large_file_paths = [\"" + host.folder() + "\"]\nlarge_limit_size = [\"64MiB\"]\n";
    write(host.config, config);
    REQUIRE_MESSAGE(host.up().status == 0, config);
    REQUIRE(execute("printf 1 | " + host.tool + "put a").status == 0);
    if (ssd) REQUIRE(eventually([&] { return has(execute(host.tool + "--json ssd").out, "\"entries\":1"); }));
    REQUIRE(execute(host.tool + "down").status == 0);
    CHECK(has(read(host.folder() + "/state/log/fluxon-owner[n0].log"), "stopping: SIGUSR1: leaves for good"));
    REQUIRE(host.up().status == 0);
    const Ended put = execute("printf 2 | " + host.tool + "--timeout 3 put b");
    CHECK_MESSAGE(put.status == 0, put.err);
    CHECK(execute(host.tool + "get a").status == 1);
    CHECK(execute(host.tool + "get b").out == "2");
  }
}

TEST_CASE("up changes nothing of a root that was there: it is used as it is, or refused with one line") {
  const auto modeOf = [](const std::string& path) { return fs::status(path).permissions(); };
  for (const mode_t mode : {0755, 01777, 0777}) {
    CAPTURE(mode);
    Host host;
    REQUIRE(::mkdir(host.root().c_str(), 0700) == 0);
    REQUIRE(::chmod(host.root().c_str(), mode) == 0);
    const Ended up = host.up();
    CHECK_MESSAGE(up.status == (mode == 0777 ? 77 : 0), up.err);
    if (mode == 0777) CHECK_MESSAGE((oneLine(up.err) && has(up.err, host.root() + " can be written by everybody")), up.err);
    CHECK(modeOf(host.root()) == fs::perms(mode));
    if (mode != 0777) CHECK(execute(host.tool + "down").status == 0);
  }
}

TEST_CASE("a user who may not look at a lock is not told that nothing runs; a client of the group is fit") {
  const std::string as = "setpriv --reuid 12345 --regid 65534 --clear-groups ";
  if (::geteuid() != 0 || !::getgrgid(65534) || execute(as + kCtl + " --version").status != 0) {
    MESSAGE("SKIPPED: (machine) another user may not run " << kCtl);
    return;
  }
  Host host("", "", "shm_group = \""s + ::getgrgid(65534)->gr_name + "\"\n");
  fs::permissions(host.folder(), fs::perms(0755));
  fs::permissions(host.config, fs::perms(0644));
  REQUIRE(host.up("cd /; ").status == 0);
  REQUIRE(execute("printf 1 | " + as + host.tool + "put key").status == 0);
  const Ended down = execute(as + host.tool + "down");
  CHECK(down.status == 77);
  CHECK_MESSAGE((oneLine(down.err) && has(down.err, "/t/.up/lock cannot be seen from here")), down.err);
  const Ended doctor = execute(as + host.tool + "doctor");
  CHECK_MESSAGE(has(doctor.out, "ok    shm        " + host.root() + " is of user 0, whose owners take this user as a client: n0\n"),
                doctor.out);
  CHECK_MESSAGE(has(doctor.out, "ok    cluster    the master of t answers its own user and root alone; running here: n0\n"), doctor.out);
  CHECK_FALSE(has(doctor.out, "rm -r"));
  CHECK_FALSE(has(doctor.out, "has been removed"));
  CHECK(has(execute(host.tool + "doctor").out, "the master of t answers; joined: n0\n"));
}

TEST_CASE("down and doctor in a mount namespace that lacks the files do not say that nothing runs, or that they were removed") {
  if (execute("unshare -m mount -t tmpfs none /dev/shm").status != 0) {
    MESSAGE("SKIPPED: (machine) no mount namespaces here");
    return;
  }
  Host host;
  REQUIRE(host.up().status == 0);
  const auto apart = [&](const std::string& verb) {
    return execute("unshare -m sh -c 'mount -t tmpfs none /dev/shm; " + host.tool + verb + "'");
  };
  const Ended down = apart("down");
  CHECK(down.status == 69);
  CHECK_MESSAGE(has(down.err, "process " + std::to_string(std::stoi(read(host.root() + "/t/.up/lock"))) + " (fluxonctl) runs cluster t"),
                down.err);
  CHECK_FALSE(has(apart("doctor").out, "has been removed"));
  CHECK(host.isUp());
}

TEST_CASE("up makes its lock and socket anew when somebody removes them; until then down names its process") {
  Host host;
  REQUIRE(host.up().status == 0);
  const std::string up = host.root() + "/t/.up", log = host.folder() + "/state/log/fluxonctl.log";
  const int supervisor = std::stoi(read(up + "/lock"));
  ::kill(supervisor, SIGSTOP);  // before it can find out itself
  fs::remove_all(up);
  const Ended down = execute(host.tool + "down");
  ::kill(supervisor, SIGCONT);
  CHECK(down.status == 69);
  CHECK_MESSAGE((oneLine(down.err) && has(down.err, "process " + std::to_string(supervisor) + " (fluxonctl) runs cluster t")), down.err);
  CHECK(eventually([&] { return fs::exists(up + "/socket"); }));
  CHECK(eventually([&] { return has(read(log), up + "/lock has been removed or replaced: it is made anew"); }));
  fs::remove(up + "/socket");
  CHECK(eventually([&] { return has(read(log), up + "/socket has been removed or replaced: it is made anew"); }));
  CHECK(execute(host.tool + "up").status == 69);
  CHECK(execute(host.tool + "down").status == 0);
  CHECK(eventually([&] { return !lives(supervisor); }));
}

TEST_CASE("down waits for the process that it has asked, not for one that begins meanwhile") {
  Host host;
  REQUIRE(host.up().status == 0);
  const int first = std::stoi(read(host.root() + "/t/.up/lock"));
  ::kill(first, SIGSTOP);
  const pid_t down = inChild([&] { return ::execl("/bin/sh", "sh", "-c", ("exec " + host.tool + "--timeout 5 down").c_str(), nullptr); });
  // It has asked, and does not see the moment in which nobody runs the cluster.
  CHECK(eventually([&] { return has(read("/proc/" + std::to_string(down) + "/wchan"), "nanosleep"); }));
  ::kill(down, SIGSTOP);
  ::kill(first, SIGKILL);
  REQUIRE(eventually([&] { return host.up().status == 0; }));
  ::kill(down, SIGCONT);
  CHECK(waitFor(down) == 0);
  CHECK(eventually([&] { return host.isUp(); }));
}

TEST_CASE("down asks the supervisor itself: a process whose number stands in its lock file is never signalled") {
  Host host;
  REQUIRE(host.up().status == 0);
  const pid_t stranger = inChild([] { return ::pause(); });
  write(host.root() + "/t/.up/lock", std::to_string(stranger) + "\n");
  const Ended second = execute(host.tool + "up");
  CHECK(second.status == 69);
  CHECK_FALSE(has(second.err, "process " + std::to_string(stranger) + " "));
  const Ended down = execute(host.tool + "down");
  CHECK_MESSAGE(down.status == 0, down.err);
  CHECK(down.out == "cluster t is down\n");
  CHECK(::waitpid(stranger, nullptr, WNOHANG) == 0);
  ::kill(stranger, SIGKILL);
  waitFor(stranger);
}

TEST_CASE("down ends a cluster of another pid namespace, whose numbers are those of strangers here") {
  if (execute("unshare -pf --mount-proc true").status != 0) {
    MESSAGE("SKIPPED: (machine) no pid namespaces here");
    return;
  }
  Host host;
  const std::string inside = host.folder() + "/inside";
  const pid_t container = inChild([&] {
    const std::string script = host.tool + "up --detach --log-dir " + host.folder() + " >" + inside + " 2>&1; exec sleep 100";
    return ::execlp("unshare", "unshare", "-pf", "--kill-child", "--mount-proc", "sh", "-c", script.c_str(), nullptr);
  });
  CHECK_MESSAGE(eventually([&] { return has(read(inside), "cluster t is up"); }), read(inside));
  // Numbers of there mean others here; those that are shown are of here.
  const Ended second = execute(host.tool + "up");
  CHECK(second.status == 69);
  std::smatch match;
  REQUIRE_MESSAGE(std::regex_search(second.err, match, std::regex("run by process ([0-9]+) ")), second.err);
  CHECK(has(read("/proc/" + match[1].str() + "/cmdline"), "fluxonctl"));
  const std::regex pid("\"pid\":([0-9]+)");
  for (const std::string verb : {"status", "members"}) {
    const Ended shown = execute(host.tool + "--json " + verb);
    for (std::sregex_iterator each(shown.out.begin(), shown.out.end(), pid), end; each != end; ++each)
      CHECK_MESSAGE(has(read("/proc/" + (*each)[1].str() + "/cmdline"), "fluxon-"), shown.out);
  }
  const Ended down = execute(host.tool + "down");
  CHECK_MESSAGE(down.status == 0, down.err);
  CHECK_FALSE(fs::exists(host.root() + "/t/n0"));
  ::kill(container, SIGKILL);
  waitFor(container);
}

TEST_CASE("a supervisor that is killed leaves values, and no process") {
  Host host;
  const Ended up = host.up();
  REQUIRE_MESSAGE(up.status == 0, up.err);
  const pid_t master = Host::pidOf(up.out, "fluxon-master"), owner = Host::pidOf(up.out, "fluxon-owner[n0]");
  REQUIRE(execute("printf 1 | " + host.tool + "put key").status == 0);
  REQUIRE(::kill(std::stoi(read(host.root() + "/t/.up/lock")), SIGKILL) == 0);
  CHECK(eventually([&] { return !lives(master) && !lives(owner); }));
  CHECK(has(execute(host.tool + "down").out, "values of n0 of an earlier run are kept (fluxonctl up goes on with them"));
  REQUIRE(host.up().status == 0);
  CHECK(execute(host.tool + "get key").out == "1");
}

TEST_CASE("up --detach keeps neither descriptors nor the folder of its caller") {
  Host host;
  const std::string lock = host.folder() + "/caller", elsewhere = host.folder() + "/cwd";
  fs::create_directories(elsewhere);
  const Ended up = execute("cd " + elsewhere + "; ln -s ../fluxon.toml here.toml; ( flock 9; " + kCtl +
                           " --config here.toml up --detach ) 9>" + lock + " 7>" + host.folder() + "/pipe");
  REQUIRE_MESSAGE(up.status == 0, up.err);
  CHECK(execute("flock -n " + lock + " true").status == 0);
  const pid_t supervisor = std::stoi(read(host.root() + "/t/.up/lock"));
  for (const pid_t pid : {supervisor, Host::pidOf(up.out, "fluxon-master"), Host::pidOf(up.out, "fluxon-owner[n0]")}) {
    const std::string proc = "/proc/" + std::to_string(pid);
    CHECK(fs::read_symlink(proc + "/cwd") == "/");
    for (const auto& fd : fs::directory_iterator(proc + "/fd")) {
      std::error_code gone;
      const std::string target = fs::read_symlink(fd.path(), gone);
      CHECK_MESSAGE((target != lock && target != host.folder() + "/pipe"), fd.path());
    }
  }
  // It can be asked for what it was told with a path of its own.
  CHECK(has(up.out, "--config " + elsewhere + "/here.toml "));
}

TEST_CASE("a signal that is ignored at the start stays ignored, and one that is blocked ends up nevertheless") {
  Host host;
  for (const auto& [prefix, ignored] : {std::pair{"trap '' HUP INT; exec ", true}, {"exec env --block-signal=TERM,INT,HUP ", false}}) {
    CAPTURE(prefix);
    const pid_t up = host.inForeground(prefix);
    if (ignored) {
      for (const int signal : {SIGHUP, SIGINT}) REQUIRE(::kill(up, signal) == 0);
      CHECK(host.isUp());
      CHECK(::waitpid(up, nullptr, WNOHANG) == 0);
    }
    REQUIRE(::kill(up, ignored ? SIGTERM : SIGINT) == 0);
    CHECK(waitFor(up) == 0);
    CHECK_FALSE(fs::exists(host.root() + "/t/n0"));
    fs::remove(host.folder() + "/up.out");
  }
}

TEST_CASE("up leaves an owner that was drained down, restarts one that was stopped with values, and goes on for its master") {
  Host host("", "\"n0\", \"n1\"");
  const Ended up = host.up();
  REQUIRE_MESSAGE(up.status == 0, up.err);
  const std::string log = host.folder() + "/state/log/fluxonctl.log";
  REQUIRE(execute("printf 1 | " + host.tool + "--node n1 put key").status == 0);
  REQUIRE(execute(host.tool + "drain n0").status == 0);
  CHECK(eventually([&] { return has(read(log), "fluxon-owner[n0] has left: it is not started again"); }));
  // Its exit is seen before that of the other owner, which is started again.
  REQUIRE(::kill(Host::pidOf(up.out, "fluxon-owner[n1]"), SIGTERM) == 0);
  CHECK(eventually([&] { return has(read(log), "fluxon-owner[n1] runs again"); }));
  CHECK_FALSE(has(read(log), "fluxon-owner[n0] runs again"));
  CHECK_FALSE(fs::exists(host.root() + "/t/n0"));
  CHECK(execute(host.tool + "--node n1 get key").out == "1");
  CHECK(host.isDown());
  CHECK_FALSE(fs::exists(host.root() + "/t/n1"));
}

TEST_CASE("an up without a master ends when its last owner was drained; its ssdd goes with it; its logs are its own") {
  Host host("", "\"n0\"");
  // The other host: a root of its own, its state folder by default the same.
  const std::string other = host.folder() + "/other.toml", otherRoot = host.root() + "-b", out = host.folder() + "/other.out";
  write(host.folder() + "/secret", std::string(44, 's'));
  fs::permissions(host.folder() + "/secret", fs::perms::owner_read);
  const std::string secret = "secret_file = \"" + host.folder() + "/secret\"\n";
  const std::string listening = secret + "[master]\nlisten = \"127.0.0.1:0\"";
  const std::string listens = std::regex_replace(read(host.config), std::regex("\\[master\\]"), listening);
  write(host.config, std::regex_replace(listens, std::regex("\\[owner\\]"), "[owner]\nlink = \"127.0.0.1:0\""));
  REQUIRE_MESSAGE(host.up().status == 0, read(host.config));
  std::smatch match;
  const std::string status = execute(host.tool + "status").out;
  REQUIRE_MESSAGE(std::regex_search(status, match, std::regex("listen +(\\S+)")), status);
  write(other, "[common]\ncluster = \"t\"\nshm_root = \"" + otherRoot + "\"\nmaster = \"" + match[1].str() + "\"\n" + secret +
                   "[master]\nstate_dir = \"" + host.folder() + "/state\"\n[owner]\nsegment_size = \"16MiB\"\nlink = \"127.0.0.1:0\"\n" +
                   "[up]\nnodes = [\"b\"]\n");
  const std::string otherTool = kCtl + " --config " + other + " ";
  const Ended up = execute(otherTool + "up --detach");
  REQUIRE_MESSAGE(up.status == 0, up.err);
  std::string name = otherRoot.substr(1);
  std::replace(name.begin(), name.end(), '/', '-');
  const std::string logs = host.folder() + "/state/log/" + name;
  CHECK(has(up.out, "logs in " + logs + " "));
  REQUIRE(execute(host.tool + "drain b").status == 0);
  CHECK(eventually([&] { return has(read(logs + "/fluxonctl.log"), "no process is left: all is stopped"); }));
  CHECK(eventually([&] { return has(execute(otherTool + "down").out, "nothing to stop"); }));
  CHECK(host.isUp());
  fs::remove_all(otherRoot);
}

TEST_CASE("logs of up --detach are cut at their limit, the older half beside them; the last line of who failed is said") {
  Host host;
  const std::string logs = host.folder() + "/new/logs", log = logs + "/fluxon-owner[n0].log";
  // Folders that a umask would close are made all the same.
  const Ended first = host.up("umask 0777; ", "--log-dir " + logs);
  REQUIRE_MESSAGE(first.status == 0, first.err);
  CHECK(has(read(log), "ready"));
  std::ofstream(log, std::ios::app) << std::string(17 << 20, 'x') << "\n";
  CHECK(eventually([&] { return fs::exists(log + ".1") && fs::file_size(log) < 1'000'000; }));
  CHECK(fs::file_size(log + ".1") > 17 << 20);
  CHECK(host.isDown());
  CHECK_FALSE(read(log).empty());  // the owner went on to write to it
  fs::create_directories(host.root() + "/t");
  write(host.root() + "/t/n0", "in the way");
  const Ended failed = host.up("", "--log-dir " + logs);
  CHECK(failed.status == 77);
  CHECK(oneLine(failed.err));
  CHECK_MESSAGE(has(failed.err, "fluxon-owner[n0] ended with status 77 ("), failed.err);
  CHECK_MESSAGE(has(failed.err, "/t/n0 is in the way: a file of user 0, not a folder); all is stopped (logs: "), failed.err);
}

TEST_CASE("down says which shard files stay, and how to stop a cluster whose configuration is broken") {
  Host host;
  const std::string shards = host.folder() + "/disk";
  fs::create_directories(shards + "/t_cluster_kv_ssd_storage/n0");
  REQUIRE(host.up().status == 0);
  const std::string good = read(host.config);
  write(host.config, good + "segment_sise = 1\n");
  const Ended broken = execute(host.tool + "down");
  CHECK(broken.status == 78);
  CHECK(oneLine(broken.err));
  std::smatch match;
  REQUIRE_MESSAGE(std::regex_search(broken.err, match, std::regex("without it: (.*) --cluster CLUSTER down\\)")), broken.err);
  const std::string mine = "SHM_ROOT=" + host.root() + " " + kCtl;
  const std::string hint = std::regex_replace(match[1].str(), std::regex("SHM_ROOT=ROOT fluxonctl"), mine);
  CHECK(execute(hint + " --cluster t down").out == "cluster t is down\n");
  write(host.config, good + "large_file_paths = [\"" + shards + "\"]\nlarge_limit_size = [\"64MiB\"]\n");
  CHECK(has(execute(host.tool + "down").out, "shard files stay in " + shards + "/t_cluster_kv_ssd_storage (the next start empties them)"));
}
