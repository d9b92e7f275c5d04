// Invalidations: tells members which versions to retire. A member has at most one batch under way; versions that come meanwhile wait for
// the next batch. One thread.
#pragma once

#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "outgoing.h"

namespace fluxon::master {

class Invalidations {
 public:
  explicit Invalidations(Outgoing& out) : out_(out) {}

  void add(Member& member, rpc::Version below) {
    ++total_;
    members_[member].next.push_back(std::move(below));
    sendNext(member);
  }
  // The member has answered. Returns the versions that it has retired; none if it was not asked. The caller then calls sendNext().
  std::vector<rpc::Version> answered(Member& member, OrderId id) {
    std::optional<rpc::Invalidate> order = out_.answered<rpc::Invalidate>(member, id);
    if (!order) return {};
    members_[member].underWay = OrderId();
    return std::move(order->below);
  }
  void sendNext(Member& member) {
    const auto found = members_.find(member);
    if (found == members_.end() || found->second.underWay) return;
    std::vector<rpc::Version> batch = std::exchange(found->second.next, {});
    if (batch.empty()) {
      members_.erase(found);
      return;
    }
    if (batch.size() > kLargestBatch) {
      const auto last = batch.begin() + kLargestBatch;
      found->second.next.assign(std::make_move_iterator(last), std::make_move_iterator(batch.end()));
      batch.erase(last, batch.end());
    }
    found->second.underWay = out_.order(member, rpc::Invalidate{{}, std::move(batch)});
  }
  void memberEnded(Member& member) { members_.erase(member); }
  // Members with versions that they have not retired yet.
  size_t members() const { return members_.size(); }
  uint64_t total() const { return total_; }

 private:
  static constexpr size_t kLargestBatch = 1024;  // keys

  struct Retiring {
    std::vector<rpc::Version> next;  // wait for the answer to the batch under way
    OrderId underWay;                // 0: none
  };

  Outgoing& out_;
  std::map<MemberRef, Retiring, ByName> members_;
  uint64_t total_ = 0;
};

}  // namespace fluxon::master
