// Outgoing: the master's replies and orders to its members. It records each reply for a repetition of the request (answer_log.h), and sends
// an order again whenever the member registers again, until the member answers it. It sends nothing while the member is not connected. One
// thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "member.h"

namespace fluxon::master {

class Outbox {
 public:
  virtual ~Outbox() = default;
  // Hands over a message for a connected member; the receiver may batch it with others.
  virtual void send(Member&, rpc::MasterMessage) = 0;
  // durable() has changed: write it to disk, then call persisted().
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
  // Repeats a recorded reply.
  void again(Member& member, OperationId request) { outbox_.send(member, *member.answers->answer(request)); }

  // The id that the next order will have.
  OrderId nextOrder() const { return OrderId(orders_ + 1); }
  // Sends an order under the next id.
  template <class T>
  OrderId order(Member& member, T order) {
    const OrderId id = order.order = OrderId(++orders_);
    if (member.connected()) outbox_.send(member, order);
    member.orders.own().emplace(id, std::move(order));
    return id;
  }
  // The member has answered an order of kind T: removes and returns it, if there is one.
  template <class T>
  static std::optional<T> answered(Member& member, OrderId id) {
    const auto found = member.orders.own().find(id);
    if (found == member.orders->end() || !std::holds_alternative<T>(found->second)) return std::nullopt;
    std::optional<T> order(std::move(std::get<T>(found->second)));
    member.orders.own().erase(found);
    return order;
  }
  // Removes an order of any kind.
  static void over(Member& member, OrderId id) { member.orders.own().erase(id); }
  // Sends all unanswered orders again.
  void ordersAgain(Member& member) {
    for (const auto& [id, order] : *member.orders) outbox_.send(member, rpc::messageOf(order));
  }
  static void memberEnded(Member& member) { member.orders.own().clear(); }
  // Sends a message that has no answer; whoever needs it repeated calls this again.
  template <class T>
  void tell(Member& member, T message) {
    if (member.connected()) outbox_.send(member, std::move(message));
  }

 private:
  Outbox& outbox_;
  uint64_t orders_ = 0;
};

}  // namespace fluxon::master
