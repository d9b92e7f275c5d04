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
  const std::shared_ptr<Member> member = memberOf("a", 1);
  const MemberRef named(*member);
  CHECK(named.living() == member.get());
  member->state = MemberState::reporting;
  CHECK(named.living() == member.get());
  for (const MemberState state : {MemberState::fenced, MemberState::left}) {
    member->state = state;
    CHECK(named.living() == nullptr);
    CHECK(named == *member);
  }
  CHECK(MemberRef().living() == nullptr);
}

}  // namespace
}  // namespace fluxon::master
