// What owners register of their links.
#include <doctest/doctest.h>

#include "link/link.h"

namespace fluxon::link {
namespace {

TEST_CASE("links: each finds its own entry among those of a peer, and no other's") {
  const std::string both = "[::1]:7801 rdma=fe80::1/17/3";
  CHECK(addressOf(both, "") == "[::1]:7801");
  CHECK(addressOf(both, "rdma") == "fe80::1/17/3");
  CHECK(addressOf(both, "rdm") == "");
  CHECK(addressOf("rdma=fe80::1/17/3 10.0.0.1:7801", "") == "10.0.0.1:7801");
  CHECK(addressOf("10.0.0.1:7801", "rdma") == "");
  CHECK(addressOf("rdma=fe80::1/17/3", "") == "");
  CHECK(addressOf("", "") == "");
}

TEST_CASE("links: an entry that makes no sense is nobody's") {
  CHECK(addressOf("  ", "") == "");
  CHECK(addressOf(" =1 rdma= 10.0.0.1:1 ", "") == "10.0.0.1:1");
  CHECK(addressOf("rdma=", "rdma") == "");
  CHECK(addressOf("rdma=a=b", "rdma") == "a=b");
}

TEST_CASE("links: what one registers is what it finds") {
  CHECK(entryOf("", "10.0.0.1:7801") == "10.0.0.1:7801");
  CHECK(entryOf("rdma", "fe80::1/17/3") == "rdma=fe80::1/17/3");
  CHECK(addressOf(entryOf("", "10.0.0.1:7801") + " " + entryOf("rdma", "x"), "rdma") == "x");
}

}  // namespace
}  // namespace fluxon::link
