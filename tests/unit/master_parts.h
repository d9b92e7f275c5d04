// Parts of the master, each by itself: what is sent, members, and the parts that most others stand on. What a part says to those above it
// is written down. Term 3; segments are 1 MiB; the lease is 10 s.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "membership.h"
#include "outgoing.h"
#include "record.h"
#include "routes.h"
#include "window.h"

namespace fluxon::master {

constexpr uint64_t kSegment = 1 << 20;
constexpr uint64_t kPageBytes = 4096;
constexpr Duration kLease = seconds(10);
inline const Term kTerm(3);

struct Sent final : Outbox {
  struct Message {
    std::string node;
    rpc::MasterMessage what;
  };
  std::vector<Message> messages;
  int persists = 0;
  void send(Member& member, rpc::MasterMessage message) override { messages.push_back({member.node(), std::move(message)}); }
  void persist() override { ++persists; }

  // What has been sent there of that kind, in its order.
  template <class T>
  std::vector<T> to(const Member& member) const {
    std::vector<T> all;
    for (const Message& each : messages) {
      const T* const message = std::get_if<T>(&each.what);
      if (message && each.node == member.node()) all.push_back(*message);
    }
    return all;
  }
  // The only one.
  template <class T>
  T one(const Member& member) const {
    const std::vector<T> all = to<T>(member);
    REQUIRE(all.size() == 1);
    return all.front();
  }
  bool answered(const Member& member, uint64_t request) const { return !replies(member, request).empty(); }
  rpc::Reply reply(const Member& member, uint64_t request) const {
    const std::vector<rpc::Reply> all = replies(member, request);
    INFO("request ", request);
    REQUIRE(all.size() == 1);
    return all.front();
  }
  Code code(const Member& member, uint64_t request) const { return reply(member, request).code; }
  template <class T>
  T answer(const Member& member, uint64_t request) const {
    const rpc::Reply given = reply(member, request);
    REQUIRE(given.code == Code::ok);
    REQUIRE(given.as<T>());
    return *given.as<T>();
  }

 private:
  std::vector<rpc::Reply> replies(const Member& member, uint64_t request) const {
    std::vector<rpc::Reply> all = to<rpc::Reply>(member);
    std::erase_if(all, [&](const rpc::Reply& each) { return each.id.value != request; });
    return all;
  }
};

inline rpc::Registration registrationOf(const std::string& node, uint64_t life, uint64_t ssdLife = 0) {
  rpc::Registration registration;
  registration.node = node;
  registration.hostId = "host of " + node;
  registration.link = node + ":1";
  registration.incarnation = Incarnation(life);
  registration.segmentBytes = kSegment;
  registration.maxKeys = 1000;
  registration.ssdLife = Incarnation(ssdLife);
  return registration;
}

// A member that no Membership has seen.
inline std::shared_ptr<Member> memberOf(const std::string& node, uint64_t life, uint64_t ssdLife = 0,
                                        MemberState state = MemberState::joined) {
  return std::make_shared<Member>(registrationOf(node, life, ssdLife), Time::never(), state);
}
inline Replica inMemory(Member& member, uint64_t bytes = 100) { return {member, member.space.allocate(bytes, Use::inFlight)->offset}; }
inline Replica onSsd(Member& member) { return {member, 0, member.ssdLife}; }

// What most parts stand on, and what it has said to those above. `last`: what the record says of the last term; nothing: no window.
struct Base {
  explicit Base(std::map<std::string, Incarnation> last = {}) : record(outbox, std::move(last)) {}
  // Requests that wait for space of each other's members would keep both, as in ~MasterCore().
  ~Base() {
    for (const auto& [node, member] : members) member->shortage = {};
  }

  Member& join(const rpc::Registration& registration) {
    std::shared_ptr<Member> member;
    const rpc::Registered result = membership.add(registration, now, member);
    INFO(result.detail);
    REQUIRE(result.code == Code::ok);
    return *member;
  }
  Member& join(const std::string& node, uint64_t ssdLife = 0) { return join(registrationOf(node, ++lives, ssdLife)); }
  Code tryJoin(const rpc::Registration& registration) {
    std::shared_ptr<Member> member;
    const Code code = membership.add(registration, now, member).code;
    CHECK((code == Code::ok) == bool(member));
    return code;
  }
  void onDisk() {
    record.persisted(record.version(), now);
    window.persisted(record.version(), now);
  }
  void sweep() {
    while (routes.sweeping()) routes.sweepSlice();
  }
  // The key has that value, and a replica of it in the memory of the member.
  KeyEntry& value(const std::string& key, PutId putId, Member& at, uint64_t bytes = 100, KeyLeaseId lease = {}) {
    KeyEntry& entry = routes.at(key);
    routes.replace(entry, putId, bytes, lease, inMemory(at, bytes));
    return entry;
  }

  Time now{seconds(1000).ns};
  Time leasesEnd = now + seconds(20);
  uint64_t lives = 0;
  std::vector<std::string> ended, fencedOnDisk, replaced, givenUp;  // nodes
  std::vector<Deferred> wentOn;

  Sent outbox;
  Outgoing out{outbox};
  Bounds bounds{Bounds::State::open};
  Routes routes{bounds};
  Record record;
  Membership::Members members;
  Window window{kTerm,
                leasesEnd,
                out,
                routes,
                bounds,
                record,
                members,
                {[this](const std::vector<Deferred>& requests, Time) { wentOn.insert(wentOn.end(), requests.begin(), requests.end()); },
                 [this](Member& member, Time) { givenUp.push_back(member.node()); }}};
  Membership membership{kLease,
                        out,
                        record,
                        routes,
                        window,
                        members,
                        {[this](Member& member, Time) { ended.push_back(member.node()); },
                         [this](Member& member, Time) { fencedOnDisk.push_back(member.node()); },
                         [this](Member& member, Member& next) {
                           CHECK(member.node() == next.node());
                           replaced.push_back(member.node());
                         }}};
};

}  // namespace fluxon::master
