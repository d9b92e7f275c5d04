// What people and machines can get wrong before a daemon serves: options, configuration, files in its way, no room. Each ends with
// one line that says what, who and what to do, with its exit status, and leaves nothing of others changed.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cluster.h"
#include "texts.h"

using namespace fluxon::test;
namespace fs = std::filesystem;

namespace {

const std::string kBin = FLUXON_BIN "/";

// A start that should fail: it is ended after 20 s.
Ended begin(const std::string& program, const std::string& arguments, const std::string& before = "") {
  return execute(before + "timeout -k 1 20 " + kBin + program + " " + arguments);
}

// The one line with which a program gives up, without its name. Its log may stand before it.
std::string complaint(const Ended& ended, const std::string& program) {
  std::istringstream lines(ended.err);
  std::string last, found;
  int count = 0;
  for (std::string line; std::getline(lines, line); last = line) {
    if (!line.starts_with(program + ": ")) continue;
    ++count;
    found = line.substr(program.size() + 2);
  }
  INFO(ended.err);
  CHECK(count == 1);
  CHECK(last == program + ": " + found);
  return found;
}

// A tmpfs of its own, in a mount namespace that ends with this process. False: this user may not mount.
class SmallMemory {
 public:
  SmallMemory(std::string folder, const std::string& options) : folder_(std::move(folder)) {
    static const bool alone = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    fs::create_directories(folder_);
    mounted_ = alone && ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) MESSAGE("SKIPPED: a small tmpfs needs root and mount(2)");
  }
  ~SmallMemory() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  explicit operator bool() const { return mounted_; }
  bool readOnly() const { return ::mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0; }
  uint64_t usedBytes() const {
    const fs::space_info space = fs::space(folder_);
    return space.capacity - space.free;
  }

 private:
  std::string folder_;
  bool mounted_ = false;
};

// A cluster in the background for the life of this object.
struct Up {
  explicit Up(const std::string& config, const std::string& before = "") : ctl(kBin + "fluxonctl --config " + config + " ") {
    const Ended up = execute(before + "exec " + ctl + "up --detach");
    REQUIRE_MESSAGE(up.status == 0, up.err);
  }
  ~Up() { CHECK(execute(ctl + "down").status == 0); }
  const std::string ctl;
};

// A connection to a port of this host, or what could be begun of one.
int connectTcp(uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  [[maybe_unused]] const int begun = ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
  return fd;
}

// A socket that takes a tcp port of this host.
struct TakenPort {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string address;
  TakenPort() {
    sockaddr_in bound{};
    socklen_t length = sizeof bound;
    bound.sin_family = AF_INET;
    bound.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&bound), sizeof bound) == 0);
    REQUIRE(::listen(fd, 1) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) == 0);
    address = "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
  }
  ~TakenPort() { ::close(fd); }
};

}  // namespace

TEST_CASE("an option that is unknown, without its value or of the wrong type: 64 and one line") {
  for (const std::string program : {"fluxon-master", "fluxon-owner", "fluxonctl"}) {
    for (const std::string arguments : {"--nonsense", "--config", "stray", "--ready-fd x"}) {
      if (program == "fluxonctl" && arguments == "--ready-fd x") continue;
      CAPTURE(program);
      CAPTURE(arguments);
      const Ended ended = begin(program, arguments);
      CHECK(ended.status == 64);
      CHECK(ended.out.empty());
      CHECK(complaint(ended, program).size() > 10);
      CHECK(ended.err.find('\n') + 1 == ended.err.size());
    }
  }
  const Ended ended = begin("fluxon-owner", "--node ../x");
  CHECK(ended.status == 64);
  CHECK(has(complaint(ended, "fluxon-owner"), "'../x' (accepted: 1 to 32"));
}

