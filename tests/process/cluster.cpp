#include "cluster.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace fluxon::test {
namespace {

std::string tail(const std::string& text) { return text.size() > 2000 ? text.substr(text.size() - 2000) : text; }

std::string binary(const std::string& name) { return std::string(FLUXON_BIN) + "/" + name; }

}  // namespace

Cluster::Cluster(Shape shape) {
  char folder[] = "/tmp/fluxon-test-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  folder_ = folder;
  root_ = "/dev/shm/" + folder_.substr(5);
  config_ = folder_ + "/fluxon.toml";
  beatSeconds_ = shape.leaseMs / 5000.0;
  configure(shape);
  start("master");
  for (const std::string& node : shape.nodes) start(node);
}

void Cluster::configure(const Shape& shape) const {
  std::ofstream(config_) << "[common]\ncluster = \"t\"\nshm_root = \"" << root_ << "\"\nlog_level = \"debug\"\n"
                         << shape.common << "[master]\nstate_dir = \"" << folder_ << "/state\"\nlease_ms = " << shape.leaseMs << "\n"
                         << shape.master << "[owner]\n"
                         << shape.owner;
}

Cluster::~Cluster() {
  resume();
  for (const auto& [name, pid] : pids_) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) {
      // Aborts of our own checks stand at the end of the log.
      FAIL_CHECK(name << " ended by itself, status " << status << ":\n" << tail(log(name)));
      continue;
    }
    checkLoop(name);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::filesystem::remove_all(root_);
  std::filesystem::remove_all(folder_);
}

// By the thread's own time, which stands still while the process is stopped or has no processor. A process without pages is not asked.
void Cluster::checkLoop(const std::string& process) const {
  const std::string text = log(process);
  const size_t ready = text.rfind("info ready"), http = ready == std::string::npos ? ready : text.find("http ", ready);
  if (http == std::string::npos) return;
  const std::string address = text.substr(http + 5, text.find_first_of(",\n", http) - http - 5);
  const std::string page = address.find(':') == std::string::npos ? "" : httpGet(address, "/metrics");
  const std::string name = "_loop_longest_busy_seconds ";
  const size_t at = page.rfind(name);
  if (at == std::string::npos) return;
#ifdef FLUXON_SANITIZED
  const double most = 10 * beatSeconds_;
#else
  const double most = beatSeconds_;
#endif
  CHECK_MESSAGE(std::stod(page.substr(at + name.size())) < most, process << " did not look at its sockets for too long");
}

