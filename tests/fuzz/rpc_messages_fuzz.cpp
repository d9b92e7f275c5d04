// Messages between owners and master: Cap'n Proto's bytes to our structures and back. What is decoded and encoded again is decoded as
// the same, and takes no more memory than its bytes can be the reason for.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <optional>

#include "fuzz.h"
#include "rpc/codec.h"
#include "rpc_samples.h"

namespace fluxon::fuzz {
namespace {

using namespace rpc;

enum class Kind : uint8_t { requests, messages, registration, kinds };

std::string textOf(capnp::MessageBuilder& message) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  return std::string(words.asChars().begin(), words.asChars().size());
}

std::string encoded(const std::vector<Request>& requests) {
  capnp::MallocMessageBuilder message;
  encode(requests, message.initRoot<schema::Session::SubmitParams>().initRequests(static_cast<unsigned>(requests.size())));
  return textOf(message);
}
std::string encoded(const std::vector<MasterMessage>& messages) {
  capnp::MallocMessageBuilder message;
  encode(messages, message.initRoot<schema::Owner::DeliverParams>().initMessages(static_cast<unsigned>(messages.size())));
  return textOf(message);
}
std::string encoded(const Registration& registration) {
  capnp::MallocMessageBuilder message;
  encode(registration, message.initRoot<schema::Master::RegisterParams>().initRegistration());
  return textOf(message);
}

const PutMode* modeOf(const Request& request) {
  if (const auto* put = request.as<PutStart>()) return &put->mode;
  if (const auto* put = request.as<PutReserved>()) return &put->mode;
  return nullptr;
}
std::vector<Request> requestsOf(capnp::MessageReader& message) {
  std::vector<Request> requests = decode(message.getRoot<schema::Session::SubmitParams>().getRequests());
  for (const Request& each : requests) {
    if (const auto* done = each.as<ReclaimDone>())
      for (const ReclaimResult result : done->results) FLUXON_CHECK(result <= ReclaimResult::gone, "a result that is none");
    if (const auto* get = each.as<GetStart>()) FLUXON_CHECK(get->neighbours <= NeighbourUse::none, "a use of neighbours that is none");
    const PutMode* const mode = modeOf(each);
    FLUXON_CHECK(!mode || (mode->onExisting <= PutMode::OnExisting::reject && mode->onInFlight <= PutMode::OnInFlight::reject &&
                           mode->home <= PutMode::Home::here),
                 "a mode of a put that is none");
  }
  return requests;
}
std::vector<MasterMessage> messagesOf(capnp::MessageReader& message) {
  return decode(message.getRoot<schema::Owner::DeliverParams>().getMessages());
}
Registration registrationOf(capnp::MessageReader& message) {
  return decode(message.getRoot<schema::Master::RegisterParams>().getRegistration());
}

// Refused: nothing.
template <class Decode>
auto decoded(const std::string& bytes, Decode decode) -> std::optional<decltype(decode(std::declval<capnp::MessageReader&>()))> {
  std::optional<decltype(decode(std::declval<capnp::MessageReader&>()))> result;
  // As rpc reads it.
  const kj::Array<capnp::word> words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  std::memcpy(const_cast<capnp::word*>(words.begin()), bytes.data(), words.size() * sizeof(capnp::word));
  const auto error = kj::runCatchingExceptions([&] {
    capnp::FlatArrayMessageReader message(words);
    result = decode(message);
  });
  if (error != nullptr) result.reset();
  return result;
}

template <class Decode>
bool backAndForth(const std::string& bytes, Decode decode) {
  const auto first = decoded(bytes, decode);
  if (!first) return false;
  const std::string written = encoded(*first);
  const auto second = decoded(written, decode);
  FLUXON_CHECK(second, "what was encoded is refused");
  FLUXON_CHECK(encoded(*second) == written, "what was encoded is decoded as something else");
  return true;
}

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  const auto kind = static_cast<Kind>(in.take<uint8_t>() % static_cast<uint8_t>(Kind::kinds));
  const std::string bytes(in.rest());
  switch (kind) {
    case Kind::requests: return backAndForth(bytes, requestsOf);
    case Kind::messages: return backAndForth(bytes, messagesOf);
    default: return backAndForth(bytes, registrationOf);
  }
}

std::vector<std::string> seeds() {
  // What our own encoders write loses nothing on its way.
  const auto seed = [](Kind kind, const auto& value, auto decode) {
    const std::string bytes = encoded(value);
    FLUXON_CHECK(encoded(decoded(bytes, decode).value()) == bytes, "a field is lost");
    return std::string(1, static_cast<char>(kind)) + bytes;
  };
  std::vector<std::string> seeds{seed(Kind::registration, sampleRegistration(), registrationOf)};
  for (const Request& request : sampleRequests()) seeds.push_back(seed(Kind::requests, std::vector{request}, requestsOf));
  for (const MasterMessage& message : sampleMessages()) seeds.push_back(seed(Kind::messages, std::vector{message}, messagesOf));
  // Several of them in one call.
  const std::vector<Request> requests = sampleRequests();
  const std::vector<MasterMessage> messages = sampleMessages();
  seeds.push_back(seed(Kind::requests, std::vector(requests.begin(), requests.begin() + 3), requestsOf));
  seeds.push_back(seed(Kind::messages, std::vector(messages.begin(), messages.begin() + 3), messagesOf));
  return seeds;
}

}  // namespace fluxon::fuzz
