// MemberRef: one life of one owner, named by a value, a put, a copy or a request that has to do with it. To follow it costs what a pointer
// does. The record of the member stays as long as somebody names it, so a reference never dangles; whether the member still takes part is
// asked by `living`, so nobody need be told when it ends.
//
// Members name others only through parts of the core, and each part lets go of a member that ends: so there are no circles.
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
  // nullptr: it names nobody, or its member has ended.
  Member* living() const;

  bool operator==(const MemberRef& other) const { return member_ == other.member_; }
  bool operator==(const Member& other) const { return member_ == &other; }

 private:
  void hold();
  void release();

  Member* member_ = nullptr;
};

}  // namespace fluxon::master
