// JSON strings, and what is UTF-8. Everything else of JSON that we print is numbers and punctuation.
#pragma once

#include <cstddef>
#include <string>

namespace fluxon {

// Length of the UTF-8 sequence at `at`, which is below the text's size: 1 to 4, or 0 if there is none. Surrogates, code points above
// U+10FFFF and sequences that are longer than need be are none.
size_t utf8Sequence(const std::string& text, size_t at);
bool isUtf8(const std::string& text);

// Text as a JSON string with its quotes; bytes that are no UTF-8 come as \u00XX of their Latin-1 reading.
std::string jsonString(const std::string& text);

}  // namespace fluxon
