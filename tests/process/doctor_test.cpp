// fluxonctl doctor against this host: a sound one, leftovers, a segment that does not fit, ports, a cluster that limps.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cluster.h"
#include "texts.h"

using namespace fluxon::test;
namespace fs = std::filesystem;
using namespace std::string_literals;

namespace {

Ended doctor(const std::string& config, const std::string& options = "") {
  return execute(kCtl + " --config " + config + " " + options + " doctor");
}

// Lines of one check.
std::string linesOf(const Ended& ended, const std::string& check) {
  std::istringstream lines(ended.out);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string verdict, name;
    words >> verdict >> name;
    if (name == check) found += line + "\n";
  }
  return found;
}

// A listening socket on a port of its own.
struct ListeningPort {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  uint16_t port = 0;
  ListeningPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(fd, 1) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port = ntohs(address.sin_port);
  }
  ~ListeningPort() { close(); }
  void close() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }
  std::string http() const { return "http = \"127.0.0.1:" + std::to_string(port) + "\"\n"; }
};

}  // namespace

TEST_CASE("doctor: every check says something, in text and in JSON; a host where nothing runs is fit") {
  const Place place;
  const std::string config = place.configure();
  const Ended ended = doctor(config);
  CHECK_MESSAGE(ended.status == 0, ended.out);
  CHECK(ended.err.empty());
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE((line.starts_with("ok    ") || line.starts_with("warn  ")), line);
  const Ended json = doctor(config, "--json");
  CHECK(json.status == 0);
  for (const std::string check : {"kernel", "shm", "memory", "swap", "hugepages", "memlock", "nofile", "limits", "io_uring", "ssd",
                                  "clocks", "rails", "ports", "leftovers", "cluster"}) {
    CAPTURE(check);
    CHECK(std::count(ended.out.begin(), ended.out.end(), '\n') == std::count(json.out.begin(), json.out.end(), '\n'));
    CHECK_FALSE(linesOf(ended, check).empty());
    CHECK(has(json.out, "\"check\":\"" + check + "\",\"found\":\""));
  }
  const std::string check =
      "import json,sys\nfor l in sys.stdin: o=json.loads(l); "
      "assert list(o)==[\"verdict\",\"check\",\"found\",\"todo\"]";
  CHECK(execute(kCtl + " --json --config " + config + " doctor | /usr/bin/python3 -c '" + check + "'").status == 0);
  CHECK_FALSE(fs::exists(place.root()));  // looking changes nothing
}

TEST_CASE("doctor: limits of the process are judged") {
  const Place place;
  const std::string config = place.configure("max_clients = 1000\n");
  const Ended few = execute("ulimit -n 100; " + kCtl + " --config " + config + " doctor");
  const std::string found = "warn  nofile     limit 100; max_clients 1000 needs 2064: there is room for 18 clients";
  CHECK_MESSAGE(has(linesOf(few, "nofile"), found), few.out);
  CHECK(few.status == 0);
  const Ended soft = execute("ulimit -n 3000; ulimit -Sn 100; " + kCtl + " --config " + config + " doctor");
  CHECK_MESSAGE(has(linesOf(soft, "nofile"), "ok    nofile     limit 3000; "), soft.out);  // to which daemons raise theirs
  const Ended none = execute("ulimit -n 40; " + kCtl + " --config " + config + " doctor");
  CHECK(none.status == 69);
  CHECK(has(linesOf(none, "nofile"), "fail  nofile "));
  CHECK(none.err == "fluxonctl: 1 check has failed\n");
  const Ended file = execute("ulimit -f 2048; " + kCtl + " --config " + config + " doctor");
  CHECK(file.status == 69);
  CHECK_MESSAGE(has(linesOf(file, "limits"), "fail  limits     RLIMIT_FSIZE allows files of 1 MiB, a segment has 16.0 MiB"), file.out);
  const Ended time = execute("ulimit -t 100; " + kCtl + " --config " + config + " doctor");
  CHECK(has(linesOf(time, "limits"), "warn  limits     RLIMIT_CPU is 100 s"));
  CHECK(has(linesOf(execute("ulimit -l 64; " + kCtl + " --config " + config + " doctor"), "memlock"), "limit 64 KiB"));
}

