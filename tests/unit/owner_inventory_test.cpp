// Inventory: the list of values page by page, and what its answers decide.
#include "inventory.h"
#include "owner_parts.h"

namespace fluxon::owner {
namespace {

using shm::SlotState;

// Registered, with a list to be given: pages of two values, two of them at once.
struct Listing : Parts {
  Listing() {
    endTerm();
    standing.registered(Incarnation(8), seconds(10), now);
  }
  std::vector<uint64_t> putIds(const rpc::InventoryPage& page) const {
    std::vector<uint64_t> ids;
    for (const rpc::MemoryValue& value : page.memory) ids.push_back(value.putId.value);
    return ids;
  }
  void answer(const rpc::Request& page, rpc::InventoryTaken taken = {}) {
    inventory.answered(page.id, *page.as<rpc::InventoryPage>(), {page.id, Code::ok, {}, std::move(taken)}, now);
  }
  void refuse(const rpc::Request& page, Code code) {
    inventory.answered(page.id, *page.as<rpc::InventoryPage>(), {page.id, code, {}, {}}, now);
  }
  Inventory inventory{{2, 1000, 2}, directory, calls, standing, retirement, ssd};
};

TEST_CASE("inventory pages: the oldest value first, a few pages under way, and the last one says how many there are") {
  Listing p;
  for (const uint64_t id : {5, 3, 1, 4, 2}) p.committed("k" + std::to_string(id), id, id * 4096);
  p.inventory.begin(p.now);
  for (int i = 0; i < 2; ++i) p.inventory.send();
  std::vector<rpc::Request> pages = p.sent();
  REQUIRE(pages.size() == 2);
  CHECK(p.putIds(*pages[0].as<rpc::InventoryPage>()) == std::vector<uint64_t>{1, 2});
  CHECK(p.putIds(*pages[1].as<rpc::InventoryPage>()) == std::vector<uint64_t>{3, 4});
  CHECK(pages[1].as<rpc::InventoryPage>()->pages == 0);
  p.answer(pages[1]);
  p.inventory.send();
  const std::vector<rpc::Request> last = p.sent();
  REQUIRE(last.size() == 1);
  CHECK(p.putIds(*last[0].as<rpc::InventoryPage>()) == std::vector<uint64_t>{5});
  CHECK(last[0].as<rpc::InventoryPage>()->pages == 3);
  p.answer(last[0]);
  CHECK_FALSE(p.inventory.complete());  // the first one has not been answered
  p.answer(pages[0]);
  CHECK(p.inventory.complete());
  CHECK(p.inventory.counters().adopted == 5);
}

TEST_CASE("inventory pages: without a value there is one page, which says so") {
  Listing p;
  p.inventory.begin(p.now);
  p.inventory.send();
  const std::vector<rpc::Request> pages = p.sent();
  REQUIRE(pages.size() == 1);
  CHECK(pages[0].as<rpc::InventoryPage>()->pages == 1);
  p.answer(pages[0]);
  CHECK(p.inventory.complete());
}

TEST_CASE("inventory pages: long keys make short pages") {
  Listing p;
  p.committed(std::string(1200, 'a'), 1, 0);
  p.committed("b", 2, 4096);
  p.inventory.begin(p.now);
  p.inventory.send();
  const std::vector<rpc::Request> pages = p.sent();
  REQUIRE(pages.size() == 2);
  CHECK(p.putIds(*pages[0].as<rpc::InventoryPage>()) == std::vector<uint64_t>{1});
}

TEST_CASE("inventory pages: a value that was retired since is listed, for its extent's sake; one whose slot is free is not") {
  Listing p;
  const uint32_t retired = p.committed("a", 1, 0), freed = p.committed("b", 2, 4096);
  p.committed("c", 3, 8192);
  p.inventory.begin(p.now);
  p.directory.retire(retired);
  p.directory.retire(freed);
  p.directory.release(freed);
  p.inventory.send();
  const std::vector<rpc::Request> pages = p.sent();
  REQUIRE(pages.size() == 1);
  CHECK(p.putIds(*pages[0].as<rpc::InventoryPage>()) == std::vector<uint64_t>{1, 3});
}

TEST_CASE("inventory pages: what the master refuses is retired, and nothing else") {
  Listing p;
  const uint32_t first = p.committed("a", 1, 0), second = p.committed("b", 2, 4096);
  p.inventory.begin(p.now);
  p.inventory.send();
  p.answer(p.sent().at(0), {{4096, 77}, {0, 9}});  // some of it names what is not in the page
  CHECK(p.state(first) == SlotState::committed);
  CHECK(p.state(second) == SlotState::retired);
  CHECK(p.inventory.counters().adopted == 1);
  CHECK(p.inventory.counters().adoptRefused == 1);
  CHECK(p.inventory.complete());
}

TEST_CASE("inventory pages: a refused page ends the joining; only values that are nonsense to the master are not offered again") {
  for (const Code code : {Code::fenced, Code::protocol}) {
    Listing p;
    p.committed("a", 1, 0);
    p.inventory.begin(p.now);
    p.inventory.send();
    p.refuse(p.sent().at(0), code);
    CHECK(p.standing.fenced());
    CHECK(p.inventory.contentRefused() == (code == Code::protocol));
    CHECK_FALSE(p.inventory.complete());
    p.inventory.endTerm();
    CHECK(p.inventory.contentRefused() == (code == Code::protocol));  // until they have been dropped
    p.inventory.contentDropped();
    CHECK_FALSE(p.inventory.contentRefused());
  }
}

TEST_CASE("inventory pages: what is on the SSD comes after what is in memory, and what is refused of it goes before serving begins") {
  Listing p;
  p.ssd.attached(Incarnation(21));
  p.committed("a", 1, 0);
  p.host.sent.clear();
  p.inventory.begin(p.now);
  const uint64_t list = p.host.toSsd.back().id;
  p.inventory.send();
  const std::vector<rpc::Request> memory = p.sent();
  REQUIRE(memory.size() == 1);
  CHECK(memory[0].as<rpc::InventoryPage>()->memory.size() == 1);
  for (const uint64_t id : {4, 6}) p.ssd.heard({ssd::MessageKind::listed, list, "s" + std::to_string(id), PutId(id), 0, 100}, p.now);
  p.ssd.heard({ssd::MessageKind::done, list}, p.now);
  p.inventory.send();
  const std::vector<rpc::Request> pages = p.sent();
  REQUIRE(pages.size() == 1);
  REQUIRE(pages[0].as<rpc::InventoryPage>()->ssd.size() == 2);
  CHECK(pages[0].as<rpc::InventoryPage>()->pages == 2);
  p.host.toSsd.clear();
  p.answer(pages[0], {{}, {1}});
  REQUIRE(p.host.toSsd.size() == 1);
  CHECK(p.host.toSsd[0].kind == ssd::MessageKind::invalidate);
  CHECK(p.host.toSsd[0].key == "s6");
  CHECK(p.host.toSsd[0].putId.value == 7);
  p.answer(memory[0]);
  CHECK_FALSE(p.inventory.complete());
  p.ssd.heard({ssd::MessageKind::done, p.host.toSsd[0].id}, p.now);
  CHECK(p.inventory.complete());
}

}  // namespace
}  // namespace fluxon::owner
