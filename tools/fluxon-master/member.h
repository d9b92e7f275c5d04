// Member: the master's record of one incarnation of one owner. Each field belongs to one part of the core; the others read it (owned.h).
//
// Life:   reporting ──(its inventory is complete, or it has no values)──► joined
//         reporting, joined ──(lease ran out, a new incarnation registered, stopped keeping its values)──► fenced
//         reporting, joined ──(left for good)──► left
//   reporting  the owner lists its values. It takes part in invalidations and nothing else, and serves nothing
//   fenced     the owner serves nothing. Its replicas stay dormant for its next life until `forgetAt`. The durable record names it until a
//              change must go on without it or its replicas are forgotten; both wait until the record has changed on disk
//   left       the owner serves nothing and has no next life; its replicas are forgotten when that is on disk
// Connections may come and go while a member lives; orders and answers wait for the next one. The SSD of an owner has lives (epochs) of its
// own, which the owner names. Each begins empty, and none comes back. One thread.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "answer_log.h"
#include "base/clock.h"
#include "key_table.h"
#include "member_space.h"
#include "owned.h"
#include "rpc/messages.h"
#include "shortage.h"

namespace fluxon::master {

enum class MemberState : uint8_t { reporting, joined, left, fenced };
enum class Connection : uint8_t { there, lost };
// Which values the member's inventory lists, until it is complete. none: it may list nothing; its values are refused as a whole.
enum class Listing : uint8_t { none, ofLastTerm, ofBefore, complete };
// Whether the durable record has stopped naming the life, so that no next term takes its values. Asked for only when something relies on
// it.
enum class Fence : uint8_t { none, asked, onDisk };
// The replicas of a member that has ended: they wait for the next life of its node (dormant), that life is listing them (adopted), or they
// leave the routes as soon as the fence is on disk (forgotten).
enum class Remains : uint8_t { present, dormant, adopted, forgotten };
// The master moves the member's values to others (drains.h); from `finishing` on no put begins there.
enum class Drain : uint8_t { no, moving, finishing, toldToLeave };
struct Draining {
  Drain state = Drain::no;
  std::vector<uint64_t> toMove;  // extents not looked at yet
  Time retry{0};
};

class Drains;
class Membership;
class Outgoing;
class Puts;
class Routes;
class Transfers;

class Member : public std::enable_shared_from_this<Member> {
 public:
  explicit Member(rpc::Registration registration, Time end = Time::never(), MemberState state_ = MemberState::reporting,
                  Drain drained = Drain::no)
      : registration_(std::move(registration)),
        space(registration_.segmentBytes, registration_.maxKeys),
        state(state_),
        registered(registration_.sent),
        leaseEnd(end),
        ssdLife(registration_.ssdLife),
        drain(Draining{drained, {}, Time{0}}) {}

  const std::string& node() const { return registration_.node; }
  Incarnation incarnation() const { return registration_.incarnation; }
  const rpc::Registration& registration() const { return registration_; }

 private:
  friend class MemberRef;
  rpc::Registration registration_;
  uint32_t refs_ = 0;
  std::shared_ptr<Member> self_;  // while there are refs

 public:
  MemberSpace space;
  Shortage shortage;

  Owned<Membership, MemberState> state;
  Owned<Membership, Connection> connection;
  Owned<Membership, Time> registered;  // when its latest registration was sent
  Owned<Membership, Time> leaseEnd;    // counted from the last answer, with margin: after it the owner certainly serves nothing
  Owned<Membership, std::optional<Time>> joinedAt;  // when it was heard to have joined
  Owned<Membership, Incarnation> ssdLife;           // of what is on its SSD; 0: nothing can be there
  Owned<Membership, Listing> listing;
  Owned<Membership, MemberRef> before;  // ofBefore: the life whose replicas its inventory may revive, and those of that one's `before`
  Owned<Membership, Fence> fence;
  Owned<Membership, Remains> remains;
  Owned<Membership, Time> forgetAt;  // dormant: until then
  bool lives() const { return state == MemberState::reporting || state == MemberState::joined; }
  bool connected() const { return connection == Connection::there; }

  Owned<Outgoing, AnswerLog> answers;
  Owned<Outgoing, std::map<OrderId, rpc::Order>> orders;  // sent, not answered

  // Keys with a replica on its SSD, by the life of the SSD. Those of other lives than ssdLife leave the routes in slices.
  Owned<Routes, std::map<Incarnation, std::set<KeyEntry*, ByName>>> onSsd;
  size_t ssdReplicas() const { return onSsd->count(ssdLife) ? onSsd->at(ssdLife).size() : 0; }

  Owned<Puts, std::unordered_map<OperationId, Put>> puts;
  Owned<Transfers, std::map<TransferId, Transfer>> transfers;  // into this member

  Owned<Drains, Draining> drain;
  bool draining() const { return drain->state != Drain::no; }
  bool finishing() const { return drain->state >= Drain::finishing; }
};

inline void MemberRef::hold() {
  if (member_->refs_++ == 0) member_->self_ = member_->shared_from_this();
}
inline void MemberRef::release() {
  if (--member_->refs_ == 0) const std::shared_ptr<Member> last = std::move(member_->self_);
}
inline Member* MemberRef::living() const { return member_ && member_->lives() ? member_ : nullptr; }

inline bool ByName::operator()(const MemberRef& a, const MemberRef& b) const {
  return a->node() != b->node() ? a->node() < b->node() : a->incarnation() < b->incarnation();
}
inline bool ByName::operator()(const KeyEntry* a, const KeyEntry* b) const { return a->key < b->key; }

// A caller's time left, at most a day.
inline Duration timeLeft(uint64_t ms) { return milliseconds(static_cast<int64_t>(std::min<uint64_t>(ms, 86'400'000))); }

// When an owner's lease has certainly run out. The owner counts from before it sent, the master from when it answered; 1 % and 50 ms cover
// clocks of different pace.
inline Time leaseEnd(Duration lease, Time now) { return now + lease + lease / 100 + milliseconds(50); }

inline bool Replica::readable() const { return member->state == MemberState::joined && (!ssd || ssd == *member->ssdLife); }
inline bool readable(const KeyEntry& entry) {
  for (const Replica& replica : entry.replicas) {
    if (replica.readable()) return true;
  }
  return false;
}
inline rpc::Peer peerOf(const Member& member) {
  const rpc::Registration& r = member.registration();
  return {r.node, r.hostId, r.link, r.incarnation};
}

// The member's replica, readable or not; nullptr: none.
inline const Replica* replicaOf(const KeyEntry& entry, const Member& member, Medium medium) {
  for (const Replica& replica : entry.replicas) {
    if (replica.member == member && replica.medium() == medium) return &replica;
  }
  return nullptr;
}

}  // namespace fluxon::master
