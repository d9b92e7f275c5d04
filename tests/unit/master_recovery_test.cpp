// MasterCore: changes and questions while owners of the last term still list their values, lives that end meanwhile, and two processes
// that are both owner of a node.
#include "master_reports.h"

namespace fluxon::master {
namespace {

// a has listed `its` and serves, b has registered and listed nothing.
struct Window : World {
  explicit Window(std::vector<rpc::MemoryValue> its = {})
      : World({"a", "b"}), a(report(*this, with(*this, "a", 5, 1000))), b(report(*this, with(*this, "b", 6, 1000))) {
    page(a, std::move(its));
    fluxon::master::confirm(a);
  }
  Owner a, b;
};
OperationId getFor(Owner& owner, const std::string& key, uint64_t timeLeftMs) {
  return owner.get(key, rpc::NeighbourUse::read, {}, timeLeftMs);
}

TEST_CASE("window: a put is acknowledged while another owner lists, which is told of it first and whose older value is refused") {
  Window w;
  const OperationId done = w.a.done(w.a.start("k"));
  CHECK_FALSE(w.a.answered(done));
  CHECK(w.b.invalidateDone().size() == 1);
  CHECK(w.a.published(done));
  CHECK(w.core.recovering());
  CHECK(refused(w.b, page(w.b, {item("k", kOld, 0)}, 0)) == std::vector<uint64_t>{0});
  CHECK(w.a.route("k").node == "a");
}

TEST_CASE("window: a page that comes during a change does not bring the older value back") {
  Window w;
  const OperationId done = w.a.done(w.a.start("k"));
  CHECK(refused(w.b, page(w.b, {item("k", kOld, 0)}, 0)) == std::vector<uint64_t>{0});
  w.b.invalidateDone();
  CHECK(w.a.published(done));
}

TEST_CASE("window: nothing is acknowledged before each recorded node has registered, or its last lease has run out") {
  for (const bool comes : {false, true}) {
    CAPTURE(comes);
    World w({"a", "b"});
    Owner a = report(w, with(w, "a", 5, 1000));
    page(a, {});
    confirm(a);
    const OperationId done = a.done(a.start("k"));
    w.pass(milliseconds(19'999), {&a});
    CHECK_FALSE(a.answered(done));
    if (comes) {
      Owner b = report(w, with(w, "b", 6, 1000));
      CHECK_FALSE(a.answered(done));
      CHECK(b.invalidateDone().size() == 1);
    } else {
      w.pass(milliseconds(1), {&a});
      CHECK_FALSE(w.core.recovering());
    }
    CHECK(a.published(done));
  }
}

TEST_CASE("window: a key that was deleted in it is not brought back by a later page, and is known to be none") {
  Window w({item("k", kOld, 0)});
  const OperationId remove = w.a.remove("k");
  w.a.invalidateDone();
  CHECK_FALSE(w.a.answered(remove));
  w.b.invalidateDone();
  CHECK(w.a.code(remove) == Code::ok);
  CHECK(refused(w.b, page(w.b, {item("k", kOld, 0)}, 0)) == std::vector<uint64_t>{0});
  CHECK(w.a.route("k").code == Code::miss);
}

TEST_CASE("window: a key whose new value has gone by itself is not brought back by an older one") {
  Window w;
  const OperationId start = w.a.start("k"), done = w.a.done(start);
  w.b.invalidateDone();
  w.a.drop("k", w.a.ended(done).putId, 0);
  CHECK(w.core.table().routes() == 0);
  CHECK(refused(w.b, page(w.b, {item("k", kOld, 0)}, 0)) == std::vector<uint64_t>{0});
  // The same version elsewhere would do.
  Window same({item("l", kOld, 0)});
  same.a.drop("l", kOld, 0);
  CHECK(refused(same.b, page(same.b, {item("l", kOld, 0)}, 0)).empty());
}

TEST_CASE("window: it is open as long as pages come, beyond every lease, and ends for who only beats") {
  Window w;
  for (uint64_t n = 0; n < 10; ++n) {
    w.pass(milliseconds(9'900), {&w.a, &w.b});
    CHECK(w.core.recovering());
    CHECK(refused(w.b, page(w.b, {item("k" + std::to_string(n), kOld, n * 128)}, 0)).empty());
  }
  w.pass(milliseconds(10'149), {&w.a, &w.b});
  CHECK(w.core.recovering());
  w.pass(milliseconds(1), {&w.a});
  CHECK(*w.b.member->state == MemberState::fenced);
  CHECK_FALSE(w.core.recovering());
  CHECK(w.core.durable().members.at("b").value == 0);
  CHECK(w.core.durable().members.at("a").value == 5);
}

TEST_CASE("window: who asks for an unknown key waits until the key is known, or to its deadline") {
  Window w;
  const OperationId put = getFor(w.a, "put", 60'000), listed = getFor(w.a, "listed", 60'000), late = getFor(w.a, "late", 700);
  const OperationId list = w.a.list(), remove = w.a.remove("none");
  w.a.done(w.a.start("put"));
  w.b.invalidateDone();
  CHECK(w.a.route(put).node == "a");
  CHECK(w.core.nextWake() <= w.now + milliseconds(700));
  w.pass(seconds(1), {&w.a, &w.b});
  CHECK(w.a.code(late) == Code::unavailable);
  page(w.b, {item("listed", kOld, 0)});
  CHECK_FALSE(w.a.answered(listed));  // its owner does not serve yet
  CHECK_FALSE(w.a.answered(remove));
  confirm(w.b);
  CHECK_FALSE(w.core.recovering());
  CHECK(w.a.route(listed).node == "b");
  CHECK(w.a.code(remove) == Code::miss);
  CHECK(w.a.listed(list).size() == 2);
}

TEST_CASE("window: a put that an existing key refuses waits until it is known whether there is one") {
  Window w;
  const OperationId done = w.a.done(w.a.start("k", 100, kRejectExisting));
  page(w.b, {item("k", kOld, 0)});
  CHECK_FALSE(w.a.answered(done));
  confirm(w.b);
  CHECK(w.a.code(done) == Code::exists);
}

TEST_CASE("window: the next process of a node is told of the changes that its last one has not answered") {
  Window w;
  const OperationId done = w.a.done(w.a.start("k"));
  Owner next = report(w, with(w, "b", 7, 1000));
  CHECK_FALSE(w.a.answered(done));
  CHECK(next.invalidateDone().size() == 1);
  CHECK(w.a.published(done));
  CHECK(w.core.durable().members.at("b").value == 1000);
  CHECK(refused(next, page(next, {item("k", kOld, 0), item("l", kOld, 128)})) == std::vector<uint64_t>{0});
}

TEST_CASE("window: a change goes on past a node that ends under it when no next term takes its values; this one does") {
  Window w;
  const OperationId done = w.a.done(w.a.start("k"));
  w.pass(seconds(20), {&w.a});
  CHECK(*w.b.member->state == MemberState::fenced);
  CHECK(w.a.published(done));
  CHECK(w.core.durable().members.at("b").value != 1000);
  if (!w.core.recovering()) return;
  Owner next = report(w, with(w, "b", 7, 1000));
  CHECK(refused(next, page(next, {item("k", kOld, 0), item("l", kOld, 128)})) == std::vector<uint64_t>{0});
}

TEST_CASE("window: a newcomer without the directory of the recorded life does not shorten the wait for that one's lease") {
  World w({"a", "b"});
  Owner a = w.join("a");
  rpc::Registration r = w.registration("b", 6);
  r.ends.clear();
  w.join(r);
  const OperationId done = a.done(a.start("k"));
  CHECK_FALSE(a.answered(done));
  w.pass(seconds(20), {&a});
  CHECK(a.published(done));
  CHECK(w.core.durable().members.count("b") == 1);
}

TEST_CASE("inventory: pages are counted, and the last one may overtake others") {
  World w({"a"});
  Owner a = report(w, with(w, "a", 5, 1000));
  page(a, {item("l", kOld, 128)}, 2);
  CHECK(*a.member->state == MemberState::reporting);
  page(a, {item("k", kOld, 0)}, 0);
  CHECK(*a.member->state == MemberState::joined);
}

TEST_CASE("inventory: a life that ends before its list is complete leaves all to the next, what it had revived and what it had not") {
  for (const bool joined : {false, true}) {
    CAPTURE(joined);
    World w;
    Owner a = w.join(w.registration("a", 5)), b = w.join("b");
    const uint64_t one = a.put("one"), two = a.put("two"), three = a.put("three");
    const auto idOf = [&](const char* key) { return b.route(key).putId; };
    const std::vector<rpc::MemoryValue> all{item("one", idOf("one"), one), item("two", idOf("two"), two),
                                            item("three", idOf("three"), three)};
    Owner second = report(w, with(w, "a", 6, 5));
    // Killed before it has read an answer: its directory still names the first life.
    page(second, {all[0]}, 0);
    if (joined) page(second, {all[1], all[2]}, 2);
    Owner third = report(w, with(w, "a", 7, 5));
    CHECK(b.code(b.remove("three")) == Code::ok);
    CHECK(refused(third, page(third, all)) == std::vector<uint64_t>{three});
    w.work();
    CHECK(b.route("one").node == "a");
    CHECK(b.route("two").node == "a");
    CHECK(w.core.keys() == 2);
  }
}

TEST_CASE("two owners of a node: the second one waits until the first one's lease has run out, and never ends it") {
  World w;
  rpc::Registration first = w.registration("a", 5), second = w.registration("a", 6);
  first.pid = 4711;
  second.ends.clear();  // its folder was made anew
  Owner a = w.join(first);
  std::shared_ptr<Member> member;
  for (int n = 0; n < 30; ++n) {
    w.pass(seconds(1), {&a});
    const rpc::Registered refused = w.core.registerOwner(second, w.now, member);
    CHECK(refused.code == Code::unavailable);
    CHECK(refused.detail.find("4711") != std::string::npos);
  }
  CHECK(a.heartbeat() == Code::ok);
  w.pass(seconds(11));
  second.sent = w.now;
  CHECK(w.tryJoin(second) == Code::ok);
  // And the other way round, when the first one goes on.
  rpc::Registration back = w.registration("a", 7);
  back.ends = {Incarnation(5)};
  CHECK(w.tryJoin(back) == Code::unavailable);
}

}  // namespace
}  // namespace fluxon::master
