#include "placement.h"

#include <algorithm>
#include <tuple>

namespace fluxon::master {
namespace {

double fill(const Candidate& c) {
  return c.capacityBytes == 0 ? 1 : static_cast<double>(c.usedBytes) / static_cast<double>(c.capacityBytes);
}

}  // namespace

std::vector<Candidate> place(std::vector<Candidate> candidates, uint64_t extentBytes) {
  const bool anySsd = std::any_of(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.ssd; });
  std::erase_if(candidates, [&](const Candidate& c) { return c.capacityBytes < extentBytes || (anySsd && !c.ssd); });
  double sum = 0, old = 0;
  for (const Candidate& c : candidates) {
    if (c.age < kSlowStart) continue;
    sum += fill(c);
    ++old;
  }
  const double average = old == 0 ? 0 : sum / old;
  const auto load = [&](const Candidate& c) {
    if (c.age >= kSlowStart) return fill(c);
    const double since = static_cast<double>(c.age.ns) / static_cast<double>(kSlowStart.ns);
    return fill(c) + average * (1 - since * since);
  };
  std::stable_sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    return std::make_tuple(!a.self, !a.sameHost, !a.sameLabel, load(a)) < std::make_tuple(!b.self, !b.sameHost, !b.sameLabel, load(b));
  });
  return candidates;
}

}  // namespace fluxon::master
