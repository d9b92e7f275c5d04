// Logging: one line an event, to stderr, "2026-01-02T03:04:05.678Z level text". Any thread.
#pragma once

#include <string>

namespace fluxon::log {

enum class Level { debug, info, warn, error };

// `process` stands in each line; `level` is one of debug, info, warn, error.
void start(const std::string& process, const std::string& level);
void debug(const std::string& text);
void info(const std::string& text);
void warn(const std::string& text);
void error(const std::string& text);

}  // namespace fluxon::log
