// Channels: what members are to hear and has not left yet, by the newest connection of each.
//
// A member that registers again is told what it has not answered before its new connection is there: that waits for it. What is
// queued for an older connection goes with the newer one: orders are in it and answers, and both may be heard twice. The end of a
// connection that is not the newest any more means nothing, and a late request that comes by it takes no answers along.
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
  // A new connection of the member; its number.
  uint64_t connected(Member& member) { return channel(member).connection = ++connections_; }
  // True: it was the newest, the member has none now.
  bool lost(Member& member, uint64_t connection) {
    const auto channel = channels_.find(member);
    if (channel == channels_.end() || channel->second.connection != connection) return false;
    channels_.erase(channel);
    return true;
  }
  // What can leave by this connection: nothing, if there is a newer one.
  Messages take(Member& member, uint64_t connection) {
    const auto channel = channels_.find(member);
    if (channel == channels_.end() || channel->second.connection != connection) return {};
    return std::exchange(channel->second.queue, {});
  }
  // Calls each(member, connection, messages) for all that have some.
  template <class F>
  void takeAll(F each) {
    for (auto& [member, channel] : channels_) {
      if (channel.connection != 0 && !channel.queue.empty()) each(*member, channel.connection, std::exchange(channel.queue, {}));
    }
  }

 private:
  struct Channel {
    uint64_t connection = 0;  // 0: about to be there
    Messages queue;
  };
  Channel& channel(Member& member) { return channels_[member]; }

  std::map<MemberRef, Channel, ByName> channels_;
  uint64_t connections_ = 0;
};

}  // namespace fluxon::master
