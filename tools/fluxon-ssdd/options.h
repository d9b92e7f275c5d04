// Command line of a daemon.
#pragma once

#include <optional>
#include <string>

#include "base/config.h"

namespace fluxon::ssdd {

struct Options {
  std::string configPath;
  std::string node;  // --node, else owner.node of the configuration
  int readyFd = -1;
  Config config;
};

// nullopt: `status` is what to exit with (help or version was printed: 0; a usage or configuration error was: 64, 78).
std::optional<Options> parseOptions(int argc, char** argv, int& status);

}  // namespace fluxon::ssdd
