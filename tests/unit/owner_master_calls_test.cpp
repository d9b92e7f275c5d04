// MasterCalls and Retries: requests until they are answered, and commands that are put off.
#include "master_calls.h"
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

struct Calls {
  explicit Calls(MasterCalls::Settings settings = {1 << 14, 1024, 1 << 16}) : calls(settings, host) {}
  HostStub host;
  MasterCalls calls;
  Retries retries;
  Time now{seconds(1000).ns};
  Caller caller{ClientId(1), 0};
};

TEST_CASE("master calls: a request is sent at once, kept until it is taken, and taken once") {
  Calls c;
  const OperationId id = c.calls.send(rpc::StatKey{.key = "k"}, c.caller);
  CHECK(id == OperationId(1));
  REQUIRE(c.host.sent.size() == 1);
  CHECK(c.host.sent[0].id == id);
  c.calls.sendAgain();
  REQUIRE(c.host.sent.size() == 2);
  CHECK(c.host.sent[1].id == id);
  const std::optional<Call> call = c.calls.take(id);
  REQUIRE(call);
  CHECK(call->request.as<rpc::StatKey>()->key == "k");
  CHECK(call->caller.client == c.caller.client);
  CHECK_FALSE(c.calls.take(id));
  CHECK(c.calls.count() == 0);
}

TEST_CASE("master calls: what is held back has no id, keeps its order, and lets heartbeats and answers to orders pass") {
  Calls c({1, 0, 2});
  const OperationId first = c.calls.send(rpc::StatKey{.key = "a"});
  c.calls.send(rpc::StatKey{.key = "b"});
  CHECK_FALSE(bool(c.calls.send(rpc::StatKey{.key = "c"})));
  CHECK_FALSE(bool(c.calls.send(rpc::StatKey{.key = "d"})));
  CHECK(c.calls.holdsBack());
  CHECK(c.calls.count() == 4);
  CHECK(bool(c.calls.send(rpc::Heartbeat())));
  CHECK(bool(c.calls.send(rpc::ReplicateDone{.order = OrderId(1)})));
  CHECK_FALSE(bool(c.calls.send(rpc::GetDone{.get = OperationId(1)})));
  CHECK(c.host.sent.size() == 4);
  for (uint64_t id = first.value; id <= 4; ++id) c.calls.take(OperationId(id));
  c.calls.sendHeldBack();
  CHECK(c.host.sent.size() == 6);
  for (uint64_t id = 5; id <= 6; ++id) c.calls.take(OperationId(id));
  c.calls.sendHeldBack();
  CHECK_FALSE(c.calls.holdsBack());
  REQUIRE(c.host.sent.size() == 7);
  CHECK(c.host.sent[4].as<rpc::StatKey>()->key == "c");
  CHECK(c.host.sent[5].as<rpc::StatKey>()->key == "d");
  CHECK(c.host.sent[6].is<rpc::GetDone>());
}

TEST_CASE("master calls: when the lease runs out each caller is answered once, and the call stays for its effects") {
  Calls c;
  const OperationId removes = c.calls.send(rpc::RemoveKey{.key = "k"}, c.caller);
  c.calls.send(rpc::StatKey{.key = "k"}, Caller{ClientId(1), 1});
  c.calls.send(rpc::Spread{.value = {"k", PutId(7)}}, Caller{ClientId(1), 2});
  c.calls.send(rpc::Release{});
  for (int i = 0; i < 2; ++i) c.calls.lapse(c.retries, c.now);
  REQUIRE(c.host.answers.size() == 3);
  CHECK(c.host.answers[0].answer.code == Code::outcomeUnknown);
  CHECK(c.host.answers[1].answer.code == Code::unavailable);
  CHECK(c.host.answers[2].answer.code == Code::ok);
  CHECK(c.host.answers[2].answer.putId.value == 7);
  CHECK(c.calls.count() == 4);
  CHECK_FALSE(bool(c.calls.take(removes)->caller));
}

TEST_CASE("master calls: a put that waits for its grant is put off when the lease runs out, unless a second one would be refused") {
  Calls c;
  for (const PutMode::OnInFlight mode : {PutMode::OnInFlight::proceed, PutMode::OnInFlight::reject}) {
    const PutMode put{.onInFlight = mode};
    const Command command{.kind = shm::CommandKind::putStart, .put = put, .key = "k", .deadline = c.now + seconds(60)};
    c.calls.send(rpc::PutStart{.key = "k", .mode = put}, c.caller, command);
  }
  CHECK(c.calls.putsAsked() == 2);
  c.calls.lapse(c.retries, c.now);
  REQUIRE(c.host.answers.size() == 1);
  CHECK(c.host.answers[0].answer.code == Code::unavailable);
  CHECK_FALSE(c.retries.takeDue(c.now));
  CHECK(c.retries.takeDue(c.now + milliseconds(1))->command.key == "k");
  c.calls.endTerm();
  CHECK(c.calls.putsAsked() == 0);
  CHECK(c.calls.count() == 0);
}

TEST_CASE("retries: pauses grow to 128 ms and end at the deadline; what a client asked goes with it") {
  Calls c;
  Command command{.kind = shm::CommandKind::get, .key = "k", .deadline = c.now + seconds(1)};
  Time now = c.now;
  for (int i = 0; i < 20; ++i) {
    c.retries.putOff(c.caller, std::move(command), "why", now);
    const Time next = c.retries.nextWake();
    CHECK(next == std::min(now + milliseconds(std::min(1 << i, 128)), c.now + seconds(1)));
    CHECK_FALSE(c.retries.takeDue(Time{next.ns - 1}));
    now = next;
    std::optional<Retries::Entry> due = c.retries.takeDue(now);
    REQUIRE(due);
    CHECK(due->why == "why");
    command = std::move(due->command);
    if (now == c.now + seconds(1)) break;
  }
  CHECK(now == c.now + seconds(1));
  c.retries.putOff(c.caller, std::move(command), "why", c.now);
  c.retries.clientGone(c.caller.client);
  CHECK(c.retries.nextWake() == Time::never());
}

}  // namespace
}  // namespace fluxon::owner
