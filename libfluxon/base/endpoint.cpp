#include "base/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace fluxon {

Result<Endpoint> parseEndpoint(const std::string& text) {
  Endpoint address;
  if (text == "off") {
    address.enabled = false;
    return address;
  }
  const size_t colon = text.rfind(':');
  const auto refuse = [&] { return Error{Code::invalidArgument, "address '" + text + "' (accepted: off, or ADDRESS:PORT)"}; };
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size() || text.size() - colon > 6) return refuse();
  address.host = text.substr(0, colon);
  // "*", a name or IPv4 address, or an IPv6 address in brackets.
  const bool bracketed = address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  const std::string inner = bracketed ? address.host.substr(1, address.host.size() - 2) : address.host;
  for (const char c : inner) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
    if (!plain && !(bracketed && (c == ':' || c == '%')) && inner != "*") return refuse();
  }
  unsigned port = 0;
  for (const char c : text.substr(colon + 1)) {
    if (c < '0' || c > '9') return refuse();
    port = port * 10 + static_cast<unsigned>(c - '0');
  }
  if (port > 65535) return refuse();
  address.port = static_cast<uint16_t>(port);
  return address;
}

std::string toString(const Endpoint& address) { return address.enabled ? address.host + ":" + std::to_string(address.port) : "off"; }

std::string bareHost(const Endpoint& address) {
  const bool bracketed = address.host.size() > 2 && address.host.front() == '[';
  return bracketed ? address.host.substr(1, address.host.size() - 2) : address.host;
}

bool isLoopback(const Endpoint& address) {
  if (address.host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, bareHost(address).c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, bareHost(address).c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool isAnyAddress(const Endpoint& address) {
  if (address.host == "*") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, bareHost(address).c_str(), &v4) == 1) return v4.s_addr == 0;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, bareHost(address).c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace fluxon
