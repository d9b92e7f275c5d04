// The handshake of tcp connections, and the file of the cluster secret.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "net/handshake.h"

namespace fluxon::net {
namespace {

// A file in a folder of its own, with a mode.
struct SecretFile {
  explicit SecretFile(const std::string& text, unsigned mode = 0600) {
    char name[] = "/tmp/fluxon-secret-XXXXXX";
    ::close(::mkstemp(name));
    path = name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
  }
  ~SecretFile() { ::unlink(path.c_str()); }
  std::string path;
};

Secret secretOf(const std::string& text) {
  const SecretFile file(text);
  Result<Secret> secret = Secret::load(file.path);
  REQUIRE(secret.ok());
  return secret.value();
}

const Party kA{"a", Incarnation(1)}, kB{"b", Incarnation(2)};

struct Outcome {
  Error client;
  Code server = Code::ok;
  Party seenByClient, seenByServer;
};

Outcome shake(const Secret& client, const Secret& server, Incarnation wanted = {}, Purpose asked = Purpose::data) {
  Outcome outcome;
  ClientHandshake a(client, asked, kA, wanted);
  ServerHandshake b(server, Purpose::data, kB);
  const Result<ClientProof> proof = a.answer(b.answer(a.hello()));
  if (!proof) {
    outcome.client = proof.error();
    return outcome;
  }
  const ServerVerdict verdict = b.judge(proof.value());
  outcome.server = codeFromWire(verdict.code);
  outcome.client = ClientHandshake::verdict(verdict);
  outcome.seenByClient = a.peer();
  outcome.seenByServer = b.peer();
  return outcome;
}

TEST_CASE("handshake: two who know the secret learn each other's names") {
  const Secret secret = secretOf("0123456789abcdef\n");
  const Outcome outcome = shake(secret, secret, kB.incarnation);
  CHECK(outcome.client.ok());
  CHECK(outcome.server == Code::ok);
  CHECK(outcome.seenByClient.node == "b");
  CHECK(outcome.seenByClient.incarnation.value == kB.incarnation.value);
  CHECK(outcome.seenByServer.node == "a");
  CHECK(outcome.seenByServer.incarnation.value == kA.incarnation.value);
}

TEST_CASE("handshake: another secret, or none, is denied") {
  const Secret right = secretOf("0123456789abcdef"), wrong = secretOf("0123456789abcdeg");
  CHECK(shake(right, wrong).client.code == Code::denied);
  CHECK(shake(Secret(), right).client.code == Code::denied);
  CHECK(shake(right, Secret()).client.code == Code::denied);
  CHECK(shake(Secret(), Secret()).client.ok());
}

TEST_CASE("handshake: a proof that is replayed on another connection is denied") {
  const Secret secret = secretOf("0123456789abcdef");
  ClientHandshake a(secret, Purpose::data, kA, {});
  ServerHandshake first(secret, Purpose::data, kB), second(secret, Purpose::data, kB);
  const Result<ClientProof> proof = a.answer(first.answer(a.hello()));
  REQUIRE(proof.ok());
  (void)second.answer(a.hello());
  CHECK(codeFromWire(second.judge(proof.value()).code) == Code::denied);
  CHECK(codeFromWire(first.judge(proof.value()).code) == Code::ok);
}

TEST_CASE("handshake: a proof before a hello is denied") {
  const Secret secret = secretOf("0123456789abcdef");
  ServerHandshake b(secret, Purpose::data, kB);
  CHECK(codeFromWire(b.judge(ClientProof{}).code) == Code::denied);
}

TEST_CASE("handshake: another incarnation than the wanted one, purpose or version is refused before any proof") {
  const Secret secret;
  CHECK(shake(secret, secret, Incarnation(99)).client.code == Code::unavailable);
  CHECK(shake(secret, secret, {}, Purpose::rpc).client.code == Code::protocol);
  ClientHandshake a(secret, Purpose::data, kA, {});
  ClientHello old = a.hello();
  old.version = 7;
  ServerHandshake b(secret, Purpose::data, kB);
  CHECK(codeFromWire(b.answer(old).code) == Code::protocol);
  CHECK(codeFromWire(b.judge(ClientProof{}).code) == Code::denied);
}

TEST_CASE("secret file: white space at the end does not count") {
  CHECK(equal(secretOf("0123456789abcdef\n").sign("x"), secretOf("0123456789abcdef").sign("x")));
}

TEST_CASE("secret file: refused when others may read it, when it is short, missing or no file") {
  const SecretFile open("0123456789abcdef", 0640), brief("0123456789abcde\n");
  CHECK(Secret::load(open.path).error().code == Code::denied);
  CHECK(Secret::load(brief.path).error().code == Code::badConfig);
  CHECK(Secret::load(brief.path + ".not").error().code == Code::system);
  CHECK(Secret::load("/tmp").error().code == Code::badConfig);
  CHECK(Secret::load("").value().empty());
}

}  // namespace
}  // namespace fluxon::net
