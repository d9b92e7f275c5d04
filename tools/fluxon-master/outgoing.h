// Outgoing: what the master says to its members. A reply is kept for a repetition of its request (answer_log.h); an order is sent again
// when the member has registered again, until it is answered. Neither leaves while the member is not connected. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "member.h"

namespace fluxon::master {

class Outbox {
 public:
  virtual ~Outbox() = default;
  // Hands over a message for a member; it may be joined with others. Not called for members that are not connected.
  virtual void send(Member&, rpc::MasterMessage) = 0;
  // durable() has changed: it is to be written, and then persisted() called.
  virtual void persist() = 0;
};

class Outgoing {
 public:
  explicit Outgoing(Outbox& outbox) : outbox_(outbox) {}

  void reply(Member& member, rpc::Reply answer) {
    member.answers.own().finish(answer);
    if (member.connected()) outbox_.send(member, std::move(answer));
  }
  void reply(Member& member, OperationId request, rpc::Answer answer) { reply(member, {request, Code::ok, {}, std::move(answer)}); }
  void refuse(Member& member, OperationId request, Code code, std::string detail = {}) {
    reply(member, {request, code, std::move(detail), {}});
  }
  // A request has come (answer_log.h).
  static AnswerLog::Seen begin(Member& member, OperationId request, bool keep) { return member.answers.own().begin(request, keep); }
  static void forgetBelow(Member& member, OperationId id, const std::vector<OperationId>& stragglers) {
    member.answers.own().forgetBelow(id, stragglers);
  }
  // A reply that was given.
  void again(Member& member, OperationId request) { outbox_.send(member, *member.answers->answer(request)); }

  // Of the next order.
  OrderId nextOrder() const { return OrderId(orders_ + 1); }
  // Sends an order under the next id.
  template <class T>
  OrderId order(Member& member, T order) {
    const OrderId id = order.order = OrderId(++orders_);
    if (member.connected()) outbox_.send(member, order);
    member.orders.own().emplace(id, std::move(order));
    return id;
  }
  // The order of that kind that the member has answered, if there is one. It is over.
  template <class T>
  static std::optional<T> answered(Member& member, OrderId id) {
    const auto found = member.orders.own().find(id);
    if (found == member.orders->end() || !std::holds_alternative<T>(found->second)) return std::nullopt;
    std::optional<T> order(std::move(std::get<T>(found->second)));
    member.orders.own().erase(found);
    return order;
  }
  // The order is over, of whatever kind.
  static void over(Member& member, OrderId id) { member.orders.own().erase(id); }
  // All that are not answered.
  void ordersAgain(Member& member) {
    for (const auto& [id, order] : *member.orders) outbox_.send(member, rpc::messageOf(order));
  }
  static void memberEnded(Member& member) { member.orders.own().clear(); }
  // What is not answered, and said again if need be.
  template <class T>
  void tell(Member& member, T message) {
    if (member.connected()) outbox_.send(member, std::move(message));
  }

 private:
  Outbox& outbox_;
  uint64_t orders_ = 0;
};

}  // namespace fluxon::master