TEST_CASE("a configuration that is wrong: 78, the line, the value and what is accepted, from every program alike") {
  Place place;
  struct Wrong {
    std::string text;
    int line;
    std::vector<std::string> words;
  };
  const std::string sizes = "a size of";
  const std::vector<Wrong> table = {
      {"[owner]\nsegment_sise = \"1GB\"\n", 2, {"segment_sise", "[owner]", "accepted", "segment_size"}},
      {"[common]\n\n[owner]\nsegment_size = true\n", 4, {"segment_size = true", sizes}},
      {"[owner]\nsegment_size = \"0\"\n", 2, {"segment_size", "0", sizes}},
      {"[owner]\nsegment_size = 0\n", 2, {"segment_size = 0", sizes}},
      {"[owner]\nsegment_size = -1\n", 2, {"segment_size = -1", sizes}},
      {"[owner]\nsegment_size = \"-1\"\n", 2, {"-1", sizes}},
      {"[owner]\nsegment_size = \"1x\"\n", 2, {"1x", sizes}},
      {"[owner]\nsegment_size = \"\"\n", 2, {"segment_size", sizes}},
      {"[owner]\nsegment_size = \"99999t\"\n", 2, {"99999t", sizes}},
      {"[owner]\nsegment_size = \"99999999999999999999GB\"\n", 2, {sizes}},
      {"[owner]\nsegment_size = \"1e3MB\"\n", 2, {sizes}},
      {"[owner]\nsegment_size = 1.5\n", 2, {"1.5", sizes}},
      {"[owner]\nsegment_size = \"512.9B\"\n", 2, {sizes, "1 MiB"}},
      {"[owner]\nmax_keys = \"100\"\n", 2, {"max_keys", "100", "16 to 268435456"}},
      {"[owner]\nmax_clients = 0\n", 2, {"max_clients = 0", "1 to 65536"}},
      {"[owner]\npopulate = 1\n", 2, {"populate = 1", "true or false"}},
      {"[owner]\nnode = \"a/b\"\n", 2, {"a/b", "A-Z"}},
      {"[owner]\nhttp = \"80\"\n", 2, {"80", "ADDRESS:PORT"}},
      {"[owner]\nhttp = \"127.0.0.1:99999\"\n", 2, {"99999", "ADDRESS:PORT"}},
      {"[master]\nlease_ms = 1\n", 2, {"lease_ms = 1", "200 to 3600000"}},
      {"[master]\nlease_ms = 99999999999999999999\n", 2, {}},
      {"[master]\nstate_dir = [\"a\"]\n", 2, {"state_dir", "an absolute path"}},
      {"[common]\nlog_level = \"loud\"\n", 2, {"loud", "debug"}},
      {"[common]\ncluster = \"\"\n", 2, {"cluster", "1 to 32"}},
      {"[common]\ncluster = \"a\\nb\"\n", 2, {"cluster", "1 to 32"}},
      {"[up]\nnodes = [\"a\", \"b\", \"a\"]\n", 2, {"different"}},
      {"[up]\nnodes = [\"a\", 1]\n", 2, {"different node names"}},
      {"[common]\n[stroage]\nx = 1\n", 2, {"stroage", "accepted", "[owner]"}},
      {"cluster = \"x\"\n", 1, {"cluster", "accepted"}},
      {"[owner.http]\na = 1\nb = 2\n", 1, {"http", "ADDRESS:PORT"}},
      {"[owner]\nnode = \"a\"\nnode = \"b\"\n", 3, {"node"}},
      {"[owner]\nnode = \"a\n", 2, {}},
      {"[owner\n", 1, {}},
      {"[owner]\n\n\nnode = = 1\n", 4, {}},
      {"[owner]\nnode = \"\xff\"\n", 2, {}},
  };
  const std::string path = place.folder() + "/wrong.toml";
  for (const Wrong& wrong : table) {
    CAPTURE(wrong.text);
    write(path, wrong.text);
    const Ended checked = begin("fluxonctl", "config check " + path);
    CHECK(checked.status == 78);
    CHECK(checked.out.empty());
    const std::string said = complaint(checked, "fluxonctl");
    CHECK(has(said, path + ":" + std::to_string(wrong.line) + ": "));
    for (const std::string& word : wrong.words) CHECK_MESSAGE(has(said, word), said);
    const Ended owner = begin("fluxon-owner", "--config " + path);
    CHECK(owner.status == 78);
    CHECK(complaint(owner, "fluxon-owner") == said);
  }
  CHECK(begin("fluxon-master", "--config " + path).status == 78);
}

