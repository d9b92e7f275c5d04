// What tests say of texts: of what fluxonctl prints, and of files.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace fluxon::test {

inline const std::string kCtl = FLUXON_BIN "/fluxonctl";

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
// An error of fluxonctl as it has to be.
inline bool oneLine(const std::string& text) { return text.find('\n') + 1 == text.size() && text.starts_with("fluxonctl: "); }

// A whole file.
inline void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
inline std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace fluxon::test
