// A byte range inside an owner's segment, and the rule by which a payload grows into one.
// The rule is shared by everybody who must agree on the size of a value's place: the master that
// hands it out, the client that asks for it, the owner that lists what it holds.
#pragma once

#include <cstdint>

namespace fluxon {

struct Extent {
  uint64_t offset;  // bytes from the segment's start
  uint64_t length;  // bytes

  bool operator==(const Extent&) const = default;
};

inline constexpr uint64_t kSmallStep = 64;    // grain and alignment of payloads below kLargeStep
inline constexpr uint64_t kLargeStep = 4096;  // grain and alignment of all others

// Bytes that a payload takes: the next multiple of its step, at least one small step.
// A payload too close to 2^64 to be rounded up gives the largest multiple of kLargeStep.
constexpr uint64_t extentBytes(uint64_t payloadBytes) {
  if (payloadBytes == 0) return kSmallStep;
  const uint64_t step = payloadBytes < kLargeStep ? kSmallStep : kLargeStep;
  if (payloadBytes > UINT64_MAX - (step - 1)) return UINT64_MAX & ~(step - 1);
  return (payloadBytes + step - 1) & ~(step - 1);
}

}  // namespace fluxon
