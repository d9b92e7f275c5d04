#include "base/json.h"

#include <cstdio>

namespace fluxon {

size_t utf8Sequence(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto more = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF && more(at + 1)) return 2;
  if (first >= 0xE0 && first <= 0xEF && more(at + 1) && more(at + 2)) {
    const unsigned code = (first & 0xF) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F);
    return code >= 0x800 && (code < 0xD800 || code > 0xDFFF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4 && more(at + 1) && more(at + 2) && more(at + 3)) {
    const unsigned code = (first & 7) << 18 | (byte(at + 1) & 0x3F) << 12 | (byte(at + 2) & 0x3F) << 6 | (byte(at + 3) & 0x3F);
    return code >= 0x10000 && code <= 0x10FFFF ? 4 : 0;
  }
  return 0;
}

bool isUtf8(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8Sequence(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string jsonString(const std::string& text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    const size_t length = utf8Sequence(text, at);
    if (c < 0x20 || c == 0x7F || length == 0) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
      ++at;
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out.append(text, at, length);
      at += length;
    }
  }
  return out + "\"";
}

JsonObject& JsonObject::raw(std::string_view name, std::string_view json) {
  if (!fields_.empty()) fields_ += ',';
  fields_.append(jsonString(std::string(name))).append(":").append(json);
  return *this;
}

}  // namespace fluxon
