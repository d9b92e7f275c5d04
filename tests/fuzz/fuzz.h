// What the fuzz targets have in common. Each has its own run() and seeds(); main.cpp hands them to libFuzzer. A target states what must
// hold of whatever is accepted by FLUXON_CHECK, which ends the process with the reason.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace fluxon::fuzz {

// False: refused. Every seed must be accepted: it leads to where the rest of the target begins.
bool run(std::string_view input);
// Good inputs of each kind, made by our own encoders.
std::vector<std::string> seeds();

// Takes an input apart, from its front. Beyond its end there are zeros.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T take() {
    T value{};
    const std::string_view bytes = take(sizeof(T));
    std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
    return value;
  }
  std::string_view take(size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

template <class T>
std::string_view bytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace fluxon::fuzz
