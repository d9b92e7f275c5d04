// The durable record of the members, and the bounds of what the recovery window takes.
#include "master_parts.h"
#include "bounds.h"

namespace fluxon::master {
namespace {

TEST_CASE("record: what waits for a version goes on when that is on disk, in its order, and not before") {
  Sent outbox;
  Record record(outbox, {{"a", Incarnation(1)}});
  CHECK(record.onDisk());
  std::vector<int> went;
  record.set("a", Incarnation(2));
  record.whenOnDisk([&](Time) { went.push_back(1); });
  record.erase("a");
  CHECK(outbox.persists == 2);
  CHECK_FALSE(record.onDisk());
  record.whenOnDisk([&](Time) { went.push_back(2); });
  record.whenOnDisk([&](Time) { went.push_back(3); });
  record.persisted(record.version() - 1, Time{});
  CHECK(went == std::vector<int>{1});
  record.persisted(record.version(), Time{});
  CHECK(went == std::vector<int>{1, 2, 3});
  CHECK(record.onDisk());
  record.persisted(1, Time{});  // an older write says nothing new
  CHECK(record.persisted() == record.version());
  CHECK_FALSE(record.has("a"));
}

TEST_CASE("bounds: the greatest put_id counts, and none when the window has closed") {
  Bounds bounds(Bounds::State::open);
  bounds.add("k", PutId(7));
  bounds.add("k", PutId(5));
  bounds.add("l", PutId());
  CHECK((bounds.of("k") == PutId(7)));
  CHECK_FALSE(bool(bounds.of("l")));
  bounds.close();
  CHECK_FALSE(bool(bounds.of("k")));
  bounds.add("k", PutId(9));
  CHECK_FALSE(bool(bounds.of("k")));
}

}  // namespace
}  // namespace fluxon::master
