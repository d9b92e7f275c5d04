// Steps of tests whose nodes have an SSD tier.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cluster.h"

namespace fluxon::test {

// Lines of [owner].
inline std::string ssdLines(const std::string& path, const std::string& limit) {
  return "large_file_paths = [\"" + path + "\"]\nlarge_limit_size = [\"" + limit + "\"]\n";
}

// Everything that was put is on the SSD, or was given up.
template <class Daemons>
void persisted(const Daemons& daemons, const std::string& owner) {
  CHECK(eventually([&] { return daemons.metric(owner, "fluxon_owner_ssd_persists") == 0; }, 60));
}

// Nothing is in memory any more.
inline void evictAll(const Cluster& cluster) {
  std::string said;
  CHECK_MESSAGE(run(FLUXON_BIN "/fluxonctl --config " + cluster.config() + " evict --to 0", said) == 0, said);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_directory_slots", "committed") == 0; }));
}

// Values of n0 go to its SSD and come back.
inline void checkSsd(const Cluster& cluster) {
  auto client = cluster.client();
  const std::vector<size_t> sizes = {1, 4096, 100'000, 5 << 20};
  for (const size_t size : sizes) CHECK(client.put(std::to_string(size), valueOf(size, size)));
  persisted(cluster, "n0");
  evictAll(cluster);
  for (const size_t size : sizes) {
    const auto holder = client.get(std::to_string(size));
    REQUIRE_MESSAGE(holder, size);
    CHECK(holder->source() == Source::ssd);
    CHECK(bool(holder->text() == valueOf(size, size)));
  }
}

}  // namespace fluxon::test
