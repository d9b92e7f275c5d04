// What the benchmarks share: clocks, percentiles, and the JSON object that ends their output.
//
// Comparisons are made within one run, in rounds that take turns (A B A B ..): a round gives one ratio, the result is the median
// of the rounds, so that a machine that slows down for a while spoils one round and not the result.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace fluxon::bench {

inline int64_t nowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// `share` of 0 to 1: 0.5 is the median. Sorts.
template <class T>
T percentile(std::vector<T>& values, double share) {
  if (values.empty()) return T{};
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}
template <class T>
T median(std::vector<T> values) {
  return percentile(values, 0.5);
}

struct Verdict {
  const char* bench;
  double value;
  const char* unit;
  double ratio;
  const char* against;
  const char* target;
  bool ok;
};
inline void print(const Verdict& v) {
  std::printf("{\"bench\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"ratio\":%.4g,\"against\":\"%s\",\"target\":\"%s\",\"ok\":%s}\n", v.bench,
              v.value, v.unit, v.ratio, v.against, v.target, v.ok ? "true" : "false");
  std::fflush(stdout);
}

// "--name VALUE" of the command line; `fallback` without it.
inline std::string argument(int argc, char** argv, std::string_view name, const std::string& fallback) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (name == argv[i]) return argv[i + 1];
  }
  return fallback;
}

// Runs a benchmark. What ends it early, a call of the library that fails above all, is one sentence, and exit status 70.
template <class Run>
int oneSentence(const char* bench, Run run) {
  try {
    return run();
  } catch (const std::exception& fault) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: no verdict: %s\n", bench, fault.what());
    return 70;
  }
}

}  // namespace fluxon::bench
