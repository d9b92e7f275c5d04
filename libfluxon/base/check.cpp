#include "base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/process.h"

namespace fluxon {
namespace {

void sayAtOnce(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }
std::atomic<void (*)(const std::string&)> sayer = sayAtOnce;

}  // namespace

void sayFailedChecks(void (*say)(const std::string& line)) { sayer = say; }

void checkFailed(const char* file, int line, const char* condition, const char* reason) {
  sayer.load()(std::string("fluxon: bug: ") + reason + " (" + condition + ") at " + file + ":" + std::to_string(line));
  std::abort();
}

}  // namespace fluxon
