// Placement: which owner shall have a value.
#include <doctest/doctest.h>

#include "placement.h"

namespace fluxon::master {
namespace {

Candidate owner(size_t index, uint64_t used, Duration age = seconds(3600)) {
  Candidate c;
  c.index = index;
  c.capacityBytes = 1000;
  c.usedBytes = used;
  c.age = age;
  return c;
}
std::vector<size_t> order(std::vector<Candidate> candidates, uint64_t bytes = 100) {
  std::vector<size_t> indices;
  for (const Candidate& c : place(std::move(candidates), bytes)) indices.push_back(c.index);
  return indices;
}

TEST_CASE("placement: the one who asks, then its host, then its sub-cluster, then the least loaded") {
  Candidate self = owner(0, 900), host = owner(1, 800), label = owner(2, 700), full = owner(3, 600), idle = owner(4, 100);
  self.self = self.sameHost = self.sameLabel = true;
  host.sameHost = true;
  label.sameLabel = true;
  CHECK(order({full, idle, label, host, self}) == std::vector<size_t>{0, 1, 2, 4, 3});
}

TEST_CASE("placement: while any owner has an SSD only those that have one are asked, the one who asks included") {
  Candidate self = owner(0, 0), with = owner(1, 900);
  self.self = true;
  with.ssd = true;
  CHECK(order({self, with}) == std::vector<size_t>{1});
  with.ssd = false;
  CHECK(order({self, with}) == std::vector<size_t>{0, 1});
}

TEST_CASE("placement: a segment that is smaller than the value is left out") {
  CHECK(order({owner(0, 0), owner(1, 0)}, 1000) == std::vector<size_t>{0, 1});
  CHECK(order({owner(0, 0), owner(1, 0)}, 1001).empty());
}

TEST_CASE("placement: a new empty owner does not draw everything at once") {
  // Used: 0, 300 and 600 of 1000; the average fill is 0.3.
  const auto with = [](Duration age) { return order({owner(0, 0, age), owner(1, 280), owner(2, 620)}).front(); };
  CHECK(with(seconds(0)) == 1);
  CHECK(with(seconds(1)) == 1);
  CHECK(with(seconds(10)) == 0);
  CHECK(with(seconds(60)) == 0);
}

}  // namespace
}  // namespace fluxon::master
