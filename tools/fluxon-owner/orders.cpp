#include "orders.h"

#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/mark.h"

namespace fluxon::owner {
namespace {

constexpr size_t kOrdersKnown = 4096;  // orders come again right after a lost connection only

}  // namespace

void Orders::carryOut(const rpc::MasterMessage& message, Time now) {
  std::visit([&](const auto& order) { carryOut(order, now); }, message);
}

void Orders::carryOut(const rpc::Reply&, Time) { FLUXON_CHECK(false, "a reply is no order"); }

void Orders::carryOut(const rpc::Invalidate& order, Time now) {
  std::vector<uint32_t> retired;
  for (const rpc::Version& item : order.below) {
    controls_.invalidated(item.key, item.putId);
    retirement_.retireBelow(item, retired);
  }
  ssd_.invalidate(order, std::move(retired), now);
}

void Orders::carryOut(const rpc::Reclaim& order, Time now) {
  if (retirement_.reclaims(order.order)) {
    FLUXON_MARK("owner: a reclaim comes twice, the first one is under way");
    return;  // the first one answers
  }
  if (begins(order.order)) return retirement_.reclaim(order, now);
  FLUXON_MARK("owner: a reclaim comes twice, the first one was answered");
}

void Orders::carryOut(const rpc::Replicate& order, Time now) {
  if (begins(order.order)) return flights_.begin(order, now);
  FLUXON_MARK("owner: an order for a copy comes twice");
}

void Orders::carryOut(const rpc::Stage& order, Time now) {
  if (begins(order.order)) stages_.begin(order, now);  // else it comes twice, or after its end
}

void Orders::carryOut(const rpc::Unstage& order, Time) { stages_.end(order); }

void Orders::carryOut(const rpc::Leave&, Time) { host_.leave(); }

void Orders::carryOut(const rpc::Shrink&, Time) { puts_.shrinkReserve(Time::never()); }

// Notes that an order begins. False: it has begun before.
bool Orders::begins(OrderId order) {
  if (!begun_.insert(order).second) return false;
  if (begun_.size() > kOrdersKnown) begun_.erase(begun_.begin());
  return true;
}

}  // namespace fluxon::owner