TEST_CASE("sizes with units are binary and cut to whole bytes") {
  Place place;
  for (const auto& [text, bytes] : {std::pair<std::string, std::string>{"\"10GB\"", "10737418240"},
                                    {"\"1.5GB\"", "1610612736"},
                                    {"\"1048576.9B\"", "1048576"},
                                    {"\"64MiB\"", "67108864"},
                                    {"\"2 g\"", "2147483648"},
                                    {"1048576", "1048576"}}) {
    CAPTURE(text);
    const Ended shown = begin("fluxonctl", "--config " + place.configure("segment_size = " + text + "\n") + " config show");
    CHECK(shown.status == 0);
    CHECK(has(shown.out, "\nsegment_size = " + bytes + "\n"));
  }
}

TEST_CASE("a configuration file that is missing, a folder or unreadable: 78, its path and the reason") {
  Place place;
  const std::string missing = place.folder() + "/none.toml";
  for (const std::string program : {"fluxon-master", "fluxon-owner", "fluxonctl"}) {
    CAPTURE(program);
    const std::string verb = program == "fluxonctl" ? " status" : "";
    const Ended none = begin(program, "--config " + missing + verb);
    CHECK(none.status == 78);
    CHECK(complaint(none, program) == "configuration error: open " + missing + ": No such file or directory");
    const Ended folder = execute("timeout 2 " + kBin + program + " --config " + place.folder() + verb);
    CHECK(folder.status == 78);
    CHECK(has(complaint(folder, program), place.folder() + ": Is a directory"));
  }
  CHECK(begin("fluxonctl", "config check " + missing).status == 78);
  const std::string nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups ";
  if (::geteuid() != 0 || execute(nobody + kBin + "fluxonctl --version").status != 0) {
    MESSAGE("SKIPPED: (machine) not root, or another user may not run " << kBin);
    return;
  }
  const std::string config = place.configure();
  ::chmod(place.folder().c_str(), 0755);
  ::chmod(config.c_str(), 0600);
  const Ended denied = execute(nobody + kBin + "fluxon-owner --config " + config);
  CHECK(denied.status == 78);
  CHECK(complaint(denied, "fluxon-owner") == "configuration error: open " + config + ": Permission denied");
}

TEST_CASE("too small a /dev/shm: what is needed and what is free, and not a byte is kept") {
  Place place;
  const std::string root = place.folder() + "/shm";
  SmallMemory memory(root, "size=32m");
  if (!memory) return;
  // The segment alone is too large; the segment fits and what belongs to it does not.
  for (const std::string size : {"64MiB", "31MiB"}) {
    CAPTURE(size);
    const uint64_t before = memory.usedBytes();
    const Ended ended = begin("fluxon-owner", "--config " + place.configure("segment_size = \"" + size + "\"\n", "", root));
    CHECK(ended.status == 75);
    const std::string said = complaint(ended, "fluxon-owner");
    CHECK_MESSAGE((said.starts_with("no space: ") && has(said, " needs ") && has(said, " free")), said);
    if (size == "64MiB") CHECK(has(said, "/t/n0/segment needs 64"));
    CHECK(memory.usedBytes() < before + 65536);
    CHECK_FALSE(fs::exists(root + "/t/n0"));
  }
  const std::string config = place.configure("segment_size = \"8MiB\"\nmax_keys = 1000\n", "", root);
  { const Up up(config); }
  CHECK(memory.usedBytes() < 65536);
}

