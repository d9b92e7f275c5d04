// Sizes in options and configuration: "4GB", "1.5GB", "512.9B", "256MiB", "64k", plain bytes. Units are binary
// whatever their spelling; fractions are cut to whole bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fluxon {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kTiB = 1024 * kGiB;

constexpr uint64_t kLargestSize = uint64_t{1} << 56;  // 64 PiB: beyond any machine, so a slip of the keyboard

// `invalidArgument` names the accepted forms. Values below `minimum` or from kLargestSize up are refused.
Result<uint64_t> parseSize(std::string_view text, uint64_t minimum);

// "1.5 GiB", "16 MiB", "900 B": at most one decimal.
std::string formatSize(uint64_t bytes);

constexpr uint64_t alignUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace fluxon
