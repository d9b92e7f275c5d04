// /metrics and /health over HTTP. Answers while the process's control thread runs.
//
//   GET or HEAD   /metrics, /health   the page; a query and a last slash change nothing
//                 /                   which pages there are
//   anything else                     404, 405
//
// Invariants
//   1. At most kMostHttp connections are open. One more ends the one that has asked for nothing for the longest time: pages are small,
//      and who asks for them comes again.
//   2. Nothing that a peer does ends the listener, or fills the log.
// One thread.
#pragma once

#include <kj/async-io.h>

#include <functional>
#include <string>

#include "base/config.h"
#include "base/result.h"
#include "rpc/daemon.h"

namespace fluxon::rpc {

constexpr size_t kMostHttp = 32;

class HttpEndpoint {
 public:
  struct Pages {
    std::function<std::string()> metrics;
    std::function<std::string(bool& healthy)> health;  // JSON; 200 if healthy, else 503
  };
  HttpEndpoint(Daemon&, Pages);
  ~HttpEndpoint() noexcept(false);
  // Binds; "" when off, else the address with its port. Errors: as SocketListener::bindTcp.
  Result<std::string> listen(const Endpoint&);

 private:
  struct State;
  kj::Own<State> state_;
};

}  // namespace fluxon::rpc
