// Placement: chooses the owner that will have a new value. Pure; the caller describes each owner.
//
// Candidates are the owners within reach of the asker that are large enough and not draining; while any owner has an SSD, only those with
// one. The order of preference: the asker, because its clients read without a message and no byte travels; an owner of its host, for the
// same reason; an owner of its sub-cluster; the owner with the least load. A new owner starts empty and would draw every value until it is
// as full as the others (slow start): the others' average load counts on top of its own, in full at first and fading over a minute. So it
// gets its share of the values from the first second on and fills up slowly.
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

// Sorts the candidates, best first, and leaves out those that cannot have the value.
std::vector<Candidate> place(std::vector<Candidate> candidates, uint64_t extentBytes);

}  // namespace fluxon::master
