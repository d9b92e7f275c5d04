// "host:port" and what the kernel makes of it.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace fluxon::link {

struct HostPort {
  std::string host;
  std::string port;
};

// "10.0.0.1:80", "[::1]:80", "name:80". Error: invalidArgument.
Result<HostPort> parseHostPort(const std::string&);

enum class Lookup { numeric, name };
// name: blocks as long as the resolver does. Never empty; unavailable if there is nothing.
Result<std::vector<sockaddr_storage>> lookUp(const HostPort&, Lookup);

// "10.0.0.1:80", "[::1]:80".
std::string toString(const sockaddr_storage&);
socklen_t bytesOf(const sockaddr_storage&);

}  // namespace fluxon::link
