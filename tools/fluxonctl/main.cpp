// fluxonctl: wiring. See fluxonctl(1).
#include <new>
#include <sstream>

#include "base/json.h"
#include "base/process.h"
#include "cache_verbs.h"
#include "doctor.h"
#include "operator_verbs.h"
#include "options.h"
#include "shm_verbs.h"
#include "up_verbs.h"

namespace fluxon::ctl {
namespace {

int configCheck(const Options& options) {
  const Result<Config> config = Config::load(options.file);
  if (!config) return fail(config.error());
  if (options.format == Format::json) {
    Rows(Format::json).add({text("file", options.file), flag("ok", true)});
  } else {
    emit(options.file + ": ok\n");
  }
  return 0;
}

// Values of our TOML are JSON as they stand, but for the strings of lists.
int configShow(const Options& options) {
  const std::string shown = options.config.show();
  if (options.format == Format::table) {
    emit(shown);
    return 0;
  }
  Rows rows(Format::json);
  std::istringstream lines(shown);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("[")) {
      section = line.substr(1, line.size() - 2);
    } else if (equals != std::string::npos) {
      const std::string name = line.substr(0, equals);
      std::string value = line.substr(equals + 3);
      if (name == "nodes") value = list("", options.config.up.nodes).json;
      if (name == "large_file_paths") value = list("", options.config.owner.largeFilePaths).json;
      rows.add({text("section", section), text("key", name), {"value", "", value}});
    }
  }
  return 0;
}

int dispatch(const Options& options) {
  switch (options.verb) {
    case Verb::status:
    case Verb::members:
    case Verb::drain:
    case Verb::evict:
    case Verb::routes:
    case Verb::leaseList:
    case Verb::metrics: return operatorVerb(options);
    case Verb::pins:
    case Verb::rings:
    case Verb::clean:
    case Verb::ssd:
    case Verb::scrub:
    case Verb::statLocal: return shmVerb(options);
    case Verb::configCheck: return configCheck(options);
    case Verb::configShow: return configShow(options);
    case Verb::doctor: return doctor(options);
    case Verb::up: return up(options);
    case Verb::down: return down(options);
    default: return cacheVerb(options);
  }
}

}  // namespace
}  // namespace fluxon::ctl

int main(int argc, char** argv) {
  using namespace fluxon::ctl;
  fluxon::beginProgram();
  startOutput();
  int status = 0;
  const auto options = parseOptions(argc, argv, status);
  if (!options) return finishOutput(status);
  try {
    return finishOutput(dispatch(*options));
  } catch (const std::bad_alloc&) {
    return fail(fluxon::Code::system, "out of memory");
  }
}