TEST_CASE("memory that fills up while the owner runs: a client is refused with what is missing, the owner serves on") {
  Place place;
  const std::string root = place.folder() + "/shm";
  SmallMemory memory(root, "size=32m");
  if (!memory) return;
  const Up up(place.configure("segment_size = \"8MiB\"\nmax_keys = 1000\n", "", root));
  const std::string& ctl = up.ctl;
  CHECK(execute("echo value | " + ctl + "put key").status == 0);
  execute("dd if=/dev/zero of=" + root + "/filler bs=64k");
  const Ended full = execute(ctl + "get key");
  CHECK(full.status == 75);
  CHECK_MESSAGE(has(complaint(full, "fluxonctl"), " needs "), full.err);
  fs::remove(root + "/filler");
  CHECK(execute(ctl + "get key").out == "value\n");
}

TEST_CASE("leftovers of a killed owner, whole, cut, empty or links to elsewhere, do not hinder the next one and nothing is followed") {
  Cluster cluster;
  const std::string node = cluster.root() + "/t/n0/", precious = cluster.folder() + "/precious";
  const std::string treasure(100'000, 'p');
  write(precious, treasure);
  const auto link = [&](const std::string& name) {
    fs::remove(node + name);
    fs::create_symlink(precious, node + name);
  };
  // Sound ones are taken over with their values, the others are made anew.
  const std::set<std::string> sound = {"whole", "a socket that is a link", "a socket that is a file", "a client file that is a link"};
  const std::vector<std::pair<std::string, std::function<void()>>> leftovers = {
      {"whole", [] {}},
      {"half a directory", [&] { fs::resize_file(node + "directory", fs::file_size(node + "directory") / 2); }},
      {"a directory of 10 bytes", [&] { fs::resize_file(node + "directory", 10); }},
      {"empty files",
       [&] {
         for (const char* name : {"segment", "directory", "keys"}) fs::resize_file(node + name, 0);
       }},
      {"a segment that is a link", [&] { link("segment"); }},
      {"a directory that is a link", [&] { link("directory"); }},
      {"a socket that is a link", [&] { link("socket"); }},
      {"a socket that is a file",
       [&] {
         fs::remove(node + "socket");
         write(node + "socket", "x");
       }},
      {"a client file that is a link", [&] { link("client-1"); }},
      {"a directory of noise", [&] { write(node + "directory", valueOf(7, 1 << 20)); }},
  };
  for (const auto& [name, make] : leftovers) {
    CAPTURE(name);
    {
      auto client = cluster.client();
      client.put("key", name);
      cluster.kill("n0");
    }
    make();
    cluster.start("n0");
    auto client = cluster.client();
    const auto left = client.get("key");
    CHECK(left.has_value() == (sound.count(name) != 0));
    if (left) CHECK(left->text() == name);
    client.put("key", name + " again");
    CHECK(client.get("key")->text() == name + " again");
    CHECK(read(precious) == treasure);
  }
}

TEST_CASE("another segment_size or max_keys begins with an empty cache and says why, not that anything is damaged") {
  Cluster cluster;
  const auto restart = [&](const std::string& owner, const std::string& why) {
    cluster.client().put("key", "value");
    cluster.kill("n0");
    Cluster::Shape shape;
    shape.owner = owner;
    cluster.configure(shape);
    cluster.start("n0");
    CHECK_FALSE(cluster.client().get("key").has_value());
    CHECK_MESSAGE(has(cluster.log("n0"), " starts empty: " + why), cluster.log("n0"));
    CHECK_FALSE(has(cluster.log("n0"), "damaged"));
  };
  restart("segment_size = \"32MiB\"\n", "owner.segment_size was changed from 64 MiB to 32 MiB");
  restart("segment_size = \"32MiB\"\nmax_keys = 1000\n", "owner.max_keys was changed");
}

TEST_CASE("what cannot be cleared away is named, and left as it is") {
  Place place;
  const std::string config = place.configure(), cluster = place.root() + "/t", node = cluster + "/n0";
  const std::string precious = place.folder() + "/precious";
  const auto refused = [&](int status, const std::string& what) {
    const Ended ended = begin("fluxon-owner", "--config " + config);
    CHECK(ended.status == status);
    const std::string said = complaint(ended, "fluxon-owner");
    CHECK_MESSAGE(has(said, what), said);
    fs::remove_all(place.root());
  };
  for (const std::string name : {"segment", "directory", "keys", "lock"}) {
    CAPTURE(name);
    fs::create_directories(node + "/" + name + "/inside");
    if (name == "lock") refused(77, node + "/lock is in the way: a folder of user ");
    if (name != "lock") refused(71, node + "/" + name + ": Is a directory");
  }
  write(precious, "treasure");
  fs::create_directories(node);
  fs::create_symlink(precious, node + "/lock");
  refused(77, node + "/lock is in the way: a symbolic link of user ");
  CHECK(read(precious) == "treasure");
  fs::create_directories(cluster);
  fs::create_directory_symlink(place.folder(), node);
  refused(77, node + " is in the way: a symbolic link of user " + std::to_string(::geteuid()) + ", not a folder");
  fs::create_directories(place.root());
  write(cluster, "");
  refused(77, cluster + " is in the way: a file of user " + std::to_string(::geteuid()) + ", not a folder");
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: a folder of another user needs root");
    return;
  }
  fs::create_directories(node);
  REQUIRE(::chown(node.c_str(), 65534, 65534) == 0);
  refused(77, node + " belongs to user 65534, not to 0");
  fs::create_directories(cluster);
  REQUIRE(::chown(cluster.c_str(), 65534, 65534) == 0);
  refused(77, cluster + " belongs to user 65534, not to 0");
}

