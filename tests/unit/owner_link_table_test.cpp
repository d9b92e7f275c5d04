// The table of links: which link carries a fetch, and when nobody reads an export any more.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "link_table.h"

namespace fluxon::owner {
namespace {

// A link that notes what it is told, and reports what the test says.
class FakeLink final : public link::Link {
 public:
  std::string address() const override { return listensAt; }
  void setIncarnation(Incarnation incarnation) override { self = incarnation; }
  void fetch(const link::PeerAddress& peer, std::vector<link::Fetch> fetches) override {
    calls.push_back(peer);
    for (link::Fetch& each : fetches) asked.push_back(std::move(each));
  }
  void cancel(uint64_t) override {}
  void cancelAll() override { ++cancels; }
  void publish(uint64_t id, const char*, uint64_t, uint64_t) override { published[id]++; }
  void advance(uint64_t, uint64_t) override {}
  void fail(uint64_t) override {}
  void unpublish(uint64_t id) override { published[id]--; }
  int eventFd() const override { return -1; }
  link::LinkEvents reap() override { return std::exchange(events, {}); }
  link::LinkCounters counters() const override { return count; }
  std::string engine() const override { return name; }

  std::string name, listensAt;
  Incarnation self;
  std::vector<link::PeerAddress> calls;
  std::vector<link::Fetch> asked;
  std::map<uint64_t, int> published;
  link::LinkEvents events;
  link::LinkCounters count;
  int cancels = 0;
};

struct Fixture {
  // A link that is listening is started by the table's start().
  LinkTable::Row row(const char* name, const char* entry, std::function<bool(const Fetch&)> reaches, bool listens = false) {
    return {name, entry, listens, std::move(reaches), [this, name, listens]() -> Result<std::unique_ptr<link::Link>> {
              if (broken == name) return Error{Code::system, "no thread is left"};
              auto made = std::make_unique<FakeLink>();
              made->name = name;
              made->listensAt = listens ? std::string("at-") + name : "";
              links[name] = made.get();
              return std::unique_ptr<link::Link>(std::move(made));
            }};
  }
  LinkTable tableOf(std::vector<LinkTable::Row> rows) {
    return LinkTable(segment, std::move(rows),
                     {[this](link::Link& link) { started.push_back(&link); }, [this](const std::string& text) { refusals.push_back(text); },
                      [this](uint64_t id, const Error& error) { ended[id] = error; }, [this](ExportId id) { over.push_back(id.value); }});
  }
  // "near" carries keys that begin with its name, the others what their entries reach.
  LinkTable three(bool listens = false) {
    return tableOf({row("near", nullptr, [](const Fetch& fetch) { return fetch.key.starts_with("near"); }),
                    row("fast", "fast", LinkTable::registers("fast"), listens), row("plain", "", LinkTable::registers(""), listens)});
  }
  static Fetch fetchOf(uint64_t id, const std::string& key, const std::string& registered, const std::string& node = "n1") {
    Fetch fetch;
    fetch.id = id;
    fetch.peer = {node, "host", registered, Incarnation(7)};
    fetch.key = key;
    fetch.putId = PutId(3);
    fetch.offset = 16;
    fetch.bytes = 8;
    return fetch;
  }
  std::vector<uint64_t> idsOf(const std::string& link) {
    std::vector<uint64_t> ids;
    if (links.count(link)) {
      for (const link::Fetch& each : links[link]->asked) ids.push_back(each.id);
    }
    return ids;
  }

