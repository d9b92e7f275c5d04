// Command line of fluxonctl. Page: fluxonctl(1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "output.h"

namespace fluxon::ctl {

enum class Verb {
  // clang-format off
  put, get, read, remove, stat, exists, list, count, leaseGrant, leaseKeepAlive, leaseRevoke,  // through the library
  status, members, routes, leaseList, metrics, drain, evict,                            // through the master's Operator
  pins, rings, ssd, statLocal, clean,                                                   // from files in /dev/shm alone
  scrub,                                                                                // through the owners of this host
  configCheck, configShow, doctor, up, down,
  help,                                                                                 // parseOptions() itself answers it
  // clang-format on
};

struct Options {
  Verb verb = Verb::status;
  Format format = Format::table;
  std::string configPath;             // empty: defaults
  Config config;                      // not loaded for configCheck
  std::string cluster;                // --cluster, else the configuration's
  std::string node;                   // --node; empty: not given
  std::optional<uint32_t> timeoutMs;  // --timeout

  std::vector<std::string> keys;  // put, get, stat, exists: one; delete: any number
  std::string file;    // put: input; get: output; read: output folder, none if empty; config check. put, get: empty or "-" is stdin, stdout
  std::string prefix;  // list, routes, count; delete, if byPrefix
  std::string after;
  bool keysOnly = false;       // list
  bool wide = false;           // members
  bool zeroEnded = false;      // list, read, delete: keys end with a zero byte, not with a newline
  bool keysFromStdin = false;  // delete
  bool byPrefix = false;       // delete
  uint64_t limit = 0;          // 0: all
  bool rejectIfExists = false;
  bool rejectIfInFlight = false;
  uint64_t lease = 0;
  uint64_t ttlMs = 0;
  std::string process;             // metrics; empty: all
  std::vector<std::string> nodes;  // drain: one; evict: one or none (all); clean: any number (none: all that have ended)
  uint32_t percent = 0;            // evict
  uint32_t replicas = 1;           // put
  bool wait = true;                // drain, evict: until it is done
  bool cancel = false;             // drain
  bool detach = false;
  std::string logDir;

  // Milliseconds that one call may take.
  uint32_t callTimeoutMs() const { return timeoutMs.value_or(10'000); }
};

// nullopt: `status` is what to exit with (help or version was printed: 0; a usage or configuration error was: 64, 78).
std::optional<Options> parseOptions(int argc, char** argv, int& status);

}  // namespace fluxon::ctl
