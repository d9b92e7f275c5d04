// The first four frames of every tcp connection of a cluster, of RPC and of the data link alike. Both sides show that they know the
// cluster secret; neither sends it, and a recorded handshake proves nothing later (no replay).
//
//   connecting side                                listening side
//   ClientHello  {purpose, who, whom, nonce} ────►
//                                            ◄──── ServerHello {code, who, nonce, proof = HMAC("server", ClientHello, ServerHello)}
//   ClientProof  {proof = HMAC("client", both)} ─►
//                                            ◄──── ServerVerdict {code, detail}
//
// The connecting side checks the proof before it sends its own; the listening side hands nothing out before it has checked the
// other's. A proof covers both nonces and both names, so it fits one connection only, in one direction, for one purpose.
// All fields are little-endian. Pure: no socket, no clock. Anybody may send frames: neither side trusts them before the proof.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "net/secret.h"

namespace fluxon::net {

constexpr char kHelloMagic[9] = "FLXHELO1";
constexpr uint32_t kHandshakeVersion = 1;

enum class Purpose : uint32_t { rpc = 1, data = 2 };

struct ClientHello {
  char magic[8];
  uint32_t version;
  uint32_t purpose;
  uint64_t incarnation;  // of the connecting process, 0: a tool without one
  uint64_t wanted;       // incarnation that the listening side must have, 0: any
  char node[40];         // of the connecting process, may be empty
  uint8_t nonce[32];
};
struct ServerHello {
  char magic[8];
  uint32_t version;
  uint32_t code;  // Code: not ok, and what follows means nothing
  uint64_t incarnation;
  char node[40];
  uint8_t nonce[32];
  uint8_t proof[32];
};
struct ClientProof {
  uint8_t proof[32];
};
struct ServerVerdict {
  uint32_t code;  // Code
  char detail[124];
};
static_assert(sizeof(ClientHello) == 104 && sizeof(ServerHello) == 128 && sizeof(ClientProof) == 32 && sizeof(ServerVerdict) == 128);

struct Party {
  std::string node;
  Incarnation incarnation;
};

class ClientHandshake {
 public:
  ClientHandshake(const Secret&, Purpose, const Party& self, Incarnation wanted);
  const ClientHello& hello() const { return hello_; }
  // denied: the listening side does not know our secret; protocol: it speaks something else; or the code that it gave.
  Result<ClientProof> answer(const ServerHello&);
  // ok: the connection is open.
  static Error verdict(const ServerVerdict&);
  // Of the listening side, once answer() was ok.
  const Party& peer() const { return peer_; }

 private:
  const Secret& secret_;
  ClientHello hello_{};
  Party peer_;
};

class ServerHandshake {
 public:
  ServerHandshake(const Secret&, Purpose, Party self);
  // The frame to send, always; when its code is not ok the connection ends after it.
  ServerHello answer(const ClientHello&);
  // The last frame to send; the connection is open if its code is ok.
  ServerVerdict judge(const ClientProof&);
  const Party& peer() const { return peer_; }

 private:
  const Secret& secret_;
  Purpose purpose_;
  Party self_;
  Party peer_;
  bool answered_ = false;  // a hello that was good
  Mac expected_{};
};

}  // namespace fluxon::net
