// Connections between processes of a cluster on different hosts: tcp, TLS if it is configured, the handshake of link/handshake.h, and
// then whatever the purpose is.
//
//   connecting side                                    listening side
//   connect ───────────────────────────────────────►   accepted: opening
//   TLS, if access has it  ◄──────────────────────►
//   hello, proof  ◄───────────────────────────────►    the proof is right: open, handed on
//                                                      anything else, or 5 s: refused, counted, seldom a line in the log
//
// Invariants
//   1. No byte of a peer is handed on before its proof is right.
//   2. A connection is opening for 5 s at most, and at most kMostOpening are: one more ends the oldest, since an honest peer is done
//      in milliseconds.
//   3. Nothing that a peer does ends the listener.
// One thread.
#pragma once

#include <kj/async-io.h>

#include <functional>
#include <map>
#include <string>

#include "base/config.h"
#include "base/result.h"
#include "link/handshake.h"
#include "rpc/access.h"
#include "rpc/socket_stream.h"

namespace fluxon::rpc {

constexpr size_t kMostOpening = 256;

// Opens a connection. `access` and `io` outlive the promise. Errors: unavailable (nobody listens, no such host, the peer hangs up),
// timedOut (it says nothing), denied (the secret or a certificate is refused, by either side), protocol.
kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> connectPeer(kj::AsyncIoContext& io, Access& access, const Endpoint& peer,
                                                            link::Purpose purpose, const link::Party& self);

class NetListener final : private kj::TaskSet::ErrorHandler {
 public:
  // What it is given outlives it. Errors: as SocketListener::bindTcp.
  static Result<kj::Own<NetListener>> bind(kj::AsyncIoContext&, const Endpoint&, Access&, link::Purpose, link::Party self,
                                           Refusals&);
  NetListener(kj::AsyncIoContext&, kj::Own<SocketListener>, const Endpoint&, Access&, link::Purpose, link::Party self, Refusals&);

  // Where it listens, with the port.
  const Endpoint& address() const { return address_; }
  // Hands each open connection over with who it is, until the promise is dropped.
  kj::Promise<void> serve(std::function<void(kj::Own<kj::AsyncIoStream>, const link::Party&)> opened);

 private:
  struct Opening;
  kj::Promise<void> open(SocketListener::Accepted);
  void taskFailed(kj::Exception&&) override;

  kj::AsyncIoContext& io_;
  kj::Own<SocketListener> socket_;
  Endpoint address_;
  Access& access_;
  link::Purpose purpose_;
  link::Party self_;
  Refusals& refusals_;
  std::function<void(kj::Own<kj::AsyncIoStream>, const link::Party&)> opened_;
  uint64_t lastOpening_ = 0;
  std::map<uint64_t, kj::Own<kj::PromiseFulfiller<void>>> openings_;  // by age; to give one up
  kj::TaskSet tasks_;
};

}  // namespace fluxon::rpc
