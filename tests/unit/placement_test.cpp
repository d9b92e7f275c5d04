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

TEST_CASE("placement: a new empty owner has its share of the values at once, and catches up over a minute") {
  std::vector<Candidate> owners{owner(0, 530), owner(1, 530), owner(2, 530), owner(3, 0, seconds(0))};
  // Six values of 8 a second: in the first ten seconds and in all.
  uint64_t early = 0, all = 0;
  for (int put = 0; put < 360; ++put) {
    owners[3].age = milliseconds(put * 1000 / 6);
    const size_t chosen = order(owners, 1).front();
    owners[chosen].usedBytes += 1;
    if (chosen != 3) continue;
    ++all;
    early += put < 60;
  }
  CHECK(early >= 15);
  CHECK(early <= 35);
  CHECK(all > 280);
}

TEST_CASE("placement: beside one other owner, or with new ones alone, each has its share") {
  CHECK(order({owner(0, 500), owner(1, 0, seconds(0))}).front() == 0);
  CHECK(order({owner(0, 501), owner(1, 0, seconds(1))}).front() == 1);
  CHECK(order({owner(0, 300, seconds(1)), owner(1, 100, seconds(2))}).front() == 1);
}

}  // namespace
}  // namespace fluxon::master
