// Several hosts on one machine: each has a shared memory root and a configuration of its own, one owner, and the first one the master.
// Owners fetch from each other over tcp.
//
// With namespaces each host is a network namespace, joined to the others by a bridge in one more namespace; without, all are on
// loopback. What was made outside of this process is removed when it ends, however it ends: by a helper process that waits for that.
#pragma once

#include <fluxon/fluxon.hpp>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace fluxon::test {

class Hosts {
 public:
  struct Shape {
    size_t hosts = 2;
    bool namespaces = false;
    int leaseMs = 1000;
    std::string owner = "segment_size = \"16MiB\"\nmax_keys = 1024\n";  // lines of [owner]
    std::string master;                                                 // lines of [master]
    std::string disks;  // a folder for the SSD of each host, of this limit each; empty: they have none
    std::string limit = "32MiB";
  };
  explicit Hosts(Shape shape);
  ~Hosts();
  Hosts(const Hosts&) = delete;

  // What this machine lacks for namespaces; empty: nothing. May be called before any test runs.
  static std::string lacking();

  size_t size() const { return shape_.hosts; }
  static std::string owner(size_t host) { return "h" + std::to_string(host); }
  // "master", the owner of a host, or "ssdd-" and that. Waits until it has joined, `seconds` at most; false: it has not, and runs on.
  bool start(const std::string& process, double seconds = 60);
  void signal(const std::string& process, int signal);
  bool running(const std::string& process) const { return pids_.contains(process); }
  int wait(const std::string& process);
  void kill(const std::string& process);
  // Daemons that have ended by themselves, with the ends of their logs.
  std::string ended();

  ConnectOptions options(size_t host) const;
  Client client(size_t host) const { return Client(options(host)); }
  const std::string& folder() const { return folder_; }
  std::string root(size_t host) const;
  std::string config(size_t host) const { return folder_ + "/" + owner(host) + ".toml"; }
  std::string log(const std::string& process) const;
  // fluxonctl in the network of a host; its exit status, and all that it said.
  int ctl(size_t host, const std::string& arguments, std::string& said) const;
  // Value of a metric, summed over its labels that contain `label`.
  double metric(const std::string& process, const std::string& name, const std::string& label = "") const;
  // What is not back at zero of puts, copies and holders; empty: everything is.
  std::string unrest() const;
  // Checks that everything comes back to zero.
  void rest(double seconds = 20) const;
  bool serving(size_t host) const { return metric(owner(host), "fluxon_owner_serving") == 1; }

  // The network of a host, with namespaces. Percent of the packets that come in; 0: all come through.
  void lose(size_t host, int percent);
  // What tc does with the packets that go out of a host: "tbf rate 200mbit burst 64kb latency 50ms"; empty: nothing any more.
  void queue(size_t host, const std::string& discipline);
  // Packets that it has dropped since.
  uint64_t dropped(size_t host) const;
  // Packets of tcp that have come to a host before an earlier one of their connection.
  uint64_t early(size_t host) const;
  // Its link goes down, or its packets are dropped in silence.
  enum class Cut { link, silence };
  void cut(size_t host, Cut);
  void heal(size_t host);

 private:
  void configure(const std::string& listen);
  std::string space(const std::string& name) const { return prefix_ + name; }
  std::string address(size_t host) const;
  std::string readyWord(const std::string& process, const std::string& after) const;
  // What it said.
  static std::string must(const std::string& command);

  Shape shape_;
  std::string folder_, prefix_;
  std::map<std::string, pid_t> pids_;
  int alive_ = -1;  // closed when this process ends
  pid_t janitor_ = 0;
};

}  // namespace fluxon::test
