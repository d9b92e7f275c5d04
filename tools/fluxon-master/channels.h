// Channels: messages to members that have not been sent yet. Each member has one queue, which its newest connection drains.
//
// When a member registers again, the master queues its unanswered orders before the new connection exists; they wait for it. The new
// connection also takes over the queue of the older one; a member may therefore receive an order or answer twice. The end of a connection
// that is no longer the newest changes nothing, and a late request over it collects no messages.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "member.h"

namespace fluxon::master {

class Channels {
 public:
  using Messages = std::vector<rpc::MasterMessage>;

  void send(Member& member, rpc::MasterMessage message) { channel(member).queue.push_back(std::move(message)); }
  // The member has a new connection. Returns its number.
  uint64_t connected(Member& member) { return channel(member).connection = ++connections_; }
  // A connection has ended. True: it was the newest, so the member has none now.
  bool lost(Member& member, uint64_t connection) {
    const auto channel = channels_.find(member);
    if (channel == channels_.end() || channel->second.connection != connection) return false;
    channels_.erase(channel);
    return true;
  }
  // The messages to send over this connection: none if there is a newer one.
  Messages take(Member& member, uint64_t connection) {
    const auto channel = channels_.find(member);
    if (channel == channels_.end() || channel->second.connection != connection) return {};
    return std::exchange(channel->second.queue, {});
  }
  // Calls each(member, connection, messages) for each connected member with messages.
  template <class F>
  void takeAll(F each) {
    for (auto& [member, channel] : channels_) {
      if (channel.connection != 0 && !channel.queue.empty()) each(*member, channel.connection, std::exchange(channel.queue, {}));
    }
  }

 private:
  struct Channel {
    uint64_t connection = 0;  // 0: not there yet
    Messages queue;
  };
  Channel& channel(Member& member) { return channels_[member]; }

  std::map<MemberRef, Channel, ByName> channels_;
  uint64_t connections_ = 0;
};

}  // namespace fluxon::master
