// Processes of another version of the protocol between owners and masters: whoever meets one refuses it with a sentence that names both.
#include <capnp/rpc-twoparty.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <kj/async-io.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "cluster.h"
#include "rpc/codec.h"
#include "shm/paths.h"

using namespace fluxon;
using namespace fluxon::test;

namespace {

constexpr uint32_t kOther = rpc::kProtocolVersion + 1;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A master that has met nobody whom it understands.
class OtherMaster final : public schema::Master::Server {
  kj::Promise<void> hello(HelloContext context) override {
    auto out = context.getResults();
    out.setClusterId("00000000000000c1");
    out.setCluster("t");
    out.setTerm(1);
    out.setMaster(1);
    out.setProtocol(kOther);
    return kj::READY_NOW;
  }
};

int serveAsOther(const std::string& socket) {
  auto io = kj::setupAsyncIo();
  capnp::TwoPartyServer server(kj::heap<OtherMaster>());
  auto address = io.provider->getNetwork().parseAddress("unix:" + socket).wait(io.waitScope);
  server.listen(*address->listen()).wait(io.waitScope);
  return 0;
}

// A client of a master's socket, in this process.
struct Caller {
  explicit Caller(const std::string& socket)
      : stream(io.provider->getNetwork().parseAddress("unix:" + socket).wait(io.waitScope)->connect().wait(io.waitScope)),
        client(*stream),
        master(client.bootstrap().castAs<schema::Master>()) {}
  kj::AsyncIoContext io = kj::setupAsyncIo();
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyClient client;
  schema::Master::Client master;
};

}  // namespace

TEST_CASE("a master of another version: an owner and fluxonctl go no further, and say which versions met") {
  Place place;
  const std::string config = place.configure();
  const shm::Paths paths = shm::Paths::of(place.root(), "t").value();
  REQUIRE(shm::makeDirectories(paths, paths.masterDir(), -1).ok());
  const std::string socket = paths.masterSocket(), sentence = rpc::otherProtocol("the master", kOther);
  const pid_t master = inChild([&] { return serveAsOther(socket); });
  REQUIRE(eventually([&] { return std::filesystem::exists(socket); }));

  const Ended told = execute(FLUXON_BIN "/fluxonctl --config " + config + " members");
  CHECK(told.status == 76);
  CHECK(told.out == "");
  CHECK(has(told.err, sentence));
  CHECK(has(sentence, std::to_string(kOther)));
  CHECK(has(sentence, std::to_string(rpc::kProtocolVersion)));

  const std::string log = place.folder() + "/owner.log";
  const pid_t owner = inChild([&] {
    const int to = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(to, STDERR_FILENO);
    ::execl(FLUXON_BIN "/fluxon-owner", "fluxon-owner", "--config", config.c_str(), nullptr);
    return 99;
  });
  CHECK(eventually([&] { return has(logIn(log), sentence); }));
  CHECK(!has(logIn(log), "joined"));
  for (const pid_t each : {owner, master}) {
    ::kill(each, SIGKILL);
    waitFor(each);
  }
}

TEST_CASE("an owner and an operator of another version are refused by the master with both versions") {
  Cluster cluster;
  const shm::Paths paths = shm::Paths::of(cluster.root(), "t").value();
  Caller caller(paths.masterSocket());

  rpc::Registration registration = {};
  registration.node = "n7";
  registration.incarnation = Incarnation(1);
  registration.protocol = kOther;
  auto call = caller.master.registerRequest();
  rpc::encode(registration, call.initRegistration());
  const auto answer = call.send().wait(caller.io.waitScope);
  CHECK(codeFromWire(answer.getCode()) == Code::protocol);
  CHECK(rpc::toString(answer.getDetail()) == rpc::otherProtocol("the owner", kOther));
  CHECK(!answer.hasSession());

  auto operators = caller.master.operatorRequest();
  operators.setProtocol(kOther);
  const auto refused = kj::runCatchingExceptions([&] { operators.send().wait(caller.io.waitScope); });
  KJ_IF_MAYBE (exception, refused) {
    CHECK(has(exception->getDescription().cStr(), rpc::otherProtocol("fluxonctl", kOther)));
  } else {
    FAIL("an operator of another version is served");
  }
}