TEST_CASE("a node or a cluster that is run already: 69, and the process that runs it, which is not disturbed") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", "value");
  for (const std::string process : {"n0", "master"}) {
    const std::string program = process == "master" ? "fluxon-master" : "fluxon-owner";
    const Ended ended = begin(program, "--config " + cluster.config() + (process == "master" ? "" : " --node n0"));
    CHECK(ended.status == 69);
    const std::string said = complaint(ended, program);
    CHECK_MESSAGE(has(said, "already run by process " + std::to_string(cluster.pid(process)) + " "), said);
  }
  CHECK(client.get("key")->text() == "value");
  CHECK(bool(client.put("key", "newer")));
  CHECK(cluster.client().get("key")->text() == "newer");
}

TEST_CASE("a second master of the cluster elsewhere in memory is stopped by the state folder") {
  Cluster cluster;
  Place place;
  const std::string config = place.folder() + "/other.toml";
  write(config,
        "[common]\ncluster = \"t\"\nshm_root = \"" + place.root() + "\"\n[master]\nstate_dir = \"" + cluster.folder() + "/state\"\n");
  const Ended ended = begin("fluxon-master", "--config " + config);
  CHECK(ended.status == 69);
  CHECK(has(complaint(ended, "fluxon-master"), "already run by process " + std::to_string(cluster.pid("master"))));
}

