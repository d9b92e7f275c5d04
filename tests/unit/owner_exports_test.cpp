// Exports: values of puts while another owner comes for them.
#include "exports.h"
#include "owner_parts.h"

namespace fluxon::owner {
namespace {

using shm::SlotState;

struct Exporting : Parts {
  Exports exports{directory, host, standing, retirement, controls};
};

TEST_CASE("exports: the slot is pending until nobody reads it, and its key's gets go on then") {
  Exporting p;
  const uint32_t slot = p.pending("k", 4096);
  p.controls.wait("k", {ClientId(1), 0}, {.key = "k"});
  p.exports.begin(ExportId(7), slot, p.now);
  CHECK(p.host.exported.count(ExportId(7)) == 1);
  CHECK(p.host.ready_.at(ExportId(7)) == 100);
  for (int i = 0; i < 2; ++i) p.exports.end(ExportId(7));  // the host is told once: its stub checks that
  CHECK(p.host.exported.empty());
  CHECK(p.state(slot) == SlotState::pending);
  CHECK(p.exports.count() == 1);
  CHECK(p.woken.empty());
  p.exports.unexported(ExportId(7), p.now);
  CHECK(p.state(slot) == SlotState::free);
  CHECK(p.exports.count() == 0);
  CHECK(p.exports.begun() == 1);
  CHECK(p.woken == std::vector<std::string>{"k"});
  p.retirement.tell();
  CHECK(p.sentOne<rpc::Release>().offsets == std::vector<uint64_t>{4096});
}

TEST_CASE("exports: one that is over between terms frees its slot, and the master of neither term hears of the extent") {
  Exporting p;
  const uint32_t slot = p.pending("k", 4096);
  p.exports.begin(ExportId(7), slot, p.now);
  p.endTerm();
  CHECK(p.exports.slots() == std::set<uint32_t>{slot});
  p.exports.endTerm();
  CHECK(p.exports.slots() == std::set<uint32_t>{slot});
  p.exports.unexported(ExportId(7), p.now);
  CHECK(p.state(slot) == SlotState::free);
  p.join();
  p.retirement.tell();
  CHECK(p.sent().empty());
}

TEST_CASE("exports: the end of a term ends each once, also where nobody reads and the host says so at once") {
  Exporting p;
  for (uint64_t id = 1; id <= 3; ++id) p.exports.begin(ExportId(id), p.pending("k", id * 4096), p.now + seconds(static_cast<int64_t>(id)));
  CHECK(p.exports.oldest(p.now + seconds(9)) == p.now + seconds(1));
  p.exports.end(ExportId(2));
  p.host.noLink = [&](ExportId id) { p.exports.unexported(id, p.now); };
  p.endTerm();
  p.exports.endTerm();
  CHECK(p.host.exported.empty());
  CHECK(p.exports.count() == 1);  // the second: the host has not said that nobody reads it
  p.exports.end(ExportId(9));     // none
}

}  // namespace
}  // namespace fluxon::owner
