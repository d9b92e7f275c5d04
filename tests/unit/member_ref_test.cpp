// References to members.
#include "master_parts.h"

namespace fluxon::master {
namespace {

TEST_CASE("member reference: the record stays as long as it is named, however often it is copied and moved") {
  std::shared_ptr<Member> member = memberOf("a", 1);
  const std::weak_ptr<Member> seen = member;
  MemberRef one(*member), two = one, three = std::move(one);
  CHECK_FALSE(one);
  CHECK(two == three);
  member.reset();
  CHECK(two->node() == "a");
  two = three;
  two = {};
  CHECK_FALSE(seen.expired());
  three = MemberRef(*three);
  three = {};
  CHECK(seen.expired());
}

TEST_CASE("member reference: a member that has ended is named, but is no living one") {
  for (const MemberState state : {MemberState::reporting, MemberState::joined, MemberState::fenced, MemberState::left}) {
    const std::shared_ptr<Member> member = memberOf("a", 1, 0, state);
    const MemberRef named(*member);
    CHECK(named == *member);
    CHECK((named.living() == member.get()) == (state == MemberState::reporting || state == MemberState::joined));
  }
  CHECK(MemberRef().living() == nullptr);
}

}  // namespace
}  // namespace fluxon::master
