// Time of the protocol: CLOCK_BOOTTIME, which goes on while the machine sleeps and never jumps. Logic never reads it:
// it is handed a Time. A paused virtual machine whose clocks stop is outside the model.
#pragma once

#include <ctime>

#include <compare>
#include <cstdint>

namespace fluxon {

struct Duration {
  int64_t ns = 0;
  auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration d) const { return {ns + d.ns}; }
  constexpr Duration operator*(int64_t n) const { return {ns * n}; }
  constexpr Duration operator/(int64_t n) const { return {ns / n}; }
  constexpr int64_t ms() const { return ns / 1'000'000; }
};
constexpr Duration milliseconds(int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(int64_t n) { return {n * 1'000'000'000}; }

struct Time {
  int64_t ns = 0;
  auto operator<=>(const Time&) const = default;
  constexpr Time operator+(Duration d) const { return {ns + d.ns}; }
  constexpr Duration operator-(Time t) const { return {ns - t.ns}; }
  static constexpr Time never() { return {INT64_MAX}; }
};

// No system call: the vDSO answers.
inline Time bootTime() {
  timespec now;
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return {now.tv_sec * 1'000'000'000 + now.tv_nsec};
}

}  // namespace fluxon
