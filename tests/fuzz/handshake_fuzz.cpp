// The opening of a connection. A stranger's frames open nothing, and a frame of which one bit was changed on its way opens nothing.
#include "fuzz.h"
#include "net/handshake.h"

namespace fluxon::fuzz {
namespace {

using namespace net;

enum class Kind : uint8_t { strangeClient, strangeServer, between, kinds };

// Names that both sides give, as far as they may.
std::string nameOf(Input& in) {
  const std::string name(in.take(in.take<uint8_t>() % 40));
  return name.empty() || validName(name) ? name : "node";
}

// Changes the bits that the input names. False: none.
template <class Frame>
bool changed(Frame& frame, Input& in) {
  const Frame before = frame;
  for (uint8_t flips = in.take<uint8_t>() % 4; flips > 0; --flips) {
    const uint16_t bit = static_cast<uint16_t>(in.take<uint16_t>() % (sizeof frame * 8));
    reinterpret_cast<uint8_t*>(&frame)[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  return std::memcmp(&before, &frame, sizeof frame) != 0;
}

bool strangeClient(Input& in) {
  const Secret secret;
  ServerHandshake server(secret, Purpose::data, {"here", Incarnation(7)});
  const ClientHello hello = in.take<ClientHello>();
  const ServerHello answer = server.answer(hello);
  const bool good = answer.code == 0;
  const std::string& node = server.peer().node;
  FLUXON_CHECK(std::memcmp(answer.magic, kHelloMagic, 8) == 0 && answer.version == kHandshakeVersion, "an answer that is none");
  FLUXON_CHECK(node.empty() || validName(node), "a name that could not be a path's");
  FLUXON_CHECK(!good || (hello.purpose == static_cast<uint32_t>(Purpose::data) && (hello.wanted == 0 || hello.wanted == 7)),
               "a hello to somebody else is answered");
  FLUXON_CHECK(good || bytesOf(answer.proof) == std::string(sizeof answer.proof, '\0'), "a proof for a hello that was refused");
  FLUXON_CHECK(server.judge(in.take<ClientProof>()).code != 0, "opened to a stranger");
  return good;
}

bool strangeServer(Input& in) {
  const Secret secret;
  ClientHandshake client(secret, Purpose::data, {"here", Incarnation(7)}, Incarnation(8));
  const Result<ClientProof> proof = client.answer(in.take<ServerHello>());
  FLUXON_CHECK(!proof, "a proof for a stranger");
  const ServerVerdict verdict = in.take<ServerVerdict>();
  const Error error = ClientHandshake::verdict(verdict);
  FLUXON_CHECK(error.ok() == (verdict.code == 0) && error.detail.size() <= sizeof verdict.detail, "verdict");
  FLUXON_CHECK(error.detail.find('\0') == std::string::npos, "a detail with a zero in it");
  return proof.error().code != Code::protocol;
}

bool between(Input& in) {
  const Secret secret;
  const Purpose purpose = in.take<uint8_t>() % 2 ? Purpose::rpc : Purpose::data;
  const Party here{nameOf(in), Incarnation(in.take<uint64_t>())}, there{nameOf(in), Incarnation(in.take<uint64_t>())};
  ClientHandshake client(secret, purpose, here, in.take<uint8_t>() % 2 ? there.incarnation : Incarnation());
  ServerHandshake server(secret, purpose, there);
  ClientHello hello = client.hello();
  const bool first = changed(hello, in);
  ServerHello answer = server.answer(hello);
  const bool second = changed(answer, in);
  Result<ClientProof> proof = client.answer(answer);
  FLUXON_CHECK(proof.ok() == (!first && !second), "a hello that was changed on its way was believed, or an honest one was not");
  if (!proof) return false;
  const bool third = changed(*proof, in);
  const ServerVerdict verdict = server.judge(*proof);
  FLUXON_CHECK((verdict.code == 0) == !third, "a proof that was changed on its way opens, or an honest one does not");
  FLUXON_CHECK(server.peer().node == here.node && server.peer().incarnation == here.incarnation, "who connects");
  FLUXON_CHECK(client.peer().node == there.node && client.peer().incarnation == there.incarnation, "who listens");
  return true;
}

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  switch (static_cast<Kind>(in.take<uint8_t>() % static_cast<uint8_t>(Kind::kinds))) {
    case Kind::strangeClient: return strangeClient(in);
    case Kind::strangeServer: return strangeServer(in);
    default: return between(in);
  }
}

std::vector<std::string> seeds() {
  const Secret secret;
  ClientHandshake client(secret, Purpose::data, {"there", Incarnation(9)}, Incarnation(7));
  ServerHandshake server(secret, Purpose::data, {"there", Incarnation(8)});
  const auto seed = [](Kind kind, std::string_view bytes) { return std::string(1, static_cast<char>(kind)).append(bytes); };
  ClientHello anybody = client.hello();
  anybody.wanted = 0;
  const std::string names = std::string("\1\4here") + std::string(8, 'i') + '\5' + "there" + std::string(8, 'j') + '\1';
  return {seed(Kind::strangeClient, bytesOf(client.hello())), seed(Kind::strangeServer, bytesOf(server.answer(anybody))),
          seed(Kind::between, names), seed(Kind::between, names + std::string("\0\0\1\5\0", 5))};
}

}  // namespace fluxon::fuzz
