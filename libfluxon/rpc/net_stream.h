// Connections between processes of a cluster on different hosts: tcp, TLS if it is configured, the handshake of net/handshake.h, and
// then whatever the purpose is.
//
//   connecting side                                    listening side
//   connect ───────────────────────────────────────►   accepted: opening
//   TLS, if access has it  ◄──────────────────────►
//   hello, proof  ◄───────────────────────────────►    the proof is right: open, handed on
//                                                      anything else, or 5 s: refused, counted, seldom a line in the log
//
// Invariants
//   1. The listener hands on no byte of a peer before the peer's proof is right.
//   2. A connection is opening for 5 s at most. At most kMostOpening are at once, kMostOpeningOfSource of one source; one more ends the
//      oldest (of its source), since an honest peer is done in milliseconds. So one source alone keeps nobody else out.
//   3. Nothing that a peer does ends the listener.
// One thread.
#pragma once

#include <kj/async-io.h>

#include <functional>
#include <map>
#include <string>

#include "base/config.h"
#include "base/result.h"
#include "net/handshake.h"
#include "rpc/access.h"
#include "rpc/socket_stream.h"

namespace fluxon::rpc {

constexpr size_t kMostOpening = 256, kMostOpeningOfSource = 32;

// Opens a connection. `access` and the port outlive the promise. Errors: unavailable (nobody listens, no such host, the peer hangs up),
// timedOut (it says nothing), denied (the secret or a certificate is refused, by either side), protocol.
// A name that the resolver does not know, or not within `patience`, is named.
kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> connectPeer(kj::UnixEventPort& port, Access& access, const Endpoint& peer,
                                                            net::Purpose purpose, const net::Party& self,
                                                            kj::Duration patience = 5 * kj::SECONDS);

class NetListener final : private kj::TaskSet::ErrorHandler {
 public:
  // What it is given outlives it. Errors: as SocketListener::bindTcp.
  static Result<kj::Own<NetListener>> bind(kj::UnixEventPort&, const Endpoint&, Access&, net::Purpose, net::Party self, Refusals&);
  NetListener(kj::UnixEventPort&, kj::Own<SocketListener>, const Endpoint&, Access&, net::Purpose, net::Party self, Refusals&);

  // Where it listens, with the port.
  const Endpoint& address() const { return address_; }
  // Hands each open connection over with its peer's address and port, until the promise is dropped.
  kj::Promise<void> serve(std::function<void(kj::Own<kj::AsyncIoStream>, const std::string& peer)> opened);

 private:
  struct Opening;
  struct Opened {
    kj::Own<kj::PromiseFulfiller<void>> end;  // to give it up
    std::string source;
  };
  void giveUp(std::map<uint64_t, Opened>::iterator);
  kj::Promise<void> open(SocketListener::Accepted);
  void taskFailed(kj::Exception&&) override;

  kj::UnixEventPort& port_;
  kj::Own<SocketListener> socket_;
  Endpoint address_;
  Access& access_;
  net::Purpose purpose_;
  net::Party self_;
  Refusals& refusals_;
  std::function<void(kj::Own<kj::AsyncIoStream>, const std::string&)> opened_;
  uint64_t lastOpening_ = 0;
  std::map<uint64_t, Opened> openings_;  // by age
  kj::TaskSet tasks_;
};

}  // namespace fluxon::rpc
