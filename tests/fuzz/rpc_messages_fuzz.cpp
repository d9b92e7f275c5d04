// Messages between owners and master: Cap'n Proto's bytes to our structures and back. What is decoded and encoded again is decoded as
// the same, and takes no more memory than its bytes can be the reason for.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <optional>

#include "fuzz.h"
#include "rpc/codec.h"

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

std::vector<Request> requestsOf(capnp::MessageReader& message) {
  std::vector<Request> requests = decode(message.getRoot<schema::Session::SubmitParams>().getRequests());
  for (const Request& each : requests) {
    FLUXON_CHECK(static_cast<uint16_t>(each.kind) < kRequestKinds, "a request of no kind");
    for (const ReclaimResult result : each.results) FLUXON_CHECK(result <= ReclaimResult::gone, "a result that is none");
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
    case Kind::requests:
      return backAndForth(bytes, requestsOf);
    case Kind::messages:
      return backAndForth(bytes, messagesOf);
    default:
      return backAndForth(bytes, registrationOf);
  }
}

std::vector<std::string> seeds() {
  Request request;
  request.id = OperationId(1);
  request.kind = RequestKind::putStart;
  request.key = "key";
  request.bytes = 100;
  const std::vector<Version> items{{"a", PutId(1), 64, 10, KeyLeaseId(2)}, {"b", PutId(2), 128, 20, {}}};
  const Request full{OperationId(2),
                     RequestKind::reclaimDone,
                     3,
                     "key",
                     "after",
                     4,
                     5,
                     OperationId(6),
                     KeyLeaseId(7),
                     8,
                     9,
                     10,
                     OperationId(11),
                     Code::unavailable,
                     {1, 2, 3},
                     items,
                     {ReclaimResult::ok, ReclaimResult::gone}};
  const Peer peer{"node", "host", "192.0.2.1:7", Incarnation(5)};
  const Reply reply{OperationId(1),          Code::noSpace, "detail", PutId(2), true,        3, 4,          5,
                    KeyLeaseId(6),           peer,          true,     true,     ExportId(7), 8, {"a", "b"}, {9},
                    {{"key", 10, PutId(11)}}};
  const auto order = [&](CommandKind kind) {
    MasterMessage message;
    message.kind = kind;
    message.command = OperationId(6);
    message.items = items;
    return message;
  };
  MasterMessage answer, replicate = order(CommandKind::replicate), stage = order(CommandKind::stage);
  answer.reply = reply;
  replicate.peer = peer;
  for (MasterMessage* message : {&replicate, &stage}) {
    message->exportId = ExportId(7);
    message->sourceOffset = 8;
    message->timeLeftMs = 9;
  }
  Registration registration;
  registration.node = "n";
  registration.hostId = "h";
  registration.incarnation = Incarnation(1);
  registration.pid = 2;
  registration.segmentBytes = 3;
  registration.maxKeys = 4;
  registration.http = "http";
  registration.link = "192.0.2.1:7";
  registration.label = "label";
  registration.ssdLife = Incarnation(7);
  registration.occupied = {{0, 64}, {4096, 8192}};
  registration.adopts = Incarnation(5);
  registration.values = 8;
  registration.ends = {Incarnation(9), Incarnation(10)};
  registration.sent = Time{6};
  // What our own encoders write loses nothing on its way.
  const auto seed = [](Kind kind, const auto& value, auto decode) {
    const std::string bytes = encoded(value);
    FLUXON_CHECK(encoded(decoded(bytes, decode).value()) == bytes, "a field is lost");
    return std::string(1, static_cast<char>(kind)) + bytes;
  };
  return {
      seed(Kind::requests, std::vector{request}, requestsOf), seed(Kind::requests, std::vector{request, full}, requestsOf),
      seed(Kind::messages, std::vector{answer, replicate, stage}, messagesOf),
      seed(Kind::messages,
           std::vector{order(CommandKind::leave), order(CommandKind::reclaim), order(CommandKind::invalidate), order(CommandKind::unstage)},
           messagesOf),
      seed(Kind::registration, registration, registrationOf)};
}

}  // namespace fluxon::fuzz
