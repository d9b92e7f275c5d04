// The configuration. What is accepted can be shown, and what is shown is the same configuration; what is refused names its place in one
// line.
#include <sstream>

#include "base/config.h"
#include "base/ids.h"
#include "base/size.h"
#include "fuzz.h"

namespace fluxon::fuzz {

bool run(std::string_view input) {
  const std::string text(input);
  const Result<Config> config = Config::parse(text, "f.toml");
  if (!config) {
    const std::string& detail = config.error().detail;
    FLUXON_CHECK(config.error().code == Code::badConfig && detail.starts_with("f.toml"), "refused without a place");
    FLUXON_CHECK(detail.find('\n') == std::string::npos, "a refusal of several lines");
    return false;
  }
  const std::string shown = config.value().show();
  const Result<Config> again = Config::parse(shown, "shown");
  FLUXON_CHECK(again.ok(), "what is shown is refused");
  FLUXON_CHECK(again.value().show() == shown, "what is shown is another configuration");
  const Config& c = config.value();
  FLUXON_CHECK(validName(c.common.cluster) && validName(c.owner.node) && !c.up.nodes.empty(), "names");
  FLUXON_CHECK(c.owner.segmentBytes >= kMiB && c.owner.segmentBytes <= 1024 * kTiB && c.owner.maxKeys >= 16 && c.owner.maxKeys <= 1u << 28,
               "sizes");
  FLUXON_CHECK(c.master.lease.ms() >= 200 && c.master.lease.ms() <= 3'600'000, "times");
  FLUXON_CHECK(!c.owner.link.enabled || isLoopback(c.owner.link) || !c.common.secretFile.empty(), "a link for everybody without a secret");
  return true;
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  // Each key alone, and all together.
  texts.push_back(Config::parse("[common]\nsecret_file = '/s'\n", "").value().show());
  std::istringstream lines(texts.back());
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) section = line;
    if (line.find(" = ") != std::string::npos) texts.push_back(section + "\n" + line + "\n");
  }
  texts.push_back(
      "[common]\ncluster = \"c\"\nshm_root = '/dev/shm/x'\nlog_level = \"debug\"\nsecret_file = \"/s\\u00e9\"\nmaster = "
      "\"192.0.2.1:7800\"\n"
      "tls_ca = \"\"\"/a\nb\"\"\"\ntls_certificate = \"/c\"\ntls_key = \"/k\"\n");
  texts.push_back(
      "[master]\nlisten = \"0.0.0.0:1\"\nlease_ms = 200\nput_wait_ms = 0x10\nmin_key_lease_ms = 1_000\n[common]\nsecret_file = \"/s\"\n"
      "[owner]\nnode = \"n\"\nsegment_size = \"1GiB\"\nmax_keys = 16\npopulate = false\nlink = \"*:0\"\nadvertise = \"[fe80::1%eth0]:9\"\n"
      "label = \"rack.1\"\nlarge_file_paths = [\"/d0\", \"/d1\"]\nlarge_limit_size = [\"1.5GB\", 512]\n"
      "[ssdd]\nhttp = \"off\"\nbackend = \"io_uring\"\nuring_mode = \"iovec\"\n[up]\nnodes = [\"a\", \"b\"]\n");
  // At the bounds.
  texts.push_back("[master]\nlease_ms = 3600000\n");
  texts.push_back("[owner]\nmax_keys = 268435456\n");
  texts.push_back("[owner]\nsegment_size = \"1024TiB\"\n");
  texts.push_back("owner = { http = \"off\", segment_size = 1048576 } # comment\nmaster.http = 'localhost:80'\n");
  return texts;
}

}  // namespace fluxon::fuzz
