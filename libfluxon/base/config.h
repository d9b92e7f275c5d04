// The configuration file: one TOML file for all processes of a node, [common] and a section per process. Everything is checked
// here: unknown keys, wrong types and values out of range are refused with the line. Page: fluxon.toml(5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/result.h"

namespace fluxon {

struct Config {
  struct Common {
    std::string cluster = "default";
    std::string shmRoot;   // empty: $FLUXON_SHM_ROOT, else /dev/shm/fluxon-<uid>
    std::string shmGroup;  // empty: files are this user's alone
    std::string logLevel = "info";
    std::string secretFile;         // empty: no secret
    Endpoint master{false, "", 0};  // of a master on another host; off: the socket of this host's shm root
    std::string tlsCa;              // PEM files; all empty: no TLS
    std::string tlsCertificate;     // has a value if and only if tlsKey has
    std::string tlsKey;
  } common;
  struct Master {
    std::string stateDir;  // as host_defaults.h says; empty after load(): there is no default either
    Endpoint http;
    Endpoint listen{false, "", 0};  // for owners and operators on other hosts
    Duration lease = seconds(10);
    Duration putWait = seconds(5);
    Duration minimumKeyLease = milliseconds(100);
  } master;
  struct Owner {
    std::string node;     // as host_defaults.h says
    std::string nodeWhy;  // no key: why that is not the host's name
    uint64_t segmentBytes = uint64_t{256} << 20;
    uint64_t maxKeys = 65536;
    uint64_t maxClients = 256;
    bool populate = true;  // touch all pages of the segment in the background
    Endpoint http;
    Endpoint link{false, "", 0};              // where other owners fetch values
    std::string advertise;                    // what others are told instead of where `link` is bound: a host, or host and port
    std::string label;                        // sub-cluster, empty: none
    std::vector<std::string> largeFilePaths;  // folders of the SSD tier
    std::vector<uint64_t> largeLimitBytes;    // as many; empty: no SSD tier
  } owner;
  struct Ssdd {
    Endpoint http;
    std::string backend = "auto";             // io_uring, psync
    std::string uringMode = "single_buffer";  // iovec
  } ssdd;
  struct Up {
    std::vector<std::string> nodes;  // owners that `fluxonctl up` runs
  } up;

  // Defaults filled in with what depends on the machine.
  static Result<Config> load(const std::string& path);  // "": defaults alone
  static Result<Config> parse(const std::string& text, const std::string& name);
  // As TOML, every key with its value.
  std::string show() const;
};

}  // namespace fluxon
