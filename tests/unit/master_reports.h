// Owners that come back with values, in a world of master_fixture.h.
#pragma once

#include "master_fixture.h"

namespace fluxon::master {

inline rpc::Registration with(World& w, const std::string& node, uint64_t incarnation, uint64_t adopts) {
  rpc::Registration r = w.registration(node, incarnation);
  r.adopts = Incarnation(adopts);
  r.ends = {r.adopts};
  return r;
}
// Registers, and must be asked for an inventory.
inline Owner report(World& w, const rpc::Registration& r) {
  std::shared_ptr<Member> member;
  const rpc::Registered result = w.core.registerOwner(r, w.now, member);
  if (w.diskWorks) w.persisted();
  REQUIRE(result.code == Code::ok);
  REQUIRE(result.inventory);
  return {w, member};
}
// The last page says how many there are.
inline OperationId page(Owner& owner, std::vector<rpc::MemoryValue> values, uint64_t pages = 1) {
  return owner.ask(rpc::InventoryPage{{}, std::move(values), {}, pages});
}
// Offsets of the page's values that must go.
inline std::vector<uint64_t> refused(const Owner& owner, OperationId page) { return owner.answer<rpc::InventoryTaken>(page).refused; }
inline void confirm(Owner& owner) { CHECK(owner.say(rpc::Heartbeat{{}, true, {}}) == Code::ok); }
inline rpc::MemoryValue item(const std::string& key, PutId id, uint64_t offset, uint64_t bytes = 100, KeyLeaseId lease = {}) {
  return {key, id, offset, bytes, lease};
}
inline const PutId kOld(Term(2), 7);

}  // namespace fluxon::master
