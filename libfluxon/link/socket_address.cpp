#include "link/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

namespace fluxon::link {

Result<HostPort> parseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool brackets = text.size() > 1 && text.front() == '[' && colon != std::string::npos && colon > 0 && text[colon - 1] == ']';
  if (colon == std::string::npos || colon == (brackets ? 2 : 0) || colon + 1 == text.size())
    return Error{Code::invalidArgument, "address '" + text + "' (accepted: host:port, [IPv6]:port)"};
  HostPort parts{brackets ? text.substr(1, colon - 2) : text.substr(0, colon), text.substr(colon + 1)};
  return parts;
}

Result<std::vector<sockaddr_storage>> lookUp(const HostPort& parts, Lookup how) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (how == Lookup::numeric ? AI_NUMERICHOST : 0);
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &list);
  if (error != 0) return Error{Code::unavailable, parts.host + ":" + parts.port + ": " + ::gai_strerror(error)};
  std::vector<sockaddr_storage> found;
  for (const addrinfo* each = list; each; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    std::memcpy(&found.emplace_back(), each->ai_addr, each->ai_addrlen);
  }
  ::freeaddrinfo(list);
  if (found.empty()) return Error{Code::unavailable, parts.host + " has no address"};
  return found;
}

socklen_t bytesOf(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string toString(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(in.sin6_port));
  }
  const auto& in = reinterpret_cast<const sockaddr_in&>(address);
  ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
}

}  // namespace fluxon::link
