// Copies from member to member, by themselves. What they mean for puts, stagings and drains is written down.
#include "transfers.h"

#include "master_parts.h"

namespace fluxon::master {
namespace {

const PutId kPut(kTerm, 1), kLater(kTerm, 2);

struct Copies : Base {
  // The member has asked for a copy of the value by that get.
  Transfer& get(KeyEntry& entry, Member& from, Member& to, uint64_t request, bool durable = true) {
    Transfer transfer{&entry, entry.putId, to.space.allocate(entry.bytes, Use::inFlight)->offset, entry.bytes, from, now, durable};
    return transfers.begin(to, OperationId(request), transfer);
  }
  rpc::CopyEnded done(Member& to, uint64_t get, uint64_t request, Code code = Code::ok) {
    transfers.getDone(to, OperationId(request), {{}, OperationId(get), code}, now);
    return outbox.answer<rpc::CopyEnded>(to, request);
  }
  std::vector<std::string> happened;
  SpaceQueue space{seconds(5), out, routes, membership, [](const Waiting&, Time) { return nullptr; }};
  Transfers transfers{
      out,
      routes,
      membership,
      space,
      {[this](const OfPut& put, const Copied& copy, Time) {
         happened.push_back("arrived " + put.origin->node() + " at " + copy.home->node());
       },
       [this](const OfPut& put, const std::string& node) { happened.push_back("cannot arrive " + put.origin->node() + " at " + node); },
       [this](KeyEntry&, Member&, const rpc::Request&) { happened.emplace_back("deferred"); },
       [this](Member& source, const StagedAt&) { happened.push_back("not staged at " + source.node()); },
       [this](Member& member, const Transfer&, Code) { happened.push_back("load failed at " + member.node()); },
       [this](Member& from, Time) { happened.push_back("ended from " + from.node()); }}};
};

TEST_CASE("transfers: what a copy brings becomes a replica, and is the master's business from its first byte to its last") {
  Copies w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  KeyEntry& entry = w.value("k", kPut, a);
  w.get(entry, a, b, 1);
  CHECK(w.transfers.underWay() == 1);
  CHECK(Transfers::durable(entry) == 1);
  CHECK(w.transfers.movingFrom(a) == 1);
  CHECK(w.transfers.oldest(w.now + seconds(2)) == seconds(2));
  CHECK(w.done(b, 1, 2).published);
  CHECK(replicaOf(entry, b, Medium::memory));
  CHECK(w.transfers.underWay() == 0);
  CHECK(w.transfers.counters().replicasMade == 1);
  CHECK(w.happened == std::vector<std::string>{"ended from a"});
}

TEST_CASE("transfers: a copy of an older version, one under a change, and a temporary one are no replicas: they come back by release") {
  Copies w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  KeyEntry& entry = w.value("k", kPut, a);
  w.get(entry, a, b, 1);
  w.get(entry, a, b, 2, false);
  CHECK_FALSE(w.done(b, 2, 11).published);
  entry.change = std::make_unique<Change>();
  CHECK_FALSE(w.done(b, 1, 12).published);
  entry.change.reset();
  w.get(entry, a, b, 3);
  w.value("k", kLater, a);
  CHECK_FALSE(w.done(b, 3, 13).published);
  CHECK(entry.replicas.size() == 1);
  CHECK(b.space.bytes(Use::unrouted) == 3 * extentBytes(100));
  CHECK(w.transfers.counters().transfersFailed == 0);
}

TEST_CASE("transfers: a copy that fails is counted, and its end said twice means nothing the second time") {
  Copies w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  w.get(w.value("k", kPut, a), a, b, 1);
  CHECK_FALSE(w.done(b, 1, 2, Code::unavailable).published);
  CHECK_FALSE(w.done(b, 1, 3).published);
  CHECK(w.transfers.counters().transfersFailed == 1);
  CHECK(b.space.bytes(Use::unrouted) == extentBytes(100));
}

TEST_CASE("transfers: a load from an SSD of one's own that fails is told, one from another owner's is not") {
  Copies w;
  Member& a = w.join("a", 50);
  Member& b = w.join("b");
  KeyEntry& entry = w.value("k", kPut, a);
  w.get(entry, a, a, 1).ssd = a.ssdLife;
  w.get(entry, a, b, 1).ssd = a.ssdLife;
  w.done(b, 1, 2, Code::corrupt);
  CHECK(std::count(w.happened.begin(), w.happened.end(), "load failed at b") == 0);
  w.done(a, 1, 2, Code::corrupt);
  CHECK(std::count(w.happened.begin(), w.happened.end(), "load failed at a") == 1);
}

TEST_CASE("transfers: the copy of a put is told as arrived, waits for a change of its key, and fails with its home") {
  Copies w;
  Member& a = w.join("a");
  Member& home = w.join("home");
  Put put{OperationId(1), &w.routes.at("k"), kPut, a.space.allocate(100, Use::inFlight)->offset, 100};
  put.home = PutHome{home, home.space.allocate(100, Use::inFlight)->offset};
  REQUIRE(w.transfers.bringHome(a, put, w.now));
  const rpc::Replicate order = w.outbox.one<rpc::Replicate>(home);
  CHECK(order.exported->id == ExportId(kPut.value));
  CHECK(w.transfers.movingFrom(a) == 0);  // a client's own
  put.key->change = std::make_unique<Change>();
  w.transfers.replicateDone(home, OperationId(2), {{}, order.order, Code::ok}, w.now);
  put.key->change.reset();
  w.transfers.replicateDone(home, OperationId(2), {{}, order.order, Code::ok}, w.now);
  w.transfers.memberEnded(home);
  CHECK(w.happened == std::vector<std::string>{"deferred", "arrived a at home", "cannot arrive a at home"});
  CHECK(w.transfers.underWay() == 0);
}

TEST_CASE("transfers: what is not wanted any more ends as any copy, what has been taken home is the value's") {
  Copies w;
  Member& a = w.join("a");
  Member& home = w.join("home");
  KeyEntry& entry = w.value("other", kPut, a);
  Put put{OperationId(1), &entry, kLater, a.space.allocate(100, Use::inFlight)->offset, 100};
  put.home = PutHome{home, home.space.allocate(100, Use::inFlight)->offset};
  REQUIRE(w.transfers.bringHome(a, put, w.now));
  w.transfers.unwanted(home, put.home->copy);
  w.transfers.replicateDone(home, OperationId(2), {{}, put.home->copy, Code::ok}, w.now);
  CHECK_FALSE(w.outbox.answer<rpc::CopyEnded>(home, 2).published);
  put.home->offset = home.space.allocate(100, Use::inFlight)->offset;
  REQUIRE(w.transfers.bringHome(a, put, w.now));
  w.transfers.taken(home, put.home->copy);
  CHECK(w.transfers.underWay() == 0);
  CHECK(entry.transfers.empty());
  CHECK(home.space.bytes(Use::inFlight) == extentBytes(100));
}

TEST_CASE("transfers: a spread is answered when its copies have ended, with how many owners have the value") {
  Copies w;
  Member& a = w.join("a");
  Member& b = w.join("b");
  Member& c = w.join("c");
  w.value("k", kPut, a);
  w.transfers.spread(a, OperationId(1), {{}, {"k", kPut}, 3, 1000}, w.now);
  w.transfers.replicateDone(b, OperationId(2), {{}, w.outbox.one<rpc::Replicate>(b).order, Code::ok}, w.now);
  CHECK_FALSE(w.outbox.answered(a, 1));
  w.transfers.replicateDone(c, OperationId(3), {{}, w.outbox.one<rpc::Replicate>(c).order, Code::unavailable}, w.now);
  CHECK(w.outbox.answer<rpc::SpreadEnded>(a, 1).replicas == 2);
  w.transfers.spread(a, OperationId(4), {{}, {"k", kLater}, 3, 1000}, w.now);
  CHECK(w.outbox.answer<rpc::SpreadEnded>(a, 4).replicas == 0);
}

TEST_CASE("transfers: with its target a copy is over, a staged one is told at its source while that lives") {
  Copies w;
  Member& a = w.join("a", 50);
  Member& b = w.join("b");
  KeyEntry& entry = w.value("k", kPut, a);
  w.get(entry, a, b, 1).stage = StagedAt{OrderId(5), 0};
  w.get(entry, a, b, 2);
  w.transfers.memberEnded(b);
  CHECK(w.happened == std::vector<std::string>{"not staged at a"});
  CHECK(entry.transfers.empty());
  CHECK(w.transfers.underWay() == 0);
}

TEST_CASE("transfers: there is no copy where there is no way") {
  Copies w;
  rpc::Registration alone = registrationOf("a", 70);
  alone.link.clear();
  Member& a = w.join(alone);
  Member& b = w.join("b");
  KeyEntry& entry = w.value("k", kPut, a);
  CHECK_FALSE(bool(w.transfers.replicate(entry, a, b, {}, 1000, {&entry, kPut, 0, 100, a, w.now})));
  CHECK(entry.transfers.empty());
}

}  // namespace
}  // namespace fluxon::master