TEST_CASE("a lock that some other process holds: the message names who holds it, whatever the file says") {
  Place place;
  const std::string config = place.configure();
  for (const auto& [program, folder] : {std::pair<std::string, std::string>{"fluxon-owner", "/t/n0"}, {"fluxon-master", "/t/.master"}}) {
    fs::create_directories(place.root() + folder);
    const std::string lock = place.root() + folder + "/lock";
    write(lock, "4711\n");
    const int fd = ::open(lock.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(::flock(fd, LOCK_EX | LOCK_NB) == 0);
    const Ended ended = begin(program, "--config " + config);
    ::close(fd);
    CHECK(ended.status == 69);
    const std::string said = complaint(ended, program);
    CHECK_MESSAGE((has(said, "process " + std::to_string(::getpid())) && has(said, lock)), said);
    CHECK(read(lock) == "4711\n");
  }
}

TEST_CASE("an http port that is taken: 69 and the address; nothing of the start remains") {
  Place place;
  const TakenPort port;
  const std::string line = "http = \"" + port.address + "\"\n";
  const std::string config = place.configure(line, line);
  for (const std::string program : {"fluxon-owner", "fluxon-master"}) {
    const Ended ended = begin(program, "--config " + config);
    CHECK(ended.status == 69);
    const std::string said = complaint(ended, program);
    CHECK(said == "service unavailable: listen on " + port.address + ": Address already in use");
  }
  const Ended link = begin("fluxon-owner", "--config " + place.configure("link = \"" + port.address + "\"\n"));
  CHECK(link.status == 69);
  CHECK(complaint(link, "fluxon-owner") == "service unavailable: listen on " + port.address + ": Address already in use");
  CHECK_FALSE(fs::exists(place.root() + "/t/n0"));
  CHECK_FALSE(fs::exists(place.root() + "/t/.master/socket"));
  const std::string nowhere = place.configure("http = \"no.such.host.invalid:1\"\n", "http = \"192.0.2.1:0\"\n");
  CHECK(begin("fluxon-owner", "--config " + nowhere).status == 69);
  CHECK(begin("fluxon-master", "--config " + nowhere).status == 69);
}

TEST_CASE("a state file that is damaged, of another cluster or a folder stops the master, which says what to do and keeps it") {
  Place place;
  const std::string config = place.configure(), folder = place.folder() + "/state", state = folder + "/state";
  { const Up up(config); }
  const std::string good = read(state);
  REQUIRE(good.size() > 50);
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  for (const std::string& bad :
       {flipped, good.substr(0, good.size() / 2), good.substr(0, good.size() - 1), std::string(), good + good, valueOf(1, 200)}) {
    CAPTURE(bad);
    write(state, bad);
    const Ended ended = begin("fluxon-master", "--config " + config);
    CHECK(ended.status == 65);
    const std::string said = complaint(ended, "fluxon-master");
    CHECK_MESSAGE((has(said, state) && has(said, "restore the file, or remove it")), said);
    CHECK(read(state) == bad);
  }
  fs::remove(state);
  fs::create_directories(state + "/x");
  const Ended isFolder = begin("fluxon-master", "--config " + config);
  CHECK((isFolder.status == 65 || isFolder.status == 71));
  CHECK(has(complaint(isFolder, "fluxon-master"), state));
  fs::remove_all(state);

  write(state, good);
  std::string other = read(config);
  other.replace(other.find("\"t\""), 3, "\"u\"");
  write(place.folder() + "/other.toml", other);
  const Ended foreign = begin("fluxon-master", "--config " + place.folder() + "/other.toml");
  CHECK(foreign.status == 78);
  CHECK(has(complaint(foreign, "fluxon-master"), state + " belongs to cluster 't', not 'u'"));
  CHECK(read(state) == good);
  // The half of a write that was cut off by a crash is no obstacle.
  write(state + ".new", good.substr(0, 20));
  { const Up up(config); }
}

TEST_CASE("a state folder that cannot be made or written stops the master with its path") {
  Place place;
  const std::string config = place.configure();
  write(place.folder() + "/state", "a file");
  const Ended inTheWay = begin("fluxon-master", "--config " + config);
  CHECK(inTheWay.status == 71);
  CHECK(has(complaint(inTheWay, "fluxon-master"), place.folder() + "/state"));
  fs::remove(place.folder() + "/state");
  SmallMemory memory(place.folder() + "/state", "size=1m");
  if (!memory || !memory.readOnly()) return;
  const Ended readOnly = begin("fluxon-master", "--config " + config);
  CHECK(readOnly.status == 71);
  CHECK(has(complaint(readOnly, "fluxon-master"), place.folder() + "/state/lock: Read-only file system"));
}

TEST_CASE("a full state folder: the master does not start, and the old state is whole") {
  Place place;
  const std::string config = place.configure(), state = place.folder() + "/state";
  SmallMemory memory(state, "size=64k");
  if (!memory) return;
  { const Up up(config); }
  const std::string good = read(state + "/state");
  execute("dd if=/dev/zero of=" + state + "/filler bs=1k");
  const Ended full = begin("fluxon-master", "--config " + config);
  CHECK(full.status == 71);
  CHECK(has(complaint(full, "fluxon-master"), "No space left on device"));
  CHECK(read(state + "/state") == good);
}

TEST_CASE("a stale socket of a killed master does not hinder the next one") {
  Cluster cluster;
  const std::string socket = cluster.root() + "/t/.master/socket";
  cluster.kill("master");
  CHECK(fs::exists(socket));
  cluster.start("master");
  cluster.kill("master");
  fs::remove(socket);
  write(socket, "not a socket");
  cluster.start("master");
  CHECK(execute(kBin + "fluxonctl --config " + cluster.config() + " status").status == 0);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_serving") == 1; }));
}

#ifndef FLUXON_SANITIZED  // a sanitizer needs descriptors of its own
TEST_CASE("with few descriptors daemons serve, refuse what is too many, and serve again when there are fewer") {
  Place place;
  const Up up(place.configure(), "ulimit -n 40; ");  // soft and hard: nobody can raise it
  const std::string& ctl = up.ctl;
  CHECK(execute("echo value | " + ctl + "put key").status == 0);
  for (const auto& [path, type] :
       {std::pair<std::string, int>{place.root() + "/t/n0/socket", SOCK_SEQPACKET}, {place.root() + "/t/.master/socket", SOCK_STREAM}}) {
    CAPTURE(path);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    std::vector<int> crowd;
    for (int i = 0; i < 150; ++i) {
      crowd.push_back(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (::connect(crowd.back(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) break;  // the backlog is full
    }
    CHECK(crowd.size() > 40);
    // The owner drops those that say nothing after 5 s: well before that it may refuse others, with the reason.
    const Ended crowded = execute(ctl + "--timeout 0.5 " + (type == SOCK_STREAM ? "status" : "get key"));
    CHECK((crowded.status == 0 || crowded.status == 75 || crowded.status == 69 || crowded.status == 71));
    for (const int fd : crowd) ::close(fd);
    CHECK(eventually([&] { return execute(ctl + "--timeout 1 status").status == 0; }, 8));
    CHECK(eventually([&] { return execute(ctl + "--timeout 1 get key").out == "value\n"; }, 8));
  }
  // A crowd on the http port, which any user of the host can reach.
  const std::string members = execute(ctl + "--json members").out, start = "http://127.0.0.1:";
  const size_t port = members.find(start);
  REQUIRE(port != std::string::npos);
  std::vector<int> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(connectTcp(static_cast<uint16_t>(std::stoi(members.substr(port + start.size())))));
  execute(ctl + "--timeout 0.5 metrics n0");
  for (const int fd : crowd) ::close(fd);
  CHECK(eventually([&] { return execute(ctl + "--timeout 1 metrics n0").status == 0; }, 8));
}

TEST_CASE("too few descriptors to start: one line and an exit status, no abort") {
  Place place;
  const std::string config = place.configure();
  for (const std::string program : {"fluxon-owner", "fluxon-master"}) {
    for (int limit = 4; limit < 40; ++limit) {
      CAPTURE(program);
      CAPTURE(limit);
      // What this process has inherited counts too.
      const Ended ended = execute("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n " + std::to_string(limit) + "; exec timeout -k 1 1 " +
                                  kBin + program + " --config " + config);
      CAPTURE(ended.err);
      const bool started = ended.status == 124 || ended.status == 0;
      CHECK(ended.status >= 0);
      CHECK(ended.status < 127);  // no signal
      if (started) break;
      CHECK(complaint(ended, program).size() > 10);
      if (limit < 6) continue;  // the loader of libraries, and the configuration
      CHECK(ended.status == 71);
      CHECK(has(ended.err, "RLIMIT_NOFILE is " + std::to_string(limit)));
    }
  }
}

TEST_CASE("too few descriptors for up: one line that names the limit, 71, and nothing runs") {
  Place place;
  const std::string config = place.configure();
  for (const std::string how : {"", " --detach"}) {
    for (int limit = 6; limit < (how.empty() ? 10 : 40); ++limit) {
      CAPTURE(how);
      CAPTURE(limit);
      const Ended ended = execute("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n " + std::to_string(limit) +
                                  "; exec timeout -s INT 5 " + kBin + "fluxonctl --timeout 4 --config " + config + " up" + how);
      CAPTURE(ended.out);
      CAPTURE(ended.err);
      if (has(ended.out, "cluster t is up")) break;
      CHECK(ended.status == 71);
      CHECK(has(ended.err, "RLIMIT_NOFILE is " + std::to_string(limit)));
    }
    execute(kBin + "fluxonctl --config " + config + " down");
  }
}

TEST_CASE("too few threads to start: 71 and one line that names the limit, no abort") {
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can become a user who runs nothing else");
    return;
  }
  Place place;
  const std::string folder = place.folder() + "/own", config = place.folder() + "/threads.toml";
  std::filesystem::create_directory(folder);
  REQUIRE(::chown(folder.c_str(), 54321, 54321) == 0);
  ::chmod(place.folder().c_str(), 0755);
  std::ofstream(config) << "[common]\nshm_root = \"" << folder << "/shm\"\n[master]\nstate_dir = \"" << folder
                        << "/state\"\nhttp = \"off\"\n[owner]\nhttp = \"off\"\nsegment_size = \"1MiB\"\nmax_keys = 16\n"
                        << "link = \"127.0.0.1:0\"\nlarge_file_paths = [\"" << folder << "\"]\nlarge_limit_size = [\"32MiB\"]\n"
                        << "[ssdd]\nhttp = \"off\"\n";
  ::chmod(config.c_str(), 0644);
  const std::string as = "exec setpriv --reuid 54321 --regid 54321 --clear-groups bash -c 'ulimit -u ";
  if (execute(as + "9; exec " + kBin + "fluxonctl --version'").status != 0) {
    MESSAGE("SKIPPED: (machine) another user may not run " << kBin);
    return;
  }
  for (const std::string program : {"fluxon-owner", "fluxon-master", "fluxon-ssdd"}) {
    for (int limit = 2; limit < 20; ++limit) {  // timeout and the program itself
      CAPTURE(program);
      CAPTURE(limit);
      const Ended ended = execute(as + std::to_string(limit) + "; exec timeout -k 1 1 " + kBin + program + " --config " + config + "'");
      CAPTURE(ended.err);
      if (ended.status == 124) {
        CHECK(limit > 3);
        break;
      }
      CHECK(ended.status == 71);
      CHECK(has(ended.err, program + ": operating system error: start a thread: Resource temporarily unavailable (RLIMIT_NPROC is " +
                               std::to_string(limit) + ": ulimit -u, or LimitNPROC= of the unit"));
    }
  }
  for (const std::string how : {"", " --detach"}) {
    CAPTURE(how);
    const Ended up = execute(as + "2; exec timeout -k 1 5 " + kBin + "fluxonctl --config " + config + " up" + how + "'");
    CHECK(up.status == 71);
    CHECK_MESSAGE(has(up.err, "Resource temporarily unavailable (RLIMIT_NPROC is 2"), up.err);
  }
}
#endif

TEST_CASE("one client too many is told so, and there is room again when another ends") {
  Cluster cluster({.owner = "segment_size = \"16MiB\"\nmax_clients = 2\n"});
  auto first = cluster.client();
  {
    auto second = cluster.client();
    try {
      auto third = cluster.client();
      FAIL("it may attach");
    } catch (const fluxon::Exception& error) {
      CHECK(error.code() == FLUXON_TOO_MANY);
      CHECK(has(error.what(), "node n0 has 2 clients (max_clients)"));
    }
    const Ended ended = begin("fluxonctl", "--config " + cluster.config() + " get key");
    CHECK(ended.status == 75);
    CHECK(has(complaint(ended, "fluxonctl"), "max_clients"));
    second.put("key", "value");
  }
  CHECK(eventually([&] { return begin("fluxonctl", "--config " + cluster.config() + " get key").out == "value"; }));
  CHECK(first.get("key")->text() == "value");
}
