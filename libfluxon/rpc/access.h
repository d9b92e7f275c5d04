// Access: what a process presents to, and demands of, processes of its cluster on other hosts: the secret, and with TLS a certificate.
#pragma once

#include <kj/async-io.h>

#include <string>

#include "base/config.h"
#include "base/result.h"
#include "net/secret.h"

namespace kj {
class TlsContext;
}

namespace fluxon::rpc {

class Access {
 public:
  enum class Side { connects, listens };
  // Reads the files that the configuration names; blocks for the disk. The key must be this user's or root's alone, as the secret
  // must. Errors: denied, badConfig (not PEM, a key of another certificate, a side that lacks a file for TLS), system.
  static Result<kj::Own<Access>> load(const Config::Common&, Side);
  // No secret, no TLS: for loopback.
  Access();
  ~Access() noexcept(false);
  KJ_DISALLOW_COPY(Access);

  const net::Secret& secret() const { return secret_; }
  // Without TLS the stream as it is. The certificate must be of tls_ca and name `host`.
  kj::Promise<kj::Own<kj::AsyncIoStream>> asClient(kj::Own<kj::AsyncIoStream>, const std::string& host);
  kj::Promise<kj::Own<kj::AsyncIoStream>> asServer(kj::Own<kj::AsyncIoStream>);

 private:
  net::Secret secret_;
  kj::Own<kj::TlsContext> client_, server_;  // null: without TLS
};

}  // namespace fluxon::rpc
