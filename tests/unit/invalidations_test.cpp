// Invalidations by themselves.
#include "master_parts.h"
#include "invalidations.h"

namespace fluxon::master {
namespace {

TEST_CASE("invalidations: one batch is under way to a member, of no more than 1024 versions, and what comes meanwhile follows") {
  Sent outbox;
  Outgoing out(outbox);
  Invalidations invalidations(out);
  const std::shared_ptr<Member> a = memberOf("a", 1);
  for (int i = 0; i < 2000; ++i) invalidations.add(*a, {"k" + std::to_string(i), PutId(9)});
  REQUIRE(outbox.messages.size() == 1);
  const auto order = [&] { return std::get<rpc::Invalidate>(outbox.messages.back().what); };
  CHECK(order().below.size() == 1);
  CHECK(invalidations.answered(*a, OrderId(99)).empty());
  CHECK(invalidations.answered(*a, order().order).size() == 1);
  invalidations.sendNext(*a);
  CHECK(order().below.size() == 1024);
  CHECK(order().below.front().key == "k1");
  invalidations.sendNext(*a);
  CHECK(outbox.messages.size() == 2);
  CHECK(invalidations.answered(*a, order().order).size() == 1024);
  invalidations.sendNext(*a);
  CHECK(order().below.size() == 2000 - 1025);
  CHECK(order().below.back().key == "k1999");
  CHECK(invalidations.total() == 2000);
}

}  // namespace
}  // namespace fluxon::master
