// MasterCore: owners that come back with values, within a term and in a new one, and what must be on disk before what is said.
#include "master_reports.h"

namespace fluxon::master {
namespace {

TEST_CASE("inventory: within the term the next life of an owner gets its routes back, those that nothing has ended since") {
  World w;
  Owner a = w.join(w.registration("a", 5)), b = w.join("b");
  const uint64_t kept = a.put("kept"), overwritten = a.put("overwritten"), deleted = a.put("deleted");
  const auto idOf = [&](const char* key) { return b.route(key).putId; };
  const PutId idKept = idOf("kept"), idOver = idOf("overwritten"), idDel = idOf("deleted");
  w.pass(seconds(11), {&b});
  CHECK(b.route("kept").code == Code::miss);
  b.put("overwritten");
  CHECK(b.code(b.remove("deleted")) == Code::ok);
  Owner again = report(w, with(w, "a", 6, 5));
  const OperationId listed =
      page(again, {item("kept", idKept, kept), item("overwritten", idOver, overwritten), item("deleted", idDel, deleted)});
  CHECK(refused(again, listed) == std::vector<uint64_t>{overwritten, deleted});
  CHECK(b.route("kept").node == "a");
  CHECK(b.route("overwritten").node == "b");
  CHECK(b.route("deleted").code == Code::miss);
  CHECK(again.release({overwritten, deleted}) == Code::ok);
  CHECK(w.bytesAddUp());
}

TEST_CASE("inventory: a restart before the lease ends keeps the routes as well, and what is not listed is gone") {
  World w;
  Owner a = w.join(w.registration("a", 5)), b = w.join("b");
  const uint64_t listed = a.put("listed");
  a.put("lost");
  const PutId id = b.route("listed").putId;
  Owner again = report(w, with(w, "a", 6, 5));
  CHECK(b.route("listed").code == Code::miss);  // not yet
  page(again, {item("listed", id, listed)});
  w.work();
  CHECK(b.route("listed").node == "a");
  CHECK(b.route("lost").code == Code::miss);
  CHECK(w.core.keys() == 1);
}

TEST_CASE("inventory: another put_id, place or length is refused, and so is a key of nobody") {
  World w;
  Owner a = w.join(w.registration("a", 5)), b = w.join("b");
  const uint64_t one = a.put("one");
  const PutId id = b.route("one").putId;
  Owner again = report(w, with(w, "a", 6, 5));
  const OperationId listed = page(again, {item("one", PutId(id.value + 1), one), item("one", id, one + 8192),
                                          item("one", id, one + 16384, 90), item("none", id, one + 32768)});
  CHECK(refused(again, listed).size() == 4);
  CHECK(again.bytes(Use::unrouted) == 4 * 128);
}

TEST_CASE("inventory: a life that was not the last one is not asked for its values") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  a.put("k");
  w.join(w.registration("a", 6));
  std::shared_ptr<Member> member;
  rpc::Registration third = with(w, "a", 7, 5);
  third.ends.push_back(Incarnation(6));
  const rpc::Registered result = w.core.registerOwner(third, w.now, member);
  CHECK(result.code == Code::ok);
  CHECK_FALSE(result.inventory);
}

TEST_CASE("inventory: one with extents that overlap is never complete") {
  World w({"a"});
  Owner a = report(w, with(w, "a", 5, 1000));
  CHECK(a.code(page(a, {item("k", kOld, 0, 5000), item("l", kOld, 4096, 100)}, 0)) == Code::protocol);
  CHECK(a.code(page(a, {}, 2)) == Code::ok);
  CHECK(*a.member->state == MemberState::reporting);
  Owner again = w.join(w.registration("a", 6));
  CHECK(again.code(page(again, {})) == Code::protocol);
}

TEST_CASE("inventory: before it is complete an owner may heartbeat and answer orders, nothing else") {
  World w({"a"});
  Owner a = report(w, with(w, "a", 5, 1000));
  CHECK(a.heartbeat() == Code::ok);
  CHECK(a.code(a.start("k")) == Code::protocol);
  CHECK(a.route("k").code == Code::protocol);
  page(a, {});
  CHECK(a.code(a.start("k")) == Code::ok);
}

TEST_CASE("new term: the recorded life's values are taken in the window, in pages, and known ones are served before it ends") {
  World w({"a", "b"});
  Owner a = report(w, with(w, "a", 5, 1000));
  CHECK(refused(a, page(a, {item("k", kOld, 0)}, 0)).empty());
  CHECK(refused(a, page(a, {item("l", PutId(Term(2), 8), 128)}, 2)).empty());
  CHECK(*a.member->state == MemberState::joined);
  CHECK(a.route("k").node == "a");
  const OperationId unknown = a.get("x");
  CHECK_FALSE(a.answered(unknown));
  CHECK(w.core.recovering());
}

TEST_CASE("new term: another life than the recorded one is not asked") {
  World w({"a"});
  std::shared_ptr<Member> member;
  CHECK_FALSE(w.core.registerOwner(with(w, "a", 5, 1001), w.now, member).inventory);
  CHECK_FALSE(w.core.registerOwner(with(w, "c", 6, 1000), w.now, member).inventory);
}

TEST_CASE("new term: of two versions the later one is the route, and the earlier one is refused or invalidated") {
  World w({"a", "b", "c"});
  Owner a = report(w, with(w, "a", 5, 1000)), b = report(w, with(w, "b", 6, 1000)), c = report(w, with(w, "c", 7, 1000));
  const PutId later(Term(2), 8);
  CHECK(refused(a, page(a, {item("k", kOld, 0)})).empty());
  CHECK(refused(b, page(b, {item("k", later, 0)})).empty());
  CHECK(refused(c, page(c, {item("k", kOld, 0)})) == std::vector<uint64_t>{0});
  CHECK(a.invalidateDone().size() == 1);
  CHECK(b.route("k").node == "b");
  CHECK((b.route("k").putId == later));
}

TEST_CASE("new term: values under a key lease, or of this term or a later one, are refused") {
  World w({"a"});
  Owner a = report(w, with(w, "a", 5, 1000));
  const OperationId listed = page(a, {item("leased", kOld, 0, 100, KeyLeaseId(9)), item("ahead", PutId(Term(3), 1), 128)});
  CHECK(refused(a, listed).size() == 2);
}

TEST_CASE("new term: the window ends early only when each recorded owner knows which of its values must go") {
  World w({"a"});
  Owner a = report(w, with(w, "a", 5, 1000));
  page(a, {item("k", kOld, 0)});
  const OperationId remove = a.remove("k");
  CHECK_FALSE(a.answered(remove));
  confirm(a);
  CHECK_FALSE(w.core.recovering());
  a.invalidateDone();
  CHECK(a.code(remove) == Code::ok);
}

TEST_CASE("new term: the values of who comes after the window are not taken") {
  World w({"a", "b"});
  Owner a = report(w, with(w, "a", 5, 1000));
  page(a, {});
  confirm(a);
  w.pass(seconds(20), {&a});
  CHECK_FALSE(w.core.recovering());
  std::shared_ptr<Member> member;
  CHECK_FALSE(w.core.registerOwner(with(w, "b", 6, 1000), w.now, member).inventory);
}

TEST_CASE("disk: a change goes on past a fenced owner only when its record is durable") {
  World w;
  Owner a = w.join("a"), b = w.join("b");
  a.put("k");
  const OperationId done = b.done(b.start("k"));
  w.diskWorks = false;
  w.pass(seconds(11));
  CHECK(*a.member->state == MemberState::fenced);
  CHECK_FALSE(b.answered(done));
}

TEST_CASE("disk: the last page of an inventory is answered when the next term would know of it") {
  World w({"a"});
  Owner a = report(w, with(w, "a", 5, 1000));
  w.diskWorks = false;
  const OperationId last = page(a, {item("k", kOld, 0)});
  CHECK_FALSE(a.answered(last));
  w.persisted();
  CHECK(a.answered(last));
  CHECK(w.core.durable().members.at("a").value == 5);
}

TEST_CASE("disk: the window ends without an owner only when its record is gone") {
  World w({"a", "b"});
  Owner a = w.join("a");
  const OperationId remove = a.remove("k");
  w.pass(seconds(19), {&a});
  w.diskWorks = false;
  w.pass(seconds(1), {&a});
  CHECK(w.core.recovering());
  CHECK_FALSE(a.answered(remove));
  w.persisted();
  CHECK_FALSE(w.core.recovering());
  CHECK(a.code(remove) == Code::miss);
  CHECK(w.core.durable().members.at("b").value == 0);
}

TEST_CASE("disk: routes are forgotten when the next term would not take their values any more") {
  for (const bool gone : {false, true}) {
    CAPTURE(gone);
    World w;
    Owner a = w.join(w.registration("a", 5)), b = w.join("b");
    a.put("k");
    w.diskWorks = false;
    if (gone) {
      w.core.leave(*a.member, MasterCore::Content::gone, w.now);
    } else {
      // The next life adopts the values, and ends before it has said which.
      w.core.leave(*a.member, MasterCore::Content::kept, w.now);
      Owner again = report(w, with(w, "a", 6, 5));
      w.pass(seconds(11), {&b});
      CHECK(*again.member->state == MemberState::fenced);
    }
    w.work();
    const OperationId remove = b.remove("k");
    CHECK_FALSE(b.answered(remove));
    w.persisted();
    w.work();
    CHECK(b.code(remove) == Code::ok);
    CHECK(w.core.keys() == 0);
    const auto& record = w.core.durable().members;
    CHECK((gone ? record.count("a") == 0 : record.at("a").value == 0));
  }
}

TEST_CASE("disk: an owner whose values are not wanted keeps no record until it has dropped them") {
  World w;
  Owner a = w.join(w.registration("a", 5));
  w.core.leave(*a.member, MasterCore::Content::gone, w.now);
  w.persisted();
  std::shared_ptr<Member> member;
  CHECK_FALSE(w.core.registerOwner(with(w, "a", 6, 5), w.now, member).inventory);
  w.persisted();
  CHECK(w.core.durable().members.at("a").value == 0);
  w.join(w.registration("a", 7));
  CHECK(w.core.durable().members.at("a").value == 7);
}

TEST_CASE("dormant: a fenced owner's values are remembered for ten minutes") {
  for (const bool tooLate : {false, true}) {
    CAPTURE(tooLate);
    World w;
    Owner a = w.join(w.registration("a", 5));
    a.put("k");
    w.core.leave(*a.member, MasterCore::Content::kept, w.now);
    w.persisted();
    Owner b = w.join("b");
    CHECK(b.route("k").code == Code::miss);
    w.pass(seconds(tooLate ? 600 : 599), {&b});
    w.work();
    std::shared_ptr<Member> member;
    CHECK(w.core.registerOwner(with(w, "a", 6, 5), w.now, member).inventory == !tooLate);
    if (tooLate) CHECK(w.core.keys() == 0);
  }
}

TEST_CASE("dormant: a key whose owner is away does not exist for rejectIfExists, listings and counts") {
  World w;
  Owner a = w.join(w.registration("a", 5)), b = w.join("b");
  a.put("k");
  b.put("l");
  w.core.leave(*a.member, MasterCore::Content::kept, w.now);
  w.persisted();
  CHECK(b.listed(b.list()).size() == 1);
  const OperationId count = b.count("");
  w.work();
  CHECK(b.counted(count) == 1);
  CHECK(b.code(b.stat("k")) == Code::miss);
  CHECK(b.code(b.start("k", 1, kRejectExisting)) == Code::ok);
}

}  // namespace
}  // namespace fluxon::master
