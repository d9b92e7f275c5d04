// A cluster of real daemons for one test: a private shared memory root, a private state folder, short leases. When the cluster is
// destroyed, no control loop may have computed for as long as a heartbeat is due without a look at its sockets; then every process is
// killed.
#pragma once

#include <fluxon/fluxon.hpp>
#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fluxon::test {

class Cluster {
 public:
  struct Shape {
    std::vector<std::string> nodes = {"n0"};
    std::string owner = "segment_size = \"64MiB\"\n";  // lines of [owner]
    std::string master;                                // lines of [master]
    std::string common;                                // lines of [common]
    int leaseMs = 1000;
  };
  explicit Cluster(Shape shape);
  Cluster() : Cluster(Shape{}) {}
  ~Cluster();

  // Writes the configuration anew, for processes that start later.
  void configure(const Shape& shape) const;
  // "master", a node, or "ssdd-" and a node. `prepare`: what the new process does first.
  void start(const std::string& process, const std::function<void()>& prepare = nullptr);
  void signal(const std::string& process, int signal);
  // Waits for the end; the exit status, or minus the signal.
  int wait(const std::string& process);
  // SIGKILL, and waits.
  void kill(const std::string& process);
  pid_t pid(const std::string& process) const { return pids_.at(process); }
  // All processes at once.
  void stop() { forAll(true); }
  void resume() { forAll(false); }

  Client client(const std::string& node = "n0", bool prefault = false) const;
  ConnectOptions options(const std::string& node) const;
  const std::string& root() const { return root_; }
  const std::string& config() const { return config_; }
  const std::string& folder() const { return folder_; }
  std::string log(const std::string& process) const;

  // Where the master listens for other hosts, and where a process serves its pages: from the last "ready" line of its log.
  std::string listens() const { return readyWord("master", "listen "); }
  std::string pages(const std::string& process) const { return readyWord(process, "http "); }
  // Value of a metric of a process, summed over its labels that contain `label`.
  double metric(const std::string& process, const std::string& name, const std::string& label = "") const;

 private:
  void checkLoop(const std::string& process) const;
  void forAll(bool stop);
  std::string readyWord(const std::string& process, const std::string& after) const;

  std::string folder_, root_, config_;
  std::map<std::string, pid_t> pids_;
  double beatSeconds_ = 0;
};

// A private folder and an empty shared memory root, for tests that start processes themselves. Both are gone at the end.
class Place {
 public:
  Place();
  ~Place();
  // Writes fluxon.toml of cluster "t" with node "n0" on top of these lines, and returns its path.
  std::string configure(const std::string& owner = "", const std::string& master = "", const std::string& root = "",
                        const std::string& common = "") const;
  const std::string& folder() const { return folder_; }
  const std::string& root() const { return root_; }

 private:
  std::string folder_, root_;
};

// Waits until `holds` says so; false after `seconds`.
bool eventually(const std::function<bool()>& holds, double seconds = 10);
// A daemon's log. A thread of the daemon writes it, so it is read until nothing has been added for 20 ms, for a second at most.
std::string logIn(const std::string& path);
// Runs a function in a child process that ends with its result; the child's pid.
pid_t inChild(const std::function<int()>& function);
// Exit status of a child, or minus its signal.
int waitFor(pid_t pid);
// GET over HTTP from "address:port"; the body.
std::string httpGet(const std::string& address, const std::string& path);
// Runs a command; its exit status, with stdout and stderr together in `output`.
int run(const std::string& command, std::string& output);
// Runs a shell command; stdout and stderr apart.
struct Ended {
  int status = 0;  // or minus the signal
  std::string out, err;
};
Ended execute(const std::string& command);
// What a call of the library ended with: the code of its exception, or FLUXON_OK.
fluxon_code codeOf(const std::function<void()>& call);
// Bytes that differ from key to key and round to round.
std::string valueOf(uint64_t seed, size_t bytes);

}  // namespace fluxon::test