TEST_CASE("doctor: a segment larger than /dev/shm, and one for each of too many nodes, fails with what to do") {
  struct statvfs shm;
  REQUIRE(::statvfs("/dev/shm", &shm) == 0);
  const uint64_t total = shm.f_blocks * shm.f_frsize;
  const Place place;
  const std::string config = place.configure("segment_size = " + std::to_string(total) + "\n");
  const Ended ended = doctor(config);
  CHECK(ended.status == 69);
  CHECK_MESSAGE(has(linesOf(ended, "shm"), "fail  shm "), ended.out);
  CHECK(has(linesOf(ended, "shm"), "[a smaller segment_size in [owner], or mount -o remount,size="));
  const std::string half = place.configure("segment_size = " + std::to_string(total / 2 + total / 4) + "\n");
  std::ofstream(half, std::ios::app) << "[up]\nnodes = [\"n0\", \"n1\"]\n";
  CHECK(has(linesOf(doctor(half), "shm"), "2 nodes need"));
  CHECK(has(linesOf(doctor(half), "shm"), "fail  shm "));
}

TEST_CASE("doctor: a root that cannot be made, or is no folder, fails") {
  const Place place;
  CHECK(has(linesOf(doctor(place.configure("", "", place.folder() + "/no/root")), "shm"), "fail  shm "));
  std::ofstream(place.folder() + "/file") << "x";
  CHECK(has(linesOf(doctor(place.configure("", "", place.folder() + "/file")), "shm"),
            "fail  shm        " + place.folder() + "/file is in the way: a file of user " + std::to_string(::geteuid()) + ", not a "));
  const Ended missing = doctor(place.configure("", "", place.folder() + "/no/root"));
  CHECK(missing.status == 69);
  CHECK_MESSAGE(has(linesOf(missing, "shm"), "/no: No such file or directory"), missing.out);
}

TEST_CASE("doctor: what an owner leaves is found with its size: kept for a node of this host, in question for another") {
  Cluster cluster;
  CHECK(has(linesOf(doctor(cluster.config(), "--node n0"), "leftovers"), "ok    leftovers  none"));
  CHECK(has(linesOf(doctor(cluster.config(), "--node n0"), "shm"), " already theirs; 1 node needs "));
  CHECK_FALSE(has(linesOf(doctor(cluster.config(), "--node n1"), "shm"), "already theirs"));
  cluster.kill("n0");
  const Ended left = doctor(cluster.config(), "--node n0");
  CHECK(left.status == 0);
  CHECK_MESSAGE(has(linesOf(left, "leftovers"), "ok    leftovers  " + cluster.root() + "/t/n0 holds "), left.out);
  CHECK(has(linesOf(left, "leftovers"), " of node n0, kept for its next start\n"));
  CHECK(has(linesOf(doctor(cluster.config(), "--node n1"), "leftovers"), "again, or rm -r " + cluster.root() + "/t/n0]"));
  cluster.start("n0");
  CHECK(has(linesOf(doctor(cluster.config(), "--node n0"), "leftovers"), "ok    leftovers  none"));
}

TEST_CASE("doctor: folders of the SSD tier: made or to be made, on tmpfs, twice on a device, too small, in the way") {
  const Place place;
  const std::string shm = place.root() + "-ssd", file = place.folder() + "/file";
  fs::create_directories(shm);
  std::ofstream(file) << "x";
  const auto ssd = [&](const std::vector<std::string>& paths, const std::string& limit) {
    std::string folders, limits;
    for (const std::string& path : paths) folders += "\"" + path + "\",", limits += "\"" + limit + "\",";
    return linesOf(doctor(place.configure("large_file_paths = [" + folders + "]\nlarge_limit_size = [" + limits + "]\n")), "ssd");
  };
  const std::string made = ssd({place.folder()}, "1MB");
  CHECK_MESSAGE(has(made, place.folder() + " has "), made);
  CHECK_MESSAGE(has(made, " free; 1 node needs 1 MiB"), made);
  const std::string two = ssd({place.folder() + "/new/", place.folder()}, "1MB");
  CHECK_MESSAGE(has(two, "warn  ssd        " + place.folder() + " is on the device of " + place.folder() + "/new/: it is not used"), two);
  CHECK(has(ssd({place.folder()}, "1000TB"), "fail  ssd "));
  CHECK(has(ssd({shm}, "1MB"), "warn  ssd "));
  CHECK(has(ssd({shm}, "1MB"), "it is a tmpfs"));
  CHECK(has(ssd({file}, "1MB"), "is not a folder"));
  CHECK(has(ssd({place.folder() + "/no/new"}, "1MB"), "cannot be made: " + place.folder() + "/no: No such file or directory"));
  fs::create_symlink("nowhere", place.folder() + "/link");
  CHECK(has(ssd({place.folder() + "/link"}, "1MB"), "/link: is a symbolic link to what is not there"));
  // Shard files that are there are the node's own.
  const std::string root = place.folder() + "/t_cluster_kv_ssd_storage/n0";
  fs::create_directories(root);
  std::ofstream(root + "/shard-000") << std::string(1 << 20, 'x');
  CHECK(has(ssd({place.folder()}, "1MB"), " already theirs; "));
  fs::remove_all(shm);
}

