// Addresses of processes as people write them. The one parser of them; net/socket_address.h looks them up.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace fluxon {

// Where a process listens, or what it connects to: "127.0.0.1:0" (listening: the kernel chooses the port), "[::1]:80", "host:80", "off".
struct Endpoint {
  bool enabled = true;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
};

// Error: invalidArgument.
Result<Endpoint> parseEndpoint(const std::string& text);
std::string toString(const Endpoint&);
// The host without the brackets of an IPv6 address.
std::string bareHost(const Endpoint&);
// Can only this host connect to it? A name other than "localhost" could mean any address: false.
bool isLoopback(const Endpoint&);
// Does it mean every address of this host, which tells others nothing?
bool isAnyAddress(const Endpoint&);

}  // namespace fluxon
