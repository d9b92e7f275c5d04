#include "base/size.h"

#include <cstdio>

namespace fluxon {
namespace {

// Multiplier of a unit, 0 when it is none.
uint64_t unitBytes(std::string_view unit) {
  std::string lower;
  for (const char c : unit) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (lower.empty() || lower == "b") return 1;
  if (lower == "k" || lower == "kb" || lower == "kib") return kKiB;
  if (lower == "m" || lower == "mb" || lower == "mib") return kMiB;
  if (lower == "g" || lower == "gb" || lower == "gib") return kGiB;
  if (lower == "t" || lower == "tb" || lower == "tib") return kTiB;
  return 0;
}

Error refused(std::string_view text, const std::string& why) {
  return {Code::invalidArgument, "size '" + std::string(text) + "' " + why +
                                     " (accepted: bytes, or a number with B, KB, MB, GB or TB, binary units: 512.9B, 64MiB, 1.5GB)"};
}

}  // namespace

Result<uint64_t> parseSize(std::string_view text, uint64_t minimum) {
  // Digits, optionally '.' and any number of digits, then a unit. Integer arithmetic: no rounding up. 18 digits
  // of a fraction count, less than a byte of any unit.
  size_t at = 0;
  unsigned __int128 whole = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    whole = whole * 10 + static_cast<unsigned>(text[at] - '0');
    if (whole >> 63) return refused(text, "is too large");
  }
  if (at == 0) return refused(text, "is not a size");
  unsigned __int128 fraction = 0, scale = 1;
  if (at < text.size() && text[at] == '.') {
    const size_t first = ++at;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      if (at - first < 18) fraction = fraction * 10 + static_cast<unsigned>(text[at] - '0'), scale *= 10;
    }
    if (at == first) return refused(text, "is not a size");
  }
  while (at < text.size() && text[at] == ' ') ++at;
  const uint64_t unit = unitBytes(text.substr(at));
  if (unit == 0) return refused(text, "is not a size");
  const unsigned __int128 bytes = whole * unit + fraction * unit / scale;
  if (bytes >= kLargestSize) return refused(text, "is too large");
  const uint64_t result = static_cast<uint64_t>(bytes);
  if (result < minimum) return refused(text, "is below the minimum of " + formatSize(minimum));
  return result;
}

std::string formatSize(uint64_t bytes) {
  static constexpr struct {
    uint64_t unit;
    const char* name;
  } kUnits[] = {{kTiB, "TiB"}, {kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}};
  for (const auto& u : kUnits) {
    if (bytes < u.unit) continue;
    char text[32];
    if (bytes % u.unit == 0) {
      std::snprintf(text, sizeof text, "%llu %s", static_cast<unsigned long long>(bytes / u.unit), u.name);
    } else {
      std::snprintf(text, sizeof text, "%.1f %s", static_cast<double>(bytes) / static_cast<double>(u.unit), u.name);
    }
    return text;
  }
  return std::to_string(bytes) + " B";
}

}  // namespace fluxon
