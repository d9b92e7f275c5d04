// Touches: what of the clients' touch marks comes to the master's ears, and how much of it is looked at in one call.
#include "touches.h"
#include "in_turn.h"
#include "owner_fixture.h"

namespace fluxon::owner {
namespace {

// A client's file and the owner's end of it.
struct Reader {
  Reader() : pages(sizeof(shm::ClientFile)), ring(file()) {}
  shm::ClientFile& file() { return *reinterpret_cast<shm::ClientFile*>(pages.data()); }
  void reads(uint32_t slot, uint32_t shard = 0) {
    shm::TouchShard& touches = file().touches[shard];
    const uint64_t head = touches.head.load();
    touches.slots[head % shm::kTouchesPerShard] = slot;
    touches.head = head + 1;
  }
  Pages pages;
  ClientRing ring;
};

TEST_CASE("in turn: one that always has more to do than a slice allows keeps nobody from being served") {
  std::map<int, int> work{{1, 1000}, {2, 5}, {3, 1000}, {4, 5}};
  int served = 0;
  std::vector<int> order;
  for (int slice = 0; slice < 5; ++slice) {
    int left = 10;
    inTurn(work, served, [&](int id, int& todo) {
      for (; todo > 0 && left > 0; --todo, --left) {
        if (order.empty() || order.back() != id) order.push_back(id);
        served = id;
      }
      return left > 0;
    });
  }
  CHECK(order == std::vector<int>{1, 2, 3, 4, 1, 3, 1});
}

TEST_CASE("owner touches: each slot once, the one that was read last comes last, and nothing twice") {
  Reader a;
  Touches touches(100);
  for (const uint32_t slot : {5u, 6u, 5u, 7u, 100u, UINT32_MAX, 6u}) a.reads(slot);
  CHECK(touches.take({&a.ring}).slots == std::vector<uint32_t>{5, 7, 6});
  CHECK(touches.take({&a.ring}).slots.empty());
  a.reads(5, 3);
  CHECK(touches.take({&a.ring}).slots == std::vector<uint32_t>{5});
}

TEST_CASE("owner touches: many clients share the looks of a call, and each is heard of") {
  constexpr size_t kClients = 16;
  std::vector<Reader> readers(kClients);
  std::vector<ClientRing*> rings;
  for (uint32_t i = 0; i < kClients; ++i) {
    for (uint32_t n = 0; n < 4096; ++n) readers[i].reads(i * 4096 + n, i % shm::kTouchShards);
    rings.push_back(&readers[i].ring);
  }
  Touches touches(kClients * 4096, 16'384, 16'384);
  const Touches::Taken taken = touches.take(rings);
  CHECK(taken.clients == kClients);
  CHECK(taken.slots.size() <= 16'384);
  std::set<uint32_t> heard;
  for (const uint32_t slot : taken.slots) heard.insert(slot / 4096);
  CHECK(heard.size() == kClients);
  CHECK(taken.slots.back() == 4095);  // the newest of the first
}

TEST_CASE("owner touches: whom a call does not come to, the next one hears what it has read") {
  std::vector<Reader> readers(4);
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t n = 0; n < 100; ++n) readers[i].reads(i * 100 + n);
  }
  Touches touches(400, 1 << 17, 100);  // as many slots as one client has read
  size_t first = 0;
  std::set<uint32_t> heard;
  for (int call = 0; call < 4; ++call) {
    std::vector<ClientRing*> rings;
    for (size_t i = 0; i < 4; ++i) rings.push_back(&readers[(first + i) % 4].ring);
    const Touches::Taken taken = touches.take(rings);
    CHECK(taken.clients == 1);
    CHECK(taken.slots.size() == 100);
    heard.insert(taken.slots.begin(), taken.slots.end());
    first += taken.clients;
  }
  CHECK(heard.size() == 400);
}

}  // namespace
}  // namespace fluxon::owner
