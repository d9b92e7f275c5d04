#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace fluxon::master {

std::optional<Options> parseOptions(int argc, char** argv, int& status) {
  Options options;
  CLI::App app("fluxon-master: keeps the routes, the allocation, the leases and the membership of a Fluxon cluster. See fluxon-master(8).");
  app.set_version_flag("--version", "fluxon-master " FLUXON_VERSION);
  app.add_option("--config", options.configPath, "configuration file (fluxon.toml(5)); without it: defaults")->envname("FLUXON_CONFIG");
  app.add_option("--ready-fd", options.readyFd, "write a newline to this descriptor when ready, then close it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      status = app.exit(error);
    } else {
      std::fprintf(stderr, "fluxon-master: %s (see fluxon-master --help)\n", error.what());
      status = 64;
    }
    return std::nullopt;
  }
  Result<Config> config = Config::load(options.configPath);
  if (!config) {
    std::fprintf(stderr, "fluxon-master: %s\n", config.error().message().c_str());
    status = sysexit(config.error().code);
    return std::nullopt;
  }
  options.config = std::move(config).value();
  return options;
}

}  // namespace fluxon::master
