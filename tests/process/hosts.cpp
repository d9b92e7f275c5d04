#include "hosts.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "cluster.h"

namespace fluxon::test {
namespace {

constexpr char kSwitch[] = "switch";

// The network of this process becomes that of a namespace; false: it cannot. For the calling thread.
bool enter(const std::string& space) {
  const int file = ::open(("/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = file >= 0 && ::setns(file, CLONE_NEWNET) == 0;
  ::close(file);
  return entered;
}

}  // namespace

std::string Hosts::lacking() {
  if (::geteuid() != 0) return "not root";
  const auto works = [](const std::string& command) { return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0; };
  for (const std::string program : {"ip", "nft", "tc"}) {
    if (!works("command -v " + program)) return "no program " + program;
  }
  const std::string probe = "fluxon-probe-" + std::to_string(::getpid());
  const bool can = works("ip netns add " + probe + " && ip -n " + probe + " link add br0 type bridge && ip netns exec " + probe +
                         " nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c numgen "
                         "random mod 100 < 5 drop'");
  works("ip netns del " + probe);
  return can ? "" : "no network namespaces with a bridge and nftables";
}

std::string Hosts::must(const std::string& command) {
  std::string said;
  const int status = test::run(command, said);
  REQUIRE_MESSAGE(status == 0, command << ": " << said);
  return said;
}

Hosts::Hosts(Shape shape) : shape_(std::move(shape)) {
  char folder[] = "/tmp/fluxon-test-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  folder_ = folder;
  prefix_ = folder_.substr(5) + "-";
  int alive[2];
  REQUIRE(::pipe2(alive, O_CLOEXEC) == 0);
  janitor_ = ::fork();
  if (janitor_ == 0) {
    ::setsid();
    ::dup2(alive[0], 0);
    ::close(1);
    std::string command = "read end; sleep 0.05; rm -rf " + folder_ + " /dev/shm/" + prefix_ + "*";
    if (shape_.namespaces) {
      command += "; ip netns del " + space(kSwitch);
      for (size_t i = 0; i < shape_.hosts; ++i) command += "; ip netns del " + space(owner(i));
    }
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(alive[0]);
  alive_ = alive[1];
  if (shape_.namespaces) {
    must("ip netns add " + space(kSwitch) + " && ip -n " + space(kSwitch) + " link add br0 type bridge && ip -n " + space(kSwitch) +
         " link set br0 up");
    for (size_t i = 0; i < shape_.hosts; ++i) {
      const std::string host = space(owner(i)), port = "port" + std::to_string(i);
      must("ip netns add " + host + " && ip -n " + host + " link set lo up && ip -n " + host + " link add eth0 type veth peer name " +
           port + " netns " + space(kSwitch) + " && ip -n " + space(kSwitch) + " link set " + port + " master br0 up && ip -n " + host +
           " addr add " + address(i) + "/24 dev eth0 && ip -n " + host + " link set eth0 up");
    }
  }
  std::ofstream(folder_ + "/secret") << "the secret of this test\n";
  REQUIRE(::chmod((folder_ + "/secret").c_str(), 0600) == 0);
  configure(address(0) + ":" + (shape_.namespaces ? "7800" : "0"));
  start("master");
  configure(readyWord("master", "listen "));
  for (size_t i = 0; i < shape_.hosts; ++i) start(owner(i));
  for (size_t i = 0; i < shape_.hosts && !shape_.disks.empty(); ++i) start("ssdd-" + owner(i));
}

Hosts::~Hosts() {
  const std::string gone = ended();
  CHECK_MESSAGE(gone.empty(), gone);
  for (const auto& [name, pid] : pids_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  ::close(alive_);
  ::waitpid(janitor_, nullptr, 0);
}

std::string Hosts::address(size_t host) const { return shape_.namespaces ? "10.77.0." + std::to_string(host + 1) : "127.0.0.1"; }

std::string Hosts::root(size_t host) const { return "/dev/shm/" + prefix_ + owner(host); }

void Hosts::configure(const std::string& listen) {
  for (size_t i = 0; i < shape_.hosts; ++i) {
    std::ofstream file(config(i));
    file << "[common]\ncluster = \"t\"\nlog_level = \"debug\"\nshm_root = \"" << root(i) << "\"\nsecret_file = \"" << folder_
         << "/secret\"\n";
    if (i > 0) file << "master = \"" << listen << "\"\n";
    file << "[master]\nstate_dir = \"" << folder_ << "/state\"\nlease_ms = " << shape_.leaseMs << "\n";
    if (i == 0) file << "listen = \"" << listen << "\"\n" << shape_.master;
    file << "[owner]\nlink = \"" << address(i) << ":0\"\n" << shape_.owner;
    if (!shape_.disks.empty()) {
      file << "large_file_paths = [\"" << shape_.disks << "/" << owner(i) << "\"]\nlarge_limit_size = [\"" << shape_.limit << "\"]\n";
    }
  }
}

bool Hosts::start(const std::string& process, double seconds) {
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const bool ssdd = process.starts_with("ssdd-");
  const std::string node = ssdd ? process.substr(5) : process;
  const size_t host = process == "master" ? 0 : std::stoul(node.substr(1));
  std::vector<std::string> words;
  if (shape_.namespaces) words = {"ip", "netns", "exec", space(owner(host))};
  words.push_back(std::string(FLUXON_BIN) + (process == "master" ? "/fluxon-master" : ssdd ? "/fluxon-ssdd" : "/fluxon-owner"));
  words.insert(words.end(), {"--config", config(host), "--ready-fd", "9"});
  if (process != "master") words.insert(words.end(), {"--node", node});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = ::open((folder_ + "/" + process + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, 2);
    ::dup2(ready[1], 9);
    ::fcntl(9, F_SETFD, 0);  // it may have been 9, with FD_CLOEXEC
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ready[1]);
  pids_[process] = pid;
  pollfd wait{ready[0], POLLIN, 0};
  char byte = 0;
  const bool told = ::poll(&wait, 1, static_cast<int>(seconds * 1000)) == 1;
  const bool isReady = told && ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  if (told && !isReady) FAIL(process << " did not become ready:\n" << log(process));
  return isReady;
}

void Hosts::signal(const std::string& process, int signal) { REQUIRE(::kill(pids_.at(process), signal) == 0); }

int Hosts::wait(const std::string& process) {
  const pid_t pid = pids_.at(process);
  pids_.erase(process);
  return waitFor(pid);
}

void Hosts::kill(const std::string& process) {
  signal(process, SIGKILL);
  const int status = wait(process);
  CHECK_MESSAGE(status == -SIGKILL, process << " had ended before: " << status);
}

std::string Hosts::ended() {
  std::string gone;
  for (auto each = pids_.begin(); each != pids_.end();) {
    int status = 0;
    if (::waitpid(each->second, &status, WNOHANG) != each->second) {
      ++each;
      continue;
    }
    const std::string text = log(each->first);
    gone += each->first + " ended by itself, status " + std::to_string(status) + ":\n" +
            text.substr(text.size() - std::min<size_t>(text.size(), 2000));
    each = pids_.erase(each);
  }
  return gone;
}

ConnectOptions Hosts::options(size_t host) const {
  ConnectOptions options;
  options.cluster = "t";
  options.node = owner(host);
  options.shmRoot = root(host);
  options.timeoutMs = 1000;
  return options;
}

std::string Hosts::log(const std::string& process) const { return logIn(folder_ + "/" + process + ".log"); }

std::string Hosts::readyWord(const std::string& process, const std::string& after) const {
  const std::string text = log(process);
  const size_t ready = text.rfind("info ready");
  REQUIRE(ready != std::string::npos);
  const size_t from = text.find(after, ready) + after.size();
  return text.substr(from, text.find_first_of(",\n", from) - from);
}

int Hosts::ctl(size_t host, const std::string& arguments, std::string& said) const {
  const std::string inside = shape_.namespaces ? "ip netns exec " + space(owner(host)) + " " : "";
  return test::run(inside + FLUXON_BIN "/fluxonctl --config " + config(host) + " " + arguments, said);
}

double Hosts::metric(const std::string& process, const std::string& name, const std::string& label) const {
  std::string page;
  const std::string pages = readyWord(process, "http ");
  std::thread([&] {
    const std::string host = process == "master" ? owner(0) : process.starts_with("ssdd-") ? process.substr(5) : process;
    if (!shape_.namespaces || enter(space(host))) page = httpGet(pages, "/metrics");
  }).join();
  std::istringstream lines(page);
  double sum = 0;
  bool found = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name) || (line[name.size()] != ' ' && line[name.size()] != '{') || line.find(label) == std::string::npos)
      continue;
    sum += std::stod(line.substr(line.rfind(' ')));
    found = true;
  }
  if (!found) FAIL("no metric " << name << " of " << process);
  return sum;
}

std::string Hosts::unrest() const {
  std::ostringstream text;
  const auto zero = [&](const std::string& process, const std::string& name, const std::string& label = "", double most = 0) {
    const double value = metric(process, name, label);
    if (value < 0 || value > most) text << process << " " << name << (label.empty() ? "" : " ") << label << " " << value << "\n";
  };
  zero("master", "fluxon_master_puts_inflight");
  zero("master", "fluxon_master_transfers_inflight");
  zero("master", "fluxon_master_segment_inflight_bytes");
  zero("master", "fluxon_master_segment_retired_bytes");
  for (size_t i = 0; i < shape_.hosts; ++i) {
    for (const char* each : {"grants", "flights", "exports", "ring_holds"}) zero(owner(i), std::string("fluxon_owner_") + each);
    for (const char* each : {"granted", "retired"}) zero(owner(i), "fluxon_owner_directory_slots", each);
    zero(owner(i), "fluxon_owner_requests_pending", "", 2);  // a heartbeat may be under way
    for (const char* each : {"persists", "loads_adrift"}) zero(owner(i), std::string("fluxon_owner_ssd_") + each);
    if (!running("ssdd-" + owner(i))) continue;
    for (const char* each : {"read_pins", "commit_pins", "writers", "claims_waiting", "reads_queued", "writes_queued", "messages_waiting"})
      zero("ssdd-" + owner(i), std::string("fluxon_ssdd_") + each);
  }
  return text.str();
}

void Hosts::rest(double seconds) const {
  std::string still;
  CHECK_MESSAGE(eventually([&] { return (still = unrest()).empty(); }, seconds), still);
}

void Hosts::lose(size_t host, int percent) {
  const std::string nft = "ip netns exec " + space(owner(host)) + " nft ";
  if (percent == 0) {
    must(nft + "delete table inet loss");
    return;
  }
  must(nft +
       "'add table inet loss; add chain inet loss in { type filter hook input priority 0; }; add rule inet loss in iifname eth0 "
       "numgen random mod 100 < " +
       std::to_string(percent) + " counter drop'");
}

void Hosts::queue(size_t host, const std::string& discipline) {
  const std::string tc = "tc -n " + space(owner(host)) + " qdisc ";
  must(discipline.empty() ? tc + "del dev eth0 root" : tc + "add dev eth0 root " + discipline);
}

uint64_t Hosts::dropped(size_t host) const {
  const std::string said = must("tc -s -n " + space(owner(host)) + " qdisc show dev eth0 root"), before = "(dropped ";
  const size_t at = said.find(before);
  REQUIRE_MESSAGE(at != std::string::npos, said);
  return std::stoull(said.substr(at + before.size()));
}

uint64_t Hosts::early(size_t host) const {
  return std::stoull(must("ip netns exec " + space(owner(host)) + " nstat -asz TcpExtTCPOFOQueue | awk '/OFO/ { print $2 }'"));
}

void Hosts::cut(size_t host, Cut how) {
  if (how == Cut::link) {
    must("ip -n " + space(kSwitch) + " link set port" + std::to_string(host) + " down");
    return;
  }
  must("ip netns exec " + space(owner(host)) +
       " nft 'add table inet cut; add chain inet cut in { type filter hook input priority 0; }; add chain inet cut out { type filter "
       "hook output priority 0; }; add rule inet cut in iifname eth0 drop; add rule inet cut out oifname eth0 drop'");
}

void Hosts::heal(size_t host) {
  must("ip -n " + space(kSwitch) + " link set port" + std::to_string(host) + " up");
  std::string ignored;
  test::run("ip netns exec " + space(owner(host)) + " nft delete table inet cut", ignored);
}

}  // namespace fluxon::test
