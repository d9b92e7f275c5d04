// The master's state file. What is read can be stored, and is then read as the same; no bit of what was stored can be flipped unseen.
#include "fuzz.h"
#include "state_file.h"

namespace fluxon::fuzz {
namespace {

using namespace master;

// One file in memory, replaced as the kernel's is.
class Disk final : public StateDisk {
 public:
  explicit Disk(std::string text) : file_(std::move(text)) {}
  Result<std::string> read(const std::string&) override { return file_; }
  Error write(const std::string&, const std::string& bytes) override { return beside_ = bytes, Error{}; }
  Error sync(const std::string&) override { return {}; }
  Error rename(const std::string&, const std::string&) override { return file_ = beside_, Error{}; }
  Error syncFolder(const std::string&) override { return {}; }
  std::string& file() { return file_; }

 private:
  std::string file_, beside_;
};

bool same(const DurableState& a, const DurableState& b) {
  return a.cluster == b.cluster && a.clusterId == b.clusterId && a.term == b.term && a.leaseMs == b.leaseMs && a.members == b.members;
}

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  const bool seal = in.take<uint8_t>() % 4 != 0;
  const uint16_t flip = in.take<uint16_t>();
  Disk disk(seal ? sealed(std::string(in.rest())) : std::string(in.rest()));
  Result<DurableState> read = parseState(disk.file(), "f");
  if (!read) {
    FLUXON_CHECK(read.error().code == Code::corrupt && read.error().detail.starts_with("f: "), "refused without a reason");
    return false;
  }
  FLUXON_CHECK(validName(read->cluster) && !read->clusterId.empty() && read->term.value <= PutId::kMaxTerm, "a state that makes no sense");
  FLUXON_CHECK(read->leaseMs <= kLongestLeaseMs, "a lease that no master has given");
  for (const auto& [node, life] : read->members) FLUXON_CHECK(validName(node), "a member that makes no sense");
  FLUXON_CHECK(storeState(disk, "/f", *read).ok(), "it cannot be stored");
  const Result<DurableState> again = loadState(disk, "/f", read->cluster, "fresh");
  FLUXON_CHECK(again && same(*read, again.value()), "what was stored is read as something else");
  FLUXON_CHECK(disk.file() == formatState(again.value()), "what was stored is written as something else");
  std::string& file = disk.file();
  const size_t bit = flip % (file.size() * 8);
  file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
  FLUXON_CHECK(!loadState(disk, "/f", read->cluster, "fresh"), "a flipped bit is believed");
  return true;
}

std::vector<std::string> seeds() {
  DurableState state;
  state.cluster = "prod";
  state.clusterId = "00000000000000f3";
  state.term = Term(17);
  state.leaseMs = 10'000;
  const std::string plain("\0\1\0", 3), seal("\1\2\0", 3);
  const std::string small = formatState(state);
  state.members = {{"a", Incarnation(5)}, {"node-2", Incarnation()}};
  const std::string large = formatState(state);
  const auto body = [](const std::string& text) { return text.substr(0, text.rfind("crc ")); };
  return {plain + small, plain + large, seal + body(small), seal + body(large)};
}

}  // namespace fluxon::fuzz
