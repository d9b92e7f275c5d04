// What the kernel makes of an address: the one place where names are looked up.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "shm/mapped_file.h"

namespace fluxon::net {

// numeric: no name, and nothing blocks. name, and bind, for which "*" is every address: block as long as the resolver does.
enum class Lookup { numeric, name, bind };
// Never empty. Error: unavailable, with what the resolver says.
using Addresses = Result<std::vector<sockaddr_storage>>;
Addresses lookUp(const Endpoint&, Lookup);
// Numbers need no one else: `then` has them before this returns. A name is looked up by a thread of its own, which may take as long as it
// likes and calls `then`.
void lookUpAside(const Endpoint&, std::function<void(Addresses)> then);

// A socket that listens at the first of the addresses; the kernel chooses port 0. `flags`: of socket(). Errors: unavailable (taken, not an
// address of this host, unknown), denied, system.
Result<shm::Descriptor> listenOn(const Endpoint&, int flags);
// Where a socket is bound.
sockaddr_storage boundTo(int fd);
uint16_t portOf(const sockaddr_storage&);

// "10.0.0.1:80", "[::1]:80".
std::string toString(const sockaddr_storage&);
socklen_t bytesOf(const sockaddr_storage&);

}  // namespace fluxon::net
