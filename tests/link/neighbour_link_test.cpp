// The link to owners of this host, with neighbours that are not there or say nothing. What it copies, and who cuts segments short while it
// does, is for tests/process.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "neighbour_link.h"

namespace fluxon::owner {
namespace {

// A cluster's folder with one neighbour, who accepts connections and says nothing, as a stopped one does.
class Host {
 public:
  Host() {
    char name[] = "/tmp/fluxon-neighbour-XXXXXX";
    REQUIRE(::mkdtemp(name));
    paths.root = name;
    paths.cluster = "c";
    std::filesystem::create_directories(paths.nodeDir("silent"));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, paths.file("silent", "socket").c_str(), sizeof address.sun_path - 1);
    listener_ = shm::Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 8) == 0);
    for (const std::string& folder : {paths.root, paths.clusterDir(), paths.nodeDir("silent")}) ::chmod(folder.c_str(), 0700);
    link = NeighbourLink::start(paths).value();
  }
  ~Host() {
    link.reset();
    std::filesystem::remove_all(paths.root);
  }

  void fetch(const std::string& node, const std::vector<uint64_t>& ids, Duration within) {
    std::vector<link::Fetch> fetches;
    for (const uint64_t id : ids)
      fetches.push_back({.id = id, .key = "k", .putId = PutId(1), .to = memory, .bytes = sizeof memory, .deadline = bootTime() + within});
    link->fetch({node, Incarnation(7), ""}, std::move(fetches));
  }
  // The code of the one Fetched that comes for it; Code::outcomeUnknown: none comes.
  Code outcome(uint64_t id) {
    await([&] { return ended.count(id) != 0; });
    return ended.count(id) ? ended[id] : Code::outcomeUnknown;
  }
  template <class Condition>
  bool await(Condition condition) {
    for (const Time until = bootTime() + seconds(30); !condition() && bootTime() < until;) {
      pollfd waiting{link->eventFd(), POLLIN, 0};
      ::poll(&waiting, 1, 1000);
      const link::LinkEvents events = link->reap();
      for (const link::Fetched& each : events.fetched) CHECK_MESSAGE(ended.emplace(each.id, each.error.code).second, "a fetch ended twice");
      for (const uint64_t id : events.unpublished) ++unpublished[id];
    }
    return condition();
  }

  shm::Paths paths;
  char memory[64];
  std::unique_ptr<link::Link> link;
  std::map<uint64_t, Code> ended;
  std::map<uint64_t, int> unpublished;

 private:
  shm::Descriptor listener_;
};

TEST_CASE("neighbour link: what is asked of a node without an owner is unavailable, each fetch once") {
  Host host;
  host.fetch("nobody", {1, 2, 3}, seconds(20));
  for (const uint64_t id : {1, 2, 3}) CHECK(host.outcome(id) == Code::unavailable);
}

TEST_CASE("neighbour link: a neighbour that says nothing costs its fetch the deadline, and what is behind waits") {
  Host host;
  host.fetch("silent", {1}, milliseconds(300));
  host.fetch("nobody", {2}, seconds(20));
  CHECK(host.outcome(2) == Code::unavailable);
  REQUIRE(host.ended.count(1) == 1);
  CHECK(host.ended[1] == Code::timedOut);
}

TEST_CASE("neighbour link: what has not begun is cancelled at once, what has begun ends by itself") {
  Host host;
  host.fetch("silent", {1, 2, 3, 4}, seconds(2));
  ::usleep(50'000);  // the first is under way, or this test tells less
  host.link->cancel(3);
  host.link->cancel(99);
  CHECK(host.outcome(3) == Code::timedOut);
  host.link->cancelAll();
  for (const uint64_t id : {2, 4}) CHECK(host.outcome(id) == Code::timedOut);
  CHECK(host.outcome(1) == Code::timedOut);
}

TEST_CASE("neighbour link: there is nothing to publish, and every withdrawal is answered") {
  Host host;
  host.link->publish(5, host.memory, sizeof host.memory, 0);
  host.link->advance(5, 10);
  host.link->fail(5);
  host.link->unpublish(5);
  host.link->unpublish(6);
  CHECK(host.await([&] { return host.unpublished[5] == 1 && host.unpublished[6] == 1; }));
}

TEST_CASE("neighbour link: its end waits for the copy under way, and begins no other") {
  Host host;
  host.fetch("silent", {1}, milliseconds(300));
  host.fetch("silent", {2, 3, 4}, seconds(20));
  const Time begun = bootTime();
  host.link.reset();
  CHECK(bootTime() - begun < seconds(4));  // each of the others has 5
}

}  // namespace
}  // namespace fluxon::owner
