// Invalidations: which versions a member is to retire, in batches. One batch is under way to a member at once; what comes meanwhile goes
// with the next one. One thread.
#pragma once

#include <iterator>
#include <utility>
#include <vector>

#include "outgoing.h"

namespace fluxon::master {

class Invalidations {
 public:
  explicit Invalidations(Outgoing& out) : out_(out) {}

  void add(Member& member, rpc::Version below) {
    ++total_;
    member.invalidations.push_back(std::move(below));
    sendNext(member);
  }
  // What the member has retired; nothing if it was not asked. Then sendNext() is due.
  std::vector<rpc::Version> answered(Member& member, OrderId id) {
    std::optional<rpc::Invalidate> order = out_.answered<rpc::Invalidate>(member, id);
    if (!order) return {};
    member.invalidating = false;
    return std::move(order->below);
  }
  void sendNext(Member& member) {
    if (member.invalidating || member.invalidations.empty()) return;
    std::vector<rpc::Version> batch = std::exchange(member.invalidations, {});
    if (batch.size() > kLargestBatch) {
      const auto last = batch.begin() + kLargestBatch;
      member.invalidations.assign(std::make_move_iterator(last), std::make_move_iterator(batch.end()));
      batch.erase(last, batch.end());
    }
    member.invalidating = true;
    out_.order(member, rpc::Invalidate{{}, std::move(batch)});
  }
  static void memberEnded(Member& member) { member.invalidations.clear(); }
  uint64_t total() const { return total_; }

 private:
  static constexpr size_t kLargestBatch = 1024;  // keys

  Outgoing& out_;
  uint64_t total_ = 0;
};

}  // namespace fluxon::master
