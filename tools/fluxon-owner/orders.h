// Orders: hands each order of the master to the part that carries it out, once. The master repeats an order after a lost connection until
// it has an answer. The part that has begun an order answers it at its end, so Orders drops the repetition: the master counts the first
// answer. Orders to invalidate and to unstage are idempotent: they may run twice, and each is answered. One thread.
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

  // Any message but a reply.
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
