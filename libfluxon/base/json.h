// JSON strings. Everything else of JSON that we print is numbers and punctuation.
#pragma once

#include <string>

namespace fluxon {

// Text as a JSON string with its quotes; bytes that are no UTF-8 come as \u00XX of their Latin-1 reading.
std::string jsonString(const std::string& text);

}  // namespace fluxon
