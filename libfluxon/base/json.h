// JSON as we print it: strings, and flat objects whose fields stand in the order in which they were added. And what is UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fluxon {

// Length of the UTF-8 sequence at `at`, which is below the text's size: 1 to 4, or 0 if there is none. Surrogates, code points above
// U+10FFFF and sequences that are longer than need be are none.
size_t utf8Sequence(const std::string& text, size_t at);
bool isUtf8(const std::string& text);

// Text as a JSON string with its quotes; bytes that are no UTF-8 come as \u00XX of their Latin-1 reading.
std::string jsonString(const std::string& text);

// Writes one object, field by field; names are not looked at for repetition.
class JsonObject {
 public:
  JsonObject& text(std::string_view name, const std::string& value) { return raw(name, jsonString(value)); }
  JsonObject& number(std::string_view name, uint64_t value) { return raw(name, std::to_string(value)); }
  JsonObject& flag(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  // `json` is a value that is JSON already: null, an array, an object.
  JsonObject& raw(std::string_view name, std::string_view json);
  std::string str() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

}  // namespace fluxon
