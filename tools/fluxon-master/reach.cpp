#include "reach.h"

#include "placement.h"

namespace fluxon::master {

std::vector<Member*> candidates(const Membership& membership, const Member& asker, uint64_t size, Time now) {
  std::vector<Member*> reached;
  std::vector<Candidate> candidates;
  for (const auto& [node, member] : membership.all()) {
    if (member->state != MemberState::joined || member->draining() || !reachable(asker, *member)) continue;
    Candidate c;
    c.index = reached.size();
    c.self = member.get() == &asker;
    c.sameHost = sameHost(*member, asker);
    c.sameLabel = member->registration().label == asker.registration().label;
    c.ssd = bool(*member->ssdLife);
    c.capacityBytes = member->space.capacity();
    c.usedBytes = member->space.capacity() - member->space.freeBytes();
    c.age = now - member->joinedAt->value_or(Time{0});
    candidates.push_back(c);
    reached.push_back(member.get());
  }
  std::vector<Member*> ordered;
  for (const Candidate& c : place(std::move(candidates), size)) ordered.push_back(reached[c.index]);
  return ordered;
}

}  // namespace fluxon::master
