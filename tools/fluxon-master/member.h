// Member: one incarnation of one owner, as its master sees it. Each part of the core keeps here what it knows of the member, and changes
// nothing else of it.
//
// Life:   reporting ──(its inventory is complete, or it has no values)──► joined
//         reporting, joined ──(lease ran out, a new incarnation registered, stopped keeping its values)──► fenced
//         reporting, joined ──(left for good)──► left
//   reporting  takes part in invalidations; nothing else is asked of it, it serves nothing
//   fenced     it serves nothing. Its replicas stay dormant for its next life, until `forgetAt`; the durable record names it until a
//              change must go on without it, or its replicas are forgotten: either waits until the record has changed on disk
//   left       it serves nothing and has no next life; its replicas are forgotten, when that is on disk
// A connection may come and go while a member lives; orders and answers wait for it. What is on its SSD has lives of its own, one
// after the other, which its owner names; an SSD that begins another life has nothing of the last one, which never comes again.
// One thread.
#pragma once

#include <algorithm>
#include <deque>
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
#include "rpc/messages.h"
#include "shortage.h"

namespace fluxon::master {

enum class MemberState : uint8_t { reporting, joined, left, fenced };
// The durable record does not name the life any more, so that no next term takes its values. Not asked for before something relies on it.
enum class Fence : uint8_t { none, asked, onDisk };
// Its values are brought to others (drains.h); from `finishing` on no put begins there.
enum class Drain : uint8_t { no, moving, finishing, toldToLeave };

// A get that is answered when the value can be fetched from where the source brings it from its SSD.
struct StagedGet {
  MemberRef member;  // who asked
  OperationId id;    // of the request, and of its transfer
  rpc::GetStart request;
  unsigned stagings = 0;  // that have failed it before
};

class Member : public std::enable_shared_from_this<Member> {
 public:
  Member(rpc::Registration registration, Time end)
      : registration_(std::move(registration)),
        space(registration_.segmentBytes, registration_.maxKeys),
        registered(registration_.sent),
        leaseEnd(end),
        ssdLife(registration_.ssdLife) {}

  const std::string& node() const { return registration_.node; }
  Incarnation incarnation() const { return registration_.incarnation; }
  const rpc::Registration& registration() const { return registration_; }

 private:
  friend class MemberRef;
  rpc::Registration registration_;
  uint32_t refs_ = 0;
  std::shared_ptr<Member> self_;  // while there are refs

 public:
  MemberState state = MemberState::reporting;
  bool lives() const { return state == MemberState::reporting || state == MemberState::joined; }
  bool connected = true;
  MemberSpace space;

  // Membership's
  Time registered;      // when its latest registration was sent
  Time leaseEnd;        // counted from the last answer, with margin: after it the owner certainly serves nothing
  Time joinedAt{0};     // when it was heard to have joined; 0: not yet
  Incarnation ssdLife;  // of what is on its SSD; 0: nothing can be there
  Fence fence = Fence::none;
  bool forgotten = false;  // its replicas leave the routes as soon as its fence is on disk
  Time forgetAt = Time::never();
  MemberRef before;       // not complete: the life whose replicas its inventory may revive, and those of that one's `before`
  bool inWindow = false;  // its inventory is that of an earlier term
  bool complete = false;  // its inventory is, or it had none

  // Inventory's
  uint64_t pages = 0, pagesInAll = 0;  // that have come, and how many there are, when that is known

  // Outgoing's
  AnswerLog answers;
  std::map<OrderId, rpc::Order> orders;  // sent, not answered

  // Routes'. Keys with a replica on its SSD, by the life of the SSD. Those of other lives than ssdLife leave the routes in slices.
  std::map<Incarnation, std::set<KeyEntry*, ByName>> onSsd;
  size_t ssdReplicas() const { return onSsd.count(ssdLife) ? onSsd.at(ssdLife).size() : 0; }

  // Puts', Transfers', Staging's
  std::unordered_map<OperationId, Put> puts;
  std::map<TransferId, Transfer> transfers;  // into this member
  std::map<OrderId, StagedGet> staging;      // by the Stage in `orders`, while somebody still wants it
  std::map<OrderId, uint64_t> unstaging;     // by the Unstage in `orders`: the offset of the extent that it frees

  // Invalidations'
  std::vector<rpc::Version> invalidations;  // to be sent when the batch under way has been answered
  bool invalidating = false;

  // SpaceQueue's
  Shortage shortage;

  // Drains'
  Drain drain = Drain::no;
  bool draining() const { return drain != Drain::no; }
  bool finishing() const { return drain >= Drain::finishing; }
  std::vector<uint64_t> toMove;  // extents not looked at yet
  Time retryMove{0};
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

// What a caller's time left amounts to; nobody waits for more than a day.
inline Duration timeLeft(uint64_t ms) { return milliseconds(static_cast<int64_t>(std::min<uint64_t>(ms, 86'400'000))); }

// The owner counts its lease from before it sent, we from when we answered; 1 % and 50 ms cover clocks of different pace.
inline Time leaseEnd(Duration lease, Time now) { return now + lease + lease / 100 + milliseconds(50); }

inline bool Replica::readable() const { return member->state == MemberState::joined && (!ssd || ssd == member->ssdLife); }
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

// The member has a replica, readable or not.
inline const Replica* replicaOf(const KeyEntry& entry, const Member& member, Medium medium) {
  for (const Replica& replica : entry.replicas) {
    if (replica.member == member && replica.medium() == medium) return &replica;
  }
  return nullptr;
}

}  // namespace fluxon::master
