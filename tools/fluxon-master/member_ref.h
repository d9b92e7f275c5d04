// MemberRef: a counted reference to one life of one owner, held by values, puts, copies and requests that involve it. Following it costs
// what a pointer does. The member's record stays while somebody refers to it, so a reference never dangles. `living` asks whether the
// member still takes part, so holders need no notice when it ends.
//
// Members refer to each other only through parts of the core, and each part releases a member that ends, so there are no cycles.
// One thread: the count is a plain number.
#pragma once

#include <utility>

namespace fluxon::master {

class Member;

class MemberRef {
 public:
  MemberRef() = default;
  MemberRef(Member& member) : member_(&member) { hold(); }  // NOLINT: a member is its own name
  MemberRef(const MemberRef& other) : member_(other.member_) {
    if (member_) hold();
  }
  MemberRef(MemberRef&& other) noexcept : member_(std::exchange(other.member_, nullptr)) {}
  MemberRef& operator=(MemberRef other) noexcept {
    std::swap(member_, other.member_);
    return *this;
  }
  ~MemberRef() {
    if (member_) release();
  }

  Member& operator*() const { return *member_; }
  Member* operator->() const { return member_; }
  Member* get() const { return member_; }
  explicit operator bool() const { return member_ != nullptr; }
  // nullptr: the reference is empty, or its member has ended.
  Member* living() const;

  bool operator==(const MemberRef& other) const { return member_ == other.member_; }
  bool operator==(const Member& other) const { return member_ == &other; }

 private:
  void hold();
  void release();

  Member* member_ = nullptr;
};

}  // namespace fluxon::master
