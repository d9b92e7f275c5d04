#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/ids.h"

namespace fluxon::ssdd {

std::optional<Options> parseOptions(int argc, char** argv, int& status) {
  Options options;
  CLI::App app("fluxon-ssdd: keeps values of a node on its SSDs. See fluxon-ssdd(8).");
  app.set_version_flag("--version", "fluxon-ssdd " FLUXON_VERSION);
  app.add_option("--config", options.configPath, "configuration file (fluxon.toml(5)); without it: defaults")->envname("FLUXON_CONFIG");
  app.add_option("--node", options.node, "name of this node (default: owner.node of the configuration)");
  app.add_option("--ready-fd", options.readyFd, "write a newline to this descriptor when ready, then close it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      status = app.exit(error);
    } else {
      std::fprintf(stderr, "fluxon-ssdd: %s (see fluxon-ssdd --help)\n", error.what());
      status = 64;
    }
    return std::nullopt;
  }
  Result<Config> config = Config::load(options.configPath);
  if (!config) {
    std::fprintf(stderr, "fluxon-ssdd: %s\n", config.error().message().c_str());
    status = sysexit(config.error().code);
    return std::nullopt;
  }
  options.config = std::move(config).value();
  if (options.node.empty()) options.node = options.config.owner.node;
  if (!validName(options.node)) {
    std::fprintf(stderr, "fluxon-ssdd: --node '%s' (accepted: 1 to 32 of A-Z a-z 0-9 _ - ., no leading .)\n", options.node.c_str());
    status = 64;
    return std::nullopt;
  }
  return options;
}

}  // namespace fluxon::ssdd
