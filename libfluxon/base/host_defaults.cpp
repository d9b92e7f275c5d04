#include "base/host_defaults.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/hash.h"
#include "base/ids.h"

namespace fluxon {
namespace {

// Eight digits.
std::string hashOf(const std::string& text) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(keyHash(text)));
  return digits;
}

// "": it is not set, or no absolute path.
std::string folderNamedBy(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value == '/' ? value : "";
}

}  // namespace

NodeName nodeNameOf(const std::string& hostName, const std::string& machineId) {
  if (validName(hostName)) return {hostName, ""};
  if (hostName.empty() || hostName == "(none)") return {"node-" + hashOf(machineId), "this host has no name: this is of its machine id"};
  if (!validName(hostName.substr(0, kMaxNameBytes))) {
    return {"node-" + hashOf(hostName),
            "the name of this host, " + hostName + ", is none of 1 to 32 of A-Z a-z 0-9 _ - .: this is its hash"};
  }
  const std::string hash = "-" + hashOf(hostName);
  return {hostName.substr(0, kMaxNameBytes - hash.size()) + hash,
          "the name of this host, " + hostName + ", is longer than 32 characters: it is cut, and has the hash of all of it at its end"};
}

NodeName nodeNameOfThisHost() {
  char host[65] = {};
  ::gethostname(host, sizeof host - 1);
  std::string machineId;
  std::getline(std::ifstream("/etc/machine-id"), machineId);
  return nodeNameOf(host, machineId);
}

std::string defaultStateDir(const std::string& cluster) {
  const std::string state = folderNamedBy("XDG_STATE_HOME"), home = folderNamedBy("HOME");
  if (::geteuid() == 0) return "/var/lib/fluxon/" + cluster;
  if (!state.empty()) return state + "/fluxon/" + cluster;
  return home.empty() ? "" : home + "/.local/state/fluxon/" + cluster;
}

Error noStateDir() {
  return {Code::badConfig,
          "master.state_dir is not set, and without HOME or XDG_STATE_HOME it has no default (accepted: a folder that "
          "outlives a restart of the machine)"};
}

}  // namespace fluxon
