// Orders: what the master wants done, each of which is begun once. An order comes again after a lost connection until it is answered; what
// has begun is answered by its part when it ends, and not begun anew, since the master counts the first answer. Only an order to
// invalidate or to unstage may be carried out twice: that harms nothing, and each is answered. One thread.
#pragma once

#include <set>

#include "flights.h"
#include "puts.h"
#include "stages.h"

namespace fluxon::owner {

class Orders {
 public:
  Orders(Host& host, KeyControls& controls, Retirement& retirement, SsdTier& ssd, Flights& flights, Stages& stages, Puts& puts)
      : host_(host), controls_(controls), retirement_(retirement), ssd_(ssd), flights_(flights), stages_(stages), puts_(puts) {}

  // Any but a reply.
  void carryOut(const rpc::MasterMessage&, Time now);
  void endTerm() { begun_.clear(); }

 private:
  void carryOut(const rpc::Reply&, Time);
  void carryOut(const rpc::Invalidate&, Time now);
  void carryOut(const rpc::Reclaim&, Time now);
  void carryOut(const rpc::Replicate&, Time now);
  void carryOut(const rpc::Stage&, Time now);
  void carryOut(const rpc::Unstage&, Time now);
  void carryOut(const rpc::Leave&, Time now);
  void carryOut(const rpc::Shrink&, Time now);
  bool begins(OrderId);

  Host& host_;
  KeyControls& controls_;
  Retirement& retirement_;
  SsdTier& ssd_;
  Flights& flights_;
  Stages& stages_;
  Puts& puts_;
  std::set<OrderId> begun_;  // of this term
};

}  // namespace fluxon::owner
