#include "slot_index.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

using fluxon::master::SlotIndex;

namespace {

struct Pool {
  std::vector<uint64_t> keys;  // by slot
  SlotIndex index;

  uint32_t find(uint64_t key) const {
    return index.find(key, [&](uint32_t slot) { return keys[slot]; });
  }
  uint32_t add(uint64_t key) {
    keys.push_back(key);
    index.add(key, static_cast<uint32_t>(keys.size() - 1));
    return static_cast<uint32_t>(keys.size() - 1);
  }
};

}  // namespace

TEST_CASE("slot index: an empty one finds nothing") {
  Pool pool;
  CHECK(pool.find(0) == SlotIndex::kNone);
  CHECK(pool.index.size() == 0);
}

TEST_CASE("slot index: a key is found at its slot, whatever bits keys share") {
  for (const unsigned shift : {0u, 6u, 12u, 30u, 40u}) {
    Pool pool;
    for (uint64_t i = 0; i < 5000; ++i) pool.add(i << shift);
    for (uint64_t i = 0; i < 5000; ++i) REQUIRE(pool.find(i << shift) == i);
    CHECK(pool.find(uint64_t{5000} << shift) == SlotIndex::kNone);
  }
}

TEST_CASE("slot index: a key that was erased is not found, and those that it was in the way of are") {
  // Random keys, half of them erased again and again: chains that meet and wrap around the end of the table.
  std::mt19937_64 random(7);
  Pool pool;
  std::map<uint64_t, uint32_t> model;
  for (int step = 0; step < 40000; ++step) {
    const uint64_t key = random() % 600;
    const auto found = model.find(key);
    REQUIRE(pool.find(key) == (found == model.end() ? SlotIndex::kNone : found->second));
    if (found == model.end()) {
      model.emplace(key, pool.add(key));
    } else {
      pool.index.erase(key, found->second);
      model.erase(found);
    }
    REQUIRE(pool.index.size() == model.size());
  }
  for (uint64_t key = 0; key < 600; ++key) CHECK((pool.find(key) != SlotIndex::kNone) == (model.count(key) > 0));
}

TEST_CASE("slot index: two records of one hash are told apart by their keys") {
  // The hash is the high half of a product with an odd number: products that differ in the low half alone have one hash.
  const auto keyOf = [](uint64_t product) {
    uint64_t inverse = 1;
    for (int i = 0; i < 6; ++i) inverse *= 2 - 0x9E3779B97F4A7C15ull * inverse;
    const uint64_t folded = product * inverse;
    return folded ^ (folded >> 32);
  };
  const uint64_t one = keyOf(uint64_t{77} << 32), other = keyOf((uint64_t{77} << 32) | 1);
  REQUIRE(one != other);
  Pool pool;
  const uint32_t slot = pool.add(one);
  CHECK(pool.find(other) == SlotIndex::kNone);
  const uint32_t second = pool.add(other);
  CHECK(pool.find(one) == slot);
  CHECK(pool.find(other) == second);
  pool.index.erase(one, slot);
  CHECK(pool.find(one) == SlotIndex::kNone);
  CHECK(pool.find(other) == second);
}