  char segment[64];
  std::string broken;  // link that cannot be started
  std::map<std::string, FakeLink*> links;
  std::vector<link::Link*> started;
  std::vector<std::string> refusals;
  std::map<uint64_t, Error> ended;
  std::vector<uint64_t> over;
};

using Ids = std::vector<uint64_t>;

TEST_CASE_FIXTURE(Fixture, "link table: a fetch goes by the first link that reaches its peer") {
  LinkTable table = three();
  const std::string both = "10.0.0.1:1 fast=f1";
  table.fetch({fetchOf(1, "near/a", both), fetchOf(2, "b", both), fetchOf(3, "c", "10.0.0.2:1"), fetchOf(4, "d", "other=x fast=f2")});
  CHECK(idsOf("near") == Ids{1});
  CHECK(idsOf("plain") == Ids{3});
  CHECK(links["plain"]->calls[0].address == "10.0.0.2:1");
  CHECK(links["near"]->calls[0].address == "");
  CHECK(links["near"]->calls[0].node == "n1");
  REQUIRE(idsOf("fast").size() == 2);
  for (const link::Fetch& each : links["fast"]->asked) {
    CHECK(each.to == segment + 16);
    CHECK(each.keyHash == keyHash(each.key));
    CHECK(each.bytes == 8);
  }
  CHECK(ended.empty());
}

TEST_CASE_FIXTURE(Fixture, "link table: fetches of one call that go to one peer go down together") {
  LinkTable table = three();
  table.fetch({fetchOf(1, "a", "x:1"), fetchOf(2, "b", "y:1", "n2"), fetchOf(3, "c", "x:1")});
  CHECK(links["plain"]->calls.size() == 2);
  CHECK(idsOf("plain") == Ids{1, 3, 2});
}

TEST_CASE_FIXTURE(Fixture, "link table: what no link reaches is unavailable, and no link is started for it") {
  LinkTable table = three();
  table.fetch({fetchOf(1, "a", ""), fetchOf(2, "b", "other=x")});
  REQUIRE(ended.size() == 2);
  CHECK(ended[1].code == Code::unavailable);
  CHECK(ended[2].detail == "node n1 has no link");
  CHECK(started.empty());
}

TEST_CASE_FIXTURE(Fixture, "link table: where a link cannot start the next one that reaches the peer carries the fetch") {
  LinkTable table = three();
  broken = "near";
  table.fetch({fetchOf(1, "near/a", "x:1"), fetchOf(2, "near/b", "")});
  CHECK(idsOf("plain") == Ids{1});
  CHECK(ended[2].code == Code::system);
  REQUIRE(refusals.size() == 2);
  CHECK(refusals[0] == "link near cannot start: no thread is left");
  // It is tried again.
  broken = "";
  table.fetch({fetchOf(3, "near/c", "x:1")});
  CHECK(idsOf("near") == Ids{3});
}

TEST_CASE_FIXTURE(Fixture, "link table: links that listen run from the start and are registered, others run from their first fetch") {
  LinkTable table = three(true);
  table.setIncarnation(Incarnation(5));
  REQUIRE(table.start().ok());
  CHECK(started.size() == 2);
  CHECK(table.address() == "fast=at-fast at-plain");
  CHECK((links["fast"]->self == Incarnation(5)));
  table.fetch({fetchOf(1, "near/a", "")});
  CHECK(started.size() == 3);
  CHECK((links["near"]->self == Incarnation(5)));
  CHECK(table.address() == "fast=at-fast at-plain");
  CHECK(table.engines() == std::vector<std::string>{"near", "fast", "plain"});
}

TEST_CASE_FIXTURE(Fixture, "link table: one that listens and cannot start fails the start") {
  LinkTable table = three(true);
  broken = "plain";
  CHECK(table.start().code == Code::system);
}

TEST_CASE_FIXTURE(Fixture, "link table: an export is over when the last link that runs says so, and at once where none runs") {
  LinkTable table = three(true);
  table.unpublish(ExportId(4));
  CHECK(over == Ids{4});
  REQUIRE(table.start().ok());
  FakeLink &fast = *links["fast"], &plain = *links["plain"];
  table.publish(ExportId(8), segment, 8, 8);
  CHECK(fast.published[8] == 1);
  CHECK(plain.published[8] == 1);
  table.unpublish(ExportId(8));
  // A link that starts now was not told of it.
  table.fetch({fetchOf(1, "near/a", "")});
  plain.events.unpublished = {8};
  table.reap(plain);
  CHECK(over == Ids{4});
  fast.events.unpublished = {8};
  table.reap(fast);
  CHECK(over == Ids{4, 8});
}

TEST_CASE_FIXTURE(Fixture, "link table: results, cancels and counters are those of all links") {
  LinkTable table = three(true);
  REQUIRE(table.start().ok());
  FakeLink &fast = *links["fast"], &plain = *links["plain"];
  fast.events.fetched = {{1, {}}};
  plain.events.fetched = {{2, {Code::miss, "gone"}}};
  table.reap(fast);
  table.reap(plain);
  CHECK(ended[1].ok());
  CHECK(ended[2].code == Code::miss);
  table.cancelAll();
  CHECK(fast.cancels + plain.cancels == 2);
  fast.count.bytesIn = 5;
  plain.count.bytesIn = 7;
  CHECK(table.counters().bytesIn == 12);
}

}  // namespace
}  // namespace fluxon::owner
