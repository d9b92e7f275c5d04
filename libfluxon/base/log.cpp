#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "base/line_writer.h"
#include "base/process.h"

namespace fluxon::log {
namespace {

constexpr Duration kPatience = milliseconds(500);

LineWriter* writer = nullptr;

class WriterSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    writer->add(std::string(line.data(), line.size()));
  }
  void flush_() override {}
};

std::unique_ptr<spdlog::formatter> formatter() {
  return std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %n %l %v", spdlog::pattern_time_type::utc);
}

}  // namespace

Error start(const std::string& process, const std::string& level) {
  // A formatter is of one thread; the writer calls this one under its lock or from its thread.
  const auto said = std::make_shared<std::pair<std::mutex, std::unique_ptr<spdlog::formatter>>>();
  said->second = formatter();
  const Result<LineWriter*> started = LineWriter::start(STDERR_FILENO, [said, process](uint64_t lines) {
    const std::string text = std::to_string(lines) + " lines of the log were left out here: stderr did not take them";
    spdlog::memory_buf_t line;
    const std::lock_guard lock(said->first);
    said->second->format(spdlog::details::log_msg(process, spdlog::level::warn, text), line);
    return std::string(line.data(), line.size());
  });
  if (!started) return started.error();
  writer = started.value();
  auto logger = std::make_shared<spdlog::logger>(process, std::make_shared<WriterSink>());
  logger->set_formatter(formatter());
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
  sayFailedChecks(last);
  return {};
}
void debug(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::debug, "{}", text); }
void info(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::info, "{}", text); }
void warn(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::warn, "{}", text); }
void error(const std::string& text) { spdlog::default_logger_raw()->log(spdlog::level::err, "{}", text); }

uint64_t dropped() { return writer ? writer->dropped() : 0; }
void last(const std::string& line) {
  if (!writer) {
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  writer->add(line + "\n");
  finish();
}
void finish() {
  if (writer) writer->drain(kPatience);
}

std::string Seldom::line(const std::string& text, Time now) {
  if (now < next_) return ++leftOut_, "";
  next_ = now + seconds(1);
  const uint64_t leftOut = std::exchange(leftOut_, 0);
  return leftOut == 0 ? text : text + " (" + std::to_string(leftOut) + " lines like this were left out before it)";
}

}  // namespace fluxon::log
