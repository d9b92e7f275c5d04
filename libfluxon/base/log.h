// Logging: one line an event, to stderr, "2026-01-02T03:04:05.678Z level text". Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace fluxon::log {

enum class Level { debug, info, warn, error };

// `process` stands in each line; `level` is one of debug, info, warn, error.
void start(const std::string& process, const std::string& level);
void debug(const std::string& text);
void info(const std::string& text);
void warn(const std::string& text);
void error(const std::string& text);

// Lines that strangers can cause: one a second at most, which says how many were left out before it. One thread.
class Seldom {
 public:
  // Empty: nothing is to be said.
  std::string line(const std::string& text, Time now);

 private:
  Time next_{0};
  uint64_t leftOut_ = 0;
};

}  // namespace fluxon::log
