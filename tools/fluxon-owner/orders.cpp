// OwnerCore: orders of the master, and scans.
#include "base/check.h"
#include "base/hash.h"
#include "base/mark.h"
#include "owner_core.h"

namespace fluxon::owner {
namespace {

constexpr size_t kOrdersKnown = 4096;  // orders come again right after a lost connection only

}  // namespace

void OwnerCore::message(const rpc::MasterMessage& message, Time now) {
  std::visit([&](const auto& each) { carryOut(each, now); }, message);
  flush(now);
}

void OwnerCore::carryOut(const rpc::Invalidate& order, Time now) {
  std::vector<uint32_t> retired;
  for (const rpc::Version& item : order.below) {
    controls_.invalidated(item.key, item.putId);
    retirement_.retireBelow(item, retired);
  }
  // What is on the SSD is over when ssdd has said so: it keeps that in mind when this process dies.
  if (ssdLife_ && !order.below.empty()) return invalidateSsd(order.below, {order.order, now, std::move(retired)});
  invalidated({order.order, now, std::move(retired)});
}

// The master names what was retired until it hears this, so nothing of it is released before.
void OwnerCore::invalidated(const Invalidation& invalidation) {
  calls_.send(rpc::InvalidateDone{.order = invalidation.order});
  retirement_.add(invalidation.retired);
}

void OwnerCore::carryOut(const rpc::Reclaim& order, Time now) {
  if (retirement_.reclaims(order.order)) {
    FLUXON_MARK("owner: a reclaim comes twice, the first one is under way");
    return;  // the first one answers
  }
  // Answered already: the master counts the first answer, so a second one must not free anything.
  if (!begins(order.order)) {
    FLUXON_MARK("owner: a reclaim comes twice, the first one was answered");
    return;
  }
  retirement_.reclaim(order, now);
}

// False: it has begun before.
bool OwnerCore::begins(OrderId order) {
  if (!begun_.insert(order).second) return false;
  if (begun_.size() > kOrdersKnown) begun_.erase(begun_.begin());
  return true;
}

void OwnerCore::scanned(uint64_t scan, const std::vector<bool>& held, Time now) {
  retirement_.scanned(scan, held, now);
  flush(now);
}

}  // namespace fluxon::owner
