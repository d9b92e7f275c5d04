#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <utility>

namespace fluxon::log {

void start(const std::string& process, const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(process, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %n %l %v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}
void debug(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::debug, "{}", text); }
void info(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::info, "{}", text); }
void warn(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::warn, "{}", text); }
void error(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::err, "{}", text); }

std::string Seldom::line(const std::string& text, Time now) {
  if (now < next_) return ++leftOut_, "";
  next_ = now + seconds(1);
  const uint64_t leftOut = std::exchange(leftOut_, 0);
  return leftOut == 0 ? text : text + " (" + std::to_string(leftOut) + " lines like this were left out before it)";
}

}  // namespace fluxon::log