TEST_CASE("doctor: the folder of an SSD tier that another user, or no folder, is in the way of fails as ssdd will") {
  const Place place;
  const std::string config = place.configure("large_file_paths = [\"" + place.folder() + "\"]\nlarge_limit_size = [\"1MB\"]\n");
  const std::string storage = place.folder() + "/t_cluster_kv_ssd_storage";
  std::ofstream(storage) << "x";
  CHECK(has(linesOf(doctor(config), "ssd"), "fail  ssd        " + storage + " is in the way: a file of user "));
  fs::remove(storage);
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a folder away");
    return;
  }
  fs::create_directory(storage);
  REQUIRE(::chown(storage.c_str(), 12345, 12345) == 0);
  CHECK(has(linesOf(doctor(config), "ssd"), "fail  ssd        " + storage + " belongs to user 12345, not to 0"));
}

TEST_CASE("doctor and status see daemons whose files have been removed beneath them, and who maps removed files") {
  Cluster cluster;
  fluxon::Client client = cluster.client();
  client.put("k", valueOf(1, 100'000));
  const std::string master = std::to_string(cluster.pid("master")), owner = std::to_string(cluster.pid("n0"));
  cluster.stop();  // before they can find out themselves
  fs::remove_all(cluster.root());
  const Ended ended = doctor(cluster.config(), "--node n0");
  CHECK(ended.status == 69);
  const std::string line = linesOf(ended, "cluster");
  const std::string socket = cluster.root() + "/t/.master/socket";
  CHECK_MESSAGE(has(line, "process " + master + " (fluxon-master) listens on " + socket + ", which has been removed"), line);
  CHECK(has(line, "process " + owner + " (fluxon-owner) listens on " + cluster.root() + "/t/n0/socket, which has been removed"));
  const std::string left = linesOf(ended, "leftovers");
  CHECK_MESSAGE(has(left, " of removed files below " + cluster.root() + " are mapped by "), left);
  CHECK(has(left, "process " + owner + " (fluxon-owner)"));
  CHECK(has(left, "process " + std::to_string(::getpid()) + " ("));
  const Ended status = execute(kCtl + " --config " + cluster.config() + " status");
  CHECK(status.status == 69);
  CHECK_MESSAGE(has(status.err, "the master of cluster t cannot be reached: process " + master), status.err);
  for (const std::string process : {"n0", "master"}) cluster.kill(process);
}

TEST_CASE("doctor: a folder of another user in the way fails") {
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a folder away");
    return;
  }
  const Place place;
  const std::string config = place.configure(), folder = place.root() + "/t/n0";
  fs::create_directories(folder);
  REQUIRE(::chown(folder.c_str(), 12345, 12345) == 0);
  const Ended ended = doctor(config);
  CHECK(ended.status == 69);
  CHECK_MESSAGE(has(linesOf(ended, "leftovers"), "fail  leftovers  " + folder + " belongs to user 12345"), ended.out);
}

TEST_CASE("doctor: a fixed port is free, another's, or its own process's") {
  ListeningPort port;
  const Place place;
  const std::string config = place.configure("", port.http());
  const Ended taken = doctor(config);
  CHECK(taken.status == 69);
  CHECK_MESSAGE(has(linesOf(taken, "ports"), "for master: held by process " + std::to_string(::getpid()) + " (process_doctor)"), taken.out);
  port.close();
  CHECK(has(linesOf(doctor(config), "ports"), "for master: free"));
  {
    const Cluster cluster({.master = port.http()});
    const Ended own = doctor(cluster.config(), "--node n0");
    CHECK(own.status == 0);
    CHECK_MESSAGE(has(linesOf(own, "ports"), "it listens there, process " + std::to_string(cluster.pid("master"))), own.out);
  }
  const std::string two = place.configure(port.http());
  std::ofstream(two, std::ios::app) << "[up]\nnodes = [\"n0\", \"n1\"]\n";
  CHECK(has(linesOf(doctor(two), "ports"), "for n0, n1: only one process can listen there"));
  CHECK(has(linesOf(doctor(place.configure("http = \"192.0.2.1:9100\"\n")), "ports"), "fail  ports "));
  ListeningPort other;
  const std::string address = "\"127.0.0.1:" + std::to_string(other.port) + "\"\n";
  const std::string held = "held by process " + std::to_string(::getpid());
  CHECK(has(linesOf(doctor(place.configure("link = " + address)), "ports"), "for n0: " + held));
  CHECK(has(linesOf(doctor(place.configure("", "listen = " + address)), "ports"), "for master: " + held));
  const std::string ssd = "large_file_paths = [\"" + place.folder() + "\"]\nlarge_limit_size = [\"1MB\"]\n";
  const std::string ssdd = "[ssdd]\nhttp = " + address;
  CHECK(has(linesOf(doctor(place.configure(ssd + ssdd)), "ports"), "for ssdd of n0: " + held));
  CHECK(has(linesOf(doctor(place.configure(ssdd)), "ports"), "no fixed port is configured"));  // it does not run
}

TEST_CASE("doctor and up with an address that no interface has: a finding, and a sentence that says what helps") {
  const Place place;
  const std::string config = place.folder() + "/foreign.toml";
  std::ofstream(config) << "[common]\nshm_root = \"" << place.root() << "\"\n[master]\nstate_dir = \"" << place.folder()
                        << "/state\"\nhttp = \"203.0.113.7:0\"\n[owner]\nnode = \"n0\"\nsegment_size = \"1MiB\"\nmax_keys = 16\n"
                        << "http = \"203.0.113.7:0\"\n";
  const Ended found = execute(kCtl + " --config " + config + " doctor");
  CHECK_MESSAGE(has(linesOf(found, "ports"), "203.0.113.7:0 for master.http, owner.http: Cannot assign requested address"), found.out);
  const Ended up = execute("timeout 20 " + kCtl + " --timeout 15 --config " + config + " up");
  CHECK(up.status == 69);
  const std::string said =
      "listen on 203.0.113.7:0: Cannot assign requested address (no interface of this host has that address; accepted: ";
  CHECK_MESSAGE(has(up.err, said), up.err);
}

TEST_CASE("doctor: a running cluster is asked for its members; without its master, or with one that does not answer, it fails") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  CHECK(eventually([&] { return has(doctor(cluster.config()).out, "ok    cluster    the master of t answers; joined: n0, n1\n"); }));
  cluster.signal("master", SIGSTOP);
  const Ended stopped = doctor(cluster.config(), "--timeout 0.3");
  CHECK(stopped.status == 69);
  CHECK_MESSAGE(has(linesOf(stopped, "cluster"), "[see the log of fluxon-master]"), stopped.out);
  cluster.resume();
  cluster.kill("master");
  const Ended ended = doctor(cluster.config());
  CHECK(ended.status == 69);
  CHECK_MESSAGE(has(linesOf(ended, "cluster"), "fail  cluster "), ended.out);
  CHECK(has(linesOf(ended, "cluster"), "[start fluxon-master]"));
}

TEST_CASE("doctor: a master on another host that is not there fails, though nothing runs here") {
  ListeningPort port;
  const Place place;
  const std::string config = place.configure("", "", "", "master = \"127.0.0.1:" + std::to_string(port.port) + "\"\n");
  port.close();
  const Ended ended = doctor(config);
  CHECK(ended.status == 69);
  CHECK_MESSAGE(has(linesOf(ended, "cluster"), "Connection refused  [start fluxon-master there"), ended.out);
}
