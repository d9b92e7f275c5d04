// The configuration file: one TOML file for all processes of a node, [common] and a section per process. Everything is checked
// here: unknown keys, wrong types and values out of range are refused with the line. Page: fluxon.toml(5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fluxon {

// Where /metrics and /health listen: "127.0.0.1:0" (the kernel chooses the port), "off".
struct HttpAddress {
  bool enabled = true;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
};

struct Config {
  struct Common {
    std::string cluster = "default";
    std::string shmRoot;               // empty: $FLUXON_SHM_ROOT, else /dev/shm/fluxon-<uid>
    std::string shmGroup;              // empty: files are this user's alone
    std::string logLevel = "info";
  } common;
  struct Master {
    std::string stateDir;              // empty: /var/lib/fluxon/<cluster> for root, $XDG_STATE_HOME/fluxon/<cluster> for others
    HttpAddress http;
    Duration lease = seconds(10);
    Duration putWait = seconds(5);
    Duration minimumKeyLease = milliseconds(100);
  } master;
  struct Owner {
    std::string node;                  // empty: the host's name
    uint64_t segmentBytes = uint64_t{256} << 20;
    uint64_t maxKeys = 65536;
    uint64_t maxClients = 256;
    bool populate = true;              // touch all pages of the segment in the background
    HttpAddress http;
  } owner;
  struct Up {
    std::vector<std::string> nodes;    // owners that `fluxonctl up` runs
  } up;

  // Defaults filled in with what depends on the machine.
  static Result<Config> load(const std::string& path);  // "": defaults alone
  static Result<Config> parse(const std::string& text, const std::string& name);
  // As TOML, every key with its value.
  std::string show() const;
};

Result<HttpAddress> parseHttpAddress(const std::string& text);
std::string toString(const HttpAddress&);

}  // namespace fluxon
