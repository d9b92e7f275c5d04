// Logging: one line an event, to stderr, "2026-01-02T03:04:05.678Z level text". Any thread. No call waits for stderr, whose other
// side may be a pipe that nobody empties or a disk that hangs: lines that it does not take are left out, counted and said later
// (line_writer.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace fluxon::log {

enum class Level { debug, info, warn, error };

// `process` stands in each line; `level` is one of debug, info, warn, error. Once. What a failed check says goes this way, too.
// system: there is no thread for it.
Error start(const std::string& process, const std::string& level);
void debug(const std::string& text);
void info(const std::string& text);
void warn(const std::string& text);
void error(const std::string& text);

// Lines that stderr has not taken, since start().
uint64_t dropped();
// A line as it is, without time and level, after all others: why the process ends.
void last(const std::string& line);
// Gives the lines that wait half a second to get out. Before the process ends; without start() it does nothing.
void finish();

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
