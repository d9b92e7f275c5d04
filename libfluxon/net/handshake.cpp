#include "net/handshake.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace fluxon::net {
namespace {

void copyName(char (&to)[40], const std::string& from) { std::memcpy(to, from.data(), std::min(from.size(), sizeof to - 1)); }
std::string nameOf(const char (&from)[40]) { return {from, ::strnlen(from, sizeof from)}; }

template <class Frame>
std::string_view bytesOf(const Frame& frame, size_t bytes = sizeof(Frame)) {
  return {reinterpret_cast<const char*>(&frame), bytes};
}

Mac serverProof(const Secret& secret, const ClientHello& client, const ServerHello& server) {
  return secret.sign(std::string("server").append(bytesOf(client)).append(bytesOf(server, offsetof(ServerHello, proof))));
}
Mac clientProof(const Secret& secret, const ClientHello& client, const ServerHello& server) {
  return secret.sign(std::string("client").append(bytesOf(client)).append(bytesOf(server)));
}

}  // namespace

ClientHandshake::ClientHandshake(const Secret& secret, Purpose purpose, const Party& self, Incarnation wanted) : secret_(secret) {
  std::memcpy(hello_.magic, kHelloMagic, sizeof hello_.magic);
  hello_.version = kHandshakeVersion;
  hello_.purpose = static_cast<uint32_t>(purpose);
  hello_.incarnation = self.incarnation.value;
  hello_.wanted = wanted.value;
  copyName(hello_.node, self.node);
  fillRandom(hello_.nonce, sizeof hello_.nonce);
}

Result<ClientProof> ClientHandshake::answer(const ServerHello& server) {
  if (std::memcmp(server.magic, kHelloMagic, sizeof server.magic) != 0 || server.version != kHandshakeVersion)
    return Error{Code::protocol, "the peer speaks another protocol or version"};
  if (server.code != 0) return Error{codeFromWire(server.code), "the peer refused the connection"};
  Mac theirs;
  std::memcpy(theirs.data(), server.proof, theirs.size());
  if (!equal(theirs, serverProof(secret_, hello_, server))) {
    return Error{Code::denied, secret_.empty() ? "no cluster secret is configured here" : "the peer does not know our cluster secret"};
  }
  peer_ = {nameOf(server.node), Incarnation(server.incarnation)};
  ClientProof proof{};
  std::memcpy(proof.proof, clientProof(secret_, hello_, server).data(), sizeof proof.proof);
  return proof;
}

Error ClientHandshake::verdict(const ServerVerdict& verdict) {
  if (verdict.code == 0) return {};
  return {codeFromWire(verdict.code), std::string(verdict.detail, ::strnlen(verdict.detail, sizeof verdict.detail))};
}

ServerHandshake::ServerHandshake(const Secret& secret, Purpose purpose, Party self)
    : secret_(secret), purpose_(purpose), self_(std::move(self)) {}

ServerHello ServerHandshake::answer(const ClientHello& client) {
  ServerHello hello{};
  std::memcpy(hello.magic, kHelloMagic, sizeof hello.magic);
  hello.version = kHandshakeVersion;
  const auto refuse = [&](Code code) {
    hello.code = static_cast<uint32_t>(code);
    return hello;
  };
  if (std::memcmp(client.magic, kHelloMagic, sizeof client.magic) != 0 || client.version != kHandshakeVersion ||
      client.purpose != static_cast<uint32_t>(purpose_))
    return refuse(Code::protocol);
  const std::string node = nameOf(client.node);
  if (!node.empty() && !validName(node)) return refuse(Code::protocol);
  if (client.wanted != 0 && client.wanted != self_.incarnation.value) return refuse(Code::unavailable);
  hello.incarnation = self_.incarnation.value;
  copyName(hello.node, self_.node);
  fillRandom(hello.nonce, sizeof hello.nonce);
  std::memcpy(hello.proof, serverProof(secret_, client, hello).data(), sizeof hello.proof);
  expected_ = clientProof(secret_, client, hello);
  peer_ = {node, Incarnation(client.incarnation)};
  answered_ = true;
  return hello;
}

ServerVerdict ServerHandshake::judge(const ClientProof& proof) {
  ServerVerdict verdict{};
  Mac theirs;
  std::memcpy(theirs.data(), proof.proof, theirs.size());
  if (!answered_ || !equal(theirs, expected_)) {
    verdict.code = static_cast<uint32_t>(Code::denied);
    std::strcpy(verdict.detail, "wrong cluster secret");
  }
  return verdict;
}

}  // namespace fluxon::net
