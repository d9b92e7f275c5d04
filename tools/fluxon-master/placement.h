// Placement: which owner shall have a value. Pure; the caller says what each owner is like.
//
// Within the owners that may have it (those with an SSD while there is any; large enough; not draining; within reach of the one who
// asks): the one who asks first, since its clients read without a message and no byte travels; then one of its host, for the same
// reason; then one of its sub-cluster; then the one with the least load. A new owner starts empty and would draw every value until
// it is as full as the others: what those have on average counts on top of its own load, all of it at first, less and less over a
// minute. So it has its share of the values from the first second on, and is filled up slowly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fluxon::master {

struct Candidate {
  size_t index = 0;  // the caller's
  bool self = false;
  bool sameHost = false;
  bool sameLabel = false;
  bool ssd = false;
  uint64_t capacityBytes = 0;
  uint64_t usedBytes = 0;
  Duration age;  // since it joined
};

constexpr Duration kSlowStart = seconds(60);

// Orders the candidates, the best first; those that may not have the value are left out.
std::vector<Candidate> place(std::vector<Candidate> candidates, uint64_t extentBytes);

}  // namespace fluxon::master