void Cluster::start(const std::string& process, const std::function<void()>& prepare) {
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = ::open((folder_ + "/" + process + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, 2);
    ::dup2(ready[1], 9);
    ::fcntl(9, F_SETFD, 0);  // it may have been 9, with FD_CLOEXEC
    if (prepare) prepare();
    if (process == "master") {
      ::execl(binary("fluxon-master").c_str(), "fluxon-master", "--config", config_.c_str(), "--ready-fd", "9", nullptr);
    } else if (process.starts_with("ssdd-")) {
      ::execl(binary("fluxon-ssdd").c_str(), "fluxon-ssdd", "--config", config_.c_str(), "--node", process.c_str() + 5, "--ready-fd", "9",
              nullptr);
    } else {
      ::execl(binary("fluxon-owner").c_str(), "fluxon-owner", "--config", config_.c_str(), "--node", process.c_str(), "--ready-fd", "9",
              nullptr);
    }
    ::_exit(127);
  }
  ::close(ready[1]);
  pids_[process] = pid;
  pollfd wait{ready[0], POLLIN, 0};
  char byte = 0;
  const bool isReady = ::poll(&wait, 1, 60'000) == 1 && ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  if (!isReady) FAIL(process << " did not become ready:\n" << log(process));
}

void Cluster::signal(const std::string& process, int signal) { REQUIRE(::kill(pids_.at(process), signal) == 0); }

int Cluster::wait(const std::string& process) {
  const pid_t pid = pids_.at(process);
  pids_.erase(process);
  return waitFor(pid);
}

void Cluster::kill(const std::string& process) {
  signal(process, SIGKILL);
  wait(process);
}

void Cluster::forAll(bool stop) {
  for (const auto& [name, pid] : pids_) ::kill(pid, stop ? SIGSTOP : SIGCONT);
}

ConnectOptions Cluster::options(const std::string& node) const {
  ConnectOptions options;
  options.cluster = "t";
  options.node = node;
  options.shmRoot = root_;
  return options;
}

Client Cluster::client(const std::string& node, bool prefault) const {
  ConnectOptions connect = options(node);
  connect.prefault = prefault;
  return Client(connect);
}

std::string logIn(const std::string& path) {
  const auto text = [&] {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  };
  std::string said = text();
  for (int looks = 0; looks < 50; ++looks) {
    ::usleep(20'000);
    std::string now = text();
    if (now == said) break;
    said = std::move(now);
  }
  return said;
}

std::string Cluster::log(const std::string& process) const { return logIn(folder_ + "/" + process + ".log"); }

std::string Cluster::readyWord(const std::string& process, const std::string& after) const {
  const std::string text = log(process);
  const size_t ready = text.rfind("info ready");
  REQUIRE(ready != std::string::npos);
  const size_t from = text.find(after, ready) + after.size();
  return text.substr(from, text.find_first_of(",\n", from) - from);
}

double Cluster::metric(const std::string& process, const std::string& name, const std::string& label) const {
  std::istringstream lines(httpGet(pages(process), "/metrics"));
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

Place::Place() {
  char folder[] = "/tmp/fluxon-test-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  folder_ = folder;
  root_ = "/dev/shm/" + folder_.substr(5);
}

Place::~Place() {
  std::filesystem::remove_all(root_);
  std::filesystem::remove_all(folder_);
}

std::string Place::configure(const std::string& owner, const std::string& master, const std::string& root,
                             const std::string& common) const {
  const std::string path = folder_ + "/fluxon.toml";
  std::ofstream(path) << "[common]\ncluster = \"t\"\nshm_root = \"" << (root.empty() ? root_ : root) << "\"\n"
                      << common << "[master]\nstate_dir = \"" << folder_ << "/state\"\nlease_ms = 1000\n"
                      << master << "[owner]\nnode = \"n0\"\n"
                      << (owner.find("segment_size") == std::string::npos ? "segment_size = \"16MiB\"\n" : "") << owner;
  return path;
}

bool eventually(const std::function<bool()>& holds, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

pid_t inChild(const std::function<int()>& function) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = 99;
    try {
      status = function();
    } catch (const std::exception& error) {
      ::dprintf(2, "child: %s\n", error.what());
    }
    ::_exit(status);
  }
  return pid;
}

int waitFor(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string httpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string text;
  const timeval patience{30, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    CHECK(::write(socket, request.data(), request.size()) == static_cast<ssize_t>(request.size()));
    char buffer[65536];
    const auto complete = [&] {
      const size_t end = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
      return end != std::string::npos && length < end && text.size() >= end + 4 + std::stoul(text.substr(length + 16));
    };
    for (ssize_t n; !complete() && (n = ::read(socket, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  }
  ::close(socket);
  const size_t body = text.find("\r\n\r\n");
  return body == std::string::npos ? "" : text.substr(body + 4);
}

int run(const std::string& command, std::string& output) {
  output.clear();
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  char buffer[4096];
  for (size_t n; (n = ::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  const int status = ::pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Ended execute(const std::string& command) {
  Ended ended;
  const int err = ::memfd_create("stderr", MFD_CLOEXEC);
  REQUIRE(err >= 0);
  const std::string where = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(err);
  ended.status = run("{ " + command + "\n} 2>>" + where + "; exit $?", ended.out);
  char buffer[4096];
  for (ssize_t n, at = 0; (n = ::pread(err, buffer, sizeof buffer, at)) > 0; at += n) ended.err.append(buffer, static_cast<size_t>(n));
  ::close(err);
  return ended;
}

fluxon_code codeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const fluxon::Exception& error) {
    return error.code();
  }
  return FLUXON_OK;
}

std::string valueOf(uint64_t seed, size_t bytes) {
  std::string value(bytes, '\0');
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + bytes + 1;
  for (size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    value[i] = static_cast<char>(state >> (i % 8 * 8));
  }
  return value;
}

}  // namespace fluxon::test
