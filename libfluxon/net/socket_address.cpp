#include "net/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/thread.h"

namespace fluxon::net {

Addresses lookUp(const Endpoint& endpoint, Lookup how) {
  const std::string host = bareHost(endpoint);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (how == Lookup::numeric ? AI_NUMERICHOST : how == Lookup::bind ? AI_PASSIVE : 0);
  const bool every = how == Lookup::bind && host == "*";
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(every ? nullptr : host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error != 0) return Error{Code::unavailable, error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)};
  std::vector<sockaddr_storage> found;
  for (const addrinfo* each = list; each; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    std::memcpy(&found.emplace_back(), each->ai_addr, each->ai_addrlen);
  }
  ::freeaddrinfo(list);
  if (found.empty()) return Error{Code::unavailable, "it has no address"};
  return found;
}

void lookUpAside(const Endpoint& endpoint, std::function<void(Addresses)> then) {
  Addresses numeric = lookUp(endpoint, Lookup::numeric);
  if (numeric) return then(std::move(numeric));
  Result<std::thread> thread = startThread([endpoint, then] { then(lookUp(endpoint, Lookup::name)); });
  if (!thread) return then(thread.error());
  thread->detach();
}

Result<shm::Descriptor> listenOn(const Endpoint& endpoint, int flags) {
  const std::string what = "listen on " + toString(endpoint);
  const Addresses found = lookUp(endpoint, Lookup::bind);
  if (!found) return Error{found.error().code, what + ": " + found.error().detail};
  const sockaddr_storage& at = found.value().front();
  shm::Descriptor fd(::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) return systemError("socket", errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), bytesOf(at)) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const bool mends = errno == EADDRINUSE || errno == EADDRNOTAVAIL;
    const bool foreign = errno == EADDRNOTAVAIL;
    const Error error = systemError(what, errno);
    const std::string todo = foreign ? " (no interface of this host has that address; accepted: one that \"ip address\" shows, such as "
                                       "[::1]:0 where there is IPv6 alone, or \"off\")"
                                     : "";
    return Error{mends ? Code::unavailable : error.code, error.detail + todo};
  }
  return fd;
}

sockaddr_storage boundTo(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return address;
}

uint16_t portOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

socklen_t bytesOf(const sockaddr_storage& address) { return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }

std::string toString(const sockaddr_storage& address) {
  char host[NI_MAXHOST] = "?", service[NI_MAXSERV] = "?";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytesOf(address), host, sizeof host, service, sizeof service,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return (address.ss_family == AF_INET6 ? "[" + std::string(host) + "]" : host) + ":" + service;
}

}  // namespace fluxon::net
