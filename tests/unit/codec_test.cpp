// Messages between owners and their master on the wire: nothing is lost, and nothing is taken for what it is not.
#include <capnp/any.h>
#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <set>

#include "rpc/codec.h"
#include "rpc_samples.h"

namespace fluxon::rpc {
namespace {

using Bytes = kj::Array<capnp::word>;

Bytes encoded(const std::vector<Request>& requests) {
  capnp::MallocMessageBuilder message;
  encode(requests, message.initRoot<schema::Session::SubmitParams>().initRequests(static_cast<unsigned>(requests.size())));
  return capnp::messageToFlatArray(message);
}
Bytes encoded(const std::vector<MasterMessage>& messages) {
  capnp::MallocMessageBuilder message;
  encode(messages, message.initRoot<schema::Owner::DeliverParams>().initMessages(static_cast<unsigned>(messages.size())));
  return capnp::messageToFlatArray(message);
}
Bytes encoded(const Registration& registration) {
  capnp::MallocMessageBuilder message;
  encode(registration, message.initRoot<schema::Master::RegisterParams>().initRegistration());
  return capnp::messageToFlatArray(message);
}

// What a reader says of encoded messages, while it can be read.
template <class Root>
void read(const Bytes& bytes, const std::function<void(typename Root::Reader)>& what) {
  capnp::FlatArrayMessageReader message(bytes);
  what(message.getRoot<Root>());
}
Bytes again(const std::vector<Request>&, const Bytes& bytes) {
  capnp::FlatArrayMessageReader message(bytes);
  return encoded(decode(message.getRoot<schema::Session::SubmitParams>().getRequests()));
}
Bytes again(const std::vector<MasterMessage>&, const Bytes& bytes) {
  capnp::FlatArrayMessageReader message(bytes);
  return encoded(decode(message.getRoot<schema::Owner::DeliverParams>().getMessages()));
}
Bytes again(const Registration&, const Bytes& bytes) {
  capnp::FlatArrayMessageReader message(bytes);
  return encoded(decode(message.getRoot<schema::Master::RegisterParams>().getRegistration()));
}

// The name of the first field that has its default, or is missing, at any depth. Void has no other value.
std::string emptyField(capnp::DynamicStruct::Reader of) {
  const auto isEmpty = [&](capnp::StructSchema::Field field) -> std::string {
    const std::string name = field.getProto().getName().cStr();
    if (field.getType().isVoid()) return "";
    if (!of.has(field, capnp::HasMode::NON_DEFAULT)) return name;
    const capnp::DynamicValue::Reader value = of.get(field);
    std::string inner;
    if (value.getType() == capnp::DynamicValue::STRUCT) inner = emptyField(value.as<capnp::DynamicStruct>());
    if (value.getType() == capnp::DynamicValue::LIST) {
      const auto list = value.as<capnp::DynamicList>();
      if (list.size() == 0) return name;
      if (list.getSchema().getElementType().isStruct()) inner = emptyField(list[0].as<capnp::DynamicStruct>());
    }
    return inner.empty() ? "" : name + "." + inner;
  };
  for (const auto field : of.getSchema().getNonUnionFields())
    if (std::string name = isEmpty(field); !name.empty()) return name;
  KJ_IF_MAYBE (member, of.which()) return isEmpty(*member);
  return "";
}
// The union of a struct names no member that there is.
template <class Schema>
void makeUnknown(typename Schema::Builder message) {
  const uint32_t at = capnp::Schema::from<Schema>().getProto().getStruct().getDiscriminantOffset();
  const uint16_t unknown = 999;
  std::memcpy(capnp::AnyStruct::Builder(kj::mv(message)).getDataSection().begin() + at * sizeof unknown, &unknown, sizeof unknown);
}
unsigned members(capnp::StructSchema schema) { return schema.getUnionFields().size(); }

}  // namespace

TEST_CASE("messages: each request, answer and order, and each field of it, is the same after its way") {
  const std::vector<Request> requests = sampleRequests();
  const std::vector<MasterMessage> messages = sampleMessages();
  const auto check = [](const auto& value) {
    const Bytes bytes = encoded(value);
    CHECK(again(value, bytes).asBytes() == bytes.asBytes());
  };
  std::set<size_t> kinds, orders, answers;
  for (const Request& request : requests) {
    CAPTURE(request.body.index());
    kinds.insert(request.body.index());
    check(std::vector{request});
    read<schema::Session::SubmitParams>(encoded(std::vector{request}), [](auto root) { CHECK(emptyField(root.getRequests()[0]) == ""); });
  }
  for (const MasterMessage& message : messages) {
    CAPTURE(message.index());
    orders.insert(message.index());
    check(std::vector{message});
    const auto* const reply = std::get_if<Reply>(&message);
    if (reply) answers.insert(reply->answer.index());
    read<schema::Owner::DeliverParams>(encoded(std::vector{message}), [&](auto root) {
      if (!reply || reply->code != Code::ok) {
        CHECK(emptyField(root.getMessages()[0]) == "");
        return;
      }
      // `ok` is the code's default, and has no detail.
      const capnp::DynamicStruct::Reader said(root.getMessages()[0].getReply());
      KJ_IF_MAYBE (answer, said.which()) {
        if (!answer->getType().isVoid()) CHECK(emptyField(said.get(*answer).template as<capnp::DynamicStruct>()) == "");
      }
    });
  }
  check(sampleRegistration());
  read<schema::Master::RegisterParams>(encoded(sampleRegistration()), [](auto root) { CHECK(emptyField(root.getRegistration()) == ""); });
  check(requests);
  check(messages);
  // As many kinds as the schema has, and samples of all.
  CHECK(kinds.size() == std::variant_size_v<Request::Body>);
  CHECK(kinds.size() == members(capnp::Schema::from<schema::Request>()));
  CHECK(orders.size() == std::variant_size_v<MasterMessage>);
  CHECK(orders.size() == members(capnp::Schema::from<schema::MasterMessage>()));
  CHECK(answers.size() == std::variant_size_v<Answer>);
  CHECK(answers.size() == members(capnp::Schema::from<schema::Reply>()));
}

TEST_CASE("messages: every answer fits a request, every request has one, and a refusal brings none") {
  std::set<size_t> fitting;
  for (const Request& request : sampleRequests()) {
    CAPTURE(request.body.index());
    bool any = false;
    for (const Answer& answer : sampleAnswers()) {
      if (fits(request, {request.id, Code::ok, {}, answer})) {
        any = true;
        fitting.insert(answer.index());
      }
      CHECK(fits(request, {request.id, Code::unavailable, "no", answer}) == std::holds_alternative<Done>(answer));
    }
    CHECK(any);
  }
  CHECK(fitting.size() == std::variant_size_v<Answer>);
  CHECK(!fits({OperationId(1), PutStart()}, {OperationId(1), Code::ok, {}, Done()}));
  CHECK(!fits({OperationId(1), GetStart()}, {OperationId(1), Code::ok, {}, PutGranted()}));
}

TEST_CASE("master: an unknown request fails the call that it came by, and nothing else") {
  capnp::MallocMessageBuilder builder;
  auto requests = builder.initRoot<schema::Session::SubmitParams>().initRequests(2);
  encode({{OperationId(1), Heartbeat()}, {OperationId(2), RemoveKey{{}, "k"}}}, requests);
  CHECK(decode(requests.asReader()).size() == 2);
  makeUnknown<schema::Request>(requests[1]);
  CHECK_THROWS_AS(decode(requests.asReader()), kj::Exception);
}

TEST_CASE("codec: an unknown message of the master fails the call") {
  capnp::MallocMessageBuilder builder;
  auto messages = builder.initRoot<schema::Session::SubmitResults>().initMessages(1);
  encode(std::vector<MasterMessage>{Leave()}, messages);
  CHECK(decode(messages.asReader()).size() == 1);
  makeUnknown<schema::MasterMessage>(messages[0]);
  CHECK_THROWS_AS(decode(messages.asReader()), kj::Exception);
}

TEST_CASE("messages: an enumerator that a newer peer may know is refused") {
  const auto refused = [](const std::function<void(schema::Request::Builder)>& change) {
    capnp::MallocMessageBuilder message;
    auto list = message.initRoot<schema::Session::SubmitParams>().initRequests(1);
    change(list[0]);
    return kj::runCatchingExceptions([&] { decode(list.asReader()); }) != nullptr;
  };
  CHECK(!refused([](auto request) { request.initGetStart().setNeighbours(schema::GetStart::NeighbourUse::NONE); }));
  CHECK(refused([](auto request) { request.initGetStart().setNeighbours(static_cast<schema::GetStart::NeighbourUse>(3)); }));
  CHECK(refused([](auto request) { request.initPutStart().initMode().setHome(static_cast<schema::PutMode::Home>(2)); }));
  CHECK(refused([](auto request) { request.initReclaimDone().initResults(1).set(0, static_cast<schema::ReclaimDone::Result>(3)); }));
}

}  // namespace fluxon::rpc
