// Questions: what the master answers for a client, without an effect here.
#include "owner_parts.h"
#include "questions.h"

namespace fluxon::owner {
namespace {

using shm::CommandKind;

struct Asking : Parts {
  // The request that the command becomes.
  template <class T>
  T asks(Command command) {
    command.deadline = now + seconds(2);
    REQUIRE(questions.ask(caller, command, now));
    return sentOne<T>();
  }
  Answer answer(rpc::Request::Body asked, Code code, rpc::Answer brings, std::string detail = {}) {
    questions.answered({.request = {OperationId(1), std::move(asked)}, .caller = caller, .about = {}},
                       {OperationId(1), code, std::move(detail), std::move(brings)});
    REQUIRE_FALSE(host.answers.empty());
    return host.answers.back().answer;
  }
  Caller caller{ClientId(1), 3};
  Questions questions{host, calls, standing};
};

TEST_CASE("questions: each command asks what it is for, with the time that its caller waits") {
  Asking p;
  for (const CommandKind kind : {CommandKind::stat, CommandKind::exists}) {
    const auto stat = p.asks<rpc::StatKey>({.kind = kind, .key = "k"});
    CHECK(stat.key == "k");
    CHECK(stat.timeLeftMs == 2001);
  }
  CHECK(p.asks<rpc::RemoveKey>({.kind = CommandKind::remove, .key = "k"}).timeLeftMs == 2001);
  CHECK(p.asks<rpc::CountKeys>({.kind = CommandKind::countPrefix, .key = "pre"}).prefix == "pre");
  const auto list = p.asks<rpc::ListKeys>({.kind = CommandKind::list, .key = "pre", .extra = "after", .valueBytes = 9});
  CHECK(list.prefix == "pre");
  CHECK(list.after == "after");
  CHECK(list.limit == 9);
  CHECK(p.asks<rpc::LeaseGrant>({.kind = CommandKind::leaseGrant, .valueBytes = 500}).ttlMs == 500);
  CHECK(p.asks<rpc::LeaseKeepAlive>({.kind = CommandKind::leaseKeepAlive, .lease = KeyLeaseId(4)}).lease == KeyLeaseId(4));
  CHECK(p.asks<rpc::LeaseRevoke>({.kind = CommandKind::leaseRevoke, .lease = KeyLeaseId(4)}).timeLeftMs == 2001);
  CHECK(p.questions.removes() == 1);
}

TEST_CASE("questions: commands that change something here are none") {
  Asking p;
  for (const CommandKind kind : {CommandKind::get, CommandKind::putStart, CommandKind::commit, CommandKind::abort})
    CHECK_FALSE(p.questions.ask(p.caller, {.kind = kind}, p.now));
  CHECK(p.sent().empty());
  CHECK(p.host.answers.empty());
}

TEST_CASE("questions: without a serving lease the caller hears why, and nothing is asked") {
  Asking p;
  p.standing.apart("another master is there");
  REQUIRE(p.questions.ask(p.caller, {.kind = CommandKind::stat, .key = "k"}, p.now + seconds(10)));
  CHECK(p.sent().empty());
  REQUIRE(p.host.answers.size() == 1);
  CHECK(p.host.answers[0].answer.code == Code::unavailable);
  CHECK(p.host.answers[0].answer.payload == "no serving lease: another master is there");
}

TEST_CASE("questions: an answer brings what its kind has, a refusal its sentence, and a lease that is kept or ended is named") {
  Asking p;
  const Answer stat = p.answer(rpc::StatKey{.key = "k"}, Code::ok, rpc::KeyStat{PutId(7), 100, KeyLeaseId(4), {"a", "b"}});
  CHECK(stat.putId.value == 7);
  CHECK(stat.valueBytes == 100);
  CHECK(stat.lease == KeyLeaseId(4));
  CHECK(stat.payload == "a\nb\n");
  CHECK(p.answer(rpc::CountKeys(), Code::ok, rpc::KeyCount{12}).valueBytes == 12);
  CHECK(p.answer(rpc::LeaseGrant(), Code::ok, rpc::LeaseGranted{KeyLeaseId(5)}).lease == KeyLeaseId(5));
  CHECK(p.answer(rpc::LeaseKeepAlive{.lease = KeyLeaseId(6)}, Code::ok, rpc::Done()).lease == KeyLeaseId(6));
  CHECK(p.answer(rpc::LeaseRevoke{.lease = KeyLeaseId(7)}, Code::ok, rpc::Done()).lease == KeyLeaseId(7));
  const Answer refused = p.answer(rpc::LeaseKeepAlive{.lease = KeyLeaseId(6)}, Code::miss, rpc::Done(), "it has ended");
  CHECK(refused.code == Code::miss);
  CHECK(refused.payload == "it has ended");
  CHECK_FALSE(refused.lease);
}

TEST_CASE("questions: nobody is told of an answer that nobody waits for") {
  Asking p;
  p.caller = {};
  p.questions.answered({.request = {OperationId(1), rpc::StatKey()}, .caller = {}, .about = {}},
                       {OperationId(1), Code::ok, {}, rpc::KeyStat()});
  CHECK(p.host.answers.empty());
}

}  // namespace
}  // namespace fluxon::owner
