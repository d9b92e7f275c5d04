#include "link/link.h"

#include <algorithm>

namespace fluxon::link {

std::string entryOf(std::string_view name, std::string_view address) {
  return name.empty() ? std::string(address) : std::string(name) + "=" + std::string(address);
}

std::string addressOf(std::string_view registered, std::string_view name) {
  const std::string prefix = entryOf(name, "");
  while (!registered.empty()) {
    const std::string_view entry = registered.substr(0, registered.find(' '));
    registered.remove_prefix(std::min(entry.size() + 1, registered.size()));
    const bool own = name.empty() ? entry.find('=') == std::string_view::npos : entry.starts_with(prefix);
    if (own && entry.size() > prefix.size()) return std::string(entry.substr(prefix.size()));
  }
  return "";
}

}  // namespace fluxon::link
